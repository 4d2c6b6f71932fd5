-- One row per entry of queries/known/*.toml: how many loaded cases it names, how many of them its gateway was asked, and
-- what that says. First that holds:
--   stale     it names no case: it has to go
--   needed    it excuses a replay
--   unseen    none of its cases was asked, or one of them could not be measured: nothing is known
--   matches   of all that was asked under it nothing differs as it says: it has to go, when all was asked that is asked
-- An entry whose file is named like a gateway counts for all its releases in scope.
with

named as (
    select
        known_differences.*,
        row_number() over () as place,
        ends_with(entry, '*') as open_ended,
        split_part(entry, '/', 1) as checkpoint,
        split_part(entry, '/', 2) as kind,
        split_part(entry, '/', 3) as name,
    from known_differences
),

loaded as (
    select named.place, cases.kind, cases.case_id
    from named
    inner join scope on named.checkpoint = scope.checkpoint
    inner join cases
        on named.kind in ('*', cases.kind)
        and if(named.open_ended, starts_with(cases.name, left(named.name, -1)), cases.name = named.name)
),

counted as (
    select place, count(*) as cases
    from loaded
    group by place
),

asked as (
    select
        named.place,
        count(distinct (verdict.target, verdict.case_id)) as asked,
        count(*) filter (where verdict.known = named.entry and verdict.verdict = 'known_difference') as excused,
        is_partial() or bool_or(
            verdict.gate = 'no_verdict'
            or verdict.verdict = 'unverified' and verdict.reason in ('other_output', 'not_observable')
        ) as unseen,
    from named
    inner join loaded on named.place = loaded.place
    inner join targets on named.target in (targets.target, targets.gateway)
    inner join verdict
        on targets.target = verdict.target
        and named.checkpoint = verdict.checkpoint
        and loaded.kind = verdict.kind
        and loaded.case_id = verdict.case_id
    group by named.place
)

select
    named.target,
    named.entry,
    named.verdict,
    named.code,
    coalesce(counted.cases, 0) as cases,
    case
        when counted.place is null then 'stale'
        when asked.excused > 0 then 'needed'
        when asked.place is null or asked.unseen then 'unseen'
        else 'matches'
    end as state,
    named.reason,
    named.issue,
    coalesce(asked.asked, 0) as asked,
    coalesce(asked.excused, 0) as excused,
from named
left join counted on named.place = counted.place
left join asked on named.place = asked.place
order by named.target, named.entry
