"""What renders have in common: tools and messages are copied once, and printed as JSON once, for all of them.

A round trip renders a case about ten times with the same tools, which are most of its data. What a template sees of
them are copies that nothing can change: the sandbox lets no template, and transformers edits no message but the last.
So one copy serves all renders, and what `tojson` once gave for an object it gives for the same object again.

The turns of a conversation are cases of their own, each with the messages of the one before and more. Where a batch of
cases is known to hold these as the same objects, copies and JSON texts outlive the case as well.
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
    messages: dict[Copy, dict[int, tuple[Any, Any]]] | None = None
    """Way to copy → identity of a message → the message, which thereby stays alive, and its copy.

    None where messages may change.
    """
    printed: dict[tuple[int, str], tuple[Any, str]] = field(default_factory=dict)
    """Identity of an object and how it is printed → the object, which thereby stays alive, and its JSON text."""


_case: _Case | None = None
_batch: list[_Case] | None = None
"""The case before, inside `one_batch`."""


@contextlib.contextmanager
def one_case(tools: list[Any] | None) -> Iterator[None]:
    """Share, between the renders inside the body, what they make of `tools`; these must not change meanwhile."""
    global _case
    outer = _case
    if type(tools) is not list:
        _case = None
    elif _batch is None:
        _case = _Case(tools)
    else:
        if not _batch or _batch[0].tools is not tools:
            _batch[:] = [_Case(tools, messages={})]
        _case = _batch[0]
    try:
        yield
    finally:
        _case = outer


@contextlib.contextmanager
def one_batch() -> Iterator[None]:
    """Share as well between cases in a row whose tools are the same object, and what they make of messages.

    No message that is rendered inside the body may change meanwhile.
    """
    global _batch
    outer, _batch = _batch, []
    try:
        yield
    finally:
        _batch = outer


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


def once_per_message(copy: Copy) -> Copy:
    """Return a function that gives what `copy` gives, and in a batch the same member for the same message each time.

    `copy` makes of each member of a list one of its own. The last message is copied anew: it may be edited.
    """

    def shared(value: Any) -> Any:
        case = _case
        if case is None or case.messages is None or type(value) is not list:
            return copy(value)
        known, copies = case.messages.setdefault(copy, {}), []
        for message in value[:-1]:
            pair = known.get(id(message))
            if pair is None:
                pair = known[id(message)] = message, copy([message])[0]
            copies.append(pair[1])
        return copies + copy(value[-1:])

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
