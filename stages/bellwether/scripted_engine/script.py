"""What the engine answers: scripts by key, from the program that drives it or from a file that may change meanwhile.

A key belongs to the request whose id is the key, or begins with the key and a dash: gateways append an id of their own
to the one their client sent. A mere beginning is not enough, `case-1` is not `case-10`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from bellwether.errors import EngineError

ANY = "*"
"""The key that answers every request without a script of its own."""
LARGEST_ID = (1 << 32) - 1
LONGEST_ID = 1024
"""Request ids longer than this have no key but themselves."""
YOUNG_NS = 100_000_000
"""A file written this short before it was read may change again without another time stamp, so it is read again."""
FIELDS = frozenset({"key", "chunks", "finish_reason", "matched_token_id", "matched_stop_str"})


@dataclass(frozen=True, slots=True)
class Script:
    """One answer."""

    chunks: tuple[tuple[int, ...], ...]
    """Token ids in the pieces they are streamed by; a full answer is all of them."""
    finish_reason: str = "stop"
    """Sent as it is, known word or not."""
    matched: int | str | None = None
    """The token id or the string that ended it."""

    @property
    def ids(self) -> list[int]:
        return list(chain.from_iterable(self.chunks))


def script(chunks: Iterable[Sequence[int]], finish_reason: str = "stop", matched: int | str | None = None) -> Script:
    """Return a checked script. Raises ValueError with what is wrong."""
    if isinstance(chunks, str | bytes) or not isinstance(chunks, Iterable):
        raise ValueError("chunks are no list of lists of token ids")
    pieces = []
    for piece in chunks:
        if not isinstance(piece, Sequence) or isinstance(piece, str | bytes):
            raise ValueError("chunks are no list of lists of token ids")
        pieces.append(tuple(piece))
    for token in chain.from_iterable(pieces):
        _check_id(token)
    if not isinstance(finish_reason, str):
        raise ValueError("finish_reason is no text")
    if matched is not None and not isinstance(matched, str):
        _check_id(matched)
    return Script(tuple(pieces), finish_reason, matched)


def _check_id(token: Any) -> None:
    if type(token) is not int or not 0 <= token <= LARGEST_ID:
        raise ValueError(f"{token!r} is no token id")


def keys_of(request_id: str) -> Iterator[str]:
    """Give every key that belongs to a request, the longest first."""
    yield request_id
    if len(request_id) > LONGEST_ID:
        return
    cut = request_id.rfind("-")
    while cut > 0:
        yield request_id[:cut]
        cut = request_id.rfind("-", 0, cut)


class ScriptFile:
    """Scripts in a file of JSON Lines: `{"key", "chunks", "finish_reason", "matched_token_id"}`, read when it changes.

    `finish_reason` is "stop" when absent; `matched_stop_str` may stand in the place of `matched_token_id`. Of several
    keys that belong to a request, the first in the file answers it.

    Raises:
        EngineError: the file cannot be read, or a line breaks the format; it names file and line. Also raised by
            `find`, as long as the file is so: a request is never answered by what stood there before. `complain` is
            told once.
    """

    def __init__(self, path: Path, complain: Callable[[str], None] = lambda _: None) -> None:
        self.path = path
        self._complain: Callable[[str], None] = lambda _: None
        self._seen: tuple[int, ...] | None = None
        self._scripts: dict[str, tuple[int, Script]] = {}
        self._wrong: EngineError | None = None
        self._refresh()
        self._complain = complain  # of later changes: this one was raised

    def find(self, request_id: str) -> tuple[str, Script] | None:
        """Return key and script of a request; None when no line is for it. `*` is a key like any other, to be asked for
        with `any`."""
        self._refresh()
        hits = [(self._scripts[key], key) for key in keys_of(request_id) if key in self._scripts]
        if not hits:
            return None
        (_, found), key = min(hits, key=lambda hit: hit[0][0])
        return key, found

    def any(self) -> Script | None:
        """Return the script of `*`."""
        hit = self._scripts.get(ANY)
        return hit and hit[1]

    def _refresh(self) -> None:
        before = self._wrong
        try:
            state = self.path.stat()
            stamp = (state.st_mtime_ns, state.st_size, state.st_ino)
            if stamp != self._seen:
                young = time.time_ns() - state.st_mtime_ns < YOUNG_NS
                self._seen, self._wrong = None if young else stamp, None
                self._scripts = read(self.path)
        except OSError as error:
            self._seen, self._wrong = None, _unreadable(self.path, error)
        except EngineError as error:
            self._wrong = error
        if self._wrong:
            self._scripts = {}
            if str(self._wrong) != str(before):
                self._complain(str(self._wrong))
            raise EngineError(str(self._wrong), next_step=self._wrong.next_step)


def _unreadable(path: Path, error: OSError) -> EngineError:
    return EngineError(f"{path}: {error.strerror or error}", next_step="Give the path of a file that can be read.")


def read(path: Path) -> dict[str, tuple[int, Script]]:
    """Return key → (1-based line, script) of a file of scripts. Raises OSError, EngineError."""
    scripts: dict[str, tuple[int, Script]] = {}
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                key, found = _parse(line)
                if key in scripts:
                    raise ValueError(f"the key {key!r} stands on line {scripts[key][0]} already")
            except ValueError as error:  # orjson's own error is one
                raise EngineError(
                    f"{path}:{number}: {error}",
                    next_step='A line is {"key": "...", "chunks": [[1, 2], [3]], "finish_reason": "stop"}.',
                ) from None
            scripts[key] = number, found
    return scripts


def _parse(line: bytes) -> tuple[str, Script]:
    value = orjson.loads(line)
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    if unknown := sorted(value.keys() - FIELDS):
        raise ValueError(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(FIELDS))}")
    key = value.get("key")
    if not isinstance(key, str) or not key:
        raise ValueError("no key")
    if "chunks" not in value:
        raise ValueError("no chunks")
    token, text = value.get("matched_token_id"), value.get("matched_stop_str")
    if token is not None and text is not None:
        raise ValueError("matched_token_id and matched_stop_str exclude each other")
    if text is not None and not isinstance(text, str):
        raise ValueError("matched_stop_str is no text")
    if isinstance(token, str):
        raise ValueError("matched_token_id is no token id")
    return key, script(value["chunks"], value.get("finish_reason", "stop"), text if token is None else token)
