"""What comes of one question to an engine. The three are never mixed up: a failed measurement is no evidence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

REASON_LENGTH = 500
PASSING = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{16,}\b")
"""Addresses, and names drawn at random: of no run but this one."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The engine gave a value. Its shape is not checked yet."""

    value: Any


@dataclass(frozen=True, slots=True)
class Refused:
    """The engine's own server would answer with a 400 and a structured error: evidence."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Failed:
    """There was no measurement."""

    code: str
    message: str


Outcome = Answered | Refused | Failed


class NotLoaded(Exception):
    """Raised when an engine cannot load a checkpoint; the message is the reason."""


class Lost(Exception):
    """Raised when an engine gave no answer and is of no further use: a code, and a message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def lasting(text: str, passing: Mapping[str, str]) -> str:
    """Return a message as the next run would give it too, cut to REASON_LENGTH.

    `passing` maps what belongs to this run or machine, such as the path of a folder, to a word for it.
    """
    for found, word in passing.items():
        text = text.replace(found, word)
    return PASSING.sub("…", text).encode("utf-8", "replace").decode()[:REASON_LENGTH]
