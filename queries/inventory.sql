-- One row per checkpoint, kind and set: how many cases there are, and what the reference says of them.
-- not_recorded counts cases without any reference row; it is never part of another column.
with

asked as (
    select scope.place, scope.checkpoint, cases.corpus, cases.kind, cases.set, cases.case_id
    from scope
    cross join cases
),

answered as (
    select
        checkpoint,
        case_id,
        min(outcome) as outcome,
        min(reason_class) as reason_class,
        count(*) > 1 as encoders_differ,
    from deciding
    group by checkpoint, case_id
)

select
    asked.checkpoint,
    asked.corpus,
    asked.kind,
    asked.set,
    count(*) as cases,
    count(*) filter (where answered.outcome = 'result') as results,
    count(*) filter (where answered.reason_class = 'error') as template_errors,
    count(*) filter (where answered.outcome = 'rejected' and answered.reason_class = 'unproven') as unproven,
    count(*) filter (where answered.outcome = 'not_applicable') as not_applicable,
    count(*) filter (where answered.case_id is null) as not_recorded,
    count(*) filter (where answered.encoders_differ) as encoders_differ,
from asked
left join answered on asked.checkpoint = answered.checkpoint and asked.case_id = answered.case_id
group by asked.place, asked.checkpoint, asked.corpus, asked.kind, asked.set
order by asked.place, asked.corpus, asked.kind, asked.set
