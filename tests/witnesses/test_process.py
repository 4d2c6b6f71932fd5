"""The fork server and its children, with a toy engine that does what engines do wrong."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import toy_engine
from bellwether.errors import WitnessError
from bellwether.witnesses.conversation import Conversation
from bellwether.witnesses.outcome import Answered, Failed, NotLoaded, Refused
from bellwether.witnesses.process import Program, Server
from processes import alive, children, wait_for
from support import ROOT
from toy_engine import does, loads

SETTINGS = {"model": "/nowhere", "slug": "some", "clock": "2026-01-15T12:00:00", "options": {}}
LIMITS = {"answer_seconds": 3, "answer_bytes": 100_000, "memory_bytes": 1 << 30}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """The toy, imported."""
    with Server(toy_engine.program(tmp_path, **LIMITS)) as started:
        yield started


def outcomes(server: Server, *texts: str) -> list:
    """Return what comes of tokenize questions."""
    with Conversation(server, SETTINGS, lambda words: None) as conversation:
        return list(conversation.outcomes({"kind": "tokenize", "text": text} for text in texts))


def test_answers_come_in_the_order_of_questions(server: Server) -> None:
    """More questions than are written ahead."""
    texts = ["x" * length for length in range(100)]
    assert outcomes(server, *texts) == [Answered({"ids": [ord("x")] * length}) for length in range(100)]
    assert loads(server.program.script) == ["some"]


def test_an_answer_larger_than_the_pipes_between_arrives(server: Server) -> None:
    """Neither side waits for the other when questions and answers are larger than a socket's buffer."""
    texts = ["é" * 4_000] * 20
    assert [len(outcome.value["ids"]) for outcome in outcomes(server, *texts)] == [8_000] * 20


@pytest.mark.parametrize(
    ("act", "code"),
    [
        ("crash", "died"),
        ("hang", "timeout"),
        ("rubbish", "rubbish"),
        ("forge", "rubbish"),
        ("flood", "rubbish"),
        ("raise", "KeyError"),
        ("leave", "SystemExit"),
        ("memory", "MemoryError"),
        ("unspeakable", "TypeError"),
    ],
)
def test_what_goes_wrong_costs_its_own_question(server: Server, act: str, code: str) -> None:
    """The questions before and after it, some of them already written, are answered."""
    before, wrong, after, last = outcomes(server, "a", does(act), "bb", "ccc")
    assert isinstance(wrong, Failed)
    assert wrong.code == code
    assert [len(one.value["ids"]) for one in (before, after, last)] == [1, 2, 3]


def test_a_refusal_is_no_failure(server: Server) -> None:
    """And the child that refused goes on."""
    refused, answered = outcomes(server, does("refuse"), "a")
    assert isinstance(refused, Refused)
    assert refused.code == "400"
    assert refused.message.startswith("no such thing as")
    assert isinstance(answered, Answered)
    assert loads(server.program.script) == ["some"]


def test_rubbish_after_an_answer_costs_nothing(server: Server) -> None:
    """The question that finds it is asked again, of another child."""
    late, slow = outcomes(server, does("late"), does("slow"))
    assert [len(one.value["ids"]) for one in (late, slow)] == [len("toy:late"), len("toy:slow")]
    assert loads(server.program.script) == ["some"] * 2


def test_what_an_engine_prints_is_no_answer(server: Server) -> None:
    """Standard output and standard error are apart from the conversation."""
    assert [type(outcome) for outcome in outcomes(server, does("print"), "a")] == [Answered, Answered]


def test_a_child_has_no_network(server: Server) -> None:
    """A socket beyond this machine cannot be opened."""
    assert outcomes(server, does("network")) == [Answered({"ids": [0]})]


def test_a_checkpoint_that_cannot_be_loaded_says_why(server: Server) -> None:
    """And the server goes on with the next one."""
    with pytest.raises(NotLoaded, match="ValueError: no weights in /nowhere"):
        Conversation(server, SETTINGS | {"options": {"broken": "yes"}}, print)
    assert len(outcomes(server, "a")) == 1


def test_children_share_the_import_and_nothing_else(server: Server) -> None:
    """Two conversations at a time, each with a child of its own."""
    with Conversation(server, SETTINGS, print) as one, Conversation(server, SETTINGS, print) as other:
        question = {"kind": "tokenize", "text": does("count")}
        assert [outcome.value["ids"] for outcome in one.outcomes([question] * 3)] == [[1], [2], [3]]
        assert [outcome.value["ids"] for outcome in other.outcomes([question])] == [[1]]


def test_a_closed_conversation_leaves_no_process(server: Server) -> None:
    """Even when its child hangs."""
    conversation = Conversation(server, SETTINGS, print)
    next(conversation.outcomes([{"kind": "tokenize", "text": "a"}]))
    [child] = children(server._process.pid)
    conversation._child.ask(9, {"kind": "tokenize", "text": does("hang")})
    time.sleep(0.2)
    conversation.close()
    wait_for(lambda: not alive(child))


def test_closing_the_server_ends_its_children(tmp_path: Path) -> None:
    """Whoever asks is told that it is gone."""
    with Server(toy_engine.program(tmp_path)) as server:
        conversation = Conversation(server, SETTINGS, lambda words: None)
        [child] = children(server._process.pid)
        server.close()
        with pytest.raises(WitnessError, match="toy has ended"):
            list(conversation.outcomes([{"kind": "tokenize", "text": "a"}]))
        conversation.close()
        wait_for(lambda: not alive(child))


@pytest.mark.parametrize("text", ["raise ValueError('no such engine')", "import sys; sys.exit(3)", "syntax error"])
def test_a_script_that_cannot_be_imported_is_told(tmp_path: Path, text: str) -> None:
    """With the reason, and the next step."""
    program = toy_engine.program(tmp_path)
    program.script.write_text(text)
    with pytest.raises(WitnessError, match=r"toy cannot be imported: (ValueError|SystemExit|SyntaxError)") as caught:
        Server(program)
    assert "stages/environments" in caught.value.next_step


def test_a_script_that_dies_when_imported_is_told_with_its_last_words(tmp_path: Path) -> None:
    """A crash in native code leaves no exception."""
    program = toy_engine.program(tmp_path)
    program.script.write_text("import os\nos.write(2, b'first\\nno AVX\\n')\nos.abort()")
    with pytest.raises(WitnessError, match="toy ended before it was imported; its last words: no AVX"):
        Server(program)


def test_an_import_that_takes_too_long_ends(tmp_path: Path) -> None:
    """The process is gone with it."""
    program = toy_engine.program(tmp_path, start_seconds=0.5)
    program.script.write_text("import time; time.sleep(3600)")
    before = children(os.getpid())
    with pytest.raises(WitnessError, match=r"toy is not imported within 0\.5 s"):
        Server(program)
    assert children(os.getpid()) == before


def test_what_is_compiled_is_kept_where_it_may_be_and_never_beside_the_code(tmp_path: Path) -> None:
    """Engines take twice as long to import uncompiled; a checkout and an environment stay as they are."""
    (tmp_path / "script").mkdir()
    program, kept = toy_engine.program(tmp_path / "script"), tmp_path / "kept"
    with Server(program):
        assert not list(tmp_path.rglob("*.pyc"))
    with Server(dataclasses.replace(program, bytecode=kept)):
        found = {path.name.partition(".")[0] for path in tmp_path.rglob("*.pyc") if path.is_relative_to(kept)}
    assert "witness" in found
    assert not list((tmp_path / "script").rglob("*.pyc"))


def test_an_interpreter_that_is_not_there_is_told(tmp_path: Path) -> None:
    """A half-removed environment."""
    program = toy_engine.program(tmp_path)
    with pytest.raises(WitnessError, match="toy cannot be started"):
        Server(Program("toy", program.script, tmp_path / "python"))


def test_no_process_outlives_a_killed_host(tmp_path: Path) -> None:
    """SIGKILL of the host while a child hangs: nobody is left to end it."""
    toy_engine.program(tmp_path)
    host = tmp_path / "host.py"
    host.write_text(HOST.format(stages=str(ROOT / "stages"), script=str(tmp_path / "witness.py")))
    process = subprocess.Popen([sys.executable, str(host)], stdout=subprocess.PIPE, text=True)
    server = int(process.stdout.readline())
    wait_for(lambda: children(server))
    [child] = children(server)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: not alive(server) and not alive(child))


HOST = """
import sys
sys.path.insert(0, {stages!r})
from pathlib import Path
from bellwether.witnesses.conversation import Conversation
from bellwether.witnesses.process import Program, Server
server = Server(Program("toy", Path({script!r}), Path(sys.executable)))
print(server._process.pid, flush=True)
settings = {{"model": "", "slug": "", "clock": "", "options": {{}}}}
list(Conversation(server, settings, print).outcomes([{{"kind": "tokenize", "text": "toy:hang"}}]))
"""
