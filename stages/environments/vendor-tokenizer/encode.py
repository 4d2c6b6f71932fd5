"""Runs inside the sandbox: a tokenizer that is the vendor's own code, asked as transformers is asked elsewhere."""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from collections.abc import Callable
from datetime import datetime
from typing import Any

from transformers import PreTrainedTokenizerBase
from transformers.utils import chat_template_utils

NO_VARIABLES = set(inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters)
NO_VARIABLES -= {"self", "kwargs", "documents"}
"""Parameters that a request's chat_template_kwargs could otherwise reach."""


def start(settings: dict) -> tuple:
    """Load the class `settings["class"]` of the module `settings["module"]` from `settings["folder"]`.

    Facts: the class's name, and its chat templates by name; None where prompts are written by code.
    """
    tokenizer = load(settings)
    moments = [datetime.fromisoformat(settings[name]) for name in ("clock", "other_clock")]

    def answer(request: dict) -> dict:
        match request["do"]:
            case "render":
                return render(tokenizer, request, *moments)
            case "encode":
                return {"ids": whole(tokenizer.encode(request["text"], add_special_tokens=False))}
            case "decode":
                return {"text": tokenizer.decode(request["ids"], skip_special_tokens=False)}
            case "pieces":
                decode = lambda ids: tokenizer.decode(ids, skip_special_tokens=False)  # noqa: E731
                return {"pieces": pieces(decode, request["ids"])}
        raise KeyError(request["do"])

    templates = getattr(tokenizer, "chat_template", None)
    if isinstance(templates, str):
        templates = {"default": templates}
    return answer, {"class": type(tokenizer).__name__, "templates": templates}


def load(settings: dict) -> Any:
    """Return the tokenizer. The files of its folder import each other as members of one package, by relative names."""
    package = types.ModuleType("vendor")
    package.__path__ = [settings["folder"]]
    sys.modules["vendor"] = package
    module = importlib.import_module(f"vendor.{settings['module']}")
    return getattr(module, settings["class"]).from_pretrained(settings["folder"], local_files_only=True)


def render(tokenizer: Any, request: dict, moment: datetime, other: datetime) -> dict:
    """Return text and ids of a prompt, each from its own call, and whether the text is another at the other date."""
    if taken := [key for key in request["kwargs"] if key in NO_VARIABLES]:
        return {"colliding": taken[0]}

    def at(when: datetime, tokenize: bool) -> Any:
        chat_template_utils.datetime = fixed(when)
        return tokenizer.apply_chat_template(
            request["messages"],
            tools=request["tools"],
            tokenize=tokenize,
            add_generation_prompt=request["add_generation_prompt"],
            continue_final_message=request["continue_final_message"],
            **({"return_dict": False} if tokenize else {}),
            **request["kwargs"],
        )

    text, ids = at(moment, False), at(moment, True)
    try:
        reads_clock = at(other, False) != text
    except Exception:  # at another date it refuses: it has looked
        reads_clock = True
    return {"text": text, "ids": whole(ids), "reads_clock": reads_clock}


def fixed(moment: datetime) -> type:
    """Return a datetime class whose `now` is `moment`: templates see the time through it, and through nothing else."""
    return type("Fixed", (datetime,), {"now": classmethod(lambda cls, tz=None: moment)})


def whole(ids: Any) -> list[int]:
    """Return ids as plain ints."""
    return [int(token) for token in ids]


def pieces(decode: Callable[[list[int]], str], ids: list[int]) -> list[str]:
    """Return what an incremental decoder emits after each id: the new end of a decoded window.

    The window begins with the ids of the last piece, for a decoder may write an id otherwise at the start of a text.
    While the text ends in U+FFFD a character is incomplete, and nothing is emitted.
    """
    emitted = []
    begin = read = 0
    for end in range(1, len(ids) + 1):
        before, now = decode(ids[begin:read]), decode(ids[begin:end])
        if len(now) > len(before) and not now.endswith("\ufffd"):
            emitted.append(now[len(before) :])
            begin, read = read, end
        else:
            emitted.append("")
    return emitted
