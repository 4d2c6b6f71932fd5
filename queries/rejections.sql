-- One row per checkpoint, kind and reason code: why the reference gives no result, with an example and its wording.
select
    reference.checkpoint,
    reference.kind,
    reference.outcome,
    reference.reason_class,
    reference.reason_code,
    count(distinct reference.case_id) as cases,
    min(reference.case_id) as example,
    arg_min(coalesce(reference.reason, ''), (reference.case_id, reference.encoder)) as example_reason,
from reference
inner join scope on reference.checkpoint = scope.checkpoint
where reference.outcome <> 'result'
group by scope.place, reference.checkpoint, reference.kind, reference.outcome, reference.reason_class,
    reference.reason_code
order by scope.place, reference.kind, cases desc, reference.reason_code
