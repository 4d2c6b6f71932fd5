"""How messages reach a template: `raw`, exactly as the request has them, or `vllm`, as vLLM hands them over.

`vllm` parses the arguments of calls in the history, drops an empty tool_calls, and hands content over in the form the
template is written for. Nothing else of a message is touched, and key order is kept.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bellwether.oracles.content_format import OPENAI

RAW = "raw"
VLLM = "vllm"


class NonTextPart(Exception):
    """Raised when a content part is no text; `str()` says where it stands."""


def as_vllm(messages: Sequence[Mapping[str, Any]], content_format: str) -> list[dict[str, Any]]:
    """Return `messages` as vLLM hands them to a template written for `content_format`.

    Raises:
        NonTextPart: content is to be handed over as parts, and one of them is no text.
    """
    messages = [normalised(message) for message in messages]
    if content_format != OPENAI:
        return messages
    return [_with_parts(place, message) for place, message in enumerate(messages)]


def normalised(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with its calls as vLLM hands them over: arguments as objects, an empty tool_calls dropped.

    Arguments that are no JSON text of an object become `{}`. Other keys and all key order are kept.
    """
    if message.get("role") != "assistant" or "tool_calls" not in message:
        return dict(message)
    if not message["tool_calls"]:
        return {key: value for key, value in message.items() if key != "tool_calls"}
    return {**message, "tool_calls": [_call_with_object(call) for call in message["tool_calls"]]}


def _call_with_object(call: Any) -> Any:
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    function = call["function"]
    return {**call, "function": {**function, "arguments": _object_of(function.get("arguments"))}}


def _object_of(arguments: Any) -> dict[str, Any]:
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    return arguments if isinstance(arguments, dict) else {}


def _with_parts(place: int, message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its content as a list of parts; messages of tools stay as they are."""
    if message.get("role") == "tool":
        return message
    content = message.get("content")
    if content is None:
        content = []
    elif isinstance(content, str):
        content = [{"type": "text", "text": content}]
    elif isinstance(content, list):
        for part in content:
            if not isinstance(part, dict) or part.get("type") != "text":
                kind = part.get("type") if isinstance(part, dict) else type(part).__name__
                raise NonTextPart(f"message {place} has a part of type {kind}")
    return {**message, "content": content}
