"""A small engine for tests: a script that answers, refuses, raises, crashes, hangs and talks rubbish as it is told.

What it does to a question is told by a word in the question's text: `does("crash")` is such a text.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bellwether import witness
from bellwether.witnesses import engines, process

NAME = "vllm-9.9"
"""Goes by the name of an engine that manifests can speak to."""
SCRIPT = '''
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

from serve import Refused


def load(settings):
    print("loading on standard output")
    print("loading on standard error", file=sys.stderr)
    if "broken" in settings["options"]:
        raise ValueError(f"no weights in {settings['model']} at {object()}")
    with Path(__file__).parent.with_suffix(".loads").open("a") as log:  # beside the folder, which counts as code
        log.write(settings["slug"] + "\\n")
    seen = []

    def answer(question):
        text = json.dumps(question, sort_keys=True)
        seen.append(text)
        for name, act in ACTS.items():
            if f"toy:{name}" in text:
                return act(question)
        return usual(question)

    def usual(question):
        match question["kind"]:
            case "render":
                return {"prompt_ids": list(question["request"].encode()), "prompt_text": question["request"]}
            case "tokenize":
                return {"ids": list(question["text"].encode())}
            case "detokenize":
                pieces = [str(one % 10) for one in question["ids"]]
                return {"text": "".join(pieces), "pieces": pieces}
        message = {"content": question["text"], "reasoning_content": None, "tool_calls": []}
        return {"modes": {mode: {"message": message} for mode in ["one-shot", *question["plans"]]}}

    ACTS = {
        "crash": lambda question: os.abort(),
        "leave": lambda question: sys.exit("enough"),
        "hang": lambda question: time.sleep(3600),
        "refuse": lambda question: refuse(),
        "raise": lambda question: {}["nothing"],
        "memory": lambda question: bytearray(1 << 40),
        "print": lambda question: print("rubbish\\n{}") or usual(question),
        "rubbish": lambda question: connection().send(b"rubbish\\n") and usual(question),
        "forge": lambda question: connection().send(b'{"id": 99999, "answer": {}}\\n') and usual(question),
        "flood": lambda question: {"ids": [1] * 100_000},
        "late": lambda question: threading.Timer(0.2, connection().send, [b"too much\\n"]).start() or usual(question),
        "slow": lambda question: time.sleep(0.6) or usual(question),
        "shape": lambda question: {"ids": "none"},
        "bare": lambda question: ["ids"],
        "unspeakable": lambda question: {"ids": {1, 2}},
        "surrogate": lambda question: {"prompt_ids": None, "prompt_text": "\\ud800"},
        "network": lambda question: network(),
        "count": lambda question: {"ids": [len(seen)]},
        "file": lambda question: {"ids": list(os.getcwd().encode())},
    }
    return answer, {"version": "9.9", **({"clock": settings["clock"]} if settings["options"].get("clock") else {})}


def refuse():
    raise Refused(400, f"no such thing as {object()}")


def connection():
    """The socket to the host, found as a library in trouble might write to it."""
    return next(one for one in map(as_socket, range(3, 30)) if one is not None)


def as_socket(number):
    try:
        return socket.socket(fileno=os.dup(number))
    except OSError:
        return None


def network():
    try:
        socket.socket(socket.AF_INET).close()
    except PermissionError:
        return {"ids": [0]}
    return {"ids": [1]}
'''


def does(act: str) -> str:
    """Return a text at which the toy acts."""
    return f"toy:{act}"


def loads(script: Path) -> list[str]:
    """Return the slugs of the checkpoints that were loaded, one per child, since they were last asked for."""
    log = script.parent.with_suffix(".loads")
    found = log.read_text().split() if log.exists() else []
    log.unlink(missing_ok=True)
    return found


def program(folder: Path, **limits: float) -> process.Program:
    """Return the toy as a program, its script in `folder`."""
    script = folder / "witness.py"
    script.write_text(SCRIPT, "utf-8")
    return process.Program("toy", script, Path(sys.executable), limits=process.Limits(**limits))


def install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Make the toy the engine release NAME, run by this interpreter; return its script."""
    environments = folder / "environments"
    (environments / NAME).mkdir(parents=True)
    for name in witness.INSIDE:
        shutil.copy(witness.ENVIRONMENTS / name, environments)
    script = environments / NAME / "witness.py"
    script.write_text(SCRIPT, "utf-8")
    point_at(monkeypatch, script)
    return script


def point_at(monkeypatch: pytest.MonkeyPatch, script: Path) -> None:
    """Make what `install` laid out the engine release NAME in this process."""
    environments = script.parents[1]
    options = (*engines.PARSERS, "broken", "clock")
    release = engines.Engine(NAME, "vllm", "9.9", engines.ALL_KINDS, False, NAME, options=options)
    monkeypatch.setitem(engines.ENGINES, NAME, release)
    monkeypatch.setattr(witness, "ENVIRONMENTS", environments)
    built = SimpleNamespace(python=Path(sys.executable), bytecode=None)
    monkeypatch.setattr(witness, "environment", lambda name: built)
    monkeypatch.setattr(process, "SERVE", environments / "serve.py")
