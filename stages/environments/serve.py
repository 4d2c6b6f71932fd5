"""Runs in an engine's Python: imports a script once, then forks one child per connection. Standard library only.

Started by `bellwether.witnesses.process` as `python -I -B serve.py PARENT SCRIPT SOCKET MEMORY`. An engine takes up to
15 s to import; checkpoints and workers share that, and what crashes costs its own connection.

The script defines `load(settings) -> (answer, facts)` and `answer(question) -> dict`. It may import from `serve`:
`Refused(code, message)`, for what the engine's own server answers with a 400. Any other exception is no evidence.

| channel | what goes over it |
|---|---|
| standard output | one line: `{"ready": true}`, or `{"failed": reason}` when the script cannot be imported |
| standard input | a process id per line: the child to end. The end of the file ends everything |
| a connection | first the write end of a pipe, as one descriptor: the child's standard output and error |
| | child → host: `{"pid": n}`; host → child: the settings; child → host: `{"started": facts}` or `{"failed": reason}` |
| | host → child: `{"id": n, "question": {...}}` |
| | child → host: the id with `answer`, or with `refused` or `failed`, each `{"code", "message"}`; with `last` it ends |

Lines are JSON. Settings are `model` (a folder like a Hub snapshot, without weights), `slug`, `tool_parser`,
`reasoning_parser` (text or null), `options`, and `clock`: the moment templates are to see, in ISO format. A script that
sets its clock says so, with `clock` in its facts; only then is it asked what depends on the date.

A child has no network: it can open no socket but a Unix one (seccomp; where the system has none, nothing is denied).
Its memory is bounded by RLIMIT_DATA, not by address space: torch maps many times what it uses.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import platform
import resource
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

REASON_LENGTH = 2000


class Refused(Exception):
    """Raised by a script when the engine's own server would answer with a 400 and a structured error."""

    def __init__(self, code: object, message: object) -> None:
        super().__init__(str(message))
        self.code = str(code)


# ── a child: one checkpoint, question after question ─────────────────────────────────────────────────────────────────


def converse(script: ModuleType, connection: socket.socket) -> None:
    """Load the checkpoint the first line names, and answer until the host closes the connection."""

    def send(value: dict) -> None:
        connection.sendall(json.dumps(value).encode() + b"\n")

    send({"pid": os.getpid()})
    lines = connection.makefile("rb")
    try:
        answer, facts = script.load(json.loads(lines.readline()))
        send({"started": facts})
    except BaseException as error:
        return send({"failed": f"{type(error).__name__}: {error}"[:REASON_LENGTH]})
    for line in lines:
        asked = json.loads(line)
        said, goes_on = answered(answer, asked["question"])
        if not goes_on:
            return send({"id": asked["id"], **said, "last": True})
        send({"id": asked["id"], **said})


def answered(answer: Callable[[dict], Any], question: dict) -> tuple[dict, bool]:
    """Return what to say to one question, and whether this process is fit for the next one."""
    try:
        value = answer(question)
        json.dumps(value)
        return {"answer": value}, True
    except Refused as refusal:
        return {"refused": {"code": refusal.code, "message": str(refusal)[:REASON_LENGTH]}}, True
    except BaseException as error:
        failed = {"code": type(error).__name__, "message": str(error)[:REASON_LENGTH]}
        return {"failed": failed}, isinstance(error, Exception) and not isinstance(error, MemoryError)


def confine(memory_bytes: int) -> None:
    """Bound memory, leave no core file, and cut the network, as far as the system can."""
    jail = beside("jail")
    for name, value in ((resource.RLIMIT_DATA, memory_bytes), (resource.RLIMIT_CORE, 0)):
        most = resource.getrlimit(name)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(name, (value, value))
    if sys.platform == "linux":
        jail.libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS, without which a filter needs root
        try:
            jail.seccomp(jail.no_network_program(platform.machine()))
        except jail.Unprotected as error:
            print(f"the network stays open: {error}", file=sys.stderr)


# ── the server ───────────────────────────────────────────────────────────────────────────────────────────────────────


def serve(script: ModuleType, listener: socket.socket, memory_bytes: int) -> None:
    """Fork a child per connection and end children on request, until standard input ends; then end them all."""
    children: set[int] = set()
    requests = lines_of(sys.stdin.fileno())
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select(timeout=1)}
            reap(children)
            if sys.stdin in ready:
                lines = next(requests, None)
                if lines is None:
                    break
                end(children & {int(line) for line in lines})
            if listener in ready:
                connection, _ = listener.accept()
                server = os.getpid()
                if (pid := os.fork()) == 0:
                    die_with_parent(server)
                    listener.close()
                    child(script, connection, memory_bytes)
                children.add(pid)
                connection.close()
    end(children)


def child(script: ModuleType, connection: socket.socket, memory_bytes: int) -> None:
    """Be the child of one connection. Does not return."""
    status = 1
    try:
        _, (output,), _, _ = socket.recv_fds(connection, 1, 1)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        confine(memory_bytes)
        converse(script, connection)
        status = 0
    except (BrokenPipeError, ConnectionResetError):  # the host has what it wanted
        pass
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def lines_of(descriptor: int) -> Iterator[list[bytes]]:
    """Yield, per call, the lines that have come in whole; ends with the file."""
    rest = b""
    while read := os.read(descriptor, 1 << 12):
        *lines, rest = (rest + read).split(b"\n")
        yield lines


def reap(children: set[int]) -> None:
    """Take note of children that have ended."""
    for pid in list(children):
        if os.waitpid(pid, os.WNOHANG)[0]:
            children.discard(pid)


def end(pids: set[int]) -> None:
    """Kill children of this process that it has not yet waited for: their process ids cannot be another's."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def die_with_parent(parent: int) -> None:
    """Never outlive the process that started this one, where the system can promise it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def beside(name: str) -> ModuleType:
    """Return a module that stands beside this file. In isolated mode its folder is not searched."""
    return by_path(name, Path(__file__).with_name(f"{name}.py"))


def by_path(name: str, path: Path) -> ModuleType:
    """Return the module at `path`, run once, as `name`."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def main(parent: int, script: Path, address: str, memory_bytes: int) -> None:
    """Import the script, tell the host, serve."""
    die_with_parent(parent)
    control = os.dup(1)  # what the engine prints goes to standard error
    os.dup2(2, 1)
    os.set_inheritable(control, False)
    try:
        sys.modules["serve"] = sys.modules["__main__"]  # `from serve import Refused` is this module, not a second one
        loaded = by_path("witness", script)
        said = {"ready": True}
    except BaseException as error:
        said = {"failed": f"{type(error).__name__}: {error}"[:REASON_LENGTH]}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        os.write(control, json.dumps(said).encode() + b"\n")
        os.close(control)
        if "ready" in said:
            serve(loaded, listener, memory_bytes)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
