-- One row per checkpoint, kind, source, normalisation and reason code: why a reference gives no result, with an example
-- and its wording. A source that does not decide, and the form a kind is not judged by, stand apart: decides is false.
select
    reference.checkpoint,
    reference.kind,
    reference.source,
    reference.normalisation,
    coalesce(authority.place = 0, false)
    and is_judged(reference.kind, reference.source, reference.normalisation) as decides,
    reference.outcome,
    reference.reason_class,
    reference.reason_code,
    count(distinct reference.case_id) as cases,
    min(reference.case_id) as example,
    arg_min(coalesce(reference.reason, ''), (reference.case_id, reference.encoder)) as example_reason,
from reference
inner join scope on reference.checkpoint = scope.checkpoint
left join authority
    on reference.checkpoint = authority.checkpoint
    and reference.kind = authority.kind
    and reference.source = authority.source
where reference.outcome <> 'result'
group by scope.place, reference.checkpoint, reference.kind, reference.source, reference.normalisation, decides,
    reference.outcome, reference.reason_class, reference.reason_code
order by scope.place, reference.kind, decides desc, reference.source, reference.normalisation, cases desc,
    reference.reason_code
