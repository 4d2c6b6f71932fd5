"""The fork server, spoken to as the protocol in its docstring says, and without the host that usually does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import toy_engine
from bellwether.witnesses.process import SERVE
from processes import alive, children, wait_for
from toy_engine import does

SETTINGS = {"model": "", "slug": "some", "clock": "2026-01-15T12:00:00", "options": {}}


class Spoken:
    """A server, and connections to it."""

    def __init__(self, folder: Path, script: str = toy_engine.SCRIPT, memory_bytes: int = 1 << 30) -> None:
        path, self.address = folder / "witness.py", str(folder / "socket")
        path.write_text(script)
        command = [sys.executable, "-I", "-B", "-u", str(SERVE), str(os.getpid()), str(path), self.address]
        self.process = subprocess.Popen(
            [*command, str(memory_bytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.said = json.loads(self.process.stdout.readline())

    def connect(self) -> tuple[socket.socket, Any, int]:
        """Return a connection, its lines, and the read end of the child's output."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(10)
        connection.connect(self.address)
        output, write_end = os.pipe()
        socket.send_fds(connection, [b"\0"], [write_end])
        os.close(write_end)
        return connection, connection.makefile("rb"), output

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=10)
        self.process.stdout.close()


@pytest.fixture
def spoken(tmp_path: Path) -> Iterator[Spoken]:
    """The toy, served."""
    server = Spoken(tmp_path)
    yield server
    server.close()


def send(connection: socket.socket, *values: dict) -> None:
    connection.sendall(b"".join(json.dumps(value).encode() + b"\n" for value in values))


def tokenize(number: int, text: str) -> dict:
    return {"id": number, "question": {"kind": "tokenize", "text": text}}


def test_the_conversation_is_the_one_of_the_docstring(spoken: Spoken) -> None:
    """Ready, process id, facts, answers; questions may be written before anything is read."""
    assert spoken.said == {"ready": True}
    connection, lines, output = spoken.connect()
    with connection, lines, open(output, "rb") as printed:  # noqa: PTH123 - a descriptor
        send(connection, SETTINGS, tokenize(7, "a"), tokenize(8, does("refuse")), tokenize(9, does("raise")))
        assert json.loads(lines.readline()) == {"pid": children(spoken.process.pid)[0]}
        assert json.loads(lines.readline()) == {"started": {"version": "9.9"}}
        assert json.loads(lines.readline()) == {"id": 7, "answer": {"ids": [97]}}
        refused = json.loads(lines.readline())
        assert (refused["id"], refused["refused"]["code"]) == (8, "400")
        assert json.loads(lines.readline()) == {"id": 9, "failed": {"code": "KeyError", "message": "'nothing'"}}
        connection.shutdown(socket.SHUT_WR)
        assert lines.readline() == b""
        assert printed.read() == b"loading on standard output\nloading on standard error\n"
    wait_for(lambda: children(spoken.process.pid) == [])


def test_a_child_is_ended_on_request_and_only_a_child(spoken: Spoken) -> None:
    """A process id that is no child's is nobody's business."""
    connection, lines, output = spoken.connect()
    with connection, lines:
        send(connection, SETTINGS, tokenize(1, does("hang")))
        pid = json.loads(lines.readline())["pid"]
        lines.readline()
        spoken.process.stdin.write(b"%d\n%d\n" % (os.getpid(), spoken.process.pid))
        spoken.process.stdin.flush()
        other, other_lines, other_output = spoken.connect()
        with other, other_lines:
            send(other, SETTINGS)
            assert alive(json.loads(other_lines.readline())["pid"])
        spoken.process.stdin.write(b"%d\n" % pid)
        spoken.process.stdin.flush()
        assert lines.readline() == b""
        os.close(other_output)
    os.close(output)
    wait_for(lambda: not alive(pid))
    assert spoken.process.poll() is None


def test_the_end_of_standard_input_ends_everything(tmp_path: Path) -> None:
    """A child that hangs too."""
    server = Spoken(tmp_path)
    connection, lines, output = server.connect()
    with connection, lines:
        send(connection, SETTINGS, tokenize(1, does("hang")))
        pid = json.loads(lines.readline())["pid"]
        server.close()
        wait_for(lambda: not alive(pid))
    os.close(output)


def test_a_script_that_cannot_be_imported_serves_nothing(tmp_path: Path) -> None:
    """It says so and ends."""
    server = Spoken(tmp_path, "raise OSError('no such library')")
    assert server.said == {"failed": "OSError: no such library"}
    assert server.process.wait(timeout=10) == 0
    server.close()


def test_memory_is_bounded_and_the_bound_is_no_crash(tmp_path: Path) -> None:
    """Half the bound can be had, twice the bound is a MemoryError, and the child says it is its last word."""
    act = 'def load(s):\n    return (lambda q: {"ids": [len(bytearray(q["n"]))]}), {}\n'
    server = Spoken(tmp_path, act, memory_bytes=1 << 28)
    connection, lines, output = server.connect()
    with connection, lines:
        send(connection, SETTINGS, {"id": 1, "question": {"n": 1 << 27}}, {"id": 2, "question": {"n": 1 << 29}})
        found = [json.loads(line) for line in lines]
    os.close(output)
    server.close()
    assert found[2] == {"id": 1, "answer": {"ids": [1 << 27]}}
    assert found[3] == {"id": 2, "failed": {"code": "MemoryError", "message": ""}, "last": True}
    assert len(found) == 4


def test_modules_beside_the_server_can_be_had(tmp_path: Path) -> None:
    """`serve.beside` and `serve.Refused`: the script gets the server's own module, not a second one."""
    script = (
        "import sys, serve\n"
        "assert serve is sys.modules['__main__']\n"
        "jail = serve.beside('jail')\n"
        "def load(s):\n    return (lambda q: {'ids': [jail.SOCKET[0]]}), {}\n"
    )
    server = Spoken(tmp_path, script)
    assert server.said == {"ready": True}
    server.close()
