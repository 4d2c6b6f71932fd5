-- One row per engine release, checkpoint and kind: how many cases there are, how many of them the engine was asked, and
-- how that ended. A case with several outputs (of two encoders) counts as failed if one of them could not be measured,
-- else as refused if one was. equal and different are to the reference, under every plan that was tried, in what both
-- sides hold; what was not asked, failed or has no reference is neither. Plans are counted per output.
with

asked as (
    select
        engine,
        engine_version,
        checkpoint,
        kind,
        case_id,
        bool_or(outcome = 'measurement_failed') as failed,
        bool_or(outcome = 'refused') as refused,
        sum(plans) as plans,
        sum(plans_equal) as plans_equal,
        sum(plans_failed) as plans_failed,
    from witness
    where mode = 'one-shot'
    group by engine, engine_version, checkpoint, kind, case_id
),

counted as (
    select
        engine,
        engine_version,
        checkpoint,
        kind,
        count(*) as asked,
        count(*) filter (where not failed and not refused) as result,
        count(*) filter (where not failed and refused) as refused,
        count(*) filter (where failed) as measurement_failed,
        coalesce(sum(plans), 0) as plans,
        coalesce(sum(plans_equal), 0) as plans_equal,
        coalesce(sum(plans_failed), 0) as plans_failed,
    from asked
    group by engine, engine_version, checkpoint, kind
),

judged as (
    select
        engine,
        engine_version,
        checkpoint,
        kind,
        case_id,
        bool_or(what <> 'same') as differs,
        bool_or(what = 'same' and mode = 'one-shot') as agrees,
    from compared
    where what is not null
    group by engine, engine_version, checkpoint, kind, case_id
),

against_reference as (
    select
        judged.engine,
        judged.engine_version,
        judged.checkpoint,
        judged.kind,
        count(*) filter (where judged.differs) as different,
        count(*) filter (where judged.agrees and not judged.differs and not asked.failed) as equal,
    from judged
    inner join asked
        on judged.engine = asked.engine
        and judged.engine_version = asked.engine_version
        and judged.checkpoint = asked.checkpoint
        and judged.kind = asked.kind
        and judged.case_id = asked.case_id
    group by judged.engine, judged.engine_version, judged.checkpoint, judged.kind
),

kinds as (
    select kind, count(*) as cases
    from cases
    group by kind
)

select
    engines.engine,
    engines.engine_version,
    engines.pinned,
    scope.checkpoint,
    kinds.kind,
    kinds.cases,
    coalesce(counted.asked, 0) as asked,
    kinds.cases - coalesce(counted.asked, 0) as not_asked,
    coalesce(counted.result, 0) as result,
    coalesce(counted.refused, 0) as refused,
    coalesce(counted.measurement_failed, 0) as measurement_failed,
    coalesce(against_reference.equal, 0) as equal,
    coalesce(against_reference.different, 0) as different,
    coalesce(counted.plans, 0)::bigint as plans,
    coalesce(counted.plans_equal, 0)::bigint as plans_equal,
    coalesce(counted.plans_failed, 0)::bigint as plans_failed,
from engines
cross join scope
cross join kinds
left join counted
    on engines.engine = counted.engine
    and engines.engine_version = counted.engine_version
    and scope.checkpoint = counted.checkpoint
    and kinds.kind = counted.kind
left join against_reference
    on engines.engine = against_reference.engine
    and engines.engine_version = against_reference.engine_version
    and scope.checkpoint = against_reference.checkpoint
    and kinds.kind = against_reference.kind
order by engines.engine, engines.release_order, scope.place, kinds.kind
