"""DeepSeek's encoder files, one per model generation. They write text; the checkpoint's tokenizer gives the ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bellwether.oracles.vendor.encoder import Plan, VendorRefused, missing, pinned, script
from bellwether.oracles.vendor.front_end import (
    conversation,
    messages_of,
    template_kwargs,
    text_parts,
    with_object_arguments,
)
from bellwether.params import Manifest, Params
from bellwether.sandbox import Inside

Call = Callable[[Mapping[str, Any], Any], dict[str, Any]]


def plan(encoder: str, manifest: Manifest, params: Params, folder: Path) -> Plan:
    """Return how the file of `encoder`, one of GENERATIONS, is run. Raises OracleError when it is not pinned."""
    name, call, content_format = GENERATIONS[encoder]
    if name not in manifest.inputs:
        raise missing(manifest, encoder, f"file {name}")
    file = pinned(manifest, folder, name)
    return Plan(
        inside=Inside(manifest.slug, script("deepseek"), {"file": str(file.resolve())}, files=[file]),
        call=call,
        content_format=content_format,
        files={name: manifest.inputs[name]},
    )


def _v32(request: Mapping[str, Any], facts: Any) -> dict[str, Any]:
    messages = conversation(messages_of(request), "string")
    kwargs = template_kwargs(request)
    if tools := request.get("tools"):
        messages.insert(0, {"role": "system", "tools": tools})
    arguments = {
        "thinking_mode": _mode(kwargs.get("thinking") or kwargs.get("enable_thinking")),
        "drop_thinking": messages[-1]["role"] == "user",
    }
    return {"messages": messages, "arguments": arguments}


def _v4(request: Mapping[str, Any], facts: Any) -> dict[str, Any]:
    messages = conversation(messages_of(request), "openai")
    kwargs = template_kwargs(request)
    if tools := request.get("tools"):
        _tools_to_first_system(messages, tools, {"role": "system"})
    thinks = _thinks(kwargs)
    match kwargs.get("reasoning_effort"):
        case "none":
            thinks, effort = False, None
        case "max":
            effort = "max"
        case "low" | "minimal" | "medium":
            effort = "low"
        case str():
            effort = "high"
        case _:
            effort = "high" if thinks else None
    arguments = {
        "thinking_mode": _mode(thinks),
        "drop_thinking": kwargs.get("drop_thinking", True),
        "reasoning_effort": effort,
    }
    return {"messages": messages, "arguments": arguments}


def _v41(request: Mapping[str, Any], facts: Any) -> dict[str, Any]:
    """The front end gives this one the messages as sent but for arguments, and parts joined by a blank line."""
    messages = [_v41_message(message, facts["image"]) for message in messages_of(request)]
    kwargs = template_kwargs(request)
    if tools := request.get("tools"):
        _tools_to_first_system(messages, tools, {"role": "system", "content": ""})
    effort, thinks = kwargs.get("reasoning_effort"), _thinks(kwargs)
    if effort == "none":
        effort, thinks = None, False
    effort = "high" if effort is None else effort
    if not (effort in facts["efforts"] if isinstance(effort, str) else type(effort) is int and 1 <= effort <= 100):
        raise VendorRefused(f"ValueError: reasoning_effort {effort!r} is no effort of DeepSeek V4.1")
    arguments = {
        "thinking_mode": _mode(thinks),
        "drop_thinking": kwargs.get("drop_thinking", True),
        "reasoning_effort": effort,
    }
    return {"messages": messages, "arguments": arguments}


def _v41_message(message: dict[str, Any], image: str) -> dict[str, Any]:
    if message["role"] not in ("system", "developer", "user", "assistant", "tool"):
        raise VendorRefused(f"ValueError: Invalid role: {message['role']}")
    message = with_object_arguments(message)
    if "reasoning" in message:
        message["reasoning_content"] = message["reasoning"]
    content = message.get("content")
    if isinstance(content, list):
        content = message["content"] = "\n\n".join(part["text"] for part in text_parts(content))
    for text in (content, message.get("reasoning_content")):
        if isinstance(text, str) and image in text:
            raise VendorRefused(f"ValueError: a text holds the image token {image}")
    return message


def _tools_to_first_system(messages: list[dict[str, Any]], tools: Any, made: dict[str, Any]) -> None:
    """Attach the request's tools to the first system message; without one, `made` goes in front."""
    place = next((place for place, message in enumerate(messages) if message["role"] == "system"), None)
    if place is None:
        messages.insert(0, made)
        place = 0
    messages[place] = {**messages[place], "tools": tools}


def _thinks(kwargs: Mapping[str, Any]) -> bool:
    """Whether thinking is on: it is, unless one of its two names says otherwise and none says so."""
    if "thinking" not in kwargs and "enable_thinking" not in kwargs:
        return True
    return bool(kwargs.get("thinking") or kwargs.get("enable_thinking"))


def _mode(thinks: Any) -> str:
    return "thinking" if thinks else "chat"


GENERATIONS: Mapping[str, tuple[str, Call, str]] = {
    "deepseek-v3.2": ("vendor/deepseek_v32_encoding.py", _v32, "string"),
    "deepseek-v4": ("vendor/deepseek_v4_encoding.py", _v4, "openai"),
    "deepseek-v4.1": ("vendor/deepseek_v41_encoding.py", _v41, "string"),
}
"""Encoder → its oracle input, how it is called, and the form its content has."""
