"""Run code of a stranger as a server over pipes: no network, no writes, nothing to read but what is listed, and limits.

The process runs `stages/environments/jail.py`, which builds the walls (its docstring says which, and which of them
are mandatory) before it loads the script. This side starts it, asks, watches the clock and the size of what comes
back, and kills it when a limit is passed. Requests and answers are lines of JSON; nothing that comes out is ever
unpickled or evaluated, and whoever reads a result validates its shape.

Where a mandatory wall cannot be built, vendor code does not run at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bellwether.errors import OracleError

ENVIRONMENTS = Path(__file__).resolve().parents[1] / "environments"
JAIL = ENVIRONMENTS / "jail.py"
MECHANISMS = ("seccomp", "landlock", "rlimits")
"""What is always in place when vendor code runs; for a provenance."""
SINGLE_THREADED = ("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
COMPLAINT_BYTES = 2000
CHUNK_BYTES = 1 << 16


class Refused(Exception):
    """Raised when the script inside raised on a request; `str()` is exception class and message. That is evidence."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sandboxed process may take."""

    start_seconds: float = 60
    """Wall time until the script is loaded."""
    request_seconds: float = 20
    """Wall time of one request."""
    memory_bytes: int = 4 << 30
    """Address space."""
    cpu_seconds: int = 3600
    """Processor time over the life of the process: a second bound, for when nobody watches the clock."""
    answer_bytes: int = 64 << 20
    """Longest answer."""


@dataclass(frozen=True, slots=True)
class Inside:
    """What to run, and what it may see."""

    name: str
    """Who is running, for messages."""
    script: Path
    """Defines `start(settings) -> (answer, facts)`: `answer` maps a request to a result, `facts` are JSON values."""
    settings: Mapping[str, Any]
    """JSON values handed to `start`."""
    files: Sequence[Path] = ()
    """Files that can be read, the file behind a link included: compare their bytes with their pins before."""
    listed: Sequence[Path] = ()
    """Folders in which names can be listed, and nothing more."""
    python: Path = Path(sys.executable)
    """The interpreter."""
    packages: Sequence[Path] = ()
    """Folders with importable packages; all below them can be read."""
    environment: Mapping[str, str] | None = None
    """Environment variables. Nothing of this process's own environment is passed on."""


class Sandbox:
    """One confined process that answers requests until it is closed. A context manager.

    It serves many requests, because loading costs seconds: a script has to keep nothing of one request for the next.
    It belongs to the thread that opens it, and ends with it.
    """

    def __init__(self, inside: Inside, limits: Limits | None = None) -> None:
        """Start the process and wait until the script is loaded.

        Raises:
            OracleError: this system cannot confine it, the script cannot be loaded, or a limit was passed.
        """
        self.inside = inside
        self.limits = limits or Limits()
        self._requests = 0
        if sys.platform != "linux":
            raise OracleError(
                f"{inside.name} is code of the vendor's, and it runs only where it can be confined: on Linux",
                next_step="Record on Linux, or take the recorded table with `dvc pull`.",
            )
        try:
            self._process = subprocess.Popen(
                [str(inside.python), "-I", "-S", "-B", "-X", "utf8", str(JAIL), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd="/",
                env=_environment(inside),
                start_new_session=True,
            )
        except OSError as error:
            raise OracleError(
                f"{inside.name} cannot be started: {error}", next_step="Check the interpreter it is to run in."
            ) from None
        for pipe in self._pipes():
            os.set_blocking(pipe.fileno(), False)
        try:
            self.facts = self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> Any:
        config = {
            "script": str(self.inside.script),
            "settings": dict(self.inside.settings),
            "files": [str(path.resolve()) for path in self.inside.files],
            "folders": [str(path.resolve()) for path in self.inside.packages],
            "listed": [str(path.resolve()) for path in self.inside.listed],
            "packages": [str(path) for path in self.inside.packages],
            "memory_bytes": self.limits.memory_bytes,
            "cpu_seconds": self.limits.cpu_seconds,
        }
        said = self._exchange(config, self.limits.start_seconds)
        match said:
            case {"started": facts}:
                return facts
            case {"unprotected": str(reason)}:
                raise OracleError(
                    f"{self.inside.name} is code of the vendor's, and it cannot be confined here: {reason}",
                    next_step="Use a Linux of 5.13 or later with Landlock, in a container that allows seccomp filters.",
                )
            case {"failed": str(reason)}:
                raise self._lost(f"cannot be loaded: {reason}")
        raise self._lost("says something else than what it is asked")

    def ask(self, value: Any) -> Any:
        """Return the script's answer to `value`, JSON for JSON. The caller validates it.

        Raises:
            Refused: the script raised.
            OracleError: no answer came: a limit was passed, a wall was run into, or the process ended. It is closed.
        """
        self._requests += 1
        said = self._exchange({"id": self._requests, "value": value}, self.limits.request_seconds)
        match said:
            case {"id": self._requests, "result": result}:
                return result
            case {"id": self._requests, "refused": str(reason)}:
                raise Refused(reason)
            case {"id": self._requests, "failed": str(reason)}:
                self.close()
                raise self._lost(f"ran into a limit: {reason}")
        self.close()
        raise self._lost("says something else than what it is asked")

    def close(self) -> None:
        """End the process. There is nothing in it to save."""
        self._process.kill()
        self._process.wait()
        for pipe in self._pipes():
            pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pipes(self) -> tuple[Any, Any, Any]:
        return self._process.stdin, self._process.stdout, self._process.stderr

    def _exchange(self, value: Any, seconds: float) -> Any:
        """Send one line and return the value of the one line that comes back. Whatever goes wrong ends the process."""
        if self._process.returncode is not None:
            raise self._lost("has ended")
        try:
            return json.loads(self._line(json.dumps(value).encode() + b"\n", seconds))
        except (ValueError, RecursionError) as error:
            self.close()
            raise self._lost(f"answers with something that is no JSON ({type(error).__name__})") from None
        except BaseException:
            self.close()
            raise

    def _line(self, line: bytes, seconds: float) -> bytes:
        """Write `line` and return what is written back up to the next line end."""
        deadline = time.monotonic() + seconds
        written, answer, complaint = memoryview(line), bytearray(), b""
        requests, answers, complaints = self._pipes()
        with selectors.DefaultSelector() as selector:
            selector.register(requests, selectors.EVENT_WRITE)
            selector.register(answers, selectors.EVENT_READ)
            selector.register(complaints, selectors.EVENT_READ)
            while True:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if time.monotonic() >= deadline:
                    raise self._lost(f"gave no answer within {seconds:g} s", complaint)
                for key, _ in ready:
                    if key.fileobj is requests:
                        with contextlib.suppress(BrokenPipeError):  # it has ended; the other pipes tell
                            written = written[os.write(requests.fileno(), written[:CHUNK_BYTES]) :]
                        if not written or self._process.poll() is not None:
                            selector.unregister(requests)
                        continue
                    read = os.read(key.fd, CHUNK_BYTES)
                    if key.fileobj is complaints:
                        complaint = (complaint + read)[-COMPLAINT_BYTES:]
                        if not read:
                            selector.unregister(complaints)
                        continue
                    if not read:
                        with contextlib.suppress(BlockingIOError):
                            complaint = (complaint + os.read(complaints.fileno(), CHUNK_BYTES))[-COMPLAINT_BYTES:]
                        raise self._lost("ended without an answer", complaint)
                    answer += read
                    if len(answer) > self.limits.answer_bytes:
                        raise self._lost(f"answers with more than {self.limits.answer_bytes:,} bytes", complaint)
                    if b"\n" in read:
                        if not answer.endswith(b"\n") or answer.count(b"\n") > 1:
                            raise self._lost("says more than what it is asked", complaint)
                        return bytes(answer)

    def _lost(self, what: str, complaint: bytes = b"") -> OracleError:
        """Return the error that says there is no evidence."""
        said = complaint.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return OracleError(
            f"{self.inside.name} {what}" + (f"; its last words: {said}" if said else ""),
            next_step="Nothing is recorded from it. Look at the vendor's file, or at the limits in sandbox.py.",
        )


def _environment(inside: Inside) -> dict[str, str]:
    single = dict.fromkeys(SINGLE_THREADED, "1") | {"TOKENIZERS_PARALLELISM": "false"}
    return {"LANG": "C.UTF-8", "TZ": "UTC", "HOME": "/nonexistent", **single, **(inside.environment or {})}
