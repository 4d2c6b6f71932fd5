"""vLLM 0.33.0 as a witness, in its own environment: what it makes of requests and outputs others read differently."""

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

pytestmark = pytest.mark.xdist_group("vllm")  # one worker imports vLLM

QWEN3 = {"tool_parser": "hermes", "reasoning_parser": "qwen3"}
FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": FUNCTION}]
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": "a"}}\n</tool_call>'
THOUGHT = "<think>\n\n</think>\n\n"
END_OF_TURN = 151645  # <|im_end|>


@pytest.fixture(scope="module")
def vllm() -> Iterator[Server]:
    """The engine, imported once."""
    with engine("vllm-0.33.0") as server:
        yield server


@pytest.fixture(scope="module")
def qwen3(vllm: Server) -> Iterator[Conversation]:
    """Qwen3-8B with the parsers vLLM documents for it."""
    with Conversation(vllm, settings(snapshot("qwen3-8b"), **QWEN3), print) as conversation:
        yield conversation


def ask(conversation: Conversation, kind: str, **question: Any) -> Outcome:
    """Return what comes of one question."""
    [outcome] = conversation.outcomes([{"kind": kind, **question}])
    return outcome


def prompt(conversation: Conversation, request: dict) -> str:
    """Return the text of a rendered prompt."""
    ids = ask(conversation, "render", request=json.dumps(request)).value["prompt_ids"]
    return load_checkpoint("qwen3-8b").tokenizer.decode(ids)


def modes(
    conversation: Conversation,
    text: str,
    plans: dict[str, int] | None = None,
    stop_id: int = END_OF_TURN,
    **request: Any,
) -> dict:
    """Return what each mode makes of an output; `plans` maps a plan's name to the size of its chunks."""
    asked = json.dumps(says("Hi", **{"tools": TOOLS, **request}))
    ids = ask(conversation, "tokenize", text=text).value["ids"]
    question = {
        "request": asked,
        "prompt_ids": ask(conversation, "render", request=asked).value["prompt_ids"],
        "ids": ids,
        "stop_id": stop_id,
        "plans": {
            name: [len(ids[at : at + size]) for at in range(0, len(ids), size)] for name, size in (plans or {}).items()
        },
    }
    return ask(conversation, "parse", **question).value["modes"]


def message(content: str | None = None, reasoning: str | None = None, *arguments: str) -> dict:
    """Return a message; its calls are of `f`."""
    calls = [{"name": "f", "arguments": text} for text in arguments]
    return {"message": {"content": content, "reasoning_content": reasoning, "tool_calls": calls}}


# ── prompts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ids_of_a_plain_chat(qwen3: Conversation) -> None:
    """Qwen3's format, from its model card; ids of the checkpoint's tokenizer.json."""
    outcome = ask(qwen3, "render", request=json.dumps(says("Hi")))
    expected = [151644, 872, 198, 13048, 151645, 198, 151644, 77091, 198]
    assert outcome == Answered({"prompt_ids": expected, "prompt_text": None})


def test_a_tool_without_description_and_parameters_gets_nulls(qwen3: Conversation) -> None:
    """D2. transformers hands a tool over as it was sent."""
    rendered = prompt(qwen3, says("Hi", tools=[{"type": "function", "function": {"name": "f"}}]))
    assert '{"type": "function", "function": {"name": "f", "description": null, "parameters": null}}' in rendered


def test_keys_of_a_tool_come_in_an_order_of_its_own(qwen3: Conversation) -> None:
    """D5: name, description, parameters, however they were sent."""
    turned = {key: FUNCTION[key] for key in ("parameters", "description", "name")}
    assert json.dumps(TOOLS[0]) in prompt(qwen3, says("Hi", tools=[{"type": "function", "function": turned}]))


def test_tools_stay_when_none_may_be_called(qwen3: Conversation) -> None:
    """D6. SGLang removes them."""
    assert json.dumps(TOOLS[0]) in prompt(qwen3, says("Hi", tools=TOOLS, tool_choice="none"))


def test_a_developer_is_a_system_to_the_template(qwen3: Conversation) -> None:
    """D7. Qwen3's template knows no developer."""
    request = {"messages": [{"role": "developer", "content": "Be."}, {"role": "user", "content": "Hi"}]}
    assert prompt(qwen3, request).startswith("<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHi")


def test_parts_of_text_are_joined_by_a_line_break(qwen3: Conversation) -> None:
    """D9. SGLang joins them by a space."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert prompt(qwen3, says(parts)).startswith("<|im_start|>user\na\nb<|im_end|>")


@pytest.mark.parametrize("arguments", ["", "not json"])
def test_arguments_of_the_past_that_are_no_json_are_none(qwen3: Conversation, arguments: str) -> None:
    """D10, with D8: content is null beside them. SGLang raises."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    turn = {"role": "assistant", "content": None, "tool_calls": [call]}
    messages = [{"role": "user", "content": "Hi"}, turn, {"role": "tool", "tool_call_id": "1", "content": "r"}]
    assert '\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>' in prompt(qwen3, {"messages": messages})


def test_an_empty_list_of_tools_is_refused(qwen3: Conversation) -> None:
    """D12, in the words of the server's own validation; the next question is answered."""
    refused = ask(qwen3, "render", request=json.dumps(says("Hi", tools=[])))
    assert isinstance(refused, Refused)
    assert refused.code == "BadRequestError"
    assert "`tools` must not be an empty array" in refused.message
    assert isinstance(ask(qwen3, "render", request=json.dumps(says("Hi"))), Answered)


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "f"}}])
def test_requests_with_tools_are_rendered_where_no_parser_is_known(vllm: Server, choice: object) -> None:
    """The server refuses them when it is started without a parser: that is how it was started, and no evidence of the
    prompt. SmolLM2's template ignores tools, so the prompt is the one without."""
    with Conversation(vllm, settings(snapshot("smollm2-135m-instruct")), print) as conversation:
        plain = ask(conversation, "render", request=json.dumps(says("Hi")))
        tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
        asked = says("Hi", tools=[tool], tool_choice=choice)
        assert ask(conversation, "render", request=json.dumps(asked)) == plain
    assert isinstance(plain, Answered)


def test_a_body_of_the_wrong_shape_is_refused_and_not_a_failure(qwen3: Conversation) -> None:
    """FastAPI's validation answers before any of vLLM's code; its message names the key that is missing."""
    refused = ask(qwen3, "render", request="{}")
    assert isinstance(refused, Refused)
    assert "body.messages" in refused.message


def test_a_request_the_server_refuses_cannot_be_parsed_for(qwen3: Conversation) -> None:
    """It is refused as its rendering is."""
    asked = json.dumps(says("Hi", tools=[]))
    rest = {"prompt_ids": [1], "ids": [13048], "stop_id": None, "plans": {}}
    refused = ask(qwen3, "parse", request=asked, **rest)
    assert refused == ask(qwen3, "render", request=asked)
    assert isinstance(refused, Refused)


# ── outputs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

ONE_SHOT = {
    "P1: no think tag, and thinking is on: all of it is reasoning": ("plain", message(None, "plain")),
    "P3: think is never closed": ("<think>\nhm", message(None, "\nhm")),
    "P4: text between and after calls is dropped": (
        f"{THOUGHT}pre {CALL} mid {CALL} post",
        message("\n\npre ", "\n\n", '{"x": "a"}', '{"x": "a"}'),
    ),
    "P5: tags on the line of the call": (
        THOUGHT + CALL.replace("\n", ""),
        message(None, "\n\n", '{"x": "a"}'),
    ),
    "P7: no arguments": (
        THOUGHT + '<tool_call>\n{"name": "f"}\n</tool_call>',
        message('\n\n<tool_call>\n{"name": "f"}\n</tool_call>', "\n\n"),
    ),
    "P11: the tag is never closed, the JSON is whole": (
        THOUGHT + CALL.removesuffix("\n</tool_call>"),
        message(None, "\n\n", '{"x": "a"}'),
    ),
    "P13: a call inside think is made, and the text after it lost": (
        f"<think>\nhm {CALL}\n</think>\n\nfinal",
        message(None, "\nhm ", '{"x": "a"}'),
    ),
    "P15: of a second think block only the closing tag is eaten": (
        f"{THOUGHT}a <think>b</think> c",
        message("\n\na <think>b c", "\n\n"),
    ),
    "P20: white space around text stays": (f"{THOUGHT}x\n\n{CALL}", message("\n\nx\n\n", "\n\n", '{"x": "a"}')),
    "arguments are written anew": (
        THOUGHT + '<tool_call>\n{"name": "f", "arguments": {"x":1e2}}\n</tool_call>',
        message(None, "\n\n", '{"x": 100.0}'),
    ),
}


@pytest.mark.parametrize("case", ONE_SHOT)
def test_what_one_shot_makes_of_an_output(qwen3: Conversation, case: str) -> None:
    """As observed of this release with the parsers hermes and qwen3."""
    text, expected = ONE_SHOT[case]
    assert modes(qwen3, text) == {"one-shot": expected}


def test_a_think_tag_is_text_when_thinking_is_off(qwen3: Conversation) -> None:
    """P2. SGLang takes what follows for reasoning."""
    off = {"enable_thinking": False}
    assert modes(qwen3, "say <think> now", chat_template_kwargs=off)["one-shot"] == message("say <think> now")


def test_without_tools_a_call_is_text(qwen3: Conversation) -> None:
    """P17."""
    assert modes(qwen3, THOUGHT + CALL, tools=None)["one-shot"] == message("\n\n" + CALL, "\n\n")


@pytest.mark.parametrize(
    ("output", "streamed"),
    [
        ('<tool_call>\n{"name": "f", "arguments": {"x": "b </tool_call> c"}}\n</tool_call>', ['{"x": "b']),
        ('<tool_call>\n{"name": "f", "arguments": {"x": "a', ['{"x": "a']),
        (CALL + '\n<tool_call>\n{"name": "f", "arguments": {"x": }}\n</tool_call>', ['{"x": "a"}', '{"x": }}']),
    ],
    ids=["P6: the closing tag inside a string", "P10: cut off", "P12: a good call and a bad one"],
)
def test_what_is_no_call_in_one_shot_is_one_when_streamed(
    qwen3: Conversation, output: str, streamed: list[str]
) -> None:
    """Half a call, or bad JSON as arguments: known of this release at one token per chunk."""
    found = modes(qwen3, THOUGHT + output, {"per_token": 1})
    assert found == {
        "one-shot": message("\n\n" + output, "\n\n"),
        "per_token": message("\n\n", "\n\n", *streamed),
    }


def test_a_stream_keeps_the_spelling_of_arguments(qwen3: Conversation) -> None:
    """One-shot writes `100.0`; whatever the chunks, a stream writes what came."""
    text = THOUGHT + '<tool_call>\n{"name": "f", "arguments": {"x":1e2}}\n</tool_call>'
    found = modes(qwen3, text, {"whole": 1000, "per_token": 1, "size-4": 4})
    assert [found[name] for name in ("whole", "per_token", "size-4")] == [message("\n\n", "\n\n", '{"x":1e2}')] * 3


def test_the_id_that_ends_the_turn_leaves_no_text(qwen3: Conversation) -> None:
    """As in the engine: the parser sees the id, and no text of it."""
    found = modes(qwen3, THOUGHT + "Yes.", {"whole": 1000, "per_token": 1})
    assert list(found.values()) == [message("\n\nYes.", "\n\n")] * 3


# ── text and ids ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_character_over_several_ids_comes_with_the_last_one(qwen3: Conversation) -> None:
    """Ids of `Hi 🪿!` and their pieces, by hand: the space waits for the bytes of the goose."""
    ids = [13048, 11162, 103, 123, 0]
    assert ask(qwen3, "tokenize", text="Hi 🪿!") == Answered({"ids": ids})
    answer = {"text": "Hi 🪿!", "pieces": ["Hi", "", "", " 🪿", "!"]}
    assert ask(qwen3, "detokenize", ids=ids) == Answered(answer)


def test_special_tokens_stay_in_a_text(qwen3: Conversation) -> None:
    """The server's default is to skip them."""
    assert ask(qwen3, "detokenize", ids=[END_OF_TURN]).value["text"] == "<|im_end|>"


def test_no_special_token_is_added_to_a_text(vllm: Server) -> None:
    """DeepSeek's tokenizer would write its first token, id 0."""
    with Conversation(vllm, settings(snapshot("deepseek-v3.1")), print) as conversation:
        assert ask(conversation, "tokenize", text="Hi") == Answered({"ids": [23166]})


# ── checkpoints ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_facts_name_the_parsers_and_what_was_added(qwen3: Conversation) -> None:
    """For the provenance: a narrowed config.json names no architecture."""
    assert qwen3.facts["parsers"] == [
        "vllm.parser.engine.adapters.Qwen3ParserReasoningAdapter",
        "vllm.tool_parsers.hermes_tool_parser.Hermes2ProToolParser",
    ]
    assert qwen3.facts["added to config.json"] == {"architectures": ["Qwen3ForCausalLM"]}


def test_harmony_sees_the_clock_it_is_told(vllm: Server) -> None:
    """The system message of gpt-oss names the day."""
    told = settings(snapshot("gpt-oss-20b"), tool_parser="openai", reasoning_parser="openai_gptoss")
    with Conversation(vllm, told, print) as conversation:
        ids = ask(conversation, "render", request=json.dumps(says("Hi"))).value["prompt_ids"]
    assert "Current date: 2026-01-15" in load_checkpoint("gpt-oss-20b").tokenizer.decode(ids)


def test_mistrals_own_tokenizer_is_an_option(vllm: Server) -> None:
    """vLLM takes it by itself where tekken.json stands beside the weights; a snapshot keeps it apart."""
    told = settings(
        snapshot("mistral-nemo-instruct-2407"), tool_parser="mistral", options={"tokenizer_mode": "mistral"}
    )
    with Conversation(vllm, told, print) as conversation:
        assert conversation.facts["tokenizer"] == "MistralTokenizer"
        rendered = ask(conversation, "render", request=json.dumps(says("Hi")))
    assert rendered.value["prompt_ids"] == [1, 3, 37133, 4]  # <s> [INST] Hi [/INST]


@pytest.mark.parametrize(
    ("slug", "others", "reason"),
    [
        ("kimi-k2-instruct", {}, "transformers names no architecture for kimi_k2"),
        (
            "olmo-3-7b-instruct",
            {},
            "does not start on .*: TypeError: Object of type Undefined is not JSON serializable",
        ),
        ("deepseek-v3-0324", {"reasoning_parser": "deepseek_r1"}, "does not start on .*think"),
        ("qwen3-8b", {"tool_parser": "nobodys"}, "does not start on .*nobodys"),
        ("qwen3-8b", {"options": {"colour": "red"}}, "unknown options for vLLM: colour"),
    ],
)
def test_a_checkpoint_it_cannot_be_started_on_is_not_loaded(vllm: Server, slug: str, others: dict, reason: str) -> None:
    """OLMo 3: a probe of the server renders the template without what it expects, and `vllm launch render` ends so."""
    with pytest.raises(NotLoaded, match=reason):
        vllm.open(settings(snapshot(slug), **others))


# ── the release before ───────────────────────────────────────────────────────────────────────────────────────────────

DEEPSEEK_CALL = (
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"x": "a"}\n```<｜tool▁call▁end｜>'
    "<｜tool▁calls▁end｜>"
)


@pytest.mark.parametrize(("release", "content"), [("vllm-0.33.0", "after"), ("vllm-0.32.0", None)])
def test_text_after_deepseeks_calls_is_kept_where_the_release_before_drops_it(
    release: str, content: str | None
) -> None:
    """P19: the one parsed output of 200 that 0.33.0 reads in another way than 0.32.0."""
    told = settings(snapshot("deepseek-v3-0324"), tool_parser="deepseek_v3")
    with engine(release) as server, Conversation(server, told, print) as conversation:
        refused = ask(conversation, "render", request=json.dumps(says("Hi", tools=[])))
        found = modes(conversation, DEEPSEEK_CALL + "after", {"size-4": 4}, stop_id=1)
    assert isinstance(refused, Refused)
    assert found["one-shot"] == message(content, None, '{"x": "a"}')
    assert found["size-4"]["message"]["tool_calls"] == [{"name": "f", "arguments": '{"x": "a"}'}]
