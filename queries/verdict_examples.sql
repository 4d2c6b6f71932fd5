-- One row per finding of `verdict` and case that shows it best: the three smallest cases by the bytes of what is asked,
-- each by the replay that comes first, at once before streams. number 1 is the smallest input that shows it.
-- part          what place counts in: ids, or the text named; null where one side gives no value
-- place         0-based, the first that differs; the shorter length where one side begins with the other
-- truth_ids, gateway_ids      8 ids either way of their first difference
-- truth_text, gateway_text    40 characters either way of theirs; of a word or a number all of it
with

sizes as (
    select
        cases.case_id,
        coalesce(strlen(requests.request), 0)
        + coalesce(strlen(cases.message), strlen(cases.text), len(cases.ids), 0) as size,
    from cases
    left join requests on cases.request_sha256 = requests.request_sha256
),

smallest as (
    select verdict.*, coalesce(sizes.size, 0) as size
    from verdict
    left join sizes on verdict.case_id = sizes.case_id
    where verdict.fingerprint is not null
    qualify row_number() over (
        partition by verdict.fingerprint, verdict.verdict, verdict.case_id
        order by verdict.mode, verdict.plan, verdict.given
    ) = 1
),

ranked as (
    select
        *,
        row_number() over (partition by fingerprint, verdict order by size, case_id) as number,
    from smallest
    qualify number <= 3
),

sides as (
    select
        ranked.*,
        case
            when ranked.what = 'prompt-ids' then 'prompt_ids'
            when ranked.what = 'ids' then 'output_ids'
        end as ids_part,
        case
            when ranked.what = 'prompt-ids' then 'prompt_text'
            when ranked.what = 'text' or ranked.first_layer = 'detokenize' and ranked.what = 'message' then 'output_text'
            when ranked.what = 'message' then shown_part(truth, gateway, ranked.what, ranked.field)
        end as text_part,
        shown(truth, ids_part) as truth_all_ids,
        shown(gateway, ids_part) as gateway_all_ids,
        shown(truth, text_part) as truth_all_text,
        shown(gateway, text_part) as gateway_all_text,
        truth.outcome || coalesce(': ' || left(coalesce(truth.reason, truth.reason_code), 80), '') as truth_outcome,
        gateway.outcome || coalesce(': ' || left(coalesce(gateway.reason, gateway.reason_code), 80), '') as gateway_outcome,
        truth.finish_reason as truth_finish,
        gateway.finish_reason as gateway_finish,
        concat_ws(' + ', gateway.prompt_tokens, gateway.completion_tokens) as truth_usage,
        concat_ws(' + ', gateway.usage_prompt_tokens, gateway.usage_completion_tokens) as gateway_usage,
    from ranked
    inner join (select *, null::integer[] as piece_ends from observation) as gateway
        on ranked.target = gateway.target
        and ranked.checkpoint = gateway.checkpoint
        and ranked.kind = gateway.kind
        and ranked.case_id = gateway.case_id
        and ranked.mode = gateway.mode
        and ranked.plan is not distinct from gateway.plan
        and coalesce(ranked.given, gateway.output_sha256) is not distinct from gateway.output_sha256
    left join deciding as truth
        on ranked.checkpoint = truth.checkpoint
        and ranked.kind = truth.kind
        and ranked.case_id = truth.case_id
        and ranked.encoder is not distinct from truth.encoder
        and (ranked.given is null or truth.output_sha256 is null or ranked.given = truth.output_sha256)
),

placed as (
    select
        *,
        case when truth_all_ids is not null and gateway_all_ids is not null
            then first_difference(truth_all_ids, gateway_all_ids)
        end as ids_place,
        case when truth_all_text is not null and gateway_all_text is not null
            then first_difference(truth_all_text, gateway_all_text)
        end as text_place,
    from sides
)

select
    fingerprint,
    verdict,
    number,
    target,
    checkpoint,
    kind,
    case_id,
    mode,
    plan,
    given,
    size,
    if(ids_place is not null, 'ids', if(text_place is not null, text_part, null)) as part,
    coalesce(ids_place, text_place) as place,
    if(ids_place is not null, len(truth_all_ids), if(text_place is not null, len(truth_all_text), null)) as truth_length,
    if(ids_place is not null, len(gateway_all_ids), if(text_place is not null, len(gateway_all_text), null))
        as gateway_length,
    shown_around(truth_all_ids, ids_part, ids_place) as truth_ids,
    shown_around(gateway_all_ids, ids_part, ids_place) as gateway_ids,
    case
        when what in ('rejected', 'accepted') then truth_outcome
        when what = 'finish-reason' then truth_finish
        when what = 'usage' then truth_usage
        else shown_around(truth_all_text, text_part, text_place)
    end as truth_text,
    case
        when what in ('rejected', 'accepted') or what is null then gateway_outcome
        when what = 'finish-reason' then gateway_finish
        when what = 'usage' then gateway_usage
        when what = 'framing' then field
        when what = 'buffered' then 'one event'
        else shown_around(gateway_all_text, text_part, text_place)
    end as gateway_text,
from placed
order by fingerprint, verdict, number
