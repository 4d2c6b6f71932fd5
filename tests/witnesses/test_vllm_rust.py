"""vLLM's Rust front end: how it is started, what its answers mean, and the real one on a real checkpoint."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st

from bellwether.cache import cache_folder
from bellwether.environments import ENVIRONMENTS as FOLDER
from bellwether.errors import MaterialError, PinMismatch, WitnessError
from bellwether.params import Package
from bellwether.witnesses import vllm_rust
from bellwether.witnesses.conversation import Conversation
from bellwether.witnesses.outcome import Answered, Failed, NotLoaded, Outcome, Refused
from bellwether.witnesses.vllm_rust import (
    Executable,
    Fronts,
    arguments,
    obtain,
    outcome_of,
    read_executable,
    vocabulary_size,
    with_model,
)
from processes import alive, wait_for
from support import ROOT, load_checkpoint, snapshot

SLUG = "smollm2-135m-instruct"
NO_PARSERS = {"tool_parser": None, "reasoning_parser": None}
REFUSAL = {"error": {"message": "no tools", "type": "BadRequestError", "param": None, "code": 400}}

FAKE = '''#!{python}
"""Behaves as a front end that is told by the request what to do."""
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

folder, port = sys.argv[2], int(sys.argv[sys.argv.index("--port") + 1])
name = sys.argv[sys.argv.index("--served-model-name") + 1]
served = "another" if "taken" in folder else name
if "absent" in folder:
    print("Caused by:\\n  \\x1b[31mtokenizer error: no such folder\\x1b[0m", file=sys.stderr)
    sys.exit(1)
with open(os.path.join(folder, "pids"), "a") as log:
    print(os.getpid(), file=log)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.say(200, json.dumps({{"object": "list", "data": [{{"id": served}}]}}).encode())

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert self.path == "/v1/chat/completions/render" and request["model"] == name
        act = request.get("act")
        if act == "die":
            os._exit(1)
        if act == "hang":
            time.sleep(3600)
        if act == "drip":
            self.send_response(200)
            self.send_header("content-length", "100000")
            self.end_headers()
            for _ in range(1000):
                self.wfile.write(b" ")
                time.sleep(0.05)
        if act == "rubbish":
            self.wfile.write(b"rubbish\\r\\n\\r\\n")
            self.close_connection = True
            return
        if act == "flood":
            return self.say(200, b" " * 200_000)
        if act == "redirect":
            return self.say(307, b"", location="/elsewhere")
        self.say(200, json.dumps({{"token_ids": [request.get("n", 0)]}}).encode())

    def say(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
'''


@pytest.fixture
def fronts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fronts]:
    """The fake front end, and little patience."""
    monkeypatch.setattr(vllm_rust, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(vllm_rust, "ANSWER_BYTES", 100_000)
    program = tmp_path / "fake"
    program.write_text(FAKE.format(python=sys.executable))
    program.chmod(0o755)
    started = Fronts(program)
    yield started
    started.close()


def outcomes(fronts: Fronts, folder: Path, *requests: dict) -> list[Outcome]:
    conversation = Conversation(fronts, {"model": str(folder), "slug": "some", **NO_PARSERS}, lambda words: None)
    try:
        return list(conversation.outcomes({"request": json.dumps(request)} for request in requests))
    finally:
        conversation.close()


def pids(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "pids").read_text().splitlines()]


# ── requests and answers ─────────────────────────────────────────────────────────────────────────────────────────────


@given(st.dictionaries(st.text().filter(lambda key: key != "model"), st.integers() | st.text()), st.booleans())
def test_a_request_gets_a_model_and_keeps_its_other_bytes(request: dict, spaced: bool) -> None:
    """Key order and spelling are data; the request without a key is a request too."""
    text = json.dumps(request, indent=1 if spaced else None)
    sent = with_model(text, "m")
    assert list(json.loads(sent).items()) == [("model", "m"), *request.items()]
    assert sent.endswith(text[1:].lstrip())


def test_numbers_are_sent_as_they_are_spelt() -> None:
    """`1e2` is not rewritten to `100.0` on the way."""
    assert with_model(' {"temperature": 1e2}', "m") == '{"model":"m","temperature": 1e2}'


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, {"token_ids": [1]}, Answered({"prompt_ids": [1], "prompt_text": None})),
        (200, {"ids": [1]}, Failed("malformed-answer", "a 200 without token_ids")),
        (400, REFUSAL, Refused("BadRequestError", "no tools")),
        (400, {"error": {**REFUSAL["error"], "code": 500}}, Failed("http-400", "a 400 without the error object")),
        (400, {"detail": "no"}, Failed("http-400", "a 400 without the error object")),
        (307, {}, Failed("http-307", "")),
        (404, REFUSAL, Failed("http-404", "")),
        (500, REFUSAL, Failed("http-500", "")),
    ],
)
def test_only_a_400_with_the_error_object_is_a_refusal(status: int, body: dict, expected: Outcome) -> None:
    """Whatever else is no 200 with ids is no evidence."""
    assert outcome_of(status, json.dumps(body).encode()) == expected


@pytest.mark.parametrize("body", [b"", b"<html>", b"[" * 100_000])
def test_a_body_that_is_no_json_is_no_evidence(body: bytes) -> None:
    """With whichever status."""
    assert outcome_of(200, body) == Failed("malformed-answer", "a 200 without token_ids")
    assert outcome_of(400, body) == Failed("http-400", "a 400 without the error object")


# ── the process ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("act", "code"),
    [("die", "died"), ("hang", "timeout"), ("drip", "timeout"), ("rubbish", "rubbish"), ("flood", "rubbish")],
)
def test_what_goes_wrong_costs_its_own_question(fronts: Fronts, tmp_path: Path, act: str, code: str) -> None:
    """A new front end serves the rest; the old one is gone."""
    before, wrong, after = outcomes(fronts, tmp_path, {"n": 1}, {"act": act}, {"n": 2})
    assert isinstance(wrong, Failed)
    assert wrong.code == code
    assert [one.value["prompt_ids"] for one in (before, after)] == [[1], [2]]
    wait_for(lambda: not any(map(alive, pids(tmp_path))))


def test_redirects_are_not_followed(fronts: Fronts, tmp_path: Path) -> None:
    """Nobody else's answer is the engine's."""
    assert outcomes(fronts, tmp_path, {"act": "redirect"}) == [Failed("http-307", "")]


def test_proxies_of_the_environment_are_not_asked(
    fronts: Fronts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be in the way of every request."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert outcomes(fronts, tmp_path, {"n": 3}) == [Answered({"prompt_ids": [3], "prompt_text": None})]


def test_a_checkpoint_that_cannot_be_loaded_says_why(fronts: Fronts) -> None:
    """By the front end's last line, without colours."""
    with pytest.raises(NotLoaded, match=r"^tokenizer error: no such folder$"):
        fronts.open({"model": "absent", **NO_PARSERS})


def test_a_front_end_that_never_answers_is_ended(
    fronts: Fronts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its start has a limit."""
    monkeypatch.setattr(vllm_rust, "START_SECONDS", 0.5)
    fronts._program.write_text(f"#!{sys.executable}\nimport time; time.sleep(3600)\n")
    with pytest.raises(NotLoaded, match=r"no answer within 0\.5 s"):
        fronts.open({"model": str(tmp_path), **NO_PARSERS})


def test_closing_ends_all_and_opens_no_more(fronts: Fronts, tmp_path: Path) -> None:
    """Ctrl-C: another thread may be waiting for an answer, and another about to start one."""
    with closing(fronts.open({"model": str(tmp_path), **NO_PARSERS})):
        fronts.close()
        wait_for(lambda: not any(map(alive, pids(tmp_path))))
    with pytest.raises(WitnessError):
        fronts.open({"model": str(tmp_path), **NO_PARSERS})


# ── how it is started ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_vocabulary_of_a_real_checkpoint() -> None:
    """SmolLM2's card says 49,152."""
    assert vocabulary_size(snapshot(SLUG)) == 49_152


def test_the_vocabulary_of_lists_of_ranks(tmp_path: Path) -> None:
    """Kimi's tokenizer: a tiktoken file, and special tokens after it. Without either file it is unknown."""
    assert vocabulary_size(tmp_path) is None
    (tmp_path / "tiktoken.model").write_bytes(b"YQ== 0\nYg== 1\n")
    (tmp_path / "tokenizer_config.json").write_text('{"added_tokens_decoder": {"7": {}}}')
    assert vocabulary_size(tmp_path) == 8


def test_parsers_are_named_where_the_manifest_names_them(tmp_path: Path) -> None:
    """Elsewhere the front end infers them."""
    assert arguments(tmp_path, NO_PARSERS) == []
    given = arguments(tmp_path, {"tool_parser": "hermes", "reasoning_parser": "none"})
    assert given == ["--tool-call-parser", "hermes", "--reasoning-parser", "none"]


# ── where it comes from ──────────────────────────────────────────────────────────────────────────────────────────────


PIN = Executable("vllm-wheel", "vllm/vllm-rs", hashlib.sha256(b"#!/bin/sh\n").hexdigest())


@pytest.fixture
def mirror(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mirror that has a small wheel with an executable in it, both pinned."""
    monkeypatch.setattr(sys, "platform", "linux")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as wheel:
        wheel.writestr("vllm/vllm-rs", b"#!/bin/sh\n")
    sha256 = hashlib.sha256(buffer.getvalue()).hexdigest()
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / sha256).write_bytes(buffer.getvalue())
    monkeypatch.setenv("BELLWETHER_MIRROR", str(tmp_path / "mirror"))
    package = Package("vllm-wheel", "pypi", "1", sha256, len(buffer.getvalue()), "Apache-2.0", "any", "vllm")
    monkeypatch.setattr(vllm_rust, "read_packages", lambda root: {"vllm-wheel": package})
    return tmp_path / "mirror" / sha256


def test_only_the_executable_is_kept(mirror: Path, own_cache: Path) -> None:
    """It can be run; the wheel around it, six times its size, is not there any more. The second time asks nobody."""
    path = obtain(ROOT, PIN, print)
    assert os.access(path, os.X_OK)
    assert [one.name for one in own_cache.rglob("*") if one.is_file()] == ["vllm-rs"]
    mirror.unlink()
    assert obtain(ROOT, PIN, print) == path


def test_an_executable_that_was_changed_is_had_again(mirror: Path) -> None:
    """Nothing runs that is not what is pinned."""
    path = obtain(ROOT, PIN, print)
    path.write_bytes(b"#!/bin/sh\nexit 1\n")
    assert obtain(ROOT, PIN, print).read_bytes() == b"#!/bin/sh\n"


def test_a_wheel_that_was_there_before_stays(mirror: Path, own_cache: Path) -> None:
    """Whoever put it there may want it."""
    kept = own_cache / "packages" / mirror.name / "vllm-1-any.whl"
    kept.parent.mkdir(parents=True)
    shutil.copy(mirror, kept)
    obtain(ROOT, PIN, print)
    assert kept.is_file()


def test_another_executable_than_the_pinned_one_is_not_kept(mirror: Path, own_cache: Path) -> None:
    """Though the wheel is the pinned one."""
    with pytest.raises(PinMismatch, match="expected sha256 0000"):
        obtain(ROOT, replace(PIN, sha256="0" * 64), print)
    assert not list(own_cache.rglob("vllm-rs"))


def test_a_wheel_that_cannot_be_had_is_told(mirror: Path) -> None:
    """With what can be done about it."""
    with pytest.raises(WitnessError, match="cannot be had"):
        obtain(ROOT, replace(PIN, package="nobody's"), print)


@pytest.mark.parametrize("text", ['package = "a"', "package = ", 'package = "a"\nmember = "b"\nsha256 = "c"\nx = 1'])
def test_a_pin_of_another_shape_is_refused(tmp_path: Path, text: str) -> None:
    """And one that is not there."""
    with pytest.raises(MaterialError, match=r"executable\.toml names no executable"):
        read_executable(tmp_path / "executable.toml")
    (tmp_path / "executable.toml").write_text(text)
    with pytest.raises(MaterialError, match=r"executable\.toml names no executable"):
        read_executable(tmp_path / "executable.toml")


def test_elsewhere_than_on_linux_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tables can be pulled."""
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(WitnessError, match="Linux"):
        obtain(ROOT, PIN, print)


@pytest.mark.skipif(sys.platform != "linux", reason="a Linux executable")
def test_the_real_one_renders_a_real_checkpoint() -> None:
    """Its prompt is the chat template's, tokenized by an implementation of its own; tools need a named parser."""
    with FileLock(cache_folder() / "tests.lock"):
        program = obtain(ROOT, read_executable(FOLDER / "vllm-rust-0.33.0" / "executable.toml"), print)
    fronts = Fronts(program)
    asked = {"messages": [{"role": "user", "content": "Hi"}]}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    try:
        rendered, refused, invalid = outcomes(fronts, snapshot(SLUG), asked, {**asked, "tools": [tool]}, {})
    finally:
        fronts.close()
    expected = load_checkpoint(SLUG).tokenizer.apply_chat_template(asked["messages"], add_generation_prompt=True)
    assert rendered == Answered({"prompt_ids": list(expected["input_ids"]), "prompt_text": None})
    assert isinstance(refused, Refused)
    assert "tool parsing is not available" in refused.message
    assert isinstance(invalid, Refused | Failed)


def test_another_server_on_the_port_is_not_asked(
    fronts: Fronts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two front ends may draw one port: prompts of another checkpoint would be recorded without a word."""
    monkeypatch.setattr(vllm_rust, "START_SECONDS", 1)
    folder = tmp_path / "taken"
    folder.mkdir()
    with pytest.raises(NotLoaded, match="no answer within"):
        outcomes(fronts, folder, {"n": 1})
