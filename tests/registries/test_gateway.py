"""What a gateway says of its own parsers: the real one, and programs in its place that say something else."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from venv import EnvBuilder

import pytest

from bellwether.environments import Environment
from bellwether.errors import TableError, WitnessError
from bellwether.registries import gateway, listed
from bellwether.registries.gateway import Said, differences, meaning
from bellwether.registries.listed import Part
from registries.test_listed import SMALL
from registries.test_smg import ACCEPTED, TABLES
from support import ROOT

VERSION = "1.13.0"


def test_the_answers_in_git_are_those_seen_of_the_gateway():
    """26 tool and 21 reasoning parsers by its routes; the command line lists Symphony's tables and `hf` too."""
    said = gateway.read(ROOT, VERSION)
    for kind, names in ACCEPTED.items():
        assert list(said.accepted[kind]) == names.split()
        assert set(said.listed[kind]) == {*names.split(), *TABLES.split(), "hf"}
        assert not set(said.refused[kind]) & set(said.accepted[kind])
        assert {*said.refused[kind], *said.accepted[kind]} == set(said.listed[kind])
    assert (len(said.listed["tool"]), len(said.listed["reasoning"])) == (48, 44)


def test_source_and_program_name_the_same():
    """What the text registers is what the program accepts and lists, in the stored files."""
    assert differences(gateway.read(ROOT, VERSION), listed.read(ROOT)) == []


@pytest.mark.skipif(sys.platform != "linux", reason="the gateway's wheel is asked on Linux")
def test_a_running_gateway_says_what_is_stored():
    """In its own environment, on loopback, without workers."""
    assert gateway.ask(VERSION) == gateway.read(ROOT, VERSION)


def test_answers_are_read_as_they_were_written(tmp_path: Path):
    """One file per release."""
    said = gateway.read(ROOT, VERSION)
    gateway.path(tmp_path, VERSION).parent.mkdir(parents=True)
    gateway.path(tmp_path, VERSION).write_text(gateway.render(said))
    assert gateway.read(tmp_path, VERSION) == said


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "does not exist"),
        ("{", "another shape"),
        ("[]", "another shape"),
        ('{"version": "1.13.0"}', "another shape"),
        ('{"version": "1.13.0", "listed": {}, "accepted": [], "refused": {}}', "another shape"),
        ('{"version": "1.12.0", "listed": {}, "accepted": {}, "refused": {}}', r"speaks of 1\.12\.0"),
    ],
)
def test_broken_answers_are_an_error(tmp_path: Path, text: str | None, told: str):
    """The next step is to ask again."""
    path = gateway.path(tmp_path, VERSION)
    path.parent.mkdir(parents=True)
    if text is not None:
        path.write_text(text)
    with pytest.raises(TableError, match=told):
        gateway.read(tmp_path, VERSION)


SOURCE = replace(
    SMALL,
    parts=(
        *(Part(kind, "smg", name, "m:C") for kind in ("tool", "reasoning") for name in ("old", "harmony")),
        *(Part(kind, "smg-symphony", "table", "m:C") for kind in ("tool", "reasoning")),
    ),
    left_out={"smg-symphony": {"tool": ("plain",), "reasoning": ("plain",)}},
)
AGREES = Said(
    VERSION,
    listed=dict.fromkeys(("tool", "reasoning"), ("old", "plain", "table")),
    accepted=dict.fromkeys(("tool", "reasoning"), ("old",)),
    refused=dict.fromkeys(("tool", "reasoning"), ("plain", "table")),
)


def test_harmony_and_names_that_give_nothing_are_no_difference():
    """Harmony has no name on the command line; a table that gives no calls is listed as a tool parser all the same."""
    assert differences(AGREES, SOURCE) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"accepted": {"tool": (), "reasoning": ("old",)}}, "tool parser old: in the source, not accepted"),
        ({"accepted": {"tool": ("old", "x"), "reasoning": ("old",)}}, "tool parser x: accepted, not in the source"),
        (
            {"listed": {"tool": ("old", "plain"), "reasoning": ("old", "plain", "table")}},
            "tool parser table: in the source, not listed",
        ),
        (
            {"listed": {"tool": ("old", "plain", "table"), "reasoning": ("old", "plain", "table", "x")}},
            "reasoning parser x: listed, not in the source",
        ),
    ],
)
def test_what_one_of_the_two_names_alone_is_told(change: dict, told: str):
    """Whichever of text and program it is."""
    assert differences(replace(AGREES, **change), SOURCE) == [told]


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, {"success": True, "tool_calls": []}, True),
        (400, {"success": False, "error": "Unknown tool parser: x"}, False),
        (400, {"success": False, "error": "Unknown tool parser: y"}, None),
        (400, {"success": False, "error": "Failed to parse function calls: x"}, None),
        (200, {"success": False}, None),
        (503, {"success": False, "error": "Tool parser factory not initialized"}, None),
        (404, {"error": {"code": "unknown_url"}}, None),
        (200, [], None),
    ],
)
def test_only_two_answers_mean_anything(status: int, body: object, expected: bool | None):
    """A route that is away, or a parser that fails, says nothing about whether the name is known."""
    if expected is None:
        with pytest.raises(WitnessError, match=f"answers with {status}"):
            meaning("tool", "x", status, json.dumps(body).encode())
    else:
        assert meaning("tool", "x", status, json.dumps(body).encode()) is expected


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"[" * 100_000])
def test_rubbish_means_nothing(body: bytes):
    """Whatever its status."""
    with pytest.raises(WitnessError):
        meaning("tool", "x", 200, body)


SERVER = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments): pass
    def do_GET(self): self.send(200, "OK")
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        kind = "tool" if "tools" in asked else "reasoning"
        name = asked[f"{kind}_call_parser" if kind == "tool" else "reasoning_parser"]
        self.answer(kind, name)
    def send(self, status, text):
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def answer(self, kind, name):
        BODY

HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""
KNOWS = """
        known = name == "old"
        text = {"success": True} if known else {"success": False, "error": f"Unknown {kind} parser: {name}"}
        self.send(200 if known else 400, json.dumps(text))
"""


@pytest.fixture
def posing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`posing(main)` puts a program in the gateway's place: an environment whose package `smg` is another."""

    def put(main: str, version: str = VERSION, names: str = "['old', 'table']") -> None:
        EnvBuilder(symlinks=True).create(tmp_path / "environment")
        (packages,) = (tmp_path / "environment" / "lib").glob("python*/site-packages")
        listing = (
            f"def names(): return {names}\nget_available_tool_call_parsers = get_available_reasoning_parsers = names"
        )
        (packages / "smg").mkdir()
        for name, text in (("__init__", ""), ("__main__", main), ("smg_rs", listing)):
            (packages / "smg" / f"{name}.py").write_text(text)
        (packages / f"smg-{version}.dist-info").mkdir()
        about = f"Metadata-Version: 2.1\nName: smg\nVersion: {version}\n"
        (packages / f"smg-{version}.dist-info" / "METADATA").write_text(about)
        python = tmp_path / "environment" / "bin" / "python"
        built = Environment(f"smg-{VERSION}", python, packages, {"smg": version})
        monkeypatch.setattr(gateway, "environment", {built.name: built}.__getitem__)

    return put


def test_names_are_sorted_into_accepted_and_refused(posing):
    """Of those the program lists."""
    posing(SERVER.replace("        BODY\n", KNOWS))
    said = gateway.ask(VERSION)
    assert said.accepted == {"tool": ("old",), "reasoning": ("old",)}
    assert said.refused == {"tool": ("table",), "reasoning": ("table",)}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("self.send(200, json.dumps({'success': True}))", "accepts any tool parser"),
        ("self.send(500, '{}')", "answers with 500"),
        ("self.connection.close()", "gives no answer"),
        ("sys.exit()", "gives no answer"),
    ],
)
def test_a_gateway_that_says_something_else_is_no_evidence(posing, body: str, told: str):
    """Nothing is recorded of it."""
    posing(SERVER.replace("BODY", body))
    with pytest.raises(WitnessError, match=told):
        gateway.ask(VERSION)


@pytest.mark.parametrize(
    ("main", "told"), [("raise SystemExit('no such flag')", "does not start: .*no such flag"), ("", "it says nothing")]
)
def test_a_gateway_that_does_not_start_is_an_error(posing, main: str, told: str):
    """With its last words."""
    posing(main)
    with pytest.raises(WitnessError, match=told):
        gateway.ask(VERSION)


def test_a_gateway_that_hangs_is_an_error(posing, monkeypatch: pytest.MonkeyPatch):
    """It has a deadline, and is ended."""
    monkeypatch.setattr(gateway, "START_SECONDS", 2)
    posing("import time; time.sleep(60)")
    with pytest.raises(WitnessError, match="does not start"):
        gateway.ask(VERSION)


def test_another_release_is_an_error(posing):
    """The names of one release are not recorded as another's."""
    posing(SERVER, version="1.12.0")
    with pytest.raises(WitnessError, match=r"says it is 1\.12\.0"):
        gateway.ask(VERSION)


@pytest.mark.parametrize("names", ["[]", "nothing", "1 / 0"])
def test_a_program_that_lists_nothing_is_an_error(posing, names: str):
    """An empty list is no list."""
    posing(SERVER, names=names)
    with pytest.raises(WitnessError, match="does not list its parsers"):
        gateway.ask(VERSION)
