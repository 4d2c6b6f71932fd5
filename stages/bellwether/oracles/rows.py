"""Reference rows: what an oracle says of one case, as a dictionary of the reference table's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from bellwether.digests import (
    ids_sha256,
    message_bare_sha256,
    message_sha256,
    message_value_sha256,
    pieces_sha256,
    text_sha256,
)
from bellwether.oracles.refusals import Refusal

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
    return {
        "prompt_text": text,
        "prompt_text_sha256": text_sha256(text),
        "prompt_ids": ids,
        "prompt_sha256": ids_sha256(ids),
    }


def output(text: str | None, ids: Sequence[int], piece_ends: Sequence[int] | None = None) -> Row:
    """Return the columns of output ids and their text."""
    return {
        "output_text": text,
        "output_text_sha256": None if text is None else text_sha256(text),
        "output_ids": ids,
        "output_sha256": ids_sha256(ids),
        "piece_ends": piece_ends,
        "pieces_sha256": None if text is None or piece_ends is None else pieces_sha256(pieces(text, piece_ends)),
    }


def pieces(text: str, ends: Sequence[int]) -> list[str]:
    """Return the streamed pieces of `text`, given where each of them ends."""
    return [text[start:end] for start, end in pairwise((0, *ends))]


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
        "message_value_sha256": message_value_sha256(content, reasoning, calls),
        "message_bare_sha256": message_bare_sha256(content, reasoning, calls),
    }


def distinct(answers: Mapping[str, Row]) -> list[Row]:
    """Return the rows of encoder name → answer. Encoders that agree on a case share a row, which then says `both`."""
    rows = list(answers.values())
    if len(rows) == 2 and rows[0] == rows[1]:
        return [{**rows[0], "encoder": BOTH}]
    return [{**row, "encoder": name} for name, row in answers.items()]
