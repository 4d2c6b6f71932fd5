"""The round trip: every refusal rule on a real chat template, what a proof holds, and the rules about types."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from bellwether.oracles.encoders import Encoder
from bellwether.oracles.refusals import CODES, Refusal
from bellwether.oracles.roundtrip import (
    Output,
    RoundTrip,
    declared_types,
    other_types,
    piece_ends,
    types_of,
)
from support import chat_template, load_checkpoint

BOOK = {
    "type": "function",
    "function": {
        "name": "book",
        "description": "Book a table",
        "parameters": {
            "type": "object",
            "properties": {
                "day": {"type": "string"},
                "seats": {"type": "integer"},
                "note": {"type": ["string", "null"]},
            },
        },
    },
}
ASK = {"messages": [{"role": "user", "content": "Book a table for Monday."}]}
ASK_WITH_TOOLS = {**ASK, "tools": [BOOK]}


def call(*arguments: str, content: str = "", name: str = "book") -> dict:
    """An assistant message that calls `name` once per JSON text of arguments."""
    calls = [{"type": "function", "function": {"name": name, "arguments": text}} for text in arguments]
    return {"content": content, "tool_calls": calls}


def prove(checkpoint, request: dict, message: dict) -> Output | Refusal:
    trip = RoundTrip(checkpoint, request, message)
    return trip.prove(checkpoint.encoders[0], frozenset(checkpoint.stop_ids.parse))


# ── every refusal rule ───────────────────────────────────────────────────────────────────────────────────────────────


def test_request_without_generation_prompt_has_no_turn_to_come(checkpoint):
    """A request that asks for no assistant header, or continues a message, leaves no turn the output could be."""
    qwen = checkpoint("qwen3-8b")
    assert prove(qwen, {**ASK, "add_generation_prompt": False}, {"content": "Done."}) == Refusal("no-generation-prompt")
    assert prove(qwen, {**ASK, "continue_final_message": True}, {"content": "Done."}) == Refusal("no-generation-prompt")


def test_template_that_raises_on_the_prompt_is_an_error(checkpoint):
    """DeepSeek-V3-0324's template adds arguments to a string, so a history with argument objects has no prompt."""
    history = [*ASK["messages"], {"role": "assistant", **call('{"day": "Monday"}')}]
    history.append({"role": "tool", "content": "ok"})
    refusal = prove(checkpoint("deepseek-v3-0324"), {"messages": history}, {"content": "Done."})
    assert (refusal.code, refusal.reason_class) == ("template-error", "error")
    assert refusal.detail.startswith("TypeError: ")


def test_template_that_raises_on_the_turn_is_an_error(checkpoint):
    """The same template renders the prompt and raises on the turn."""
    refusal = prove(checkpoint("deepseek-v3-0324"), ASK_WITH_TOOLS, call('{"day": "Monday"}'))
    assert (refusal.code, refusal.reason_class) == ("turn-template-error", "error")


@pytest.mark.parametrize("arguments", ["[1]", "3", '"x"', "null", "{", "", '{"a": "\\ud800"}', "[" * 100_000])
def test_arguments_that_are_no_object_are_refused(checkpoint, arguments):
    """Templates take arguments as an object; nothing else can be handed to them."""
    assert prove(checkpoint("qwen3-8b"), ASK_WITH_TOOLS, call(arguments)) == Refusal("arguments-not-object", "call 0")


@pytest.mark.parametrize(
    "message",
    [
        {"content": "It ends with <|im_end|> here."},
        {"content": "x", "reasoning_content": "<|endoftext|>"},
        call('{"day": "<|im_end|>"}'),
        call('{"<|im_end|>": 1}'),
        call('{"day": {"deep": ["\\u003c|im_end|>"]}}'),
    ],
)
def test_stop_id_inside_any_string_is_refused(checkpoint, message):
    """A text that spells a stop token would end the turn early: content, reasoning, values and keys, escaped or not."""
    assert prove(checkpoint("qwen3-8b"), ASK_WITH_TOOLS, message).code == "stop-id-in-message"


def test_template_without_calls_refuses_calls(checkpoint):
    """SmolLM2's template knows no tool calls and drops them."""
    assert prove(checkpoint("smollm2-135m-instruct"), ASK_WITH_TOOLS, call('{"day": "Monday"}')) == Refusal(
        "call-not-rendered", "call 0"
    )


def test_second_call_that_is_dropped_is_refused(checkpoint):
    """gpt-oss's template writes one call a turn; the second one is lost."""
    refusal = prove(checkpoint("gpt-oss-20b"), ASK_WITH_TOOLS, call('{"day": "Monday"}', '{"day": "Friday"}'))
    assert refusal == Refusal("call-not-rendered", "call 1")


def test_reasoning_that_is_dropped_is_refused(checkpoint):
    """Hermes 4's template does not write reasoning_content."""
    message = {"content": "On Monday.", "reasoning_content": "They said Monday."}
    assert prove(checkpoint("hermes-4-14b"), ASK, message) == Refusal("part-not-rendered", "reasoning_content")


@pytest.mark.parametrize(
    ("arguments", "detail"),
    [('{"day": "Monday", "note": null}', "note of call 0"), ('{"more": {"a": 1, "b": null}}', "more.b of call 0")],
)
def test_null_argument_that_is_dropped_is_refused(with_template, arguments, detail):
    """MiniMax-M3's template leaves null entries out, at the top and inside an argument."""
    minimax = with_template(chat_template("MiniMaxAI-MiniMax-M3-MXFP8"))
    assert prove(minimax, ASK_WITH_TOOLS, call(arguments)) == Refusal("argument-not-rendered", detail)


def test_argument_whose_type_is_lost_is_refused(checkpoint):
    """GLM-4.6 prints an undeclared 5 and an undeclared "5" alike, so nobody can tell which one the model meant."""
    refusal = prove(checkpoint("glm-4.6"), ASK_WITH_TOOLS, call('{"table": 5}'))
    assert refusal.code == "argument-type-not-rendered"
    assert refusal.detail == "table of call 0: 5 as '5'"


def test_declared_type_settles_what_bare_text_means(checkpoint):
    """The same 5 is fine where the schema says integer, and the text "Monday" where it says string."""
    assert isinstance(prove(checkpoint("glm-4.6"), ASK_WITH_TOOLS, call('{"seats": 5}')), Output)
    assert isinstance(prove(checkpoint("glm-4.6"), ASK_WITH_TOOLS, call('{"day": "5"}')), Output)


def test_turn_that_does_not_continue_the_prompt_is_refused(with_template):
    """Apriel's generation prompt holds a text the template does not write before a turn of the history."""
    apriel = with_template(chat_template("Apriel-1.6-15b-Thinker-fixed"))
    assert prove(apriel, ASK, {"content": "On Monday."}) == Refusal("does-not-extend-prompt")


def test_turn_without_end_is_refused(checkpoint):
    """GLM-4.6 writes no stop token after a turn, and drops a think block once a user message follows."""
    message = {"content": "On Monday.", "reasoning_content": "They said Monday."}
    assert prove(checkpoint("glm-4.6"), ASK, message) == Refusal("no-end-of-turn")


AFTER_STOP = """{% for one in messages %}<|im_start|>{{ one.role }}
{{ one.content }}<|im_end|>
{% if one.role == 'assistant' %}<|endoftext|> bye{% endif %}
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def test_turn_with_text_after_its_stop_id_is_refused(with_template):
    """What follows a stop token was never generated: only white space and further stop tokens may."""
    refusal = prove(with_template(AFTER_STOP), ASK, {"content": "On Monday."})
    assert refusal == Refusal("no-end-of-turn", "' bye' follows stop id 151645")


def test_empty_turn_is_refused(checkpoint):
    """An empty output has no ids to stream. Kimi K2 writes nothing for an empty content."""
    assert prove(checkpoint("kimi-k2-instruct"), ASK, {"content": ""}) == Refusal("empty-output")


def lossy(normalizer: dict) -> Encoder:
    """qwen3-8b's tokenizer with another normalizer."""
    state = json.loads(load_checkpoint("qwen3-8b").encoders[0].tokenizer.to_str())
    return Encoder("both", Tokenizer.from_str(json.dumps({**state, "normalizer": normalizer})))


def test_ids_that_decode_to_another_text_are_refused(checkpoint):
    """Under a normalizer that lower-cases, the ids of an output stand for another output."""
    qwen = checkpoint("qwen3-8b")
    trip = RoundTrip(qwen, ASK, {"content": "On Monday."})
    assert trip.prove(lossy({"type": "Lowercase"}), frozenset(qwen.stop_ids.parse)) == Refusal("ids-do-not-decode")


def test_unicode_forms_of_the_normalizer_do_not_touch_an_output(checkpoint):
    """Qwen3 normalises prompts to NFC. A model may write a decomposed é, and its output keeps it."""
    output = prove(checkpoint("qwen3-8b"), ASK, {"content": "cafe\u0301"})
    assert isinstance(output, Output)
    assert output.text.endswith("cafe\u0301")


def test_pieces_that_do_not_join_are_refused(checkpoint):
    """An incremental decoder holds a replacement character back for ever, so an output ending in one loses it."""
    assert prove(checkpoint("qwen3-8b"), ASK, {"content": "broken \ufffd"}) == Refusal("pieces-do-not-join")


def test_every_code_has_a_test_or_another_room():
    """The table of codes is closed: some belong to recorders and other sources, the other ones are refused above."""
    source = Path(__file__).read_text("utf-8")
    assert {code for code in CODES if f'"{code}"' not in source} == set(
        "malformed other-vocabulary template-renders-no-calls colliding-variable non-text-part vendor-error "
        "no-output response-template-error tokenizer-error".split()
    )


# ── what a proof holds ───────────────────────────────────────────────────────────────────────────────────────────────


def test_proof_of_an_emoji_across_ids(checkpoint):
    """The published example: text, ids, pieces, stop id of `Hi 🪿!` on Qwen3 with thinking off."""
    request = {**ASK, "chat_template_kwargs": {"enable_thinking": False}}
    trip = RoundTrip(checkpoint("qwen3-8b"), request, {"content": "Hi 🪿!"})
    assert trip.prompt.endswith("<think>\n\n</think>\n\n")
    assert trip.prove(checkpoint("qwen3-8b").encoders[0], frozenset({151645, 151643})) == Output(
        text="Hi 🪿!",
        ids=[13048, 11162, 103, 123, 0],
        piece_ends=[2, 2, 2, 4, 5],
        stop_id=151645,
        found_by="turn",
        finish_reason="stop",
    )


def test_glm_turn_ends_where_the_next_message_begins(checkpoint):
    """GLM-4.6 ends a turn by the role token of whatever follows: `<|user|>`, or `<|observation|>` after a call."""
    plain = prove(checkpoint("glm-4.6"), ASK, {"content": "On Monday."})
    called = prove(checkpoint("glm-4.6"), ASK_WITH_TOOLS, call('{"day": "Monday"}'))
    assert (plain.stop_id, plain.found_by, plain.finish_reason) == (151336, "next-message", "stop")
    assert (called.stop_id, called.found_by, called.finish_reason) == (151338, "next-message", "tool_calls")


def test_gpt_oss_call_ends_with_its_own_stop_id(checkpoint):
    """gpt-oss ends a call with `<|call|>` (200012), an answer with `<|return|>` (200002)."""
    assert prove(checkpoint("gpt-oss-20b"), ASK_WITH_TOOLS, call('{"day": "Monday"}')).stop_id == 200012
    assert prove(checkpoint("gpt-oss-20b"), ASK, {"content": "On Monday."}).stop_id == 200002


@given(content=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), min_size=1, max_size=40))
def test_a_proof_is_consistent(content):
    """Whatever is proved: ids decode to the text, there is one piece end per id, the last one is the text's length."""
    qwen = load_checkpoint("qwen3-8b")
    output = prove(qwen, ASK, {"content": content})
    if isinstance(output, Refusal):
        assert output.code in ("part-not-rendered", "stop-id-in-message", "pieces-do-not-join")
        return
    assert len(output.piece_ends) == len(output.ids)
    assert output.piece_ends == sorted(output.piece_ends)
    assert output.piece_ends[-1] == len(output.text)
    assert qwen.encoders[0].decode(output.ids) == output.text


# ── rules in small ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "declared", "expected"),
    [
        (None, None, ["None"]),
        (None, {"integer", "null"}, ["None"]),
        (None, {"string"}, ["null", "None"]),
        (5, {"integer"}, []),
        (5, {"number"}, []),
        (5.5, {"integer"}, ["5.5"]),
        (5, {"string"}, ["5"]),
        (True, None, ["true", "True"]),
        (True, {"integer"}, ["true", "True"]),
        ({"é": 1}, None, ['{"\\u00e9": 1}', '{"é": 1}', "{'é': 1}"]),
        ("abc", None, []),
        ("5", None, [5]),
        ("5", {"string"}, []),
        ("5", {"string", "integer"}, [5]),
        ("5", {"string", "boolean"}, []),
        ("true", {"string", "boolean"}, [True]),
        ("True", None, [True]),
        ("None", None, [None]),
        ("null", None, [None]),
        ("null", {"string", "null"}, [None]),
        ("5", {"integer"}, [5]),
        ('"x"', None, []),
    ],
)
def test_values_that_print_alike(value, declared, expected):
    """The candidates of the type rule, worked out by hand from its wording."""
    declared = None if declared is None else frozenset(declared)
    assert list(other_types(value, declared)) == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(json_values, st.none() | st.frozensets(st.sampled_from(["string", "integer", "number", "boolean", "null"])))
def test_other_types_are_of_another_type(value, declared):
    """A candidate never has the type of the value it stands against, except null written as the text None."""
    for other in other_types(value, declared):
        assert types_of(other) != types_of(value)


def test_declared_type_of_the_first_tool_of_the_name():
    """Types are read from the first tool of that name; anything unexpected on the way means undeclared."""
    other = {"type": "function", "function": {"name": "book", "parameters": {"properties": {"day": {"type": "null"}}}}}
    assert declared_types([BOOK, other], "book", "day") == {"string"}
    assert declared_types([BOOK], "book", "note") == {"string", "null"}
    assert declared_types([BOOK], "book", "table") is None
    assert declared_types([BOOK], "cook", "day") is None
    assert declared_types([{"function": {"name": "book", "parameters": []}}], "book", "day") is None
    assert declared_types(None, "book", "day") is None


def test_piece_ends_count_characters():
    """Ends are running lengths in characters; pieces of another text have none."""
    assert piece_ends(["Hi", "", "", " 🪿", "!"], "Hi 🪿!") == [2, 2, 2, 4, 5]
    assert piece_ends(["Hi"], "Hi!") is None
    assert piece_ends([], "") == []
