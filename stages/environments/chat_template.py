"""What a witness of a template engine needs beside the engine: the templates of a checkpoint and a request's variables.

A module for `witness.py` scripts, which get it by `serve.beside("chat_template")`. Standard library only, so that it
runs in every environment. Templates are found, and variables named, as transformers does it; what transformers does to
messages beyond that (other names for reasoning, the cut of `continue_final_message`) belongs to no template engine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serve import Refused

DEFAULT = "default"
TOOL_USE = "tool_use"


class NoMeasurement(Exception):
    """Raised for a question that no template engine has an answer to."""


@dataclass(frozen=True, slots=True)
class Templates:
    """The chat templates of a checkpoint and its special tokens."""

    named: Mapping[str, str]
    """Name → template; a checkpoint with one template has it under DEFAULT."""
    tokens: Mapping[str, str]
    """`bos_token`, `eos_token` and so on, as far as tokenizer_config.json has them → text."""

    @property
    def digests(self) -> dict[str, str]:
        """Name of a template → sha256 of its text."""
        return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(self.named.items())}

    def name_for(self, tools: list | None) -> str:
        """Return the name of the template for a request with or without tools."""
        return TOOL_USE if tools is not None and TOOL_USE in self.named else DEFAULT


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a chat request reaches a template. Keys keep their order."""

    messages: list[Any]
    """As sent, without the keys of a message that are null."""
    tools: list[Any] | None
    kwargs: Mapping[str, Any]
    """chat_template_kwargs."""
    add_generation_prompt: bool


def templates(folder: Path) -> Templates:
    """Return the templates of a snapshot: those in files of their own go before those in tokenizer_config.json.

    Raises:
        ValueError: it has no default template.
    """
    config = json.loads((folder / "tokenizer_config.json").read_bytes())
    named = _in_files(folder) or _in_config(config.get("chat_template"))
    if DEFAULT not in named:
        raise ValueError("the checkpoint has no default chat template")
    tokens = {key: _text_of(value) for key, value in config.items() if key.endswith("_token")}
    return Templates(named, {key: text for key, text in tokens.items() if text is not None})


def asked(request: str) -> Asked:
    """Return what of a chat request, given as JSON text, reaches a template.

    Raises:
        Refused: it holds half of a surrogate pair, which no text in UTF-8 has: the JSON readers of Rust and C++ servers
            refuse it, and so their templates never see it.
        NoMeasurement: the final message is to be continued.
    """
    body = json.loads(request)
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise Refused("invalid-json", f"a lone surrogate: U+{ord(error.object[error.start]):04X}") from None
    if body.get("continue_final_message"):
        raise NoMeasurement("continue_final_message is an edit of the rendered text, and not the engine's")
    return Asked(
        messages=[_without_nulls(message) for message in body["messages"]],
        tools=body.get("tools"),
        kwargs=body.get("chat_template_kwargs") or {},
        add_generation_prompt=body.get("add_generation_prompt", True),
    )


def _without_nulls(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    return {key: value for key, value in message.items() if value is not None}


def _in_files(folder: Path) -> dict[str, str]:
    default = folder / "chat_template.jinja"
    others = sorted((folder / "additional_chat_templates").glob("*.jinja"))
    found = {path.stem: path.read_text("utf-8") for path in others}
    return found | {DEFAULT: default.read_text("utf-8")} if default.is_file() else found


def _in_config(value: Any) -> dict[str, str]:
    if isinstance(value, str):
        return {DEFAULT: value}
    return {one["name"]: one["template"] for one in value or ()}


def _text_of(token: Any) -> str | None:
    """Return a special token's text: it stands there as such, or with how it is matched beside it."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None
