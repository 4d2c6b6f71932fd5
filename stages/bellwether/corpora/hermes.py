"""The Hermes importer: conversations with calls, results and answers, from the dataset Hermes models were trained on.

A row holds its conversation in the markup of Hermes, and its tools apart. The tool prompt of the system turn is
dropped, because each checkpoint's template writes its own from `tools`; blocks of markup become calls and results. A
row that cannot be said in OpenAI's messages without guessing gives no case, and is on record with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bellwether.case import Case, LeftOut, Origin
from bellwether.corpora import conversations
from bellwether.corpora.conversations import Turn, Unusable, arguments_text
from bellwether.corpora.repeats import drop_repeats
from bellwether.corpora.rows import rows
from bellwether.corpora.sources import Fetch, Items, Source, read_source

DATASET = "hermes"
FILES = {
    "func-calling-singleturn.json": "hermes-func-calling-singleturn",
    "func-calling.json": "hermes-func-calling",
    "glaive-function-calling-5k.json": "hermes-glaive-func-calling",
}
"""File → set, in build order: the second file's rows begin as the first one's, and the first of two repeats stays."""
ROLES = {"system": "system", "human": "user", "gpt": "assistant", "tool": "tool"}
TOOLS = re.compile(r"<tools>(.*?)</tools>", re.DOTALL)
CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
RESULT = re.compile(r"<tool_response>(.*?)</tool_response>", re.DOTALL)


def corpus(folder: Path, fetch: Fetch) -> Items:
    """Yield the corpus: file by file, row by row; repeats dropped. Raises as `fetch` and `rows`."""
    source = read_source(folder)
    return drop_repeats(item for file in FILES for item in cases(source, fetch, file))


def cases(source: Source, fetch: Fetch, file: str) -> Iterator[Case | LeftOut]:
    """Yield the cases of one file, or what stands for a row without; a row is named by its 0-based place."""
    set_name = FILES[file]
    path = fetch(source, file)
    origin = Origin(DATASET, source.source, file, source.files[file].sha256, source.license)
    for index, row in enumerate(rows(path, file)):
        try:
            tools = _tools(row.get("tools"))
            turns = _turns(row.get("conversations"), tools)
            yield from conversations.cases(set_name, f"{set_name}-{index}", origin, str(index), tools, turns)
        except Unusable as reason:
            yield from conversations.left_out(set_name, str(index), str(reason))


def _tools(value: object) -> list[Any]:
    """Return the tools of a row, written as JSON text; a row without has null, no text or an empty list."""
    if value is None or value == "":
        return []
    tools = _json(value) if isinstance(value, str) else value
    if not isinstance(tools, list):
        raise Unusable("tools are no list")
    return tools


def _turns(value: object, tools: list[Any]) -> list[Turn]:
    if not isinstance(value, list) or not value:
        raise Unusable("no conversation")
    turns = []
    for place, said in enumerate(value):
        speaker, text = (said.get("from"), said.get("value")) if isinstance(said, dict) else (None, None)
        role = ROLES.get(speaker)
        if role is None or not isinstance(text, str):
            raise Unusable(f"a turn of {speaker!r}")
        # the instructions name the tags once more, with nothing between them
        if role == "system" and any(block.strip() not in ("", "[]") for block in TOOLS.findall(text)):
            if not tools:
                raise Unusable("tools stand in the system prompt only")
            continue  # the tool prompt, which each template writes itself
        turns.append(_turn(role, place, text))
    return turns


def _turn(role: str, place: int, text: str) -> Turn:
    if role == "assistant" and "<tool_call>" in text:
        rest = CALL.sub("", text)
        if "<tool_call>" in rest or "</tool_call>" in rest:
            raise Unusable("a call block that does not end")
        return Turn(role, place, rest.strip(), calls=tuple(_call(block) for block in CALL.findall(text)))
    if role == "tool":
        if not (blocks := RESULT.findall(text)) or RESULT.sub("", text).strip():
            raise Unusable("a result outside of a response block")
        return Turn(role, place, results=tuple(_result(block.strip()) for block in blocks))
    return Turn(role, place, text)


def _call(block: str) -> tuple[str, dict[str, Any]]:
    call = _json(block)
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise Unusable("a call without a name")
    if not isinstance(call.get("arguments"), dict):
        raise Unusable("a call whose arguments are no object")
    return call["name"], call["arguments"]


def _result(block: str) -> str:
    """Return a result written again with raw characters; one that is no JSON object stays as it is."""
    try:
        value = json.loads(block)
    except (ValueError, RecursionError):
        return block
    return arguments_text(value) if isinstance(value, dict) else block


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Unusable("calls or tools that are no JSON") from None
