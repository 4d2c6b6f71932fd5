"""SGLang 0.5.23 and 0.5.22 as witnesses, in their own environments: what they make of what others read differently."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from asking import engine, says, settings
from bellwether.witnesses.conversation import Conversation
from bellwether.witnesses.outcome import Answered, NotLoaded, Outcome, Refused
from bellwether.witnesses.process import Server
from support import load_checkpoint, snapshot

pytestmark = pytest.mark.xdist_group("sglang")  # one worker imports SGLang

RELEASES = ("sglang-0.5.23", "sglang-0.5.22")
QWEN3 = {"tool_parser": "qwen", "reasoning_parser": "qwen3"}
PARAMETERS = {"type": "object", "properties": {"x": {"type": "string"}}}
FUNCTION = {"name": "f", "description": "d", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": FUNCTION}]
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": "a"}}\n</tool_call>'
THOUGHT = "<think>\n\n</think>\n\n"
END_OF_TURN = 151645  # <|im_end|>


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Server]]:
    """Both releases, each imported once."""
    with engine(RELEASES[0]) as new, engine(RELEASES[1]) as old:
        yield {RELEASES[0]: new, RELEASES[1]: old}


@pytest.fixture(scope="module")
def both(servers: dict[str, Server]) -> Iterator[dict[str, Conversation]]:
    """Release → Qwen3-8B with the parsers SGLang documents for it."""
    told = settings(snapshot("qwen3-8b"), **QWEN3)
    with Conversation(servers[RELEASES[0]], told, print) as new, Conversation(servers[RELEASES[1]], told, print) as old:
        yield {RELEASES[0]: new, RELEASES[1]: old}


@pytest.fixture(params=RELEASES)
def qwen3(both: dict[str, Conversation], request: pytest.FixtureRequest) -> Conversation:
    """Qwen3-8B in one release, then in the other: what holds for both."""
    return both[request.param]


@pytest.fixture
def newest(both: dict[str, Conversation]) -> Conversation:
    """Qwen3-8B in 0.5.23."""
    return both[RELEASES[0]]


def ask(conversation: Conversation, kind: str, **question: Any) -> Outcome:
    """Return what comes of one question."""
    [outcome] = conversation.outcomes([{"kind": kind, **question}])
    return outcome


def prompt(conversation: Conversation, request: dict, slug: str = "qwen3-8b") -> str:
    """Return the text of a rendered prompt."""
    ids = ask(conversation, "render", request=json.dumps(request)).value["prompt_ids"]
    return load_checkpoint(slug).tokenizer.decode(ids)


def parsed(conversation: Conversation, text: str, stop_id: int | None, sizes: dict[str, int], request: dict) -> dict:
    """Return what each mode makes of an output; `sizes` maps a plan's name to the size of its chunks."""
    asked = json.dumps(request)
    ids = ask(conversation, "tokenize", text=text).value["ids"]
    question = {
        "request": asked,
        "prompt_ids": ask(conversation, "render", request=asked).value["prompt_ids"],
        "ids": ids,
        "stop_id": stop_id,
        "plans": {name: [len(ids[at : at + size]) for at in range(0, len(ids), size)] for name, size in sizes.items()},
    }
    return ask(conversation, "parse", **question).value["modes"]


def modes(conversation: Conversation, text: str, sizes: dict[str, int] | None = None, **request: Any) -> dict:
    """Return what each mode makes of an output of Qwen3 that ends its turn."""
    return parsed(conversation, text, END_OF_TURN, sizes or {}, says("Hi", **{"tools": TOOLS, **request}))


def message(content: str | None = "", reasoning: str | None = None, *arguments: str) -> dict:
    """Return a message; its calls are of `f`."""
    calls = [{"name": "f", "arguments": text} for text in arguments]
    return {"message": {"content": content, "reasoning_content": reasoning, "tool_calls": calls}}


# ── prompts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ids_of_a_plain_chat(qwen3: Conversation) -> None:
    """Qwen3's format, from its model card; ids of the checkpoint's tokenizer.json."""
    outcome = ask(qwen3, "render", request=json.dumps(says("Hi")))
    expected = [151644, 872, 198, 13048, 151645, 198, 151644, 77091, 198]
    assert outcome == Answered({"prompt_ids": expected, "prompt_text": None})


def test_every_tool_gets_a_null_more(newest: Conversation) -> None:
    """D3, of 0.5.23: the field defer_loading of its protocol is written out."""
    [line] = [line for line in prompt(newest, says("Hi", tools=TOOLS)).splitlines() if '"name": "f"' in line]
    tool = json.loads(line)
    assert tool["defer_loading"] is None
    assert tool["function"] == FUNCTION


def test_releases_write_tools_in_different_order(both: dict[str, Conversation]) -> None:
    """D3: 0.5.22 has an order of its own and writes strict out; without tools a prompt is the same."""
    new, old = (prompt(both[release], says("Hi", tools=TOOLS)) for release in RELEASES)
    assert '"function": {"name": "f", "description": "d", "parameters": ' in new
    assert '"function": {"description": "d", "name": "f", "parameters": ' in old
    assert ('"strict": false' in new, '"strict": false' in old) == (False, True)
    assert prompt(both[RELEASES[0]], says("Hi")) == prompt(both[RELEASES[1]], says("Hi"))


def test_a_tool_without_description_and_parameters_gets_nulls(qwen3: Conversation) -> None:
    """D2. transformers hands a tool over as it was sent."""
    rendered = prompt(qwen3, says("Hi", tools=[{"type": "function", "function": {"name": "f"}}]))
    assert '"description": null' in rendered
    assert '"parameters": null' in rendered


def test_strict_is_kept(qwen3: Conversation) -> None:
    """D4. vLLM drops it."""
    strict = [{"type": "function", "function": FUNCTION | {"strict": True}}]
    assert '"strict": true' in prompt(qwen3, says("Hi", tools=strict))


def test_tools_go_when_none_may_be_called(qwen3: Conversation) -> None:
    """D6. vLLM leaves them in the prompt."""
    assert "# Tools" not in prompt(qwen3, says("Hi", tools=TOOLS, tool_choice="none"))


def test_of_the_tools_the_named_one_is_left(qwen3: Conversation) -> None:
    """D6. vLLM leaves all."""
    two = [*TOOLS, {"type": "function", "function": FUNCTION | {"name": "g"}}]
    named = {"type": "function", "function": {"name": "g"}}
    rendered = prompt(qwen3, says("Hi", tools=two, tool_choice=named))
    assert '"name": "g"' in rendered
    assert '"name": "f"' not in rendered


def test_a_developer_is_left_to_the_template(qwen3: Conversation) -> None:
    """D7. Qwen3's template knows no developer, and writes nothing of it; vLLM makes it a system."""
    request = {"messages": [{"role": "developer", "content": "Be."}, {"role": "user", "content": "Hi"}]}
    assert prompt(qwen3, request) == prompt(qwen3, says("Hi"))


def test_parts_of_text_are_joined_by_a_space(qwen3: Conversation) -> None:
    """D9. vLLM joins them by a line break."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert prompt(qwen3, says(parts)).startswith("<|im_start|>user\na b<|im_end|>")


def test_content_that_is_null_is_empty(qwen3: Conversation) -> None:
    """D8. Templates that join strings raise on null."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": "a"}'}}
    turns = [{"role": "assistant", "content": content, "tool_calls": [call]} for content in (None, "")]
    null, empty = (prompt(qwen3, {"messages": [{"role": "user", "content": "Hi"}, turn, turn]}) for turn in turns)
    assert null == empty
    assert "None" not in null


@pytest.mark.parametrize("arguments", ["", "not json"])
def test_arguments_of_the_past_that_are_no_json_are_refused(qwen3: Conversation, arguments: str) -> None:
    """D10. vLLM accepts them; the words are the server's."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    turn = {"role": "assistant", "content": None, "tool_calls": [call]}
    messages = [{"role": "user", "content": "Hi"}, turn, {"role": "tool", "tool_call_id": "1", "content": "r"}]
    refused = ask(qwen3, "render", request=json.dumps({"messages": messages}))
    assert refused == Refused("BadRequest", "Assistant tool call function.arguments must be valid JSON.")
    assert isinstance(ask(qwen3, "render", request=json.dumps(says("Hi"))), Answered)


def test_a_last_message_of_the_assistant_becomes_the_users(qwen3: Conversation) -> None:
    """D11. vLLM and transformers keep the turn."""
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    assert "<|im_start|>user\nHo<|im_end|>" in prompt(qwen3, {"messages": messages})


def test_an_empty_list_of_tools_is_none(qwen3: Conversation) -> None:
    """D12. vLLM answers 400."""
    assert prompt(qwen3, says("Hi", tools=[])) == prompt(qwen3, says("Hi"))


def test_a_body_of_the_wrong_shape_is_refused_and_not_a_failure(qwen3: Conversation) -> None:
    """FastAPI's validation answers before any of SGLang's code; its message names the key that is missing."""
    refused = ask(qwen3, "render", request="{}")
    assert isinstance(refused, Refused)
    assert "messages" in refused.message


def test_an_integer_beyond_64_bits_becomes_a_float(newest: Conversation) -> None:
    """0.5.23's server reads bodies with orjson, which has no longer integers; seen in its HTTP application too."""
    large = FUNCTION | {"parameters": {"type": "object", "properties": {"x": {"const": 10**20}}}}
    asked = says("Hi", tools=[{"type": "function", "function": large}])
    assert '{"const": 1e+20}' in prompt(newest, asked)


def test_a_tool_whose_schema_is_none_is_refused_by_the_server(newest: Conversation) -> None:
    """Its own check of a request, before a prompt is written: a property is no list."""
    bad = [{"type": "function", "function": FUNCTION | {"parameters": {"type": "object", "properties": {"x": []}}}}]
    refused = ask(newest, "render", request=json.dumps(says("Hi", tools=bad)))
    assert isinstance(refused, Refused)
    assert refused.message.startswith("Tool 0 function has invalid 'parameters' schema")


# ── outputs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

ONE_SHOT = {
    "P1: no think tag, and thinking is on: all of it is reasoning": ("plain", message("", "plain")),
    "P3: think is never closed": ("<think>\nhm", message("", "\nhm")),
    "P4: text between and after calls is dropped": (
        f"{THOUGHT}pre {CALL} mid {CALL} post",
        message("pre", "\n\n", '{"x": "a"}', '{"x": "a"}'),
    ),
    "P5: tags on the line of the call": (
        THOUGHT + CALL.replace("\n", ""),
        message("\n\n" + CALL.replace("\n", ""), "\n\n"),
    ),
    "P6: the closing tag inside a string": (
        THOUGHT + CALL.replace('"a"', '"b </tool_call> c"'),
        message("", "\n\n", '{"x": "b </tool_call> c"}'),
    ),
    "P7: no arguments": (THOUGHT + '<tool_call>\n{"name": "f"}\n</tool_call>', message("", "\n\n", "{}")),
    "P8: parameters in place of arguments": (
        THOUGHT + CALL.replace("arguments", "parameters"),
        message("", "\n\n", '{"x": "a"}'),
    ),
    "P9: a tool nobody declared": (THOUGHT + CALL.replace('"f"', '"g"'), message("", "\n\n")),
    "P10: cut off": (THOUGHT + CALL.partition("}")[0], message("", "\n\n")),
    "P11: the tag is never closed, the JSON is whole": (
        THOUGHT + CALL.removesuffix("\n</tool_call>"),
        message("", "\n\n"),
    ),
    "P12: a good call and a bad one": (
        THOUGHT + CALL + "\n" + CALL.replace('"a"', ""),
        message("", "\n\n", '{"x": "a"}'),
    ),
    "P13: a call inside think": (
        f"<think>\nhm {CALL}\n</think>\n\nfinal",
        message("\n\nfinal", f"\nhm {CALL}\n"),
    ),
    "P14: think is never closed, and a call follows": (f"<think>\nhm\n{CALL}", message("", "\nhm\n", '{"x": "a"}')),
    "P15: a second think block": (f"{THOUGHT}a <think>b</think> c", message("\n\na <think>b</think> c", "\n\n")),
    "P16: a list of calls": (
        THOUGHT + '<tool_call>\n[{"name": "f", "arguments": {"x": "a"}}]\n</tool_call>',
        message("", "\n\n", '{"x": "a"}'),
    ),
    "P20: white space around text goes where a call is": (f"{THOUGHT}x\n\n{CALL}", message("x", "\n\n", '{"x": "a"}')),
    "arguments are written anew": (
        THOUGHT + '<tool_call>\n{"name": "f", "arguments": {"x":1e2}}\n</tool_call>',
        message("", "\n\n", '{"x": 100.0}'),
    ),
}


@pytest.mark.parametrize("case", ONE_SHOT)
def test_what_one_shot_makes_of_an_output(qwen3: Conversation, case: str) -> None:
    """As observed of these releases with the parsers qwen and qwen3."""
    text, expected = ONE_SHOT[case]
    assert modes(qwen3, text) == {"one-shot": expected}


def test_a_think_tag_opens_reasoning_although_thinking_is_off(qwen3: Conversation) -> None:
    """P2. vLLM leaves it in the text."""
    off = {"enable_thinking": False}
    found = modes(qwen3, "say <think> now", chat_template_kwargs=off)["one-shot"]["message"]
    assert (found["content"], "now" in found["reasoning_content"]) == ("", True)


def test_without_tools_a_call_is_text(qwen3: Conversation) -> None:
    """P17."""
    assert modes(qwen3, THOUGHT + CALL, tools=None)["one-shot"] == message("\n\n" + CALL, "\n\n")


def test_a_call_is_text_when_none_may_be_made(qwen3: Conversation) -> None:
    """The server does not run the tool parser then."""
    assert modes(qwen3, THOUGHT + CALL, tool_choice="none")["one-shot"] == message("\n\n" + CALL, "\n\n")


def test_a_call_in_one_chunk_loses_its_arguments(qwen3: Conversation) -> None:
    """The detector reads one thing per chunk; token by token it reads all, and keeps the white space before a call."""
    found = modes(qwen3, THOUGHT + CALL, {"whole": 1000, "per_token": 1})
    assert found["one-shot"] == message("", "\n\n", '{"x": "a"}')
    assert found["whole"] == message("", "\n\n", "")
    assert found["per_token"] == message("\n\n", "\n\n", '{"x": "a"}')


def test_of_two_calls_in_one_chunk_the_second_is_lost(qwen3: Conversation) -> None:
    """As above."""
    found = modes(qwen3, THOUGHT + CALL + "\n" + CALL, {"whole": 1000})
    assert found["one-shot"] == message("", "\n\n", '{"x": "a"}', '{"x": "a"}')
    assert found["whole"] == message("", "\n\n", "")


def test_the_id_that_ends_the_turn_leaves_no_text(qwen3: Conversation) -> None:
    """The detokenizer trims it."""
    found = modes(qwen3, THOUGHT + "Yes.", {"whole": 1000, "per_token": 1, "size-4": 4})
    assert list(found.values()) == [message("\n\nYes.", "\n\n")] * 4


def test_an_output_cut_short_is_parsed(qwen3: Conversation) -> None:
    """No id ends it: it ran out of tokens, in the middle of a character of four bytes."""
    request = says("Hi", chat_template_kwargs={"enable_thinking": False})
    asked = {"request": json.dumps(request), "prompt_ids": [13048], "stop_id": None}
    found = ask(qwen3, "parse", **asked, ids=[13048, 11162, 103], plans={"per_token": [1, 1, 1]}).value["modes"]
    assert found == dict.fromkeys(("one-shot", "per_token"), message("Hi �"))


def test_an_empty_output_is_parsed(qwen3: Conversation) -> None:
    """A turn that ends at once."""
    asked = {"request": json.dumps(says("Hi")), "prompt_ids": [13048]}
    found = ask(qwen3, "parse", **asked, ids=[], stop_id=END_OF_TURN, plans={"whole": []}).value["modes"]
    assert found == dict.fromkeys(("one-shot", "whole"), message(""))


def test_nothing_of_a_question_is_left_for_the_next(qwen3: Conversation) -> None:
    """A stream that stops inside a call, then the same output as before it."""
    before = modes(qwen3, THOUGHT + CALL, {"per_token": 1, "size-4": 4})
    modes(qwen3, THOUGHT + CALL.partition("}")[0], {"per_token": 1, "whole": 1000})
    assert modes(qwen3, THOUGHT + CALL, {"per_token": 1, "size-4": 4}) == before


def test_releases_agree_on_an_output_in_every_mode(both: dict[str, Conversation]) -> None:
    """The server's own handlers in one, what is written after them in the other; two detokenizers."""
    texts = [text for text, _ in ONE_SHOT.values()] + [f"{THOUGHT}🪿 {CALL} 🪿"]
    sizes = {"whole": 1000, "per_token": 1, "size-2": 2, "size-5": 5}
    new, old = ([modes(both[release], text, sizes) for text in texts] for release in RELEASES)
    assert new == old


def test_deepseek_calls(servers: dict[str, Server]) -> None:
    """P18: a call whose JSON is bad is text; P19: text after the calls is dropped."""
    opened = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
    closed = "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    told = settings(snapshot("deepseek-v3-0324"), tool_parser="deepseekv3")
    request = says("Hi", tools=TOOLS)
    with Conversation(servers[RELEASES[0]], told, print) as conversation:
        bad = parsed(conversation, f'{opened}{{"x": }}{closed}', 1, {}, request)["one-shot"]["message"]
        assert bad["tool_calls"] == []
        after = parsed(conversation, f'{opened}{{"x": "a"}}{closed}after', 1, {}, request)["one-shot"]
        assert after == message("", None, '{"x": "a"}')


# ── special tokens ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("release", RELEASES)
def test_special_tokens_are_skipped_where_no_tools_are_unless_the_manifest_keeps_them(
    servers: dict[str, Server], release: str
) -> None:
    """The server's default. <|im_start|> is special in Qwen3's own file; with tools, the server keeps all."""
    told = settings(snapshot("qwen3-8b"))
    plain, tools = says("Hi"), says("Hi", tools=TOOLS)
    with Conversation(servers[release], told, print) as conversation:
        assert parsed(conversation, "a<|im_start|>b", END_OF_TURN, {}, plain)["one-shot"] == message("ab")
        assert parsed(conversation, "a<|im_start|>b", END_OF_TURN, {}, tools)["one-shot"] == message("a<|im_start|>b")
    told["options"] = {"special_tokens": "kept"}
    with Conversation(servers[release], told, print) as conversation:
        assert parsed(conversation, "a<|im_start|>b", END_OF_TURN, {}, plain)["one-shot"] == message("a<|im_start|>b")


# ── text and ids ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_character_over_several_ids_comes_with_the_last_one(newest: Conversation) -> None:
    """Ids of `Hi 🪿!` and their pieces, by hand: SGLang sends the space at once, and the goose when it is whole."""
    ids = [13048, 11162, 103, 123, 0]
    assert ask(newest, "tokenize", text="Hi 🪿!") == Answered({"ids": ids})
    answer = {"text": "Hi 🪿!", "pieces": ["Hi", " ", "", "🪿", "!"]}
    assert ask(newest, "detokenize", ids=ids) == Answered(answer)


def test_special_tokens_stay_in_a_text(newest: Conversation) -> None:
    """The server's default is to skip them."""
    assert ask(newest, "detokenize", ids=[END_OF_TURN]).value["text"] == "<|im_end|>"


@pytest.mark.parametrize("release", RELEASES)
def test_no_special_token_is_added_to_a_text(servers: dict[str, Server], release: str) -> None:
    """DeepSeek's tokenizer would write its first token, id 0."""
    with Conversation(servers[release], settings(snapshot("deepseek-v3.1")), print) as conversation:
        assert ask(conversation, "tokenize", text="Hi") == Answered({"ids": [23166]})


# ── checkpoints ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_facts_name_what_was_added_and_how_it_is_called(both: dict[str, Conversation]) -> None:
    """config.json holds the model type; transformers names the architecture for it."""
    new, old = (both[release].facts for release in RELEASES)
    assert "harness-built TokenizerManager" in new["render"]
    assert old["release"] == "sglang 0.5.22 via llm-router-utils 0.8.1"
    for facts in (new, old):
        assert facts["added to config.json"] == {"architectures": ["Qwen3ForCausalLM"]}
        assert facts["clock"] == "2026-01-15T12:00:00"
        assert "toggle_param='enable_thinking', default_enabled=True" in facts["reasoning"]


@pytest.mark.parametrize("release", RELEASES)
def test_templates_see_the_clock(servers: dict[str, Server], release: str) -> None:
    """gpt-oss writes the date into its prompt."""
    with Conversation(servers[release], settings(snapshot("gpt-oss-20b")), print) as conversation:
        assert "Current date: 2026-01-15" in prompt(conversation, says("Hi"), "gpt-oss-20b")


def test_deepseek_v4_is_written_by_an_encoder_and_not_by_a_template(servers: dict[str, Server]) -> None:
    """Its prompt by hand: the beginning, the user, the assistant, and thinking closed, as it is off by default."""
    told = settings(snapshot("deepseek-v4"), tool_parser="deepseekv4", reasoning_parser="deepseek-v4")
    with Conversation(servers[RELEASES[0]], told, print) as conversation:
        assert conversation.facts["chat encoding"] == "dsv4"
        expected = "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜></think>"
        assert prompt(conversation, says("Hi"), "deepseek-v4") == expected


def test_prompts_of_kimi_k3_are_no_evidence_and_its_outputs_are(servers: dict[str, Server]) -> None:
    """Its prompts are written by code of the checkpoint. None is made up from its Jinja template."""
    told = settings(snapshot("kimi-k3"), tool_parser="kimi_k3", reasoning_parser="kimi_k3")
    with Conversation(servers[RELEASES[0]], told, print) as conversation:
        failed = ask(conversation, "render", request=json.dumps(says("Hi")))
        assert not isinstance(failed, Answered | Refused)
        asked = {"request": json.dumps(says("Hi")), "prompt_ids": [], "plans": {}}
        assert ask(conversation, "parse", **asked, ids=[1], stop_id=None).value["modes"]["one-shot"].keys() == {
            "message"
        }


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    "wrong", [{"tool_parser": "no such"}, {"options": {"special_tokens": "maybe"}}, {"options": {"other": "x"}}]
)
def test_what_cannot_be_started_says_so(servers: dict[str, Server], release: str, wrong: dict) -> None:
    """An unknown parser, an unknown option: nothing is asked then."""
    with pytest.raises(NotLoaded):
        Conversation(servers[release], settings(snapshot("qwen3-8b"), **wrong), print)
