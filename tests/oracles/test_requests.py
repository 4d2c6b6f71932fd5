"""Requests parsed one after the other are what each is alone; what two spell alike is one object."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bellwether.oracles.requests import parsed

scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text('a"\\[]{},: é', max_size=4))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text("ab", max_size=2), inner, max_size=3)),
    max_leaves=5,
)
messages = st.lists(
    st.one_of(st.dictionaries(st.sampled_from(["role", "content", "messages"]), values, max_size=3), values), max_size=5
)
others = st.dictionaries(st.sampled_from(["tools", "chat_template_kwargs", "model"]), values, max_size=2)
DUMPS = [{}, {"separators": (",", ":")}, {"indent": 1}, {"ensure_ascii": False}]


def exact(value: object) -> str:
    """Types, order and every digit: 1 equals True and 1.0, and NaN not even itself."""
    return repr(value)


@settings(deadline=None)
@given(st.data())
def test_requests_are_what_each_text_is_alone(data):
    """Turns of conversations, with prefixes kept, cut and changed, members before and after, printed in all ways."""
    texts, turns, rest = [], [], {}
    for _ in range(data.draw(st.integers(1, 6))):
        turns = turns[: data.draw(st.integers(0, len(turns)))] + data.draw(messages)
        rest = data.draw(st.one_of(st.just(rest), others))
        request = {"messages": turns, **rest} if data.draw(st.booleans()) else {**rest, "messages": turns}
        texts.append(json.dumps(request, **data.draw(st.sampled_from(DUMPS))))
    assert exact(list(parsed(texts))) == exact([json.loads(text) for text in texts])


FIRST = '{"messages":[{"role":"user","content":"a"}],"tools":[{"x":1}]}'
ODD = [
    '{"messages":[{"role":"user","content":"a"}],"tools":[{"x":1}],"messages":[{"b":1}]}',
    '{"messages":[{"role":"user","content":"a"}],"tools":[{"x":1}],"mess\\u0061ges":null}',
    '{"messages":[{"role":"user","content":"a"}],"tools":[{"x":true}]}',
    '{"messages":[{"role":"user","content":"a"},7],"tools":[{"x":1}]}',
    '{"messages":[{"role":"user","content":"a"} , {"b":2} ] , "tools":[{"x":1}] } ',
    '{"messages":[{"role":"user","content":"ab"}],"tools":[{"x":1.0}]}',
    '{"messages":[{"role":"user","content":"a"}]}',
    '{"messages":[],"tools":[{"x":1}]}',
    '{"messages":{"role":"user"}}',
    '{"tools":[{"x":1}]}',
    "[]",
]


@pytest.mark.parametrize("text", ODD)
def test_odd_request_after_one_alike_is_what_it_is_alone(text):
    """Members named twice, values that are equal and print otherwise, spaces, and what is no request at all."""
    assert exact(list(parsed([FIRST, text, FIRST]))) == exact([json.loads(one) for one in (FIRST, text, FIRST)])


BROKEN = [
    '{"messages":[{"role":"user","content":"a"}],}',
    '{"messages":[{"role":"user","content":"a"}],"tools":[{"x":1}]}}',
    '{"messages":[{"role":"user","content":"a"},],"tools":[{"x":1}]}',
    '{"messages":[{"role":"user","content":"a"}] "tools":[{"x":1}]}',
    '{"messages":[{"role":"user","content":"a"}{}],"tools":[{"x":1}]}',
    '{"messages":[{"role":"user","content":"a"}],"tools":[{"x":1}]',
    '{"messages":[{"role":"user","content":"a"},\u00a0{}]}',
    '{"messages":[',
]


@pytest.mark.parametrize("text", BROKEN)
def test_broken_text_raises_what_json_raises(text):
    """Also after a request that begins alike, where only its end is read."""
    with pytest.raises(json.JSONDecodeError) as alone:
        json.loads(text)
    with pytest.raises(json.JSONDecodeError) as after:
        list(parsed([FIRST, text]))
    assert str(after.value) == str(alone.value)


def test_what_two_requests_spell_alike_is_one_object():
    """The earlier messages of a conversation, and its tools; a message with one more letter is another."""
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    longer = {**turns[2], "content": "cd"}
    asked = [turns[:1], turns, [*turns[:2], longer], turns[:2]]
    first, second, third, fourth = parsed(json.dumps({"messages": one, "tools": [{"x": 1}]}) for one in asked)
    assert second["messages"][0] is first["messages"][0]
    assert [one is other for one, other in zip(third["messages"], second["messages"], strict=True)] == [
        True,
        True,
        False,
    ]
    assert [one is other for one, other in zip(fourth["messages"], third["messages"], strict=False)] == [True, True]
    assert first["tools"] is second["tools"] is third["tools"] is fourth["tools"]
    assert first["messages"] == turns[:1], "a later request added to an earlier one's list"
