"""The Glaive importer on rows in the dataset's own form: labels, single quotes, functions in the system prompt."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bellwether.case import Case, LeftOut, Repeat
from bellwether.corpora import glaive
from bellwether.corpora.glaive import FILES, cases, corpus
from local_hub import LocalHub, closed_port, environment

LEAD_IN = "SYSTEM: You are a helpful assistant with access to the following functions. Use them if required -\n"
FUNCTION = {"name": "get_rate", "description": "Rate", "parameters": {"type": "object", "properties": {}}}
SYSTEM = LEAD_IN + json.dumps(FUNCTION, indent=4) + "\n"
PLAIN = "SYSTEM: You are a helpful assistant, with no access to external functions.\n"
CHAT = (
    "USER: How much is a euro?\n\n\n"
    'ASSISTANT: <functioncall> {"name": "get_rate", "arguments": \'{"of": "€", "note": "it\\\'s"}\'} '
    "<|endoftext|>\n\n\n"
    'FUNCTION RESPONSE: {"rate": 1.1}\n\n\n'
    "ASSISTANT: 1.1 dollars.\nUSER stays a word here. <|endoftext|>\n\n\n"
    "USER: Thanks!\n\n\n"
)


def imported(given, *rows: tuple[str, str]) -> list[Case | LeftOut]:
    return list(cases(*given({FILES[0]: json.dumps([{"system": system, "chat": chat} for system, chat in rows])})))


def test_chat_becomes_two_requests_and_two_outputs(given):
    """Functions become tools and leave no system message; a user turn that nobody answers gives no case."""
    got = imported(given, (SYSTEM, CHAT))
    assert [case.case_id for case in got] == [
        "render/glaive-v2/glaive-v2-0-0",
        "parse/glaive-v2/glaive-v2-0-1",
        "render/glaive-v2/glaive-v2-0-2",
        "parse/glaive-v2/glaive-v2-0-3",
    ]
    function = {"name": "get_rate", "arguments": '{"of": "€", "note": "it\'s"}'}
    assert json.loads(got[1].message) == {"content": "", "tool_calls": [{"type": "function", "function": function}]}
    assert json.loads(got[3].request) == {
        "messages": [
            {"role": "user", "content": "How much is a euro?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "call_0", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "call_0", "content": '{"rate": 1.1}'},
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
    }
    assert json.loads(got[3].message) == {"content": "1.1 dollars.\nUSER stays a word here."}


def test_system_text_that_is_no_function_stays(given):
    """Without functions the whole sentence, beside them what follows them."""
    plain = imported(given, (PLAIN, "USER: a\n\n\nASSISTANT: b <|endoftext|>"))
    assert json.loads(plain[0].request)["messages"][0] == {
        "role": "system",
        "content": "You are a helpful assistant, with no access to external functions.",
    }
    both = imported(given, (SYSTEM + "Answer in French.", "USER: a\n\n\nASSISTANT: b <|endoftext|>"))
    assert json.loads(both[0].request)["messages"][0] == {"role": "system", "content": "Answer in French."}


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ('{"name": "get_rate", "arguments": {"a": 1}}', '{"a": 1}'),
        ('{"name": "get_rate"}', "{}"),
        ('{"name": "get_rate", "arguments": \'{}\'}', "{}"),
        ('{"name": "get_rate", "arguments": \'{"a":1.0,\n "b": [1]}\'}', '{"a": 1.0, "b": [1]}'),
    ],
)
def test_call_is_read_in_both_spellings(given, call, arguments):
    """Numbers keep their spelling as int or float; separators become Python's."""
    got = imported(given, (SYSTEM, f"USER: a\n\n\nASSISTANT: <functioncall> {call} <|endoftext|>"))
    assert json.loads(got[1].message)["tool_calls"][0]["function"]["arguments"] == arguments


ASKED = "USER: a\n\n\nASSISTANT: "


@pytest.mark.parametrize(
    ("system", "chat", "reason"),
    [
        (SYSTEM + json.dumps(FUNCTION), CHAT, "two tools have one name"),
        (LEAD_IN + '{"name": ', CHAT, "functions that are no JSON"),
        (LEAD_IN, CHAT, "the lead-in without a function"),
        (SYSTEM, ASKED + "<functioncall> get_rate() <|endoftext|>", "a call that cannot be read"),
        (SYSTEM, ASKED + '<functioncall> {"name": "get_rate", "arguments": [1]} <|endoftext|>', "cannot be read"),
        (SYSTEM, ASKED + '<functioncall> {"name": "other"} <|endoftext|>', "which is not declared"),
        (SYSTEM, ASKED + 'Well. <functioncall> {"name": "get_rate"} <|endoftext|>', "text before a call"),
        (SYSTEM, ASKED + "b <|endoftext|> c <|endoftext|>", "an end of text inside a turn"),
        (SYSTEM, "Hello. USER: a", "text before the first label"),
        (SYSTEM, "", "text before the first label"),
        (SYSTEM, ASKED + "b <|endoftext|>\n\n\nFUNCTION RESPONSE: {}", "a result without a call"),
        (PLAIN, CHAT, "which is not declared"),
    ],
)
def test_row_without_a_faithful_form_is_left_out_with_its_reason(given, system, chat, reason):
    """Both kinds are on record; nothing is guessed."""
    (render, parse) = imported(given, (system, chat))
    assert (render.kind, parse.kind, render.row) == ("render", "parse", "0")
    assert reason in parse.reason == render.reason


def test_corpus_is_cut_into_sets_after_repeats_are_dropped(given, monkeypatch):
    """Chats that open alike share their first turns; sets hold at most so many of a kind."""
    monkeypatch.setattr(glaive, "SET_SIZE", 3)
    same = [(SYSTEM, CHAT)] * 2
    others = [(PLAIN, f"USER: {word}\n\n\nASSISTANT: b <|endoftext|>") for word in "xyz"]
    source, fetch = given({FILES[0]: json.dumps([{"system": s, "chat": c} for s, c in [*same, *others]])})
    monkeypatch.setattr(glaive, "read_source", lambda folder: source)
    items = list(corpus(source.folder, fetch))
    assert sum(isinstance(item, Repeat) for item in items) == 4
    kept = Counter((item.set, item.kind) for item in items if isinstance(item, Case))
    assert kept == {(f"glaive-v2-0{n}", kind): m for n, m in ((0, 3), (1, 2)) for kind in ("render", "parse")}


def test_dataset_of_the_hub_is_pinned_imported_and_checked(tmp_path: Path, root: Path):
    """From a hub, at the pinned revision; afterwards the stored tables are checked without one."""
    checkout = tmp_path / "checkout"
    (checkout / "fixtures").mkdir(parents=True)
    (checkout / "corpus" / "glaive").mkdir(parents=True)
    for name in ("source.toml", "LICENSE"):
        (checkout / "corpus" / "glaive" / name).write_bytes((root / "corpus" / "glaive" / name).read_bytes())

    def run(endpoint: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "bellwether", "import", "glaive", *arguments, "--root", str(checkout)],
            env=environment(endpoint, tmp_path / "home"),
            capture_output=True,
            text=True,
        )

    data = json.dumps([{"system": SYSTEM, "chat": CHAT}, {"system": SYSTEM, "chat": CHAT}]).encode()
    where = ("datasets/glaiveai/glaive-function-calling-v2", "e7f4b6456019f5d8bcb991ef0dd67d8ff23221ac", FILES[0])
    with LocalHub({where: data}) as hub:
        assert run(hub.url).returncode == 2  # nothing is pinned yet
        assert run(hub.url, "--pin").returncode == 0
        done = run(hub.url)
    assert (done.returncode, done.stdout) == (0, "glaive: 4 cases, 2 requests, 1 origins, 4 repeats, 0 left out\n")
    checked = run(closed_port(), "--check")
    assert (checked.returncode, checked.stderr) == (0, "")
