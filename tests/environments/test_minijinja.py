"""MiniJinja as a witness, in its own environment: what is asked of it, and what it makes of that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asking import checkpoint, engine, facts, outcomes, says, text
from asking import settings as told
from bellwether.witnesses.conversation import Conversation
from bellwether.witnesses.outcome import Answered, Failed, NotLoaded, Refused
from bellwether.witnesses.process import Server
from support import snapshot

TOOL = {"type": "function", "function": {"name": "f", "description": "<b> & 'c'", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def minijinja() -> Iterator[Server]:
    """The engine, imported once."""
    with engine("minijinja-3.1.0") as server:
        yield server


@pytest.fixture(scope="module")
def echo(minijinja: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversation]:
    """A checkpoint whose template writes the content and the tools it sees."""
    folder = checkpoint(tmp_path_factory.mktemp("echo"), "{{ tools | tojson }}|{{ messages[0].content }}")
    with Conversation(minijinja, told(folder), print) as conversation:
        yield conversation


def test_a_plain_chat_is_what_the_template_says(minijinja: Server) -> None:
    """Qwen3's format, from its model card."""
    prompt = text(minijinja, snapshot("qwen3-8b"), says("Hello <there> & 'you'"))
    assert prompt == "<|im_start|>user\nHello <there> & 'you'<|im_end|>\n<|im_start|>assistant\n"


def test_stock_tojson_escapes_what_html_would_need(minijinja: Server) -> None:
    """`<`, `>`, `&` and `'` as \\u003c, \\u003e, \\u0026, \\u0027: json.dumps leaves all four alone."""
    prompt = text(minijinja, snapshot("qwen3-8b"), says("Hi", tools=[TOOL]))
    assert r'"description": "\u003cb\u003e \u0026 \u0027c\u0027"' in prompt


def test_stock_tojson_has_no_options_of_pythons(minijinja: Server) -> None:
    """GLM-4.6 writes tools with `tojson(ensure_ascii=False)`."""
    with_tools, without = outcomes(minijinja, snapshot("glm-4.6"), says("Hi", tools=[TOOL]), says("Hi"))
    assert with_tools == Refused("template-error", "TooManyArguments: unknown keyword argument 'ensure_ascii'")
    assert isinstance(without, Answered)


def test_no_tools_are_none_to_a_template(minijinja: Server) -> None:
    """OLMo 3 asks `tools is none`. JSON's null is no word of the template language."""
    assert "You do not currently have access to any functions." in text(
        minijinja, snapshot("olmo-3-7b-instruct"), says("Hi")
    )


def test_a_template_that_refuses_is_a_refusal(minijinja: Server, tmp_path: Path) -> None:
    """raise_exception with its own words, engine errors with kind and detail; the next question is answered."""
    template = "{% if messages[0].content == 'no' %}{{ raise_exception('Not this.') }}{% endif %}{{ messages[0].x.y }}"
    folder = checkpoint(tmp_path, template)
    x = {"messages": [{"role": "user", "content": "", "x": {"y": "z"}}]}
    assert outcomes(minijinja, folder, says("no"), says("yes"), x) == [
        Refused("template-error", "Not this."),
        Refused("template-error", "UndefinedError: `messages[0].x` is undefined"),
        Answered({"prompt_ids": None, "prompt_text": "z"}),
    ]


def test_a_template_without_an_end_is_stopped_and_is_no_evidence(minijinja: Server, tmp_path: Path) -> None:
    loop = "{% for i in range(99999) %}{% for i in range(99999) %}{% endfor %}{% endfor %}"
    folder = checkpoint(tmp_path, f"{{% if messages[0].content == 'loop' %}}{loop}{{% endif %}}A")
    stopped, fine = outcomes(minijinja, folder, says("loop"), says("no loop"))
    assert isinstance(stopped, Failed) and stopped.code == "OutOfFuel"
    assert fine == Answered({"prompt_ids": None, "prompt_text": "A"})


def test_syntax_the_engine_does_not_know_stops_the_checkpoint(minijinja: Server, tmp_path: Path) -> None:
    """`generation` is a block of transformers' own."""
    with pytest.raises(NotLoaded, match="unknown statement generation"):
        facts(minijinja, checkpoint(tmp_path, "{% generation %}{% endgeneration %}"))


def test_half_a_surrogate_pair_is_refused(minijinja: Server) -> None:
    bad, good = outcomes(minijinja, snapshot("qwen3-8b"), says("a\ud83d"), says("a😀"))
    assert bad == Refused("invalid-json", "a lone surrogate: U+D83D")
    assert "a😀" in good.value["prompt_text"]


def test_nesting_the_template_language_cannot_write_is_no_evidence(echo: Conversation) -> None:
    deep: list = []
    for _ in range(100):
        deep = [deep]
    [outcome] = echo.outcomes([{"kind": "render", "request": json.dumps(says("", tools=deep))}])
    assert isinstance(outcome, Failed) and outcome.code == "Unwritable"


def test_other_kinds_are_no_questions_to_a_template_engine(echo: Conversation) -> None:
    [outcome] = echo.outcomes([{"kind": "tokenize", "text": "a"}])
    assert isinstance(outcome, Failed)


@pytest.mark.parametrize(
    ("template", "written"),
    [
        ("  {% if messages %}\nA\n  {% endif %}\nB\n", "A\nB"),  # lstrip_blocks, trim_blocks, no newline at the end
        ("\nA", "\nA"),
        ("{{- ' A' }}", " A"),
        ("{% set messages = 'own' %}{{ messages }}", "own"),
        ("{% macro m() %}{{ messages[0].content }}{{ bos_token }}{% endmacro %}{{ m() }}", "Hi<s>"),
    ],
)
def test_a_template_stands_as_if_alone(minijinja: Server, tmp_path: Path, template: str, written: str) -> None:
    """The variables in front of it change no white space of it, and are seen wherever variables are."""
    assert text(minijinja, checkpoint(tmp_path, template, bos_token="<s>"), says("Hi")) == written


@pytest.mark.parametrize("expression", ["messages[0].copy()", "messages[0].update({})", "messages[0].pop('role')"])
def test_values_are_the_engines_own_not_pythons(minijinja: Server, tmp_path: Path, expression: str) -> None:
    """A gateway in Rust has no dict of Python: what only a dict can do must not work here."""
    [outcome] = outcomes(minijinja, checkpoint(tmp_path, f"{{{{ {expression} }}}}"), says("Hi"))
    assert isinstance(outcome, Refused) and outcome.message.startswith("UnknownMethod")


def test_a_key_named_like_a_method_of_a_dict_is_only_a_key(minijinja: Server, tmp_path: Path) -> None:
    """JSON schemas have `items`; where they have none, Python's dict would give its method."""
    template = "{{ messages[0].items is defined }} {{ messages[0].keys() | list }}"
    assert text(minijinja, checkpoint(tmp_path, template), says("Hi")) == "False ['role', 'content']"


def test_kwargs_reach_the_template_and_go_before_special_tokens(minijinja: Server, tmp_path: Path) -> None:
    folder = checkpoint(
        tmp_path, "{{ bos_token }}{{ eos_token }}{{ a.b }}{{ messages[0].content }}", bos_token="<s>", eos_token="</s>"
    )
    request = says("Hi", chat_template_kwargs={"bos_token": "<b>", "a": {"b": 1}, "messages": [], "no name": 1})
    assert text(minijinja, folder, request) == "<b></s>1Hi"


def test_the_clock_is_the_projects_and_is_said(minijinja: Server, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "{{ strftime_now('%d %B %Y, %H:%M') }}")
    assert text(minijinja, folder, says("Hi")) == "15 January 2026, 12:00"
    assert facts(minijinja, folder, clock="2027-10-02T23:30:00")["clock"] == "2027-10-02T23:30:00"


def test_how_it_is_set_up_is_said(minijinja: Server) -> None:
    """The digest is the checkpoint's template as its manifest's file has it."""
    said = facts(minijinja, snapshot("qwen3-8b"))
    assert said["minijinja"] == "3.1.0"
    assert said["environment"]["tojson"] == "stock"
    assert set(said["chat_templates"]) == {"default"}


PLAIN = st.characters(exclude_categories=["Cs"])
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(PLAIN),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(PLAIN), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.text(PLAIN), value=VALUES)
def test_every_json_value_arrives_as_it_is(echo: Conversation, content: str, value: object) -> None:
    """Text to the character; other values by what the engine writes of them as JSON, key order included."""
    [outcome] = echo.outcomes([{"kind": "render", "request": json.dumps(says(content, tools=value))}])
    found, end = json.JSONDecoder().raw_decode(outcome.value["prompt_text"])
    assert json.dumps(found) == json.dumps(value)
    assert outcome.value["prompt_text"][end:] == f"|{content}"
