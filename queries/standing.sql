-- One row per deciding answer: how the two sources of truth stand to each other. The other source is vLLM at its pinned
-- release, which has two front ends, `vllm` (Python) and `vllm-rust`. First that holds:
--   not_applicable  no such case can exist for the checkpoint
--   no_truth        the reference claims nothing, or is not there: such a case has a row too
--   disputed        a front end differs from an answer of the case, at once or under a chunk plan
--   settled         a front end agrees, and none differs
--   provisional     neither has evidence; a failed measurement is none
-- what, field and mode are of the first difference of this answer; in a disputed case another answer (of the other
-- encoder) may be the one that differs, and they are null. witnesses are the front ends the state rests on.
with

front_ends as (
    select evidence.*
    from evidence
    semi join (select * from engines where pinned and engine in ('vllm', 'vllm-rust')) as engines
        on evidence.engine = engines.engine and evidence.engine_version = engines.engine_version
),

-- the same comparison as in `compared`, in one go: a claim without evidence stays
compared_or_not as (
    select
        claims.checkpoint,
        claims.kind,
        claims.case_id,
        claims.encoder,
        claims.given,
        claims.answer,
        front_ends.engine,
        front_ends.mode,
        front_ends.mode = 'one-shot' as at_once,
        agreement(claims, front_ends) as agrees,
        difference(claims, front_ends) as what,
        message_field(claims, front_ends) as field,
        is_respelled(claims, front_ends) as respelled,
    from claims
    left join front_ends
        on claims.checkpoint = front_ends.checkpoint
        and claims.kind = front_ends.kind
        and claims.case_id = front_ends.case_id
        and coalesce(claims.given, ''::blob) = coalesce(front_ends.given, ''::blob)
        and claims.answer in ('result', 'refused')
),

not_recorded as (
    select scope.checkpoint, cases.kind, cases.case_id, 'absent' as answer
    from scope
    cross join cases
    anti join claims
        on scope.checkpoint = claims.checkpoint and cases.kind = claims.kind and cases.case_id = claims.case_id
),

-- of each answer, who agrees at once: 1 Python, 2 Rust, 4 one of them in another spelling
agreeing as (
    select
        checkpoint,
        kind,
        case_id,
        encoder,
        given,
        answer,
        bit_or(if(at_once and agrees, if(engine = 'vllm', 1, 2) + if(respelled, 4, 0), 0)::utinyint) as flags,
    from compared_or_not
    group by checkpoint, kind, case_id, encoder, given, answer
    union all by name
    from not_recorded
),

differing as (
    select
        checkpoint,
        kind,
        case_id,
        encoder,
        given,
        arg_min(
            {what: what, field: field, mode: mode, engine: engine},
            (difference_rank(what), not at_once, engine, mode)
        ) as first_difference,
        string_agg(distinct engine, ' ' order by engine) as engines,
    from compared_or_not
    where not agrees
    group by checkpoint, kind, case_id, encoder, given
),

disputed as (
    select distinct checkpoint, kind, case_id
    from differing
),

judged as (
    select
        agreeing.*,
        case
            when agreeing.answer = 'not_applicable' then 'not_applicable'
            when agreeing.answer not in ('result', 'refused') then 'no_truth'
            when disputed.case_id is not null then 'disputed'
            when agreeing.flags & 3 > 0 then 'settled'
            else 'provisional'
        end as state,
    from agreeing
    left join disputed
        on agreeing.checkpoint = disputed.checkpoint
        and agreeing.kind = disputed.kind
        and agreeing.case_id = disputed.case_id
)

select
    judged.checkpoint,
    judged.kind,
    judged.case_id,
    judged.encoder,
    judged.given,
    judged.state,
    differing.first_difference.what as what,
    differing.first_difference.field as field,
    differing.first_difference.mode as mode,
    case judged.state
        when 'settled' then ['vllm', 'vllm-rust', 'vllm vllm-rust'][judged.flags & 3]
        when 'disputed' then differing.engines
    end as witnesses,
    judged.state = 'settled' and judged.flags & 4 > 0 as respelled,
    differing.first_difference.engine || ':' || differing.first_difference.what || ':' || judged.checkpoint as fingerprint,
from judged
inner join scope on judged.checkpoint = scope.checkpoint
left join differing
    on judged.checkpoint = differing.checkpoint
    and judged.kind = differing.kind
    and judged.case_id = differing.case_id
    and judged.encoder is not distinct from differing.encoder
    and judged.given is not distinct from differing.given
order by scope.place, judged.kind, judged.case_id, judged.encoder, judged.given
