-- One row per entry of queries/known/*.toml: how many loaded cases it names. One that names none is stale and has to go.
select
    known_differences.target,
    known_differences.entry,
    known_differences.verdict,
    known_differences.code,
    count(cases.case_id) as cases,
    if(count(cases.case_id) = 0, 'stale', 'listed') as state,
    known_differences.reason,
    known_differences.issue,
from known_differences
left join (
    select scope.checkpoint || '/' || cases.kind || '/' || cases.name as entry, cases.case_id
    from scope
    cross join cases
) as cases
    on if(
        ends_with(known_differences.entry, '*'),
        starts_with(cases.entry, left(known_differences.entry, -1)),
        cases.entry = known_differences.entry
    )
group by all
order by known_differences.target, known_differences.entry
