"""The scripted engine behind a gateway that somebody else started: one of this process, or one known by its files.

Either way a request's answer is scripted under a key before it is sent, and what the engine was asked is read after.
A capture belongs to a key when its request id is the key, or the key, a dash and what the gateway appended.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from bellwether.errors import EngineError
from bellwether.gateways.answer import Served
from bellwether.scripted_engine import Capture, ScriptedEngine
from bellwether.scripted_engine.script import ANY
from bellwether.whole import whole_file

CAPTURE_SECONDS = 2.0
"""How long a capture may come after the answer it belongs to."""
PAUSE = 0.005
KEPT = 4096
"""Captures of others that are remembered, the latest ones."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the engine saw of a request."""

    request_id: str
    input_ids: list[int] | None
    """None when the prompt came as text or as messages."""
    model: str | None
    """The one it was asked for, where that is known."""

    def of(self, key: str) -> bool:
        """Return whether it is the request of a key."""
        return self.request_id == key or self.request_id.startswith(key + "-")


class Log:
    """Captures that wait to be taken, in the order they came; the latest `KEPT`. It counts what it was given."""

    def __init__(self) -> None:
        self.read = 0
        self.joined = 0
        self._waiting: deque[Seen] = deque(maxlen=KEPT)

    @property
    def other(self) -> int:
        """Captures that nobody has asked for."""
        return self.read - self.joined

    def add(self, seen: Seen) -> None:
        self.read += 1
        self._waiting.append(seen)

    def take(self, key: str | None) -> list[Seen]:
        """Return the captures of a key, or all; they are forgotten."""
        found = [seen for seen in self._waiting if key is None or seen.of(key)]
        if found:
            self.joined += len(found)
            rest = [] if key is None else [seen for seen in self._waiting if not seen.of(key)]
            self._waiting = deque(rest, maxlen=KEPT)
        return found

    def forget(self) -> None:
        """Drop all that wait; they count as others'."""
        self._waiting.clear()


class Engine(Protocol):
    """The engine behind the gateway, while a checkpoint is open."""

    log: Log

    def expect(self, key: str, chunks: list[list[int]], finish_reason: str, matched: int | None) -> None:
        """Script the answer to the request of `key`; `*` stands for every request without a script of its own."""
        ...

    async def take(self, key: str, *, wait: bool = True) -> list[Seen]:
        """Return the captures of `key`, of `*` all there are, and forget them with the script.

        With `wait`, one that is not there yet is waited for. Raises EngineError when captures cannot be read.
        """
        ...


class Behind(Protocol):
    """Gives an engine per checkpoint."""

    facts: Mapping[str, Any]
    sees_ids: bool
    """Whether prompts may come as ids."""

    def serve(self, served: Served) -> AbstractAsyncContextManager[Engine]: ...


async def _until(come: Callable[[], bool], wait: bool) -> None:
    deadline = time.monotonic() + CAPTURE_SECONDS
    while wait and not come() and time.monotonic() < deadline:
        await asyncio.sleep(PAUSE)


# ── an engine of this process ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class EngineAt:
    """An engine of this process, on a port of 127.0.0.1 that the gateway was told."""

    port: int
    wire: str = "vllm"

    @property
    def facts(self) -> dict[str, Any]:
        return {"engine": "of this process", "wire": self.wire}

    @property
    def sees_ids(self) -> bool:
        return self.wire != "http"

    @asynccontextmanager
    async def serve(self, served: Served) -> AsyncIterator[_Own]:
        """Serve a checkpoint. Raises EngineError when the port is in use."""
        own = _Own()
        async with ScriptedEngine(sinks=[own]) as engine:
            await engine.serve(served, self.wire, self.port)
            own.engine = engine
            yield own


class _Own:
    """A sink of its engine, too: it is given each capture when its request ends."""

    engine: ScriptedEngine

    def __init__(self) -> None:
        self.log = Log()

    def write(self, capture: Capture) -> None:
        self.log.add(Seen(capture.request_id, capture.input_ids, capture.model))

    def close(self) -> None:
        self.log.forget()

    def expect(self, key: str, chunks: list[list[int]], finish_reason: str, matched: int | None) -> None:
        if key == ANY:
            self.log.forget()
        self.engine.expect(key, chunks, finish_reason, matched)

    async def take(self, key: str, *, wait: bool = True) -> list[Seen]:
        found: list[Seen] = []

        def come() -> bool:
            found.extend(self.log.take(None if key == ANY else key))
            return bool(found)

        if not come():
            await _until(come, wait)
        for name in (key, *(seen.request_id for seen in found)):
            self.engine.take(name)
        return found


# ── an engine elsewhere, by its files ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class EngineFiles:
    """An engine started elsewhere with `bellwether engine --script … --capture …`.

    To the lines of the script file come those of requests under way, in front of its own. The file is replaced as a
    whole each time, so that no half line is ever read, and is in the end what it was.
    """

    script: Path
    capture: Path
    sees_ids = True

    @property
    def facts(self) -> dict[str, Any]:
        return {"engine": "elsewhere, known by its files"}

    @asynccontextmanager
    async def serve(self, served: Served) -> AsyncIterator[_Elsewhere]:
        """Read captures that come from now on. Raises EngineError when a file is not there, or cannot be read."""
        try:
            elsewhere = _Elsewhere(self, self.script.read_bytes(), self.capture.stat().st_size)
        except OSError as error:
            raise EngineError(
                f"{error.filename}: {error.strerror}", next_step="Give the two files of an engine that runs."
            ) from None
        try:
            yield elsewhere
        finally:
            elsewhere.restore()


class _Elsewhere:
    def __init__(self, files: EngineFiles, own: bytes, start: int) -> None:
        self.log = Log()
        self._files = files
        self._own = own
        self._own_keys = [(_key(line), line) for line in own.splitlines(keepends=True)]
        self._at = start
        self._scripts: dict[str, bytes] = {}

    def expect(self, key: str, chunks: list[list[int]], finish_reason: str, matched: int | None) -> None:
        if key == ANY:
            self._read()
            self.log.forget()
        line: dict[str, Any] = {"key": key, "chunks": chunks, "finish_reason": finish_reason}
        if matched is not None:
            line["matched_token_id"] = matched
        self._scripts[key] = orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
        self._write()

    async def take(self, key: str, *, wait: bool = True) -> list[Seen]:
        found: list[Seen] = []

        def come() -> bool:
            self._read()
            found.extend(self.log.take(None if key == ANY else key))
            return bool(found)

        if not come():
            await _until(come, wait)
        if self._scripts.pop(key, None) is not None:
            self._write()
        return found

    def restore(self) -> None:
        """Leave the file with its own lines alone."""
        self._scripts.clear()
        self._write()

    def _write(self) -> None:
        try:
            with whole_file(self._files.script) as partial:
                partial.write_bytes(self._lines() if self._scripts else self._own)
        except OSError as error:
            raise EngineError(f"{self._files.script}: {error.strerror}", next_step="Make it a file to write.") from None

    def _lines(self) -> bytes:
        """Return our lines, and those of the file's own that are for other keys: a key may stand there once."""
        return b"".join([*self._scripts.values(), *(line for key, line in self._own_keys if key not in self._scripts)])

    def _read(self) -> None:
        """Read the whole lines that were added.

        Raises:
            EngineError: a line is no capture, or the file has shrunk, so that lines are lost.
        """
        path = self._files.capture
        try:
            with path.open("rb") as file:
                if file.seek(0, 2) < self._at:
                    raise EngineError(f"{path} has become shorter", next_step="Let the engine add to it alone.")
                file.seek(self._at)
                added = file.read()
        except OSError as error:
            raise EngineError(f"{path}: {error.strerror}", next_step="Let the engine add to it alone.") from None
        whole = added[: added.rfind(b"\n") + 1]
        for line in whole.splitlines():
            self.log.add(_seen(path, line))
        self._at += len(whole)


def _key(line: bytes) -> str | None:
    """Return the key of a script's line; None where there is none, which the engine complains of."""
    try:
        match orjson.loads(line):
            case {"key": str(key)}:
                return key
    except ValueError:
        pass
    return None


def _seen(path: Path, line: bytes) -> Seen:
    try:
        match orjson.loads(line):
            case {"request_id": str(request_id), "input_ids": list() | None as ids, **rest} if ids is None or all(
                type(one) is int for one in ids
            ):
                return Seen(request_id, ids, rest.get("model"))
    except ValueError:
        pass
    raise EngineError(
        f"{path}: a line is no capture: {line[:80]!r}", next_step='A line is {"request_id": "…", "input_ids": [1, 2]}.'
    )
