"""Copies of messages: the short way gives what transformers gives, for JSON data and for everything else."""

from __future__ import annotations

import enum
from collections import OrderedDict
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import tokenization_utils_base
from transformers.utils import chat_template_utils

from bellwether.oracles.copies import COPIES, hasten_copies, short_way


class Role(enum.StrEnum):
    USER = "user"


@dataclass
class Message:
    role: str
    content: object


class Model:
    def model_dump(self):
        return {"role": Role.USER, "content": None}


class Number(int):
    pass


ODD = [Role.USER, Number(3), Message("user", ["a", Role.USER]), Model(), np.float32(1.5), np.bool_(False), len, b"x"]
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3))
keys = st.one_of(st.text(max_size=3), st.integers(), st.sampled_from([Role.USER, Number(3), (1, Role.USER)]))
values = st.recursive(
    st.one_of(scalars, st.sampled_from(ODD)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
        inner.map(lambda content: Message("user", content)),
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("name", COPIES)
@settings(deadline=None, max_examples=300)
@given(values)
def test_copy_is_what_transformers_makes(name, value):
    """Equal values of equal types at every place, in equal order, whatever kinds are mixed."""
    function = getattr(chat_template_utils, name)
    long_way = getattr(function, "long_way", function)
    assert shown(short_way(long_way)(value)) == shown(long_way(value))


def shown(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return type(value), [shown(item) for item in value]
    if isinstance(value, dict):
        return type(value), [(shown(key), shown(item)) for key, item in value.items()]
    return type(value), repr(value).partition(" at 0x")[0]


def test_copy_shares_nothing_that_can_change():
    """transformers marks the end of a message it continues in the copy, never in the caller's."""
    message = {"role": "user", "content": [{"type": "text", "text": "a"}], "tool_calls": []}
    copy = short_way(chat_template_utils._plain_template_data)(message)
    assert copy == message
    for name in ("content", "tool_calls"):
        assert copy[name] is not message[name]
    assert copy["content"][0] is not message["content"][0]


def test_short_way_is_taken_once(monkeypatch):
    """A second checkpoint in one process changes nothing more."""
    original = SimpleNamespace()
    for name in COPIES:
        function = getattr(chat_template_utils, name)
        setattr(original, name, getattr(function, "long_way", function))
        monkeypatch.setattr(chat_template_utils, name, getattr(original, name))
    normal = tokenization_utils_base._normalize_chat_messages
    monkeypatch.setattr(tokenization_utils_base, "_normalize_chat_messages", getattr(normal, "long_way", normal))
    hasten_copies()
    first = [getattr(chat_template_utils, name) for name in COPIES]
    once = tokenization_utils_base._normalize_chat_messages
    hasten_copies()
    assert [getattr(chat_template_utils, name) for name in COPIES] == first
    assert [function.long_way for function in first] == [getattr(original, name) for name in COPIES]
    assert tokenization_utils_base._normalize_chat_messages is once
    assert once.long_way is chat_template_utils._normalize_chat_messages
