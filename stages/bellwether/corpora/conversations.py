"""Conversations as cases: one output for every assistant turn, one request for every turn it answers.

Datasets of conversations differ in how they write turns; what becomes of the turns does not. An importer reads a row
into `Turn`s, this module makes OpenAI messages and cases of them, or says why the row has no faithful form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bellwether.case import Case, LeftOut, Origin, Repeat, json_text

ROLES = ("system", "user", "assistant", "tool")
WRITTEN = "tool call ids"


class Unusable(Exception):
    """Raised when a row has no faithful form as OpenAI messages. The text is the reason."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation."""

    role: str
    """One of ROLES."""
    place: int
    """0-based place in the row, which names the cases that end here."""
    text: str = ""
    """What is said; empty for a tool."""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    """assistant: name and arguments of each call."""
    results: tuple[str, ...] = ()
    """tool: what each call of the turn before gave, in the order of the calls."""


def arguments_text(arguments: dict[str, Any]) -> str:
    """Return the arguments of a call as this project writes them: Python's default separators, non-ASCII raw."""
    try:
        return json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise Unusable("arguments hold a number JSON cannot say") from None


def check_tools(tools: Sequence[Any]) -> None:
    """Raise Unusable unless `tools` are functions as OpenAI describes them, each under a name of its own."""
    names = set()
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
            raise Unusable("a tool is no function")
        if function["name"] in names:
            raise Unusable("two tools have one name")
        names.add(function["name"])


def cases(set_name: str, name: str, origin: Origin, row: str, tools: list[Any], turns: Iterable[Turn]) -> list[Case]:
    """Return the cases of one row, in the order of its turns, named `<name>-<place of the turn>`.

    A render case ends at each user or tool turn that an assistant turn follows; each assistant turn is a parse case
    whose request is all before it. `tools` stands after the messages, where there is one. Calls are numbered `call_0`,
    `call_1`, … over the conversation, in requests only.

    Raises:
        Unusable: tools that are no functions, results that do not match the calls before them, a call of an undeclared
            function, calls that nothing answers although the conversation goes on.
    """
    check_tools(tools)
    declared = {tool["function"]["name"] for tool in tools}
    made: list[Case] = []
    messages: list[dict[str, Any]] = []
    open_calls: list[str] = []
    count = 0
    last: Turn | None = None
    for turn in turns:
        if bool(open_calls) != (turn.role == "tool"):
            raise Unusable("a call without a result" if open_calls else "a result without a call")
        if turn.role == "assistant":
            if unknown := [called for called, _ in turn.calls if called not in declared]:
                raise Unusable(f"a call of {unknown[0]!r}, which is not declared")
            request = _request(messages, tools)
            written = (WRITTEN,) if count else ()
            if last is not None and last.role in ("user", "tool"):
                place = f"{row}:{last.place}"
                made.append(Case("render", set_name, f"{name}-{last.place}", origin, place, written, request=request))
            message = {"content": turn.text, **_calls(turn, None)}
            made.append(
                Case(
                    "parse",
                    set_name,
                    f"{name}-{turn.place}",
                    origin,
                    f"{row}:{turn.place}",
                    written,
                    request=request,
                    message=_text(message),
                )
            )
            messages.append({"role": "assistant", "content": turn.text, **_calls(turn, count)})
            open_calls = [f"call_{count + index}" for index in range(len(turn.calls))]
            count += len(turn.calls)
        elif turn.role == "tool":
            if len(turn.results) != len(open_calls):
                raise Unusable(f"{len(turn.results)} results of {len(open_calls)} calls")
            for call_id, result in zip(open_calls, turn.results, strict=True):
                messages.append({"role": "tool", "tool_call_id": call_id, "content": result})
            open_calls = []
        else:
            messages.append({"role": turn.role, "content": turn.text})
        last = turn
    return made


def _request(messages: list[dict[str, Any]], tools: list[Any]) -> str:
    return _text({"messages": messages, **({"tools": tools} if tools else {})})


def _text(value: object) -> str:
    try:
        text = json_text(value)
        text.encode()
    except ValueError as fault:  # NaN, an infinity, or half of a surrogate pair
        raise Unusable(f"a value that cannot be written: {type(fault).__name__}") from None
    return text


def _calls(turn: Turn, first: int | None) -> dict[str, Any]:
    """Return `tool_calls` of a turn, with ids from `first` on, or without ids."""
    calls = []
    for index, (name, arguments) in enumerate(turn.calls):
        numbered = {} if first is None else {"id": f"call_{first + index}"}
        function = {"name": name, "arguments": arguments_text(arguments)}
        calls.append({**numbered, "type": "function", "function": function})
    return {"tool_calls": calls} if calls else {}


def left_out(set_name: str, row: str, reason: str) -> Iterator[LeftOut]:
    """Yield what stands for a row without cases: neither kind could be made."""
    yield LeftOut("render", set_name, row, reason)
    yield LeftOut("parse", set_name, row, reason)


def cut_sets(items: Iterable[Case | Repeat | LeftOut], prefix: str, size: int) -> Iterator[Case | Repeat | LeftOut]:
    """Yield `items` in their order, in sets `<prefix>-00`, `<prefix>-01`, … of at most `size` cases of either kind.

    The cases of one row stand in one set. A repeat names the set of the case it repeats.
    """
    number, counts = 0, {"render": 0, "parse": 0}
    sets: dict[tuple[str, str], str] = {}
    for row in _rows(items):
        added = {kind: sum(isinstance(item, Case) and item.kind == kind for item in row) for kind in counts}
        if any(counts[kind] + added[kind] > size for kind in counts):
            number, counts = number + 1, dict.fromkeys(counts, 0)
        counts = {kind: counts[kind] + added[kind] for kind in counts}
        name = f"{prefix}-{number:02d}"
        for item in row:
            match item:
                case Case():
                    sets[item.kind, item.name] = name
                    yield replace(item, set=name)
                case Repeat():
                    earlier = item.repeats.rpartition("/")[2]
                    repeats = f"{item.kind}/{sets[item.kind, earlier]}/{earlier}"
                    yield replace(item, set=name, repeats=repeats)
                case LeftOut():
                    yield replace(item, set=name)


def _rows(items: Iterable[Case | Repeat | LeftOut]) -> Iterator[list[Case | Repeat | LeftOut]]:
    """Yield the items of each row together; a case and a repeat are named after their row and turn."""
    held: list[Case | Repeat | LeftOut] = []
    for item in items:
        if held and _row(held[-1]) != _row(item):
            yield held
            held = []
        held.append(item)
    if held:
        yield held


def _row(item: Case | Repeat | LeftOut) -> str:
    return item.row if isinstance(item, LeftOut) else item.name.rpartition("-")[0].rpartition("-")[2]
