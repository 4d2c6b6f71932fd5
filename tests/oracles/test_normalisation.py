"""Messages as vLLM hands them to a template."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bellwether.oracles.content_format import OPENAI, STRING
from bellwether.oracles.normalisation import NonTextPart, as_vllm, normalised


def test_normalised_message_is_as_vllm_hands_it_over():
    """String arguments become objects, unreadable ones `{}`, empty tool_calls go, other keys and their order stay."""
    message = {
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"b": 1, "a": 2}'}},
            {"function": {"name": "g", "arguments": "[1]"}},
            {"function": {"name": "h", "arguments": {"x": None}}},
            {"function": {"name": "i"}},
        ],
        "role": "assistant",
        "content": None,
    }
    result = normalised(message)
    assert list(result) == ["tool_calls", "role", "content"]
    assert [one["function"]["arguments"] for one in result["tool_calls"]] == [{"b": 1, "a": 2}, {}, {"x": None}, {}]
    assert list(result["tool_calls"][0]["function"]["arguments"]) == ["b", "a"]
    assert normalised({"role": "assistant", "content": "x", "tool_calls": []}) == {"role": "assistant", "content": "x"}
    assert normalised({"role": "user", "tool_calls": []}) == {"role": "user", "tool_calls": []}


def test_content_as_parts():
    """Text becomes one part, null and a missing content none; parts and messages of tools stay as they are."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [
        {"content": "x", "role": "user"},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": None},
        {"role": "assistant"},
        {"role": "system", "content": parts},
        {"role": "tool", "content": "y"},
        {"role": "tool", "content": None},
    ]
    handed = as_vllm(messages, OPENAI)
    text = [{"type": "text", "text": "x"}]
    assert [message.get("content") for message in handed] == [
        *(text, [{"type": "text", "text": ""}], [], [], parts, "y", None)
    ]
    assert list(handed[0]) == ["content", "role"]


def test_content_as_sent():
    """A template that does not loop over content gets it as it is, parts and images too."""
    parts = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": None}, {"role": "assistant"}]
    assert as_vllm(messages, STRING) == messages


@pytest.mark.parametrize(
    ("part", "kind"),
    [({"type": "image_url", "image_url": {}}, "image_url"), ({"text": "x"}, "None"), ("x", "str"), (None, "NoneType")],
)
def test_part_that_is_no_text(part, kind):
    """Named with the place of its message."""
    messages = [{"role": "user", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": ""}, part]}]
    with pytest.raises(NonTextPart, match=f"message 1 has a part of type {kind}"):
        as_vllm(messages, OPENAI)


values = st.none() | st.booleans() | st.integers() | st.text(max_size=4)
message_objects = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"])},
    optional={
        "content": st.none() | st.text(max_size=4) | st.just([{"type": "text", "text": "t"}]),
        "tool_calls": st.lists(
            st.fixed_dictionaries(
                {"function": st.fixed_dictionaries({"name": st.text(max_size=3), "arguments": st.text(max_size=6)})}
            ),
            max_size=2,
        ),
        "name": values,
    },
)


@given(st.lists(message_objects, max_size=4), st.sampled_from([STRING, OPENAI]))
def test_normalising_is_done_once_and_changes_nothing_it_is_given(messages, form):
    """A second time changes nothing more, and the caller's messages stay what they were."""
    before = json.dumps(messages)
    handed = as_vllm(messages, form)
    assert as_vllm(handed, form) == handed
    assert json.dumps(messages) == before
    assert [message["role"] for message in handed] == [message["role"] for message in messages]
