"""Reference rows: what an oracle says of one case, as a dictionary of the reference table's columns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bellwether.oracles.refusals import Refusal
from bellwether.tables import ids_sha256

Row = dict[str, Any]
BOTH = "both"
"""What a column of an axis says where the two ways of the axis give this one answer."""


def refused(refusal: Refusal) -> Row:
    """Return the columns of a case without a result: rejected, or not applicable where the refusal has no class."""
    return {
        "outcome": "not_applicable" if refusal.reason_class is None else "rejected",
        "reason_class": refusal.reason_class,
        "reason_code": refusal.code,
        "reason": refusal.detail or None,
    }


def prompt(text: str, ids: Sequence[int]) -> Row:
    """Return the columns of a prompt."""
    return {"prompt_text": text, "prompt_ids": ids, "prompt_sha256": ids_sha256(ids)}


def output(text: str | None, ids: Sequence[int], piece_ends: Sequence[int] | None = None) -> Row:
    """Return the columns of output ids and their text."""
    return {"output_text": text, "output_ids": ids, "output_sha256": ids_sha256(ids), "piece_ends": piece_ends}


def message(value: Mapping[str, Any]) -> Row:
    """Return the columns of an assistant message, arguments as the JSON text they came as."""
    calls = [
        {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        for call in value.get("tool_calls") or ()
    ]
    content, reasoning = value.get("content"), value.get("reasoning_content")
    return {
        "content": content,
        "reasoning_content": reasoning,
        "tool_calls": calls or None,
        "message_sha256": message_sha256(content, reasoning, calls),
    }


def message_sha256(
    content: str | None, reasoning_content: str | None, tool_calls: Sequence[Mapping[str, str]]
) -> bytes:
    """Return the digest under which two messages are equal: same texts (empty and null alike), same calls in order."""
    canonical = {
        "content": content or "",
        "reasoning_content": reasoning_content or "",
        "tool_calls": [[call["name"], call["arguments"]] for call in tool_calls],
    }
    return hashlib.sha256(json.dumps(canonical, sort_keys=True).encode()).digest()


def distinct(answers: Mapping[str, Row]) -> list[Row]:
    """Return the rows of encoder name → answer. Encoders that agree on a case share a row, which then says `both`."""
    rows = list(answers.values())
    if len(rows) == 2 and rows[0] == rows[1]:
        return [{**rows[0], "encoder": BOTH}]
    return [{**row, "encoder": name} for name, row in answers.items()]
