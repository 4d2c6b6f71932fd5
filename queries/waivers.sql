-- One row per waiver of queries/waivers.toml: what has become of it, and why. First that holds:
--   stale      its case is none of the model's or malformed, it is disputed, or has no truth to differ from; or the
--              engine's newest answer there is agrees with the truth. A stale waiver has to go
--   unchecked  nothing is known: the engine is not in scope, the case's reference is not recorded, or the pinned release
--              has no evidence
--   expired    the pinned release differs and is outside `versions`: it excuses nothing
--   active     the pinned release differs, and is inside
with

waived as (
    select
        waivers.*,
        row_number() over () as place,
    from waivers
),

-- two encoders may answer one case: it is disputed, or has a truth, when one answer is or has
stood as (
    select
        checkpoint,
        kind,
        split_part(case_id, '/', 3) as name,
        bool_or(state = 'disputed') as disputed,
        bool_or(state in ('settled', 'provisional')) as has_truth,
    from standing
    semi join waivers
        on standing.checkpoint = waivers.checkpoint
        and standing.kind = waivers.kind
        and split_part(standing.case_id, '/', 3) = waivers.name
    group by all
),

recorded as (
    select distinct checkpoint, kind, split_part(case_id, '/', 3) as name
    from claims
),

answered as (
    select
        compared.checkpoint,
        compared.kind,
        split_part(compared.case_id, '/', 3) as name,
        compared.engine,
        engines.engine_version,
        engines.release_order,
        engines.pinned,
        bool_or(compared.what <> 'same') as differs,
    from compared
    inner join engines on compared.engine = engines.engine and compared.engine_version = engines.engine_version
    semi join waivers
        on compared.checkpoint = waivers.checkpoint
        and compared.kind = waivers.kind
        and split_part(compared.case_id, '/', 3) = waivers.name
        and compared.engine = waivers.engine
    where compared.what is not null
    group by all
),

newest as (
    select *
    from answered
    qualify row_number() over (partition by checkpoint, kind, name, engine order by release_order desc) = 1
),

-- a group's recording serves all its members
models as (
    select model, group_slug as checkpoint
    from manifests
),

found as (
    select
        waived.*,
        scope.checkpoint is not null and models.model is not null and cases.name is not null as is_case,
        coalesce(cases.malformed, false) as malformed,
        coalesce(stood.disputed, false) as disputed,
        recorded.name is not null as is_recorded,
        coalesce(stood.has_truth, false) as has_truth,
        newest.engine_version as newest_version,
        coalesce(newest.pinned, false) as newest_is_pinned,
        newest.differs,
        pinned.engine_version as pinned_version,
    from waived
    left join scope on waived.checkpoint = scope.checkpoint
    left join models on waived.checkpoint = models.checkpoint and waived.model = models.model
    left join cases on waived.kind = cases.kind and waived.name = cases.name
    left join stood
        on waived.checkpoint = stood.checkpoint and waived.kind = stood.kind and waived.name = stood.name
    left join recorded
        on waived.checkpoint = recorded.checkpoint and waived.kind = recorded.kind and waived.name = recorded.name
    left join newest
        on waived.checkpoint = newest.checkpoint
        and waived.kind = newest.kind
        and waived.name = newest.name
        and waived.engine = newest.engine
    left join (select * from engines where engines.pinned) as pinned on waived.engine = pinned.engine
),

judged as (
    select
        *,
        case
            when not is_case then ['stale', 'there is no such case of this model in scope']
            when malformed then ['stale', 'the case is malformed: what is made of it is policy']
            when disputed then ['stale', 'the case is disputed: there is nothing to differ from']
            when is_recorded and not has_truth then ['stale', 'the reference claims nothing']
            when not differs then ['stale', 'the engine agrees at ' || newest_version]
            when pinned_version is null then ['unchecked', 'no release of the engine is in scope']
            when not is_recorded then ['unchecked', 'the reference is not recorded']
            when not newest_is_pinned then ['unchecked', 'there is no evidence of ' || pinned_version]
            when not covers then ['expired', 'the engine still differs at ' || pinned_version]
            else ['active', 'the engine differs at ' || pinned_version]
        end as judgement,
    from found
)

select
    engine,
    versions,
    model,
    concat_ws('/', checkpoint, kind, name) as "case",
    judgement[1] as state,
    judgement[2] as why,
    reason,
    upstream,
from judged
order by place
