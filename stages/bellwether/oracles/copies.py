"""A shorter way to the copies transformers makes of messages and tools before a template sees them.

It copies twice, each time asking every text and number whether it is one of a dozen richer kinds. What comes out of
JSON is of seven exact types, none of which either copy changes, so there one question is enough. Anything else goes
the long way, wherever in the data it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers.utils import chat_template_utils

Copy = Callable[[Any], Any]
COPIES = ("_message_objects_to_dicts", "_plain_template_data")
"""Functions of transformers that return JSON data as an equal copy."""
_SCALARS = {str, int, float, bool, type(None)}


def hasten_copies() -> None:
    """Give transformers the short way, once per process. What templates see stays the same."""
    for name in COPIES:
        long_way = getattr(chat_template_utils, name)
        if not hasattr(long_way, "long_way"):
            setattr(chat_template_utils, name, short_way(long_way))


def short_way(long_way: Copy) -> Copy:
    """Return a function that gives what `long_way`, one of COPIES, gives."""

    def copy(value: Any) -> Any:
        kind = type(value)
        if kind in _SCALARS:
            return value
        if kind is list:
            return [item if type(item) in _SCALARS else copy(item) for item in value]
        if kind is dict and _SCALARS.issuperset(map(type, value)):
            return {key: item if type(item) in _SCALARS else copy(item) for key, item in value.items()}
        return long_way(value)

    copy.long_way = long_way
    return copy
