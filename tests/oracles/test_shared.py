"""Renders of one case share copies of its tools and their JSON text: what templates write stays the same."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from bellwether.corpora import traces
from bellwether.oracles import render, shared
from bellwether.oracles.prompts import HUB_TEMPLATE
from bellwether.oracles.shared import once_per_case, once_per_message, one_batch, one_case, print_once_per_case
from support import load_checkpoint

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}}


@pytest.fixture
def copied() -> tuple[list, object]:
    """Values that were copied so far, and the copying function."""
    asked = []

    def copy(value):
        asked.append(value)
        return json.loads(json.dumps(value))

    return asked, once_per_case(copy)


def test_tools_of_a_case_are_copied_once(copied):
    """transformers hands over a new list of the same tools each time; it gets a new list of the same copies."""
    asked, copy = copied
    tools = [TOOL, {**TOOL}]
    with one_case(tools):
        first, second = copy(list(tools)), copy(list(tools))
    assert len(asked) == 1
    assert first == second == tools
    assert first is not second and first[0] is second[0] is not TOOL


@pytest.mark.parametrize("value", [[TOOL], [TOOL, TOOL], [TOOL, json.loads(json.dumps(TOOL))], [], {"a": 1}, "a", None])
def test_anything_but_the_tools_of_the_case_is_copied_each_time(copied, value):
    """Equal tools are not the same tools: 1 equals 1.0, and prints otherwise."""
    asked, copy = copied
    with one_case([TOOL, {**TOOL}]):
        assert copy(value) == copy(value) == value
    assert asked == [value, value]


def test_nothing_outlives_a_case(copied):
    """After the body, also one that raised, tools are copied again; a case within another has its own."""
    asked, copy = copied
    tools, inner = [TOOL], [{**TOOL}]
    with pytest.raises(ZeroDivisionError), one_case(tools):
        copy(tools)
        with one_case(inner):
            copy(inner)
            copy(tools)
        copy(tools)
        raise ZeroDivisionError
    copy(tools)
    assert len(asked) == 4
    assert shared._case is None
    with one_case(None):
        copy(None)
    assert asked[-1] is None


# ── messages of a batch ──────────────────────────────────────────────────────────────────────────────────────────────


def turns(count: int) -> list[dict]:
    return [{"role": "user", "content": [{"type": "text", "text": f"Turn {place}."}]} for place in range(count)]


@pytest.fixture
def copied_messages() -> tuple[list, object]:
    """Messages that were copied so far, and the copying function."""
    asked = []

    def copy(messages):
        asked.extend(messages)
        return json.loads(json.dumps(messages))

    return asked, once_per_message(copy)


def test_message_of_a_batch_is_copied_once_but_the_last_one_each_time(copied_messages):
    """transformers marks the end of the last message in its copy, also where it is the last of several cases."""
    asked, copy = copied_messages
    messages, tools = turns(3), [TOOL]
    with one_batch():
        for length in (2, 3):
            with one_case(tools):
                first, second = copy(messages[:length]), copy(messages[:length])
                assert first == second == messages[:length]
                assert first is not second and first[0] is second[0] is not messages[0]
                first[-1]["content"][0]["text"] += "MARK"
        with one_case(tools):
            assert copy(messages) == messages
    assert [message["content"][0]["text"] for message in asked] == ["Turn 0.", *["Turn 1."] * 3, *["Turn 2."] * 3]


def test_messages_are_copied_each_time_where_they_may_change(copied_messages):
    """Outside a batch: a round trip changes what it renders."""
    asked, copy = copied_messages
    messages = turns(2)
    with one_case([TOOL]):
        copy(messages)
        messages[0]["content"] = "Changed."
        assert copy(messages)[0]["content"] == "Changed."
    assert len(asked) == 4


def test_cases_of_a_batch_share_only_the_same_tools(copied, copied_messages):
    """Equal tools are not the same tools; nothing outlives a batch, and one within another has its own."""
    asked, copy = copied
    _, copy_messages = copied_messages
    tools, messages = [TOOL], turns(2)
    with one_batch():
        for given_tools in (tools, tools, [TOOL], tools):
            with one_case(given_tools):
                copy(given_tools)
        assert len(asked) == 3
        with one_case(tools):
            outer = copy_messages(messages)[0]
            with one_batch(), one_case(tools):
                assert copy_messages(messages)[0] is not outer
            assert copy_messages(messages)[0] is outer
    assert shared._batch is shared._case is None


# ── tojson ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def environments() -> list[ImmutableSandboxedEnvironment]:
    """One with a filter of transformers' kind, and one that prints once per case."""

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = [ImmutableSandboxedEnvironment(), ImmutableSandboxedEnvironment()]
    for environment in made:
        environment.filters["tojson"] = tojson
    print_once_per_case(made[1])
    return made


def outcome(environment: ImmutableSandboxedEnvironment, source: str, values: dict) -> object:
    try:
        return environment.from_string(source).render(values)
    except (TypeError, ValueError, TemplateError) as error:
        return type(error), str(error)


OPTIONS = ["", "()", "(indent=1)", "(indent=true)", "(indent=1.0)", "(indent=4)", "(sort_keys=true)", "(true)", "(1)"]
OPTIONS += ["(ensure_ascii=true)", "(separators=(',', ':'))", "(separators=[',', ':'])", "(indent=x)", "(none, 2)"]
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 99), st.floats(allow_nan=False), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=2), inner, max_size=3)),
    max_leaves=6,
)


@settings(deadline=None)
@given(
    st.lists(values, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(OPTIONS), st.booleans()), min_size=1, max_size=12),
)
def test_whatever_is_printed_is_what_the_filter_prints(objects, asked):
    """One case, many renders: objects in turn, with all options, also such that are made in the template and gone."""
    plain, once = environments()
    with one_case([]):
        for place, options, made in asked:
            values = {"x": objects[place % len(objects)]}
            source = f"{{{{ {'[x, dict(a=x)]' if made else 'x'}|tojson{options} }}}}"
            for environment in (plain, once):
                environment.globals["dict"] = dict
            assert outcome(once, source, values) == outcome(plain, source, values)


def test_object_is_printed_once_per_case(monkeypatch):
    """And once more with other options, and once more outside."""
    _, once = environments()
    printed, dumps = [], json.dumps
    monkeypatch.setattr(json, "dumps", lambda value, **options: printed.append(value) or dumps(value, **options))
    template = once.from_string("{{ x|tojson }}{{ x|tojson(indent=1) }}")
    with one_case([]):
        assert template.render(x=TOOL) == template.render(x=TOOL)
    assert len(printed) == 2
    template.render(x=TOOL)
    template.render(x=TOOL)
    assert len(printed) == 6


def test_filter_is_replaced_once():
    """Compiled templates are shared by all checkpoints of a process that have the same text."""
    _, once = environments()
    replaced = once.filters["tojson"]
    print_once_per_case(once)
    assert once.filters["tojson"] is replaced


# ── checkpoints ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("slug", ["qwen3-8b", "gpt-oss-20b", "mistral-7b-instruct-v0.3", "kimi-k2-instruct"])
def test_prompts_of_a_case_are_those_of_renders_alone(slug):
    """Tools that are equal and print otherwise, one after the other, each rendered twice."""
    checkpoint = load_checkpoint(slug)
    messages = [{"role": "user", "content": "Hi."}]

    def tools(number: object) -> list[dict]:
        properties = {"a": {"type": "number", "description": "A number", "default": number}}
        parameters = {"type": "object", "properties": properties, "required": ["a"]}
        return [{"type": "function", "function": {"name": "f", "description": "Do it", "parameters": parameters}}]

    def text(asked: list[dict]) -> str:
        return checkpoint.render(messages, asked, {}, add_generation_prompt=True)

    given_tools = [tools(number) for number in (1, 1.0, True)]
    alone = [text(asked) for asked in given_tools]
    together = []
    for asked in given_tools:
        with one_case(asked):
            together += [text(asked), text(asked)]
    assert together[::2] == together[1::2] == alone
    assert len(set(alone)) == 3


@pytest.mark.parametrize("slug", ["mistral-7b-instruct-v0.3", "gemma-4-e4b-it", "gpt-oss-20b", "qwen3-8b"])
def test_answers_to_a_batch_are_those_to_cases_alone(slug):
    """Turns of a conversation, then the same with content in parts; each generated, continued, and generated again."""
    checkpoint = load_checkpoint(slug)
    authority = {**checkpoint.manifest.authority, "render": (HUB_TEMPLATE,)}
    checkpoint = replace(checkpoint, manifest=replace(checkpoint.manifest, authority=authority))
    turns = [json.loads(case.request) for case in islice(traces.cases(1, 1), 6)]
    parts = [{**turn, "messages": [in_parts(message) for message in turn["messages"]]} for turn in turns]
    requests = [{**turn, **way} for turn in turns + parts for way in ({}, {"continue_final_message": True}, {})]
    cases = [{"case_id": f"render/x/{place}", "request": json.dumps(one)} for place, one in enumerate(requests)]
    alone = [row for case in cases for row in render.answer(checkpoint, [case])]
    assert render.answer(checkpoint, cases) == alone
    assert {row["outcome"] for row in alone} >= {"result"}


def in_parts(message: dict) -> dict:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}
