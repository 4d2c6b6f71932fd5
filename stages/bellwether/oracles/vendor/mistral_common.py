"""Mistral's own tokenizer library, with the tokenizer file among the checkpoint's inputs. It gives ids."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from bellwether.environments import environment
from bellwether.oracles.vendor.encoder import Plan, VendorRefused, missing, pinned, script
from bellwether.oracles.vendor.front_end import messages_of, with_object_arguments
from bellwether.params import Manifest, Params
from bellwether.sandbox import Inside

TOKENIZER = re.compile(r"tekken.*\.json|.*\.model\.v\d+(m\d+)?")
"""Names of tokenizer files; the library reads the format's version from the name."""
ID_CHARACTERS = 9
"""Mistral's call ids have nine characters; the front end keeps the last ones of a longer id."""


def plan(manifest: Manifest, params: Params, folder: Path) -> Plan:
    """Return how the library is run with the manifest's tokenizer file. Raises OracleError when there is none."""
    name = next((name for name in manifest.inputs if TOKENIZER.fullmatch(PurePosixPath(name).name)), None)
    if name is None:
        raise missing(manifest, "mistral-common", "tokenizer file (tekken*.json or *.model.v<n>)")
    file = pinned(manifest, folder, name)
    built = environment("mistral-common")
    return Plan(
        inside=Inside(
            manifest.slug,
            script("mistral-common"),
            {"file": str(file.resolve())},
            files=[file],
            python=built.python,
            packages=[built.packages],
        ),
        call=_call,
        content_format="string",
        files={name: manifest.inputs[name]},
        versions=built.versions,
    )


def _call(request: Mapping[str, Any], facts: Any) -> dict[str, Any]:
    messages = [_with_short_ids(with_object_arguments(message)) for message in messages_of(request)]
    if request.get("chat_template_kwargs") is not None:
        raise VendorRefused("ValueError: chat_template_kwargs are not supported for Mistral tokenizers")
    effort = request.get("reasoning_effort")
    if effort and effort not in facts["efforts"]:
        raise VendorRefused(f"ValueError: reasoning_effort={effort} is not supported by Mistral models")
    continues = request.get("continue_final_message", False)
    generates = request.get("add_generation_prompt", not continues)
    ends_with_assistant = messages[-1]["role"] == "assistant"
    if generates and continues:
        raise VendorRefused("ValueError: add_generation_prompt and continue_final_message exclude each other")
    if generates and ends_with_assistant:
        raise VendorRefused("ValueError: add_generation_prompt, and the last message is the assistant's")
    if continues and not ends_with_assistant:
        raise VendorRefused("ValueError: continue_final_message, and the last message is not the assistant's")
    return {
        "messages": messages,
        "tools": request.get("tools"),
        "continue_final_message": continues,
        "reasoning_effort": effort,
    }


def _with_short_ids(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "assistant":
        calls = message.get("tool_calls") or []
        if not all(isinstance(call, dict) and isinstance(call.get("id"), str) for call in calls):
            raise VendorRefused("ValueError: a tool call has no id")
        return {**message, "tool_calls": [{**call, "id": call["id"][-ID_CHARACTERS:]} for call in calls]}
    if message["role"] in ("tool", "tool_results") and isinstance(message.get("tool_call_id"), str):
        return {**message, "tool_call_id": message["tool_call_id"][-ID_CHARACTERS:]}
    return message
