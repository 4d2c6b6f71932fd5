"""An engine as a fork server in its own Python, and its children, each of which has loaded one checkpoint.

`stages/environments/serve.py` is the other side; its docstring is the protocol. This side starts it, and watches the
clock and the size of what comes back.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from bellwether.errors import WitnessError
from bellwether.witnesses.outcome import Answered, Failed, Lost, NotLoaded, Outcome, Refused

SERVE = Path(__file__).resolve().parents[2] / "environments" / "serve.py"
CHUNK_BYTES = 1 << 18
COMPLAINT_BYTES = 2000
SINGLE_THREADED = ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine may take."""

    start_seconds: float = 300
    """Until the engine is imported: from a cold disk, on a busy machine, minutes."""
    load_seconds: float = 120
    """Until a checkpoint is loaded."""
    answer_seconds: float = 30
    """Until a question is answered, counted from the answer before."""
    memory_bytes: int = 8 << 30
    """What a child may write to (RLIMIT_DATA)."""
    answer_bytes: int = 64 << 20
    """Longest answer."""


@dataclass(frozen=True, slots=True)
class Program:
    """What to run."""

    name: str
    """Who is running, for messages."""
    script: Path
    python: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables on top of the few every engine gets. None of this process's own are passed on."""
    limits: Limits = Limits()
    bytecode: Path | None = None
    """Folder that keeps what the first start compiles, for the next ones; never beside the code. None keeps nothing."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Return what Python is to be told."""
        kept = ("-B",) if self.bytecode is None else ("-X", f"pycache_prefix={self.bytecode}")
        return ("-I", *kept, "-u", "-X", "utf8")


class Server:
    """One fork server. A context manager; start it from a thread that outlives it, for it ends with that thread."""

    def __init__(self, program: Program) -> None:
        """Start the process and wait until the engine is imported.

        Raises:
            WitnessError: it cannot be started, or the script cannot be imported in time.
        """
        self.program = program
        self._work = tempfile.TemporaryDirectory(prefix="bellwether-")
        self.passing = {self._work.name: "<work>"}
        self.address = str(Path(self._work.name, "socket"))
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._closing = threading.Lock()
        try:
            self._process = subprocess.Popen(
                [
                    *(str(program.python), *program.flags, str(SERVE)),
                    *(str(os.getpid()), str(program.script), self.address, str(program.limits.memory_bytes)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                bufsize=0,
                cwd=self._work.name,
                env=self._environment(),
                start_new_session=True,
            )
        except OSError as error:
            self._forget()
            raise WitnessError(f"{program.name} cannot be started: {error}", next_step=_ENVIRONMENT) from None
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def _environment(self) -> dict[str, str]:
        home = {"HOME": self._work.name, "TMPDIR": self._work.name, "PATH": os.environ.get("PATH", os.defpath)}
        single = dict.fromkeys(SINGLE_THREADED, "1") | {"TOKENIZERS_PARALLELISM": "false"}
        offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}
        return {"LANG": "C.UTF-8", "TZ": "UTC", **home, **single, **offline, **self.program.variables}

    def _wait_until_ready(self) -> None:
        seconds = self.program.limits.start_seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                raise self._unusable(f"is not imported within {seconds:g} s")
        try:
            said = json.loads(self._process.stdout.readline() or b"null")
        except ValueError:
            said = None
        match said:
            case {"ready": True}:
                return
            case {"failed": str(reason)}:
                raise self._unusable(f"cannot be imported: {reason}")
        raise self._unusable("ended before it was imported")

    def _unusable(self, what: str) -> WitnessError:
        self._complaints.seek(max(0, os.fstat(self._complaints.fileno()).st_size - COMPLAINT_BYTES))
        said = _last_words(self._complaints.read())
        return WitnessError(
            f"{self.program.name} {what}" + (f"; its last words: {said}" if said else ""), next_step=_ENVIRONMENT
        )

    def open(self, settings: Mapping[str, Any]) -> Child:
        """Return a child that has loaded a checkpoint. Raises as `Child`."""
        return Child(self, settings)

    def end(self, pid: int) -> None:
        """Kill a child. The server does it, which knows that the process id is still its child's."""
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(b"%d\n" % pid)

    def require_open(self) -> None:
        """Raise WitnessError when the server was closed, or died: a lost child is then no evidence of anything."""
        if self._process.stdin.closed or self._process.poll() is not None:
            raise WitnessError(f"{self.program.name} has ended", next_step="Nothing half-written is left; run again.")

    def close(self) -> None:
        """End the server and its children. A second time, or from another thread, does no harm."""
        with self._closing:
            if not self._process.stdin.closed:
                self._end()

    def _end(self) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:  # its children end with it
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._forget()

    def _forget(self) -> None:
        self._complaints.close()
        self._work.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_ENVIRONMENT = "Look at the script and the environment of this engine in stages/environments."


class Child:
    """One process that has loaded one checkpoint. A context manager."""

    def __init__(self, server: Server, settings: Mapping[str, Any]) -> None:
        """Have the server fork, and wait until the checkpoint is loaded.

        Raises:
            NotLoaded: the engine cannot load it, or not in time.
            WitnessError: there is no server any more.
        """
        self._server = server
        self._limits = server.program.limits
        self._pid: int | None = None
        self.ends = False
        """Whether it said that its last answer was its last."""
        self._answer = bytearray()
        self._rest = bytearray()
        self._complaint = b""
        self._socket = socket.socket(socket.AF_UNIX)
        self._pipe, output = os.pipe()
        try:
            self._socket.connect(server.address)
            socket.send_fds(self._socket, [b"\0"], [output])
            self._socket.setblocking(False)
            os.set_blocking(self._pipe, False)
        except OSError:
            self.close()
            server.require_open()
            raise
        finally:
            os.close(output)
        self.facts = self._load(settings)

    def _load(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        self._write(settings)
        deadline = time.monotonic() + self._limits.load_seconds
        try:
            match self._read(deadline):
                case {"pid": int(pid)}:
                    self._pid = pid
            match self._read(deadline):
                case {"started": dict(facts)}:
                    return facts
                case {"failed": str(reason)}:
                    raise NotLoaded(reason)
            raise NotLoaded("says something else than what it is asked")
        except Lost as lost:
            self._server.require_open()
            raise NotLoaded(str(lost)) from None
        except BaseException:
            self.close()
            raise

    def ask(self, number: int, question: Mapping[str, Any]) -> None:
        """Put a question into the queue. It is written while answers are read."""
        self._write({"id": number, "question": question})

    def answer(self, number: int) -> Outcome:
        """Return what comes of the question `number`, the oldest without an answer.

        Raises:
            Lost: nothing did; the child is of no use any more.
        """
        said = self._read(time.monotonic() + self._limits.answer_seconds)
        self.ends = isinstance(said, dict) and said.get("last") is True
        match said:
            case {"id": int(found), "answer": value} if found == number:
                return Answered(value)
            case {"id": int(found), "refused": {"code": str(code), "message": str(message)}} if found == number:
                return Refused(code, message)
            case {"id": int(found), "failed": {"code": str(code), "message": str(message)}} if found == number:
                return Failed(code, message)
        raise Lost("rubbish", "said something else than what it was asked")

    def last_words(self) -> str:
        """Return the last line the child printed."""
        self._drain()
        return _last_words(self._complaint)

    def close(self) -> None:
        """End the process. There is nothing in it to save."""
        if self._pid is not None:
            self._server.end(self._pid)
        self._socket.close()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, value: Mapping[str, Any]) -> None:
        self._rest += json.dumps(value).encode() + b"\n"
        self._push()

    def _push(self) -> None:
        """Write as much as the other side takes now."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):  # reading tells of an end
            while self._rest:
                del self._rest[: self._socket.send(self._rest[:CHUNK_BYTES])]

    def _drain(self) -> bool:
        """Read what the child printed; return whether it can print more."""
        with contextlib.suppress(BlockingIOError):
            while read := os.read(self._pipe, CHUNK_BYTES):
                self._complaint = (self._complaint + read)[-COMPLAINT_BYTES:]
            return False
        return True

    def _read(self, deadline: float) -> Any:
        """Return the value of the next line. Raises Lost."""
        seen = 0
        while (place := self._answer.find(b"\n", seen)) < 0:
            seen = len(self._answer)
            self._wait(deadline)
        line = bytes(self._answer[:place])
        del self._answer[: place + 1]
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            raise Lost("rubbish", "said something that is no JSON") from None

    def _wait(self, deadline: float) -> None:
        """Move bytes in both directions until some came in. Raises Lost."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ | (selectors.EVENT_WRITE if self._rest else 0))
            selector.register(self._pipe, selectors.EVENT_READ)
            while True:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if time.monotonic() >= deadline:
                    raise Lost("timeout", "gave no answer in time")
                for key, events in ready:
                    if key.fileobj is not self._socket:
                        if not self._drain():
                            selector.unregister(self._pipe)
                        continue
                    if events & selectors.EVENT_WRITE:
                        self._push()
                        if not self._rest:
                            selector.modify(self._socket, selectors.EVENT_READ)
                    if not events & selectors.EVENT_READ:
                        continue
                    try:
                        read = self._socket.recv(CHUNK_BYTES)
                    except ConnectionResetError:
                        read = b""
                    if not read:
                        raise Lost("died", "ended without an answer")
                    self._answer += read
                    if len(self._answer) > self._limits.answer_bytes and b"\n" not in self._answer:
                        raise Lost("rubbish", f"answered with more than {self._limits.answer_bytes:,} bytes")
                    return


def _last_words(complaint: bytes) -> str:
    return complaint.decode("utf-8", "replace").strip().rpartition("\n")[2]
