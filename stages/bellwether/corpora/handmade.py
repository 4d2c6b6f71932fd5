"""The hand-made corpus: `render`, `parse`, `tokenize` and `detokenize` JSON Lines files that people write and review.

One line is one case. Its keys stand in one order, so that a review reads every line the same way:

    render       set name request                       notes [origin]
    parse        set name request message               notes [origin]
    parse        set name request malformed text        notes [origin]
    tokenize     set name text                          notes [origin]
    detokenize   set name text                          notes [origin]
    detokenize   set name ids requires                  notes [origin]

The reader is strict, because a slip in a hand-written line otherwise surfaces much later as a strange reference. Inside
`request` and `message` nothing is reordered or normalised: the order of the keys there is data.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bellwether.case import KINDS, NAME, Case, Origin, json_text
from bellwether.corpora.sources import Fetch, Items
from bellwether.errors import CorpusError

LICENSE = "Apache-2.0"

_SUBJECTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "render": (("request",),),
    "parse": (("request", "message"), ("request", "malformed", "text")),
    "tokenize": (("text",),),
    "detokenize": (("text",), ("ids", "requires")),
}
"""What a case of a kind is made of: the keys between `name` and `notes`, one tuple per permitted form."""

_ORIGIN_KEYS = ("dataset", "source", "row", "written")
_MESSAGE_KEYS = ("content", "reasoning_content", "tool_calls")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_SHOULD = re.compile(r"\bshould\b", re.IGNORECASE)


def corpus(folder: Path, fetch: Fetch) -> Items:
    """Yield the corpus: every line of `folder`. Nothing is fetched. Raises as `cases`."""
    return cases(folder)


def cases(folder: Path) -> Iterator[Case]:
    """Yield every case of the hand-made corpus in `folder`: render, parse, tokenize, detokenize, in line order.

    Raises:
        CorpusError: a file is missing or not UTF-8, or a line breaks the format. The message names the file, the line
            (1-based), what was expected and what was found.
    """
    for kind in KINDS:
        yield from _cases_of_file(folder / f"{kind}.jsonl", kind)


@dataclass(frozen=True, slots=True)
class _Place:
    """A line of a corpus file, for error messages."""

    path: Path
    line: int

    def error(self, expected: str, found: str, next_step: str = "Correct the line.") -> CorpusError:
        return CorpusError(f"{self.path} line {self.line}: expected {expected}, found {found}", next_step=next_step)


class _Refused(ValueError):
    """Raised inside JSON decoding for what JSON readers accept and this corpus does not."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(expected, found)
        self.expected = expected
        self.found = found


def _cases_of_file(path: Path, kind: str) -> Iterator[Case]:
    first_line: dict[str, int] = {}
    for number, line in enumerate(_lines(path), 1):
        place = _Place(path, number)
        case = _case(kind, _decode(line, place), place)
        if case.name in first_line:
            found = f"{case.name!r} again, first on line {first_line[case.name]}"
            raise place.error(f"a name that is unique among the {kind} cases", found, "Rename one of the two cases.")
        first_line[case.name] = number
        yield case


def _lines(path: Path) -> list[str]:
    """Return the lines of a file. Only LF ends a line: texts hold U+2028 and U+0085, where `splitlines` would cut."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise CorpusError(f"{path}: expected a corpus file, found none", next_step="Restore it from Git.") from None
    except UnicodeDecodeError as error:
        found = f"byte 0x{error.object[error.start]:02x} at offset {error.start}"
        raise CorpusError(f"{path}: expected UTF-8, found {found}", next_step="Save the file as UTF-8.") from None
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _decode(line: str, place: _Place) -> dict[str, object]:
    """Return the line's JSON object.

    Raises:
        CorpusError: the line is not JSON, not an object, or holds NaN, an infinity, a lone surrogate or a repeated key.
    """
    try:
        value = json.loads(line, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
        json_text(value).encode("utf-8")
    except _Refused as error:
        raise place.error(error.expected, error.found) from None
    except json.JSONDecodeError as error:
        raise place.error("one JSON object", f"no JSON ({error.msg} at column {error.colno})") from None
    except UnicodeEncodeError as error:
        found = f"U+{ord(error.object[error.start]):04X}, half of a surrogate pair"
        raise place.error("text that UTF-8 can hold", found) from None
    except (ValueError, RecursionError) as error:
        raise place.error("JSON this reader can hold", str(error)) from None
    return _object(value, "line", place)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value: dict[str, object] = {}
    for key, item in pairs:
        if key in value:  # json.loads alone would silently keep the last one
            raise _Refused("each key once per object", f"{key!r} twice")
        value[key] = item
    return value


def _no_constant(text: str) -> object:
    raise _Refused("numbers JSON knows", text)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _Refused("numbers a double can hold", text)
    return value


def _case(kind: str, value: dict[str, object], place: _Place) -> Case:
    """Return the case a decoded line says. `value` is checked in the order of its keys."""
    _check_keys(kind, value, place)
    set_name, name = _slug(value, "set", place), _slug(value, "name", place)
    subject = _subject(value, place)
    notes = _notes(value, place)
    origin, row, written = _origin(kind, name, value.get("origin", {}), place)
    return Case(kind=kind, set=set_name, name=name, origin=origin, row=row, written=written, notes=notes, **subject)


def _check_keys(kind: str, value: dict[str, object], place: _Place) -> None:
    forms = [("set", "name", *subject, "notes") for subject in _SUBJECTS[kind]]
    keys = tuple(value)
    unknown = [key for key in keys if key != "origin" and not any(key in form for form in forms)]
    if unknown:
        raise place.error(f"only keys a {kind} case has", f"unknown key {unknown[0]!r}")
    if keys not in forms and keys not in [(*form, "origin") for form in forms]:
        expected = " or ".join(", ".join(form) for form in forms)
        raise place.error(f"the keys {expected} in this order (then origin, if any)", f"the keys {', '.join(keys)}")


def _subject(value: dict[str, object], place: _Place) -> dict[str, object]:
    """Return the `Case` fields of what the case is made of; `request` and `message` become JSON text."""
    subject: dict[str, object] = {}
    if "request" in value:
        subject["request"] = json_text(_request(value["request"], place))
    if "message" in value:
        subject["message"] = json_text(_message(value["message"], place))
    if "malformed" in value:
        if value["malformed"] is not True:
            raise place.error("malformed to be true, or the key left out", _shown(value["malformed"]))
        subject["malformed"] = True
    if "text" in value:
        subject["text"] = _string(value, "text", place)
    if "ids" in value:
        subject["ids"] = _ids(value["ids"], place)
        subject["requires"] = _sha256(value["requires"], place)
    return subject


def _request(value: object, place: _Place) -> dict[str, object]:
    request = _object(value, "request", place)
    if "model" in request:
        raise place.error("a request without model", "model", "Remove model: a case serves every checkpoint.")
    if not isinstance(request.get("messages"), list):
        raise place.error("request.messages to be a list", _shown(request.get("messages")))
    return request


def _message(value: object, place: _Place) -> dict[str, object]:
    message = _object(value, "message", place)
    unknown = [key for key in message if key not in _MESSAGE_KEYS]
    if unknown:
        raise place.error(f"only the keys {', '.join(_MESSAGE_KEYS)} in message", f"unknown key {unknown[0]!r}")
    for key in ("content", "reasoning_content"):
        if (key == "content" or key in message) and not isinstance(message.get(key), str):
            raise place.error(f'message.{key} to be a string ("" for no text)', _shown(message.get(key)))
    if "tool_calls" in message:
        _check_calls(message["tool_calls"], place)
    return message


def _check_calls(calls: object, place: _Place) -> None:
    if not isinstance(calls, list) or not calls:
        raise place.error("message.tool_calls to be a non-empty list, or the key left out", _shown(calls))
    for index, value in enumerate(calls):
        name = f"message.tool_calls[{index}]"
        call = _object(value, name, place)
        if "id" in call:
            raise place.error(f"{name} without id", "id", "Remove the id: a parser cannot know it from the output.")
        if set(call) != {"type", "function"} or call["type"] != "function":
            raise place.error(f'{name} to be {{"type":"function","function":…}}', _shown(call))
        function = _object(call["function"], f"{name}.function", place)
        if set(function) != {"name", "arguments"} or not isinstance(function["name"], str):
            raise place.error(f"{name}.function to be a name and its arguments", _shown(function))
        if not isinstance(function["arguments"], str):
            found = _shown(function["arguments"])
            raise place.error(f"{name}.function.arguments to be a string", found, "Write the arguments as JSON text.")


def _ids(value: object, place: _Place) -> tuple[int, ...]:
    # type() and not isinstance(): True is an int to Python, not to JSON
    if not isinstance(value, list) or not value or not all(type(item) is int and item >= 0 for item in value):
        raise place.error("ids to be a non-empty list of token ids", _shown(value))
    return tuple(value)


def _sha256(value: object, place: _Place) -> str:
    if not isinstance(value, str) or not _SHA256.match(value):
        raise place.error("requires to be the sha256 of a tokenizer.json, 64 hex digits", _shown(value))
    return value


def _notes(value: dict[str, object], place: _Place) -> str:
    notes = _string(value, "notes", place)
    if not notes.strip() or "\n" in notes:
        raise place.error("notes to be one sentence", _shown(notes))
    if _SHOULD.search(notes):
        raise place.error('notes that state what the case probes, without "should"', _shown(notes))
    return notes


def _origin(kind: str, name: str, value: object, place: _Place) -> tuple[Origin, str, tuple[str, ...]]:
    """Return origin, row and written of a case; what the line leaves out says that the case is hand-made."""
    given = _object(value, "origin", place)
    unknown = [key for key in given if key not in _ORIGIN_KEYS]
    if unknown:
        raise place.error(f"only the keys {', '.join(_ORIGIN_KEYS)} in origin", f"unknown key {unknown[0]!r}")
    filled = {"dataset": "handmade", "source": "handmade", "row": name, "written": []} | given
    written = filled["written"]
    if not isinstance(written, list) or not all(isinstance(item, str) and item for item in written):
        raise place.error("origin.written to be a list of strings", _shown(written))
    origin = Origin(
        dataset=_string(filled, "dataset", place),
        source=_string(filled, "source", place),
        file=f"corpus/handmade/{kind}.jsonl",
        sha256="",
        license=LICENSE,
    )
    return origin, _string(filled, "row", place), tuple(written)


def _slug(value: dict[str, object], key: str, place: _Place) -> str:
    slug = _string(value, key, place)
    if not NAME.match(slug):
        raise place.error(f"{key} to be a slug (a-z, 0-9, single hyphens between them)", _shown(slug))
    return slug


def _string(value: dict[str, object], key: str, place: _Place) -> str:
    text = value[key]
    if not isinstance(text, str) or not text:
        raise place.error(f"{key} to be a non-empty string", _shown(text))
    return text


def _object(value: object, name: str, place: _Place) -> dict[str, object]:
    if not isinstance(value, dict):
        raise place.error(f"{name} to be a JSON object", _shown(value))
    return value


def _shown(value: object) -> str:
    """Return the value as JSON, cut to what fits an error message."""
    text = json_text(value)
    return text if len(text) <= 80 else text[:79] + "…"
