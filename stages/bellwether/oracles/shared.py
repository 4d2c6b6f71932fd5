"""What the renders of one case have in common: its tools are copied once, and printed as JSON once, for all of them.

A round trip renders a case about ten times with the same tools, which are most of its data. What a template sees of
them are copies that nothing can change: the sandbox lets no template, and transformers edits messages only. So one copy
serves all renders, and what `tojson` once gave for an object it gives for the same object again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import is_
from typing import Any

from jinja2.sandbox import SandboxedEnvironment

Copy = Callable[[Any], Any]


@dataclass(slots=True)
class _Case:
    tools: list[Any]
    copies: list[Any] | None = None
    printed: dict[tuple[int, str], tuple[Any, str]] = field(default_factory=dict)
    """Identity of an object and how it is printed → the object, which thereby stays alive, and its JSON text."""


_case: _Case | None = None


@contextlib.contextmanager
def one_case(tools: list[Any] | None) -> Iterator[None]:
    """Share, between the renders inside the body, what they make of `tools`; these must not change meanwhile."""
    global _case
    outer = _case
    _case = _Case(tools) if type(tools) is list else None
    try:
        yield
    finally:
        _case = outer


def once_per_case(copy: Copy) -> Copy:
    """Return a function that gives what `copy` gives, and for the tools of the case the same members each time."""

    def shared(value: Any) -> Any:
        case = _case
        if case is None or not _same_members(value, case.tools):
            return copy(value)
        if case.copies is None:
            case.copies = copy(value)
        return case.copies.copy()

    return shared


def _same_members(one: Any, other: list[Any]) -> bool:
    return type(one) is list and len(one) == len(other) and all(map(is_, one, other))


def print_once_per_case(environment: SandboxedEnvironment) -> None:
    """Give `environment` a filter `tojson` that prints an object of a case once, and otherwise asks its own."""
    own = environment.filters["tojson"]
    if hasattr(own, "own"):  # a template is compiled once, and loaded by many
        return

    def tojson(value: Any, *arguments: Any, **options: Any) -> str:
        if _case is None or type(value) not in (dict, list):
            return own(value, *arguments, **options)
        key = id(value), repr((arguments, options)) if arguments or options else ""
        if key not in _case.printed:
            _case.printed[key] = value, own(value, *arguments, **options)
        return _case.printed[key][1]

    tojson.own = own
    environment.filters["tojson"] = tojson
