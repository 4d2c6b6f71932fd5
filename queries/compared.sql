-- One row per deciding answer and answer of a witness to it, of any release and chunk plan: what differs first, or
-- `same`; null where one side holds nothing to compare by. A view of this name is there for other queries.
-- field says where two messages differ, respelled that arguments have one value and two spellings. agrees is what is
-- proved: null where less was compared than the kind is judged by, and nothing found that shows in the part as well.
select
    claims.checkpoint,
    claims.kind,
    claims.case_id,
    claims.encoder,
    claims.given,
    evidence.engine,
    evidence.engine_version,
    evidence.mode,
    difference(claims, evidence) as what,
    message_field(claims, evidence) as field,
    agreement(claims, evidence) as agrees,
    is_respelled(claims, evidence) as respelled,
from claims
inner join evidence
    on claims.checkpoint = evidence.checkpoint
    and claims.kind = evidence.kind
    and claims.case_id = evidence.case_id
    and coalesce(claims.given, ''::blob) = coalesce(evidence.given, ''::blob)
where claims.answer in ('result', 'refused')
