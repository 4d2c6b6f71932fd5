"""What transformers' regular expressions for parsing answers find, call by call.

transformers reads a model's answer with the patterns of a response template, compiled by the `regex` library, whose
white space, letters and partial matches are not those of other engines. Whoever ports such a template needs to know
what each pattern finds where. The patterns are those transformers itself compiles, the calls are those it makes:

| call | where transformers makes it |
|---|---|
| finditer | the start anchor in the prompt, of which the last match counts; the tags of `xml-inline` content |
| search | an opening or closing delimiter at the end of the output, from the end of the match before |
| search-partial | a delimiter while the output streams: in every buffer, with `partial=True` |
| sub | the strings and the bare keys of `json` content, which are replaced |

Offsets count characters, and bytes of the same place in UTF-8.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regex
from transformers.utils.chat_parsing.response_templates import load_response_template

from bellwether.errors import CorpusError, OracleError

ENGINE = "regex"
VERSION = regex.__version__

EVERY_BUFFER = 400
"""Probes up to this many characters are streamed character by character, longer ones in steps of BUFFER_STEP."""
BUFFER_STEP = 100
SENTINEL = "\0"
"""What transformers appends to ask whether a match would survive more text."""

FLAGS = ("ASCII", "DOTALL", "IGNORECASE", "MULTILINE", "UNICODE", "VERBOSE", "VERSION0", "VERSION1")


@dataclass(frozen=True, slots=True)
class Template:
    """A response template and where it is from."""

    name: str
    models: tuple[str, ...]
    """Model types or the checkpoint it is for."""
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pattern:
    """One compiled pattern of a template."""

    template: Template
    field: str | None
    """Field of the message it delimits; None for the start anchor."""
    role: str
    """Key of the template it comes from, below `content_args` with the path there."""
    compiled: regex.Pattern
    literals: tuple[str, ...] | None
    """Texts of which transformers made the pattern; None for a pattern written as such."""
    calls: tuple[str, ...]

    @property
    def id(self) -> str:
        return "/".join(part for part in (self.template.name, self.field, self.role) if part)

    @property
    def flags(self) -> list[str]:
        """Names of the flags it was compiled with, the engine's defaults too, sorted."""
        return [name for name in FLAGS if self.compiled.flags & getattr(regex, name)]


@dataclass(frozen=True, slots=True)
class Probe:
    """One text patterns are tried on."""

    name: str
    text: str
    notes: str


def read_probes(path: Path) -> list[Probe]:
    """Return the probes of a JSON Lines file: `name`, `text` or `parts` ([text, times] each), `notes`.

    Raises:
        CorpusError: a line is not JSON, has other keys, a name twice, or text that is not Unicode. Names the line.
    """
    probes: dict[str, Probe] = {}
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path} cannot be read: {error}", next_step="Restore the file from Git.") from None
    if lines.pop():
        raise CorpusError(f"{path}: the last line does not end", next_step="Restore the file from Git.")
    for number, line in enumerate(lines, 1):
        try:
            probe = _probe(json.loads(line))
            probe.text.encode()
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise CorpusError(f"{path}, line {number}: {error}", next_step="Mend the line.") from None
        if probe.name in probes:
            raise CorpusError(f"{path}, line {number}: {probe.name!r} stands twice", next_step="Rename one.")
        probes[probe.name] = probe
    if not probes:
        raise CorpusError(f"{path} has no probes", next_step="Restore the file from Git.")
    return list(probes.values())


def _probe(line: Any) -> Probe:
    if not isinstance(line, dict) or set(line) not in ({"name", "text", "notes"}, {"name", "parts", "notes"}):
        raise ValueError("the keys are name, text or parts, notes")
    text = line["text"] if "text" in line else "".join(part * times for part, times in line["parts"])
    if not all(isinstance(value, str) and value for value in (line["name"], line["notes"])) or not isinstance(
        text, str
    ):
        raise ValueError("name, text and notes are texts")
    return Probe(line["name"], text, line["notes"])


def patterns(template: Template, unquoted_keys: str) -> list[Pattern]:
    """Return the patterns of one template, the start anchor first, then field by field in its order.

    `unquoted_keys` is the pattern transformers itself has for the bare keys of lax JSON.

    Raises:
        OracleError: transformers refuses the template, or one of its patterns.
    """
    try:
        loaded = load_response_template(dict(template.spec))
        found = [
            Pattern(
                template,
                None,
                "start_anchor_pattern" if loaded.start_anchor_literals is None else "start_anchor",
                loaded.start_anchor_re,
                _literals(loaded.start_anchor_literals),
                ("finditer",),
            )
        ]
        for field in loaded.fields.values():
            for side, compiled, literals in (
                ("open", field.open_re, field.open_literals),
                ("close", field.close_re, field.close_literals),
            ):
                if compiled is not None:
                    role = f"{side}_pattern" if literals is None else side
                    calls = ("search", "search-partial")
                    found.append(Pattern(template, field.name, role, compiled, _literals(literals), calls))
            for role, compiled, call in _content(field.content, field.content_args, unquoted_keys):
                found.append(Pattern(template, field.name, role, compiled, None, (call,)))
    except (ValueError, TypeError, KeyError, AttributeError, regex.error) as error:
        raise OracleError(
            f"transformers refuses the response template of {template.name}: {error}",
            next_step="Look at the template; nothing was recorded.",
        ) from None
    return found


def _literals(literals: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if literals is None else tuple(literals)


def _content(
    parser: str, args: Mapping[str, Any], unquoted_keys: str, path: str = "content_args"
) -> Iterator[tuple[str, regex.Pattern, str]]:
    """Yield role, pattern and call of what transformers' content parsers compile, those inside values too."""
    if parser == "json":
        for index, (begin, end) in enumerate(args.get("string_delims", ())):
            text = regex.escape(begin) + "(.*?)" + regex.escape(end)
            yield f"{path}.string_delims[{index}]", regex.compile(text, regex.DOTALL), "sub"
        if args.get("unquoted_keys"):
            yield f"{path}.unquoted_keys", regex.compile(unquoted_keys), "sub"
    if parser == "xml-inline":
        yield f"{path}.tag_pattern", regex.compile(args["tag_pattern"], regex.DOTALL), "finditer"
    if inner := args.get("value_parser"):
        yield from _content(inner.get("name", "text"), inner.get("args", {}), unquoted_keys, f"{path}.value_parser")


def rows(found: Sequence[Pattern], probes: Sequence[Probe], seconds: float) -> Iterator[dict[str, Any]]:
    """Yield one row per pattern, probe and call, in this order. `seconds` bounds each call of the engine.

    Raises:
        OracleError: the engine took longer. A time-out says nothing about the answer, so it makes no row.
    """
    for pattern in found:
        shared = {
            "pattern_id": pattern.id,
            "template": pattern.template.name,
            "models": list(pattern.template.models),
            "field": pattern.field,
            "role": pattern.role,
            "pattern": pattern.compiled.pattern,
            "flags": pattern.flags,
            "literals": None if pattern.literals is None else list(pattern.literals),
            "engine": ENGINE,
            "engine_version": VERSION,
        }
        for probe in probes:
            for call in pattern.calls:
                buffers, matches = answer(pattern, call, probe, seconds)
                yield shared | {
                    "call": call,
                    "probe": probe.name,
                    "text": probe.text,
                    "buffers": buffers,
                    "matches": matches,
                }


def answer(pattern: Pattern, call: str, probe: Probe, seconds: float) -> tuple[list[int], list[dict[str, Any]]]:
    """Return the lengths of the buffers tried, in characters, and what was found in them, in order.

    Raises:
        OracleError: the engine took longer than `seconds`.
    """
    ends = _byte_ends(probe.text)
    buffers = buffer_lengths(len(probe.text)) if call == "search-partial" else [len(probe.text)]
    try:
        matches = list(CALLS[call](pattern, probe.text, seconds))
    except TimeoutError:
        raise OracleError(
            f"{pattern.id}: {call} did not end within {seconds:g} s on probe {probe.name}",
            next_step="Make the probe smaller; oracle.template_seconds in params.yaml sets the limit.",
        ) from None
    return buffers, [_match(match, ends, **more) for match, more in matches]


def buffer_lengths(length: int) -> list[int]:
    """Return the lengths a text of `length` characters is cut at when it streams, the whole text last."""
    if length <= EVERY_BUFFER:
        return list(range(length + 1))
    return [*range(0, length, BUFFER_STEP), length]


Matches = Iterator[tuple[regex.Match, dict[str, Any]]]
"""A match, and the other values of its row."""


def _finditer(pattern: Pattern, text: str, seconds: float) -> Matches:
    for match in pattern.compiled.finditer(text, timeout=seconds):
        yield match, {"buffer": len(text), "pos": 0}


def _search(pattern: Pattern, text: str, seconds: float) -> Matches:
    """From the end of one match to the next, as the parser moves on; it stops where a match has no width."""
    pos = 0
    while (match := pattern.compiled.search(text, pos, timeout=seconds)) is not None:
        yield match, {"buffer": len(text), "pos": pos}
        if match.end() == pos:
            break
        pos = match.end()


def _search_partial(pattern: Pattern, text: str, seconds: float) -> Matches:
    """In each buffer from its begin. That the end of a buffer could begin any match is no finding."""
    for length in buffer_lengths(len(text)):
        buffer = text[:length]
        match = pattern.compiled.search(buffer, 0, partial=True, timeout=seconds)
        if match is None or (match.partial and match.start() == length):
            continue
        more: dict[str, Any] = {"buffer": length, "pos": 0}
        if not match.partial and match.end() != length and pattern.literals is None:
            longer = pattern.compiled.match(buffer + SENTINEL, match.start(), timeout=seconds)
            more["survives"] = (
                longer is not None and longer.span() == match.span() and longer.groupdict() == match.groupdict()
            )
        yield match, more


def _sub(pattern: Pattern, text: str, seconds: float) -> Matches:
    found: list[regex.Match] = []

    def keep(match: regex.Match) -> str:
        found.append(match)
        return ""

    pattern.compiled.sub(keep, text, timeout=seconds)
    for match in found:
        yield match, {"buffer": len(text), "pos": 0}


CALLS: Mapping[str, Callable[[Pattern, str, float], Matches]] = {
    "finditer": _finditer,
    "search": _search,
    "search-partial": _search_partial,
    "sub": _sub,
}


def _match(match: regex.Match, ends: Sequence[int], **more: Any) -> dict[str, Any]:
    names = {number: name for name, number in match.re.groupindex.items()}
    return {
        **more,
        "partial": match.partial,
        **_span(match.span(), ends),
        "groups": [
            {"number": number, "name": names.get(number), **_span(match.span(number), ends)}
            for number in range(1, match.re.groups + 1)
        ],
    }


def _span(span: tuple[int, int], ends: Sequence[int]) -> dict[str, int | None]:
    """Return where a span begins and ends, in characters and bytes; null for a group that took no part."""
    begin, end = span
    if begin < 0:
        return dict.fromkeys(("start", "end", "start_byte", "end_byte"))
    return {"start": begin, "end": end, "start_byte": ends[begin], "end_byte": ends[end]}


def _byte_ends(text: str) -> list[int]:
    """Return for each place between characters how many bytes stand before it."""
    ends = [0]
    for char in text:
        ends.append(ends[-1] + len(char.encode()))
    return ends
