-- One row per checkpoint, kind and source that does not decide: how its answers stand to those of the source that does,
-- case by case; what differs is the first of refusal, applicability, prompt ids, output text and message. A second
-- reference (vllm-example) that differs is an issue with this fingerprint, never a dispute: it is another setup.
with

-- of two encoders' rows the one of tokenizer.json
answers as (
    select
        *,
        list_transform(
            coalesce(tool_calls, []),
            lambda call: call.name || ' ' || if(json_valid(call.arguments), json(call.arguments), call.arguments)
        ) as calls,
    from reference
    where is_judged(kind, source, normalisation)
    qualify row_number() over (partition by checkpoint, kind, case_id, source order by encoder desc nulls last) = 1
),

compared as (
    select
        other.checkpoint,
        other.kind,
        other.source,
        other.case_id,
        case
            when (other.outcome = 'rejected') <> (own.outcome = 'rejected') then 'rejected'
            when other.outcome <> own.outcome then 'not-applicable'
            when other.outcome <> 'result' then 'same'
            when other.kind = 'render' and other.prompt_sha256 <> own.prompt_sha256 then 'prompt-ids'
            when other.kind = 'parse' and other.output_text <> own.output_text then 'output-text'
            when coalesce(other.content, '') <> coalesce(own.content, '') then 'message'
            when coalesce(other.reasoning_content, '') <> coalesce(own.reasoning_content, '') then 'message'
            when other.calls <> own.calls then 'message'
            else 'same'
        end as what,
    from answers as other
    inner join authority
        on other.checkpoint = authority.checkpoint and other.kind = authority.kind and authority.place = 0
    inner join answers as own
        on other.checkpoint = own.checkpoint and other.kind = own.kind and other.case_id = own.case_id
        and own.source = authority.source
    where other.source <> authority.source
)

select
    compared.checkpoint,
    compared.kind,
    compared.source,
    compared.what,
    count(*) as cases,
    min(compared.case_id) as example,
    if(
        compared.what <> 'same' and contains(compared.source, 'vllm-example:'),
        replace(compared.source, 'roundtrip:', '') || ':' || compared.what || ':' || compared.checkpoint,
        null
    ) as fingerprint,
from compared
inner join scope on compared.checkpoint = scope.checkpoint
group by scope.place, compared.checkpoint, compared.kind, compared.source, compared.what
order by scope.place, compared.kind, compared.source, compared.what
