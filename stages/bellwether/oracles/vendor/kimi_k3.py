"""Kimi K3: the tokenizer class among the checkpoint's own files writes the prompt. It gives ids."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bellwether.environments import environment
from bellwether.oracles.vendor.encoder import OFFLINE, Plan, VendorRefused, missing, pinned, script
from bellwether.oracles.vendor.front_end import conversation, messages_of, template_kwargs
from bellwether.params import Manifest, Params
from bellwether.sandbox import Inside

CODE = "tokenization_kimi.py"
CLASS = "TikTokenTokenizer"
EFFORTS = ("low", "high", "max")


def plan(manifest: Manifest, params: Params, folder: Path) -> Plan:
    """Return how the checkpoint's tokenizer code is run. Raises OracleError when the manifest does not pin it."""
    if CODE not in manifest.inputs:
        raise missing(manifest, "kimi-k3", f"file {CODE}")
    files = {name: pinned(manifest, folder, name) for name in manifest.inputs}
    built = environment("vendor-tokenizer")
    return Plan(
        inside=Inside(
            manifest.slug,
            script("kimi-k3"),
            {"folder": str(folder.resolve()), "module": CODE.removesuffix(".py"), "class": CLASS},
            files=list(files.values()),
            listed=[folder],
            python=built.python,
            packages=[built.packages],
            environment=OFFLINE,
        ),
        call=_call,
        content_format="string",
        files=dict(manifest.inputs),
        versions=built.versions,
    )


def _call(request: Mapping[str, Any], facts: Any) -> dict[str, Any]:
    messages = _results_in_call_order(conversation(messages_of(request), "string"))
    kwargs = {**template_kwargs(request), "return_dict": False}
    if (thinking := kwargs.pop("enable_thinking", None)) is not None:
        kwargs.setdefault("thinking", thinking)
    effort = kwargs.pop("reasoning_effort", None)
    if effort == "none":
        kwargs.setdefault("thinking", False)
    elif effort is not None:
        kwargs.setdefault("thinking_effort", effort)
    if kwargs.get("thinking_effort") not in (None, *EFFORTS):
        raise VendorRefused(f"ValueError: Kimi K3 supports thinking_effort values: {', '.join(EFFORTS)}")
    tools = request.get("tools")
    if tools:
        kwargs["tools"] = tools
        if request.get("tool_choice") not in (None, "auto"):
            kwargs["tool_choice"] = request["tool_choice"]
    if request.get("response_format") is not None:
        kwargs["response_format"] = request["response_format"]
    return {"messages": messages, "arguments": kwargs}


def _results_in_call_order(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the results after an assistant turn in the order of its calls, each with its call's name and 1-based place.

    A result may name its call by id or as `name:place`, 0-based. Where one of a block names none, the block stays.
    """
    ordered: list[dict[str, Any]] = []
    rest = list(messages)
    while rest:
        message = rest.pop(0)
        ordered.append(message)
        if message["role"] != "assistant" or not message.get("tool_calls"):
            continue
        block = []
        while rest and rest[0]["role"] == "tool":
            block.append(rest.pop(0))
        targets = _targets(message["tool_calls"])
        found = [targets.get(str(result["tool_call_id"])) if "tool_call_id" in result else None for result in block]
        if None in found:
            ordered += block
            continue
        placed = [
            {**result, "tool": name, "index": place + 1} for result, (place, name) in zip(block, found, strict=True)
        ]
        ordered += sorted(placed, key=lambda result: result["index"])
    return ordered


def _targets(calls: list[dict[str, Any]]) -> dict[str, tuple[int, str]]:
    """Return what a result may be answering to → place and name of the call."""
    targets: dict[str, tuple[int, str]] = {}
    for place, call in enumerate(calls):
        name = call["function"].get("name")
        if isinstance(name, str) and name:
            for alias in (*([str(call["id"])] if call.get("id") else []), f"{name}:{place}"):
                targets.setdefault(alias, (place, name))
    return targets
