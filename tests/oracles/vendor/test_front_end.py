"""What reaches an encoder: vLLM 0.33.0's way with messages. Values by hand, from reading its front end."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bellwether.oracles.vendor import VendorRefused, deepseek, harmony, kimi_k3, mistral_common
from bellwether.oracles.vendor.front_end import conversation, messages_of, template_kwargs, text_parts


def handed_over(message: dict, content_format: str = "string") -> dict:
    [one] = conversation(messages_of({"messages": [message]}), content_format)
    return one


@pytest.mark.parametrize(
    ("content", "as_string", "as_parts"),
    [
        ("hi", "hi", [{"type": "text", "text": "hi"}]),
        ("", "", [{"type": "text", "text": ""}]),
        (None, "", []),
        ([], "", []),
        (["a", "b"], "a\nb", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
        (
            [{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "input_text", "text": "b"}],
            "a\nb",
            [{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "text", "text": "b"}],
        ),
        ([{"type": "text", "text": None}], "", []),
        ([{"type": "text", "text": "a", "cache": 1}], "a", [{"type": "text", "text": "a", "cache": 1}]),
        ([{"type": "refusal", "refusal": "no"}], "no", [{"type": "text", "text": "no"}]),
    ],
)
def test_content_as_string_and_as_parts(content: object, as_string: str, as_parts: list) -> None:
    """Parts are joined by a line end, empty ones left out; as parts they all stay, with what they carry beside text."""
    message = {"role": "user", "content": content}
    assert handed_over(message) == {"role": "user", "content": as_string}
    assert handed_over(message, "openai") == {"role": "user", "content": as_parts}


def test_a_tools_result_is_always_a_string() -> None:
    """Also where other content stays in parts; empty parts then stay as empty lines."""
    message = {
        "role": "tool",
        "tool_call_id": "x",
        "content": [{"type": "text", "text": one} for one in ("a", "", "b")],
    }
    assert handed_over(message) == {"role": "tool", "content": "a\nb", "tool_call_id": "x"}
    assert handed_over(message, "openai") == {"role": "tool", "content": "a\n\nb", "tool_call_id": "x"}


@pytest.mark.parametrize(
    "part", [{"type": "image_url", "image_url": {}}, {"text": "x"}, 7, {"type": "text", "text": 7}]
)
def test_a_part_that_is_no_text_is_refused(part: object) -> None:
    """References are about texts."""
    with pytest.raises(VendorRefused):
        text_parts([part])


@pytest.mark.parametrize(
    ("given_", "reasoning"),
    [
        ({"reasoning": "a"}, "a"),
        ({"reasoning_content": "a"}, "a"),
        ({"reasoning": "a", "reasoning_content": "b"}, "a"),
        ({"reasoning": None, "reasoning_content": "b"}, "b"),
    ],
)
def test_reasoning_has_one_value_under_two_names(given_: dict, reasoning: str) -> None:
    """`reasoning` wins over the older name, and the encoder finds it under both."""
    message = handed_over({"role": "assistant", "content": "x", **given_})
    assert (message["reasoning"], message["reasoning_content"]) == (reasoning, reasoning)


def test_only_an_assistant_reasons() -> None:
    """On another role the key is dropped, as every key that no encoder is given."""
    message = {"role": "user", "content": "x", "reasoning": "a", "prefix": True, "name": "bob", "task": 7}
    assert handed_over(message) == {"role": "user", "content": "x", "name": "bob"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [('{"a":1}', {"a": 1}), ({"a": 1}, {"a": 1}), ("", {}), ("no JSON", {}), ("[1]", {}), (None, {})],
)
def test_arguments_become_objects(arguments: object, expected: dict) -> None:
    """What is no JSON text of an object becomes an empty one, so that a conversation can go on."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    message = handed_over({"role": "assistant", "content": None, "tool_calls": [call]})
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": expected}


def test_an_empty_list_of_calls_is_dropped() -> None:
    """The turn is a plain one then."""
    assert "tool_calls" not in handed_over({"role": "assistant", "content": "x", "tool_calls": []})


@pytest.mark.parametrize("call", [7, {"type": "custom", "function": {}}, {"type": "function"}])
def test_a_call_of_no_function_is_refused(call: object) -> None:
    """An HTTP 400 of the server."""
    with pytest.raises(VendorRefused):
        handed_over({"role": "assistant", "content": "x", "tool_calls": [call]})


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({}, {"add_generation_prompt": True, "continue_final_message": False}),
        ({"continue_final_message": True}, {"add_generation_prompt": False, "continue_final_message": True}),
        (
            {"chat_template_kwargs": {"thinking": True, "reasoning_effort": "low"}},
            {
                "thinking": True,
                "reasoning_effort": "low",
                "add_generation_prompt": True,
                "continue_final_message": False,
            },
        ),
        (
            {"reasoning_effort": "none", "chat_template_kwargs": {"reasoning_effort": "low"}},
            {
                "reasoning_effort": "none",
                "enable_thinking": False,
                "add_generation_prompt": True,
                "continue_final_message": False,
            },
        ),
        (
            {"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}},
            {
                "reasoning_effort": "high",
                "enable_thinking": False,
                "add_generation_prompt": True,
                "continue_final_message": False,
            },
        ),
    ],
)
def test_keyword_arguments(request_: dict, expected: dict) -> None:
    """The request's own fields win over chat_template_kwargs; an effort says whether to think, unless that is said."""
    assert template_kwargs(request_) == expected


scalars = (
    st.none() | st.booleans() | st.integers(-3, 200) | st.sampled_from(["", "x", "none", "high", "function", "text"])
)
roles = st.sampled_from(["system", "user", "assistant", "tool", "developer"])
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from("role content type text tool_calls function name arguments id tool_call_id tools".split()),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
messages = st.fixed_dictionaries(
    {"role": roles},
    optional=dict.fromkeys("content tool_calls tool_call_id reasoning reasoning_content".split(), anything),
)
requests = st.fixed_dictionaries(
    {"messages": st.lists(messages | anything, min_size=1, max_size=4)},
    optional={
        **dict.fromkeys("tools reasoning_effort continue_final_message add_generation_prompt".split(), anything),
        **dict.fromkeys("tool_choice response_format".split(), anything),
        "chat_template_kwargs": anything,
    },
)
FACTS = {"image": "<image>", "efforts": ["low", "high"]}


@pytest.mark.parametrize(
    "call",
    [*(call for _, call, _ in deepseek.GENERATIONS.values()), harmony._call, kimi_k3._call, mistral_common._call],
    ids=[*deepseek.GENERATIONS, "harmony", "kimi-k3", "mistral-common"],
)
def test_any_request_is_handed_over_or_refused(call) -> None:
    """A request of any shape gives JSON for the encoder, or a refusal: no other error; the request stays as it was."""

    @settings(max_examples=300, deadline=None)
    @given(request=requests)
    def holds(request: dict) -> None:
        before = json.dumps(request)
        try:
            assert json.dumps(call(request, FACTS))
        except VendorRefused as refused:
            assert str(refused)
        assert json.dumps(request) == before

    holds()
