"""Lookups: the short way to a key gives what the sandbox gives, and attributes stay the sandbox's to judge."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from bellwether.oracles.lookups import hasten

NAMES = ["role", "content", "items", "get", "pop", "clear", "copy", "_x", "__class__", "__init__", "name", "obj", "é"]
VALUES = st.one_of(st.none(), st.text(max_size=3), st.integers(), st.just(len))


def environments() -> tuple[ImmutableSandboxedEnvironment, ImmutableSandboxedEnvironment]:
    slow, fast = ImmutableSandboxedEnvironment(), ImmutableSandboxedEnvironment()
    hasten(fast)
    return slow, fast


def outcome(environment: ImmutableSandboxedEnvironment, source: str, **variables: object) -> object:
    try:
        return environment.from_string(source).render(**variables)
    except (UndefinedError, SecurityError, TypeError) as error:
        return type(error), str(error).partition(" at 0x")[0]


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5), st.sampled_from(NAMES))
def test_any_lookup_gives_what_the_sandbox_gives(value, name):
    """Keys there and not, keys named like attributes, hidden attributes; read, tested, called and read on."""
    slow, fast = environments()
    for source in ("{{ x.%s }}", "{{ x.%s is defined }}", "{{ x.%s() }}", "{{ x.%s.a }}", "{{ x['%s'] }}"):
        for kind in (dict, OrderedDict, lambda pairs: SimpleNamespace(**pairs)):
            made = kind(value)
            assert outcome(fast, source % name, x=made) == outcome(slow, source % name, x=made)


@pytest.mark.parametrize(
    "source", ["{{ x.__class__.__mro__ }}", "{{ x.clear() }}", "{{ x.get.__self__.role }}", "{{ x.pop('role') }}"]
)
def test_sandbox_still_forbids(source):
    """Ways out of the sandbox and changes of a message end as they do without the short way."""
    message = {"role": "user"}
    slow, fast = environments()
    assert outcome(fast, source, x=message) == outcome(slow, source, x=message)
    assert outcome(fast, source, x=message)[0] is SecurityError
    assert message == {"role": "user"}


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ns", "text", "list", "loop", "message"]),
            st.sampled_from([*NAMES, "append", "upper", "format", "mro", "first", "__globals__"]),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_remembered_verdicts_are_those_of_the_sandbox(asked):
    """One environment for all questions, so that later ones are answered from memory: each ends the same."""
    slow, fast = environments()
    for what, name in asked:
        source = f"{{% set ns = namespace(role=message) %}}{{% for x in list %}}{{{{ {what}.{name} }}}}{{% endfor %}}"
        values = {"message": {"role": "user"}, "text": "a", "list": [1]}
        assert _shape(outcome(fast, source, **values)) == _shape(outcome(slow, source, **values))


def _shape(outcome: object) -> object:
    return outcome if isinstance(outcome, tuple) else re.sub(r"0x[0-9a-f]+", "", outcome)


def test_verdict_is_asked_for_once_per_type_and_name(monkeypatch):
    """A namespace is asked about in every step of a loop; objects of other kinds are judged each time."""
    judged = []
    judge = ImmutableSandboxedEnvironment.is_safe_attribute
    monkeypatch.setattr(
        ImmutableSandboxedEnvironment,
        "is_safe_attribute",
        lambda self, value, name, attribute: judged.append(name) or judge(self, value, name, attribute),
    )
    _, fast = environments()
    template = fast.from_string("{% set ns = namespace(a=1) %}{% for i in range(9) %}{{ ns.a }}{{ x.b }}{% endfor %}")
    template.render(x=SimpleNamespace(b=2))
    assert Counter(judged) == {"a": 1, "b": 9}


def test_key_is_looked_up_without_asking_the_sandbox(monkeypatch):
    """That is the gain; another mapping and an attribute's name still go through it."""
    asked = []
    monkeypatch.setattr(
        ImmutableSandboxedEnvironment, "getattr", lambda self, value, name: asked.append(name) or "asked"
    )
    _, fast = environments()
    assert (
        fast.from_string("{{ x.role }} {{ x.items }} {{ y.role }}").render(
            x={"role": "user"}, y=OrderedDict(role="user")
        )
        == "user asked asked"
    )
    assert asked == ["items", "role"]
