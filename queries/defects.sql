-- One row per finding of `verdict` in what a gateway did: a fingerprint, and how often it was seen. known are the rows of
-- it that are excused, plans the chunk plans it shows under, exact whether its layer is certain in all of them. It was
-- seen with the releases first_version to last_version of the gateway; age is their number. engines_like gives, engine by
-- engine, in how many of the cases its pinned release says at once what the gateway says.
-- example is the case of the least name; the smallest ones and what they say are in verdict_examples.sql.
with

found as (
    select
        verdict.*,
        targets.gateway,
        targets.version,
        targets.release_order,
        substring(verdict.fingerprint, length(verdict.target) + 1) as finding,
    from verdict
    inner join targets on verdict.target = targets.target
    where verdict.first_layer is not null
),

ages as (
    select
        gateway,
        finding,
        arg_min(version, release_order) as first_version,
        arg_max(version, release_order) as last_version,
        max(release_order) - min(release_order) + 1 as age,
    from found
    group by gateway, finding
),

pinned as (
    select evidence.*
    from evidence
    semi join (select * from engines where pinned) as releases
        on evidence.engine = releases.engine and evidence.engine_version = releases.engine_version
    where evidence.mode = 'one-shot'
),

alike as (
    select found.fingerprint, pinned.engine, count(distinct found.case_id) as cases
    from found
    inner join observed
        on found.target = observed.target
        and found.checkpoint = observed.checkpoint
        and found.kind = observed.kind
        and found.case_id = observed.case_id
        and found.mode = if(observed.streamed, 'stream', 'full')
        and found.plan is not distinct from observed.plan
        and found.given is not distinct from observed.given
    inner join pinned
        on found.checkpoint = pinned.checkpoint
        and found.kind = pinned.kind
        and found.case_id = pinned.case_id
        and coalesce(found.given, ''::blob) = coalesce(pinned.given, ''::blob)
    where is_said(observed, pinned) and found.what not in ('framing', 'finish-reason', 'usage', 'buffered')
    group by found.fingerprint, pinned.engine
),

likeness as (
    select fingerprint, string_agg(engine || ' ' || cases, ', ' order by engine) as engines_like
    from alike
    group by fingerprint
),

grouped as (
    select
        fingerprint,
        any_value(target) as target,
        any_value(gateway) as gateway,
        any_value(release_order) as release_order,
        any_value(finding) as finding,
        any_value(first_layer) as layer,
        any_value(checkpoint) as checkpoint,
        any_value(kind) as kind,
        any_value(what) as what,
        any_value(coalesce(field, if(what = 'rejected', code, null))) as field,
        count(distinct case_id) as cases,
        count(distinct case_id) filter (where standing = 'settled') as settled,
        count(*) as replays,
        count(*) filter (where verdict = 'known_difference') as known,
        count(distinct plan) as plans,
        bool_and(localisation = 'exact') as exact,
        min(case_id) as example,
    from found
    group by fingerprint
)

select
    grouped.fingerprint,
    grouped.target,
    grouped.checkpoint,
    grouped.kind,
    grouped.layer,
    grouped.exact,
    grouped.what,
    grouped.field,
    grouped.cases,
    grouped.settled,
    grouped.replays,
    grouped.known,
    grouped.plans,
    ages.first_version,
    ages.last_version,
    ages.age,
    likeness.engines_like,
    grouped.example,
from grouped
inner join ages on grouped.gateway = ages.gateway and grouped.finding = ages.finding
left join likeness on grouped.fingerprint = likeness.fingerprint
left join scope on grouped.checkpoint = scope.checkpoint
order by grouped.gateway, grouped.release_order, grouped.target, scope.place nulls last, grouped.checkpoint,
    grouped.kind, layer_rank(grouped.layer), grouped.what, grouped.field
