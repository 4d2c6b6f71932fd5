"""Renders of one case share copies of its tools and their JSON text: what templates write stays the same."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from bellwether.oracles import shared
from bellwether.oracles.shared import once_per_case, one_case, print_once_per_case
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
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3)),
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
