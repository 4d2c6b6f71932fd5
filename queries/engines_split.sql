-- One row per pair of engines whose pinned releases answer a case differently of which there is no truth: the reference
-- claims nothing (malformed outputs above all), or was not recorded. asked are the cases without truth both answered.
with

without_truth as (
    select distinct evidence.checkpoint, evidence.kind, evidence.case_id
    from evidence
    anti join claims
        on evidence.checkpoint = claims.checkpoint
        and evidence.kind = claims.kind
        and evidence.case_id = claims.case_id
        and claims.answer in ('result', 'refused', 'not_applicable')
),

answers as (
    select evidence.*
    from evidence
    semi join (select * from engines where pinned) as pinned
        on evidence.engine = pinned.engine and evidence.engine_version = pinned.engine_version
    semi join without_truth
        on evidence.checkpoint = without_truth.checkpoint
        and evidence.kind = without_truth.kind
        and evidence.case_id = without_truth.case_id
    where evidence.mode = 'one-shot'
),

pairs as (
    select
        one.checkpoint,
        one.kind,
        one.case_id,
        one.engine,
        one.engine_version,
        other.engine as other_engine,
        other.engine_version as other_version,
        difference(one, other) as what,
        message_field(one, other) as field,
    from answers as one
    inner join answers as other
        on one.checkpoint = other.checkpoint
        and one.kind = other.kind
        and one.case_id = other.case_id
        and coalesce(one.given, ''::blob) = coalesce(other.given, ''::blob)
        and one.engine < other.engine
),

asked as (
    select checkpoint, kind, engine, other_engine, count(distinct case_id) as cases
    from pairs
    where what is not null
    group by checkpoint, kind, engine, other_engine
)

select
    pairs.checkpoint,
    pairs.kind,
    pairs.engine,
    pairs.engine_version,
    pairs.other_engine,
    pairs.other_version,
    pairs.what,
    pairs.field,
    count(distinct pairs.case_id) as cases,
    min(asked.cases) as asked,
    min(pairs.case_id) as example,
from pairs
inner join asked
    on pairs.checkpoint = asked.checkpoint
    and pairs.kind = asked.kind
    and pairs.engine = asked.engine
    and pairs.other_engine = asked.other_engine
inner join scope on pairs.checkpoint = scope.checkpoint
where pairs.what <> 'same'
group by scope.place, pairs.checkpoint, pairs.kind, pairs.engine, pairs.engine_version, pairs.other_engine,
    pairs.other_version, pairs.what, pairs.field
order by scope.place, pairs.kind, pairs.engine, pairs.other_engine, difference_rank(pairs.what), pairs.field
