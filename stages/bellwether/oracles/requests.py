"""Parse requests of which each mostly goes on where the one before ended: what both spell alike is parsed once.

The same text is the same value, so nothing has to be compared but texts. What comes out is equal to what `json.loads`
gives. More than that, messages and tools that two requests share are the same objects, by which later steps know them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bellwether.oracles.beginnings import shared_ends

_SPACE = r"[ \t\n\r]*"  # JSON's own, less than Python's
_HEAD = re.compile(rf'{_SPACE}{{{_SPACE}"messages"{_SPACE}:{_SPACE}\[{_SPACE}')
_NEXT = re.compile(rf"{_SPACE},{_SPACE}")
_LAST = re.compile(rf"{_SPACE}\]{_SPACE}(?:,{_SPACE}(?=\")|(?=}}))")
_value_at = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class _Parsed:
    text: str
    messages: list[Any]
    ends: list[int]
    """Where each message ends in `text`."""
    rest: str
    """What follows the messages, from the next key on."""
    others: dict[str, Any]
    """The members that `rest` spells."""


def parsed(texts: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the request of each JSON text. Members of one may be those of another: they must not be changed.

    Raises:
        json.JSONDecodeError: a text is no JSON.
    """
    before = None
    for text in texts:
        now = _parse(text, before)
        if now is None:
            yield json.loads(text)
        else:
            yield {"messages": now.messages, **now.others}
            before = now


def _parse(text: str, before: _Parsed | None) -> _Parsed | None:
    """Return a request whose first member is a list of messages, all objects; None of any other text."""
    head = _HEAD.match(text)
    if head is None:
        return None
    shared = shared_ends(text, before.text, before.ends) if before else 0
    messages, ends = (before.messages[:shared], before.ends[:shared]) if before else ([], [])
    place = ends[-1] if ends else head.end()
    while not ends or (following := _NEXT.match(text, place)):
        try:
            message, place = _value_at(text, following.end() if ends else place)
        except ValueError:
            return None
        if type(message) is not dict:  # a number's end is not seen in it
            return None
        messages.append(message)
        ends.append(place)
    last = _LAST.match(text, place)
    if last is None:
        return None
    rest = text[last.end() :]
    if before and rest == before.rest:
        return _Parsed(text, messages, ends, rest, before.others)
    try:
        others = json.loads("{" + rest)
    except ValueError:
        return None
    if "messages" in others:  # named twice: the last one counts
        return None
    return _Parsed(text, messages, ends, rest, others)
