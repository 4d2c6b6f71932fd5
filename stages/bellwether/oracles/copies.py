"""A shorter way to the copies transformers makes of messages and tools before a template sees them.

It copies twice, each time asking every text and number whether it is one of a dozen richer kinds. What comes out of
JSON is of seven exact types, none of which either copy changes, so there one question is enough. Anything else goes
the long way, wherever in the data it stands. What need not be copied again, `shared` knows.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from transformers import tokenization_utils_base
from transformers.utils import chat_template_utils

from bellwether.oracles.shared import Copy, once_per_case, once_per_message

COPIES = ("_message_objects_to_dicts", "_plain_template_data")
"""Functions of transformers that return JSON data as an equal copy."""
NORMAL = "_normalize_chat_messages"
"""Function of transformers that makes of a list of messages one that lacks their members of null."""
_SCALARS = {str, int, float, bool, type(None)}


def hasten_copies() -> None:
    """Give transformers the short way, once per process. What templates see stays the same."""
    for name in COPIES:
        _replace(chat_template_utils, name, lambda long_way: once_per_case(once_per_message(short_way(long_way))))
    _replace(tokenization_utils_base, NORMAL, once_per_message)


def _replace(module: ModuleType, name: str, shorten: Callable[[Copy], Copy]) -> None:
    long_way = getattr(module, name)
    if not hasattr(long_way, "long_way"):
        way = shorten(long_way)
        way.long_way = long_way
        setattr(module, name, way)


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
