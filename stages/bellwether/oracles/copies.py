"""A shorter way to the copies transformers makes of messages and tools before a template sees them.

It copies twice, each time asking every text and number whether it is one of a dozen richer kinds. What comes out of
JSON is of seven exact types, none of which either copy changes, so there one question is enough. Anything else goes
the long way, wherever in the data it stands.
"""

from __future__ import annotations

from typing import Any

from transformers.utils import chat_template_utils

from bellwether.oracles.shared import Copy, once_per_case

COPIES = ("_message_objects_to_dicts", "_plain_template_data")
"""Functions of transformers that return JSON data as an equal copy."""
_SCALARS = {str, int, float, bool, type(None)}


def hasten_copies() -> None:
    """Give transformers the short way, once per process. What templates see stays the same."""
    for name in COPIES:
        long_way = getattr(chat_template_utils, name)
        if not hasattr(long_way, "long_way"):
            way = once_per_case(short_way(long_way))
            way.long_way = long_way
            setattr(chat_template_utils, name, way)


def short_way(long_way: Copy) -> Copy:
    """Return a function that gives what `long_way`, one of COPIES, gives."""

    def copy(value: Any) -> Any:
        kind = type(value)
        if kind is dict:
            made = value.copy()
            for key, item in value.items():
                if type(key) is not str and type(key) not in _SCALARS:
                    return long_way(value)
                if type(item) not in _SCALARS:
                    made[key] = copy(item)
            return made
        if kind is list:
            made = value.copy()
            for place, item in enumerate(value):
                if type(item) not in _SCALARS:
                    made[place] = copy(item)
            return made
        return value if kind in _SCALARS else long_way(value)

    return copy
