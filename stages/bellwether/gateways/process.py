"""A gateway's process: it dies with us, says why it ended, and leaves nothing of its group behind.

It is started tethered (stages/environments/tether.py), in a group and with an environment of its own, and killed, not
asked to end: there is nothing in it to save, and some think about it for seconds. What it prints is read all the time;
the beginning and the end are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from bellwether.errors import GatewayError

TETHER = Path(__file__).resolve().parents[2] / "environments" / "tether.py"
KEPT = 32 << 10
"""Bytes kept of the beginning of what a process prints, and as many of its end."""
WORDS = 500
"""Characters of its last line that go into a message."""
PAUSE = 0.01
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
ENVIRONMENT = {"LANG": "C.UTF-8", "TZ": "UTC", "HF_HUB_OFFLINE": "1"}


class Process:
    """A process that runs while its context is open."""

    def __init__(self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
        self._command = [str(part) for part in command]
        self._environment = {"PATH": os.environ.get("PATH", os.defpath), **ENVIRONMENT, **(environment or {})}
        self._output = _Output()

    async def __aenter__(self) -> Self:
        """Start it. Its output is a pipe of ours: asyncio's own would let `wait` wait for whoever inherited it."""
        read, write = os.pipe()
        try:
            self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: self._output, os.fdopen(read, "rb", 0)
            )
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), *self._command),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=write,
                    stderr=write,
                    env=self._environment,
                    start_new_session=True,
                )
            except BaseException:
                self._transport.close()
                raise
        except OSError as error:
            raise GatewayError(f"no process could be started: {error}") from None
        finally:
            os.close(write)
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._kill()
        try:
            await asyncio.shield(self._watcher)
        finally:
            self._transport.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it ended by itself."""
        return self._process.returncode is not None

    def said(self) -> str:
        """Return what it printed, without colours; the middle of a lot is left out."""
        return COLOUR.sub("", self._output.kept().decode("utf-8", "replace"))

    def last_words(self) -> str:
        """Return the last line it printed."""
        return self.said().strip().rpartition("\n")[2].strip()[:WORDS]

    def ending(self) -> str:
        """Return how it ended, and the last line it printed."""
        status, words = self._process.returncode, self.last_words()
        how = f"by signal {-status}" if status is not None and status < 0 else f"with status {status}"
        return f"{how}, its last words: {words}" if words else f"{how}, without a word"

    def _kill(self) -> None:
        """End the whole group. Its number is not another's before `_watch` took note of the leader's end."""
        with contextlib.suppress(ProcessLookupError):
            if not self.ended:
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _watch(self) -> None:
        """End what it may leave behind."""
        await self._process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


class _Output(asyncio.Protocol):
    """The beginning and the end of what is read."""

    def __init__(self) -> None:
        self._head = self._tail = b""

    def data_received(self, data: bytes) -> None:
        free = KEPT - len(self._head)
        self._head += data[:free]
        self._tail = (self._tail + data[free:])[-KEPT:]

    def kept(self) -> bytes:
        return self._head + (b"\n...\n" if len(self._tail) == KEPT else b"") + self._tail


async def until_ready(process: Process, ready: Callable[[], Awaitable[bool]], seconds: float) -> None:
    """Return when `ready` answers true.

    Raises:
        GatewayError: the process ended before, or the time was over. Says its last words.
    """
    deadline = time.monotonic() + seconds
    while not await ready():
        words = process.last_words()
        if process.ended:
            await asyncio.sleep(PAUSE)
            raise GatewayError(f"it ended before it was ready, {process.ending()}")
        if time.monotonic() >= deadline:
            raise GatewayError(
                f"it was not ready within {seconds:g} s" + (f"; its last words: {words}" if words else "")
            )
        await asyncio.sleep(PAUSE)


def free_ports(count: int) -> list[int]:
    """Return different ports of 127.0.0.1 that nobody listens on at this moment."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
