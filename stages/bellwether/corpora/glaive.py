"""The Glaive importer: a hundred thousand short conversations with one call at a time, as two plain texts a row.

`system` holds a lead-in and the functions, `chat` the turns behind labels in capitals. The texts are cut at the labels;
what does not read that way, without guessing, gives no case and is on record with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bellwether.case import Case, LeftOut, Origin
from bellwether.corpora import conversations
from bellwether.corpora.conversations import Turn, Unusable
from bellwether.corpora.repeats import drop_repeats
from bellwether.corpora.rows import rows
from bellwether.corpora.sources import Fetch, Items, Source, read_source

DATASET = "glaive-v2"
FILES = ("glaive-function-calling-v2.json",)
SET_SIZE = 5000
"""Most cases of a kind in a set."""
LEAD_IN = "You are a helpful assistant with access to the following functions. Use them if required -"
LABEL = re.compile(r"(?:\A|(?<=\n))(USER|ASSISTANT|FUNCTION RESPONSE):[ ]?")
ROLES = {"USER": "user", "ASSISTANT": "assistant", "FUNCTION RESPONSE": "tool"}
END = "<|endoftext|>"
CALL = "<functioncall>"
ARGUMENTS = re.compile(
    r"""\{\s*"name":\s*"(?P<name>[^"\\]+)"\s*(?:,\s*"arguments":\s*'(?P<text>.*)'\s*)?\}\Z""", re.DOTALL
)
"""A call as the dataset writes it: its arguments are JSON between single quotes, which is no JSON."""


def corpus(folder: Path, fetch: Fetch) -> Items:
    """Yield the corpus: row by row, repeats dropped, in sets of at most SET_SIZE cases of a kind. Raises as `fetch`."""
    source = read_source(folder)
    return conversations.cut_sets(drop_repeats(cases(source, fetch)), DATASET, SET_SIZE)


def cases(source: Source, fetch: Fetch) -> Iterator[Case | LeftOut]:
    """Yield the cases of every row, or what stands for a row without; a row is named by its 0-based place."""
    (file,) = FILES
    path = fetch(source, file)
    origin = Origin(DATASET, source.source, file, source.files[file].sha256, source.license)
    for index, row in enumerate(rows(path, file)):
        try:
            tools, turns = _row(row.get("system"), row.get("chat"))
            yield from conversations.cases(DATASET, f"{DATASET}-{index}", origin, str(index), tools, turns)
        except Unusable as reason:
            yield from conversations.left_out(DATASET, str(index), str(reason))


def _row(system: object, chat: object) -> tuple[list[Any], list[Turn]]:
    if not isinstance(system, str) or not isinstance(chat, str):
        raise Unusable("system or chat is no text")
    tools, said = _system(system)
    turns = _turns(chat)
    return tools, ([Turn("system", -1, said), *turns] if said else turns)


def _system(text: str) -> tuple[list[Any], str]:
    """Return the functions, and what the system says beside the lead-in and them."""
    said = text.strip().removeprefix("SYSTEM:").strip()
    if not said.startswith(LEAD_IN):
        return [], said
    rest = said.removeprefix(LEAD_IN).strip()
    decoder, tools = json.JSONDecoder(), []
    while rest.startswith("{"):
        try:
            function, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            raise Unusable("functions that are no JSON") from None
        tools.append({"type": "function", "function": function})
        rest = rest[end:].lstrip().removeprefix(",").lstrip()
    if not tools:
        raise Unusable("the lead-in without a function")
    return tools, rest


def _turns(chat: str) -> list[Turn]:
    pieces = LABEL.split(chat.strip())
    if pieces[0].strip() or len(pieces) < 3:
        raise Unusable("text before the first label")
    return [
        _turn(ROLES[label], place, text)
        for place, (label, text) in enumerate(zip(pieces[1::2], pieces[2::2], strict=True))
    ]


def _turn(role: str, place: int, text: str) -> Turn:
    said = text.strip()
    if role == "tool":
        return Turn(role, place, results=(said,))
    if role == "user":
        return Turn(role, place, said)
    said = said.removesuffix(END).strip()
    if END in said:
        raise Unusable("an end of text inside a turn")
    if CALL not in said:
        return Turn(role, place, said)
    if not said.startswith(CALL):
        raise Unusable("text before a call")
    return Turn(role, place, calls=(_call(said.removeprefix(CALL).strip()),))


def _call(text: str) -> tuple[str, dict[str, Any]]:
    """Return name and arguments of a call, in the dataset's spelling or in JSON's."""
    try:
        if match := ARGUMENTS.match(text):
            return match["name"], _object(json.loads(match["text"].replace("\\'", "'")) if match["text"] else {})
        call = json.loads(text)
        return call["name"], _object(call.get("arguments", {}))
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        raise Unusable("a call that cannot be read") from None


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError
    return value
