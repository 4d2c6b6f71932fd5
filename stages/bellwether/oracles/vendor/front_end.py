"""What vLLM's front end makes of a chat request before it calls an encoder, as far as texts go.

Tools are handed over as sent: what an API layer adds to them or drops is the engine's doing, and shows as a dispute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bellwether.oracles.normalisation import normalised
from bellwether.oracles.vendor.encoder import VendorRefused

TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""Type of a content part that counts as text → the key that holds it."""
STANDARD_KEYS = {"type", "text", "refusal", "thinking", "closed"}
"""Keys of a text part that are not handed on with it."""


REQUEST_FIELDS = {
    "tools": (list, type(None)),
    "chat_template_kwargs": (dict, type(None)),
    "reasoning_effort": (str, type(None)),
    "continue_final_message": (bool,),
    "add_generation_prompt": (bool,),
}
MESSAGE_FIELDS = {
    "role": (str,),
    "content": (str, list, type(None)),
    "tool_calls": (list, type(None)),
    "reasoning": (str, type(None)),
    "reasoning_content": (str, type(None)),
}
"""Field → what the API layer takes for it, where it is there."""


def messages_of(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the request's messages, `reasoning_content` renamed to `reasoning` as the API layer does.

    Raises:
        VendorRefused: there is no message, one has no role, or a field that encoders are given is of another type than
            the API layer takes.
    """
    _require(request, REQUEST_FIELDS, "the request")
    for tool in request.get("tools") or ():
        if not isinstance(tool, dict) or tool.get("type", "function") != "function":
            raise VendorRefused("ValueError: a tool is no function")
        if not isinstance(tool.get("function"), dict):
            raise VendorRefused("ValueError: a tool has no function")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise VendorRefused("ValueError: the request has no messages")
    for place, message in enumerate(messages):
        if not isinstance(message, dict) or "role" not in message:
            raise VendorRefused(f"ValueError: message {place} has no role")
        _require(message, MESSAGE_FIELDS, f"message {place}")
    return [_with_reasoning(message) for message in messages]


def _require(value: Mapping[str, Any], fields: Mapping[str, tuple[type, ...]], where: str) -> None:
    for name, kinds in fields.items():
        if name in value and not isinstance(value[name], kinds):
            raise VendorRefused(f"ValueError: {name} of {where} is {type(value[name]).__name__}")


def _with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    renamed = {key: value for key, value in message.items() if key != "reasoning_content"}
    if renamed.get("reasoning") is None and message.get("reasoning_content") is not None:
        renamed["reasoning"] = message["reasoning_content"]
    return renamed


def conversation(messages: Sequence[dict[str, Any]], content_format: str) -> list[dict[str, Any]]:
    """Return messages in the form the front end keeps them: content as one string, or `openai`: as a list of parts.

    Only what encoders are given stays: role, content, reasoning (under both of its names), calls with their arguments
    as objects, the id a tool answers to, name, task, and the tools of a developer message.

    Raises:
        VendorRefused: a content part is no text, or a call no function call.
    """
    return [_conversation_message(message, content_format) for message in messages]


def _conversation_message(message: dict[str, Any], content_format: str) -> dict[str, Any]:
    role = message["role"]
    parts = text_parts(message.get("content"))
    if content_format != "openai":
        content: Any = "\n".join(part["text"] for part in parts if part["text"])
    elif role == "tool":
        content = "\n".join(part["text"] for part in parts)
    else:
        content = parts
    kept: dict[str, Any] = {"role": role, "content": content}
    if role == "assistant":
        if message.get("tool_calls") is not None:
            kept["tool_calls"] = message["tool_calls"]
        if message.get("reasoning") is not None:
            kept |= {"reasoning": message["reasoning"], "reasoning_content": message["reasoning"]}
    elif role == "tool" and "tool_call_id" in message:
        kept["tool_call_id"] = message["tool_call_id"]
    elif role == "developer":
        kept["tools"] = message.get("tools")
    kept |= {key: message[key] for key in ("name", "task") if isinstance(message.get(key), str)}
    return with_object_arguments(kept)


def text_parts(content: str | list | None) -> list[dict[str, Any]]:
    """Return content as a list of text parts; a part without a text is left out. Raises VendorRefused."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    parts = []
    for part in content:
        if isinstance(part, str):
            parts.append({"type": "text", "text": part})
            continue
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if not isinstance(kind, str) or kind not in TEXT_PARTS:
            raise VendorRefused(f"ValueError: a content part of type {kind} is no text")
        text = part.get(TEXT_PARTS[kind])
        if text is not None and not isinstance(text, str):
            raise VendorRefused(f"ValueError: a content part's text is {type(text).__name__}")
        if text is not None:
            extra = {key: value for key, value in part.items() if key not in STANDARD_KEYS}
            parts.append({"type": "text", "text": text, **extra})
    return parts


def with_object_arguments(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with the arguments of its calls as objects. Raises VendorRefused for a call of no function."""
    calls = message.get("tool_calls") if message["role"] == "assistant" else None
    if isinstance(calls, list):
        for call in calls:
            if not isinstance(call, dict) or call.get("type", "function") != "function":
                raise VendorRefused("ValueError: a tool call is no call of a function")
            if not isinstance(call.get("function"), dict):
                raise VendorRefused("ValueError: a tool call has no function")
    return normalised(message)


def template_kwargs(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments the front end makes of a request: chat_template_kwargs and its own fields.

    A request's `reasoning_effort` switches thinking on, or off for `none`, unless chat_template_kwargs says otherwise.
    """
    given = request.get("chat_template_kwargs") or {}
    continues = request.get("continue_final_message", False)
    own = {
        "add_generation_prompt": request.get("add_generation_prompt", not continues),
        "continue_final_message": continues,
        "reasoning_effort": request.get("reasoning_effort"),
    }
    if own["reasoning_effort"] is not None and "enable_thinking" not in given:
        own["enable_thinking"] = own["reasoning_effort"] != "none"
    return {**given, **{key: value for key, value in own.items() if value not in (None, "auto")}}
