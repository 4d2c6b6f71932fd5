"""How two answers are compared in SQL: by digests alone, and only where both sides gave one.

`claims` are the answers of the source that decides, `told` those of every source, `evidence` those of the witnesses, in
the same columns, so that the macro `difference` compares a claim with a witness, two witnesses, or two recordings:

| column | holds the digest of |
|---|---|
| value | what the kind is judged by: ids of the prompt or the text, pieces, the message by value |
| text | render: the prompt; parse, detokenize: the output |
| spelling, bare | parse: the message by bytes, and without white space |
| given | parse, detokenize: the output ids the answer is about; a join key like the case |

A failed measurement is not in `evidence`: nothing can be concluded from it.

`observed` are the replays of gateways in the same columns, all of them: `answer` is null where there is none. They hold
more that can differ, so the macro `departure` compares a claim with them; `departure_layer` says where.
"""

from __future__ import annotations

COLUMNS = """
    if(kind in ('parse', 'detokenize'), output_sha256, null) as given,
    case kind
        when 'render' then prompt_sha256
        when 'tokenize' then output_sha256
        when 'detokenize' then pieces_sha256
        when 'parse' then message_value_sha256
    end as value,
    if(kind = 'render', prompt_text_sha256, output_text_sha256) as text,
    message_sha256 as spelling,
    message_bare_sha256 as bare,
    content,
    reasoning_content,
"""

# Of a reference. Its own code refuses: that is an answer. Nothing proved: it claims nothing.
ANSWER = """
    'one-shot' as mode,
    case
        when outcome = 'rejected' and reason_class = 'error' then 'refused'
        when outcome = 'rejected' then 'unproven'
        else outcome
    end as answer,
"""


def _evidence(view: str, table: str) -> str:
    return f"""
create view {view} as
select checkpoint, kind, case_id, engine, engine_version, mode, outcome as answer, {COLUMNS}
from {table}
where outcome in ('result', 'refused');
"""


def _observed(view: str, table: str) -> str:
    return f"""
create view {view} as
select
    checkpoint, kind, case_id, target, target_version,
    mode = 'stream' as streamed, plan, coalesce(plan, if(mode = 'stream', 'stream', 'one-shot')) as mode,
    outcome, if(outcome in ('result', 'refused'), outcome, null) as answer,
    if(kind in ('parse', 'detokenize'), output_sha256, null) as given,
    case kind
        when 'render' then prompt_sha256
        when 'tokenize' then output_sha256
        when 'parse' then message_value_sha256
    end as value,
    if(kind = 'render', prompt_text_sha256, output_text_sha256) as text,
    message_sha256 as spelling, message_bare_sha256 as bare, content, reasoning_content,
    baseline_text_sha256 as baseline_text, bare_sha256 as bare_ids, baseline_bare_sha256 as baseline_bare_ids,
    finish_reason, usage_prompt_tokens, usage_completion_tokens, prompt_tokens, completion_tokens, framing, in_pieces,
    reason_code, reason, http_status, parser_used,
    if(kind = 'parse', prompt_sha256, null) as prompt,
from {table};
"""


def _told(view: str, table: str) -> str:
    """Encoder by encoder: whether one row says it for both, or two rows, is no difference between two recordings."""
    return f"""
create view {view} as
select
    checkpoint, kind, case_id, source, {ANSWER} {COLUMNS}
    unnest(if(encoder in ('class', 'tokenizer.json'), [encoder], ['class', 'tokenizer.json'])) as encoder,
from {table}
where is_judged(kind, source, normalisation);
"""


VIEWS = "".join(
    [
        f"""
create view claims as
select
    checkpoint, kind, case_id, encoder, {ANSWER} {COLUMNS} finish_reason,
    length(coalesce(content, '')) + length(coalesce(reasoning_content, '')) as written,
from deciding;
""",
        _told("told", "reference"),
        _told("told_before", "reference_before"),
        _evidence("evidence", "witness"),
        _evidence("evidence_before", "witness_before"),
        _observed("observed", "observation"),
        _observed("observed_before", "observation_before"),
    ]
)

# Two refusals are equal whatever their wording. Null: one side holds nothing to compare by.
MACROS = """
create macro difference(one, other) as case
    when one.answer is null or other.answer is null then null
    when one.answer = 'refused' and other.answer = 'refused' then 'same'
    when one.answer = 'refused' or other.answer = 'refused' then 'rejected'
    when one.kind = 'render' then case
        when one.value = other.value then 'same'
        when one.value <> other.value then 'prompt-ids'
        when one.text = other.text then 'same'
        when one.text <> other.text then 'prompt-text'
    end
    when one.kind = 'tokenize' then case
        when one.value = other.value then 'same'
        when one.value <> other.value then 'ids'
    end
    when one.kind = 'detokenize' then case
        when one.text <> other.text then 'text'
        when one.value <> other.value then 'pieces'
        when one.text = other.text or one.value = other.value then 'same'
    end
    when one.kind = 'parse' then case
        when one.text <> other.text then if(other.mode = 'one-shot', 'output-text', 'chunk-text')
        when one.value <> other.value then 'message'
        when one.value = other.value then 'same'
    end
end;

-- what is proved: null where less was compared than the kind is judged by, and nothing found that shows in the part
-- as well. Of prompts as texts nothing is proved of ids; nor do equal texts prove equal pieces
create macro agreement(one, other) as case
    when difference(one, other) = 'prompt-text' then null
    when difference(one, other) <> 'same' then false
    when one.answer = 'refused' then true
    when one.value is null or other.value is null then null
    when difference(one, other) = 'same' then true
end;

create macro is_respelled(one, other) as
    difference(one, other) = 'same' and coalesce(one.spelling <> other.spelling, false);

create macro without_space(value) as regexp_replace(coalesce(value, ''), '\\s', '', 'g');

-- of two messages that differ: in white space alone, or the first field that does in more
create macro message_part(one, other) as case
    when one.bare = other.bare then 'whitespace'
    when coalesce(one.content, '') <> coalesce(other.content, '')
        and without_space(one.content) <> without_space(other.content) then 'content'
    when coalesce(one.reasoning_content, '') <> coalesce(other.reasoning_content, '')
        and without_space(one.reasoning_content) <> without_space(other.reasoning_content) then 'reasoning_content'
    else 'tool_calls'
end;

create macro message_field(one, other) as if(difference(one, other) = 'message', message_part(one, other), null);

-- between two recordings of one case, of which one may be missing
create macro moved(older, newer) as case
    when older.case_id is null then 'appeared'
    when newer.case_id is null then 'disappeared'
    when older.answer in ('result', 'refused') and newer.answer in ('result', 'refused') then difference(older, newer)
    when older.answer = newer.answer then 'same'
    else 'claim'
end;

-- the order in which differences are looked for, one below the other
create macro difference_rank(what) as
    list_position(
        ['rejected', 'prompt-ids', 'prompt-text', 'ids', 'output-text', 'chunk-text', 'text', 'pieces', 'message'], what
    );

-- words of several servers for one way in which an answer ends
create macro finish_class(word) as case
    when word in ('stop', 'eos', 'eos_token', 'end_turn', 'stop_sequence') then 'stop'
    when word in ('length', 'max_tokens') then 'length'
    when word in ('tool_calls', 'tool_use', 'function_call') then 'tool_calls'
    when word in ('error', 'abort') then 'error'
    else word
end;

-- whether counts of both sides are there; what was not counted is not equal
create macro counts_are_seen(observed) as observed.usage_prompt_tokens is not null
    and observed.usage_completion_tokens is not null and observed.prompt_tokens is not null
    and observed.completion_tokens is not null;

create macro wrong_usage(observed) as case
    when observed.usage_prompt_tokens <> observed.prompt_tokens then 'prompt'
    when observed.usage_completion_tokens <> observed.completion_tokens then 'completion'
end;

-- between a claim and a replay: what is wrong first, `same`, or null where nothing was seen to compare by. A text
-- of 16 characters or more that is generated id by id comes in more than one event
create macro departure(claim, observed) as case
    when coalesce(claim.answer, '') not in ('result', 'refused') or observed.answer is null then null
    when claim.answer = 'refused' and observed.answer = 'refused' then 'same'
    when claim.answer = 'refused' then 'accepted'
    when observed.answer = 'refused' then 'rejected'
    when claim.kind <> 'parse' then difference(claim, observed)
    when observed.framing is not null then 'framing'
    when claim.value <> observed.value then 'message'
    when claim.value is null or observed.value is null then null
    when finish_class(claim.finish_reason) <> coalesce(finish_class(observed.finish_reason), '') then 'finish-reason'
    when wrong_usage(observed) is not null then 'usage'
    when observed.mode = 'per_token' and not observed.in_pieces and claim.written >= 16 then 'buffered'
    else 'same'
end;

-- a stream's prompt comes before all that is read of its answer; a refusal has none
create macro departure_of_stream(what, prompts_differ) as
    if(prompts_differ and what not in ('rejected', 'accepted'), 'prompt-ids', what);

-- of a departure that was seen at once. The same decoder reads both prompts: texts that are equal leave the tokenizer,
-- and ids that are equal without the special ones leave those
create macro departure_layer(observed, claim_text, what) as case
    when what is null or what = 'same' then null
    when observed.kind = 'tokenize' then 'tokens'
    when observed.kind = 'detokenize' then 'detokenize'
    when observed.kind = 'render' then case
        when what <> 'prompt-ids' then 'template'
        when observed.text = observed.baseline_text then 'tokens'
        when observed.bare_ids = observed.baseline_bare_ids then 'special_tokens'
        when observed.text <> observed.baseline_text then 'template'
        else 'tokens'
    end
    when what in ('rejected', 'accepted', 'usage') then 'api'
    when claim_text <> observed.text then 'detokenize'
    else 'parse'
end;

-- whether all that comes before that layer was seen
create macro is_localised(observed, claim_text, layer) as case
    when layer is null then null
    when observed.kind = 'render' and layer = 'tokens' then coalesce(observed.text = observed.baseline_text, false)
    when layer = 'parse' or observed.kind = 'parse' and layer = 'api' then coalesce(claim_text = observed.text, false)
    else true
end;

create macro layer_rank(layer) as list_position(
    ['template', 'special_tokens', 'tokens', 'detokenize', 'parse', 'streaming', 'api'], layer
);

create macro verdict_rank(verdict) as list_position(
    [
        'measurement_failed', 'missing', 'not_applicable', 'disputed', 'policy', 'engines_split', 'unverified',
        'rejected', 'regression', 'known_difference', 'known_but_matches', 'engine_defect', 'engine_defect_waived',
        'match'
    ],
    verdict
);

-- of two answers to one case, whoever gave them; null where a side holds nothing
create macro is_said(one, other) as case
    when coalesce(one.answer, '') not in ('result', 'refused') or other.answer is null then null
    when one.answer = 'refused' or other.answer = 'refused' then one.answer = other.answer
    when one.kind = 'detokenize' then coalesce(one.value = other.value, one.text = other.text)
    else one.value = other.value
end;
"""

# Of the few rows that are shown as examples; these read texts, ids and calls.
SHOWN = """
-- which part of two answers shows the difference: prompts as texts where both sides have one
create macro shown_part(one, other, what, field) as case
    when what in ('prompt-ids', 'prompt-text')
        then if(one.prompt_text <> other.prompt_text, 'prompt_text', 'prompt_ids')
    when what = 'ids' then 'output_ids'
    when what = 'pieces' then 'piece_ends'
    when what in ('text', 'output-text', 'chunk-text') then 'output_text'
    when what = 'message' and field = 'whitespace'
        then if(coalesce(one.content, '') <> coalesce(other.content, ''), 'content', 'reasoning_content')
    when what = 'message' then field
end;

-- that part as a list of numbers or characters
create macro shown(answer, part) as case part
    when 'prompt_ids' then answer.prompt_ids::text[]
    when 'output_ids' then answer.output_ids::text[]
    when 'piece_ends' then answer.piece_ends::text[]
    when 'prompt_text' then string_split(answer.prompt_text, '')
    when 'output_text' then string_split(answer.output_text, '')
    when 'content' then string_split(coalesce(answer.content, ''), '')
    when 'reasoning_content' then string_split(coalesce(answer.reasoning_content, ''), '')
    when 'tool_calls' then string_split(to_json(coalesce(answer.tool_calls, []))::text, '')
end;

-- 0-based; the shorter length where one begins with the other
create macro first_difference(one, other) as
    list_position(list_transform(list_zip(one, other), lambda pair: pair[1] is distinct from pair[2]), true) - 1;

-- 8 numbers or 40 characters either way
create macro shown_around(side, part, place) as if(
    part in ('prompt_ids', 'output_ids', 'piece_ends'),
    array_to_string(side[greatest(place - 7, 1):place + 9], ' '),
    array_to_string(side[greatest(place - 39, 1):place + 41], '')
);

create macro shown_side(answer, side, part, place) as if(
    answer.outcome = 'result',
    coalesce(shown_around(side, part, place), 'result'),
    answer.outcome || coalesce(': ' || left(answer.reason, 80), '')
)
"""
