"""What a running SMG gateway says of its own parsers, in `fixtures/registries/smg-<version>.json`.

| what | how |
|---|---|
| listed | the choices of the command line's parser flags, which the program itself gives |
| accepted, refused | the routes that parse a text with a named parser, asked with every listed name |

The routes know the older parsers only; a name they refuse is not unknown to the gateway. A made-up name is asked first:
where it is accepted, the others' acceptance would mean nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from bellwether.environments import ENVIRONMENTS, Environment, environment
from bellwether.errors import TableError, WitnessError
from bellwether.registries.listed import Registries

SYSTEM, TABLES, HARMONY = "smg", "smg-symphony", "harmony"
ROUTES = {
    "tool": ("/parse/function_call", "tool_call_parser", {"tools": []}),
    "reasoning": ("/parse/reasoning", "reasoning_parser", {}),
}
"""Kind → (route, key of the parser's name, what else the body needs)."""
MADE_UP = "no-such-parser"
START_SECONDS = 60
ANSWER_SECONDS = 10
NEXT_STEP = "Look at what the gateway answers: nothing was recorded."
TETHER = ENVIRONMENTS / "tether.py"


@dataclass(frozen=True, slots=True)
class Said:
    """What one gateway said; names of each kind are sorted."""

    version: str
    listed: Mapping[str, tuple[str, ...]]
    """Kind → names its command line takes."""
    accepted: Mapping[str, tuple[str, ...]]
    """Kind → those of `listed` its parse route takes."""
    refused: Mapping[str, tuple[str, ...]]
    """Kind → the others."""


def path(root: Path, version: str) -> Path:
    """Return where the answers of a release lie."""
    return root / "fixtures" / "registries" / f"{SYSTEM}-{version}.json"


def render(said: Said) -> str:
    """Return the answers as JSON."""
    return json.dumps(asdict(said), indent=2) + "\n"


def read(root: Path, version: str) -> Said:
    """Return the stored answers of a release.

    Raises:
        TableError: there are none, or they are of another shape or release.
    """
    try:
        value = json.loads(path(root, version).read_text("utf-8"))
        said = Said(
            version=value.pop("version"),
            **{key: {kind: tuple(names) for kind, names in value.pop(key).items()} for key in list(value)},
        )
    except FileNotFoundError:
        raise TableError(
            f"{path(root, version)} does not exist", next_step="Run `bellwether gaps --refresh --gateway`."
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise TableError(
            f"{path(root, version)} is of another shape: {error}",
            next_step="Run `bellwether gaps --refresh --gateway`.",
        ) from None
    if said.version != version:
        raise TableError(
            f"{path(root, version)} speaks of {said.version}", next_step="Run `bellwether gaps --refresh --gateway`."
        )
    return said


def ask(version: str) -> Said:
    """Return what the gateway of release `version` says, started in its own environment, which is built if need be.

    Raises:
        MaterialError, VersionMismatch: its environment cannot be built, or is not what is pinned.
        WitnessError: it does not start, or answers in another way than its routes are known to.
    """
    built = environment(f"{SYSTEM}-{version}")
    told = _told(built)
    if told["version"] != version:
        raise WitnessError(f"the gateway says it is {told['version']}, not {version}", next_step=NEXT_STEP)
    listed = {kind: tuple(sorted(names)) for kind, names in told["listed"].items()}
    with _running(built) as client:
        accepted = {kind: _accepted(client, kind, listed[kind]) for kind in ROUTES}
    return Said(
        version=version,
        listed=listed,
        accepted=accepted,
        refused={kind: tuple(name for name in listed[kind] if name not in accepted[kind]) for kind in ROUTES},
    )


def differences(said: Said, registries: Registries) -> list[str]:
    """Return in what a running gateway and the text it was built from differ, one sentence each."""
    found = []
    for kind in ROUTES:
        older = {one.name for one in registries.parts if (one.kind, one.system) == (kind, SYSTEM)} - {HARMONY}
        tables = {one.name for one in registries.parts if (one.kind, one.system) == (kind, TABLES)}
        tables |= set(registries.left_out.get(TABLES, {}).get(kind, ()))
        for what, text, program in (
            ("accepted", older, set(said.accepted[kind])),
            ("listed", older | tables, set(said.listed[kind])),
        ):
            found += [f"{kind} parser {name}: in the source, not {what}" for name in sorted(text - program)]
            found += [f"{kind} parser {name}: {what}, not in the source" for name in sorted(program - text)]
    return found


def meaning(kind: str, name: str, status: int, body: bytes) -> bool:
    """Return whether an answer of a parse route says that it knows the parser `name`.

    Raises:
        WitnessError: it says neither: what failed is no evidence that a parser is unknown.
    """
    with contextlib.suppress(ValueError, RecursionError):
        match status, json.loads(body):
            case 200, {"success": True}:
                return True
            case 400, {"success": False, "error": str(error)} if error == f"Unknown {kind} parser: {name}":
                return False
    raise WitnessError(f"asked for the {kind} parser {name}, the gateway answers with {status}", next_step=NEXT_STEP)


def _accepted(client: httpx.Client, kind: str, names: tuple[str, ...]) -> tuple[str, ...]:
    if _knows(client, kind, MADE_UP):
        raise WitnessError(f"the gateway accepts any {kind} parser", next_step=NEXT_STEP)
    return tuple(name for name in names if _knows(client, kind, name))


def _knows(client: httpx.Client, kind: str, name: str) -> bool:
    route, key, more = ROUTES[kind]
    try:
        answer = client.post(route, json={"text": "", key: name, **more})
    except httpx.HTTPError as error:
        raise WitnessError(f"the gateway gives no answer: {type(error).__name__}", next_step=NEXT_STEP) from None
    return meaning(kind, name, answer.status_code, answer.content)


def _told(built: Environment) -> dict:
    """Return what the program lists without being started as a server."""
    script = ENVIRONMENTS / built.name / "names.py"
    try:
        done = subprocess.run(
            [str(built.python), "-I", "-B", str(script)], capture_output=True, text=True, timeout=START_SECONDS
        )
        told = json.loads(done.stdout)
        if set(told["listed"]) != set(ROUTES) or not all(told["listed"].values()):
            raise KeyError("listed")
    except (OSError, subprocess.TimeoutExpired, ValueError, TypeError, KeyError) as error:
        raise WitnessError(
            f"the gateway does not list its parsers: {type(error).__name__}", next_step=NEXT_STEP
        ) from None
    return told


@contextlib.contextmanager
def _running(built: Environment) -> Iterator[httpx.Client]:
    """Give a client of a gateway on loopback that has no workers; it ends with the body, and with this process."""
    port, metrics = _free_ports(2)
    with tempfile.TemporaryFile() as complaints, tempfile.TemporaryDirectory(prefix="bellwether-") as home:
        process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), str(built.python), "-I", "-m", "smg"),
                *("launch", "--host", "127.0.0.1", "--port", str(port), "--enable-igw", "--log-level", "error"),
                *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=complaints,
            stderr=complaints,
            env={"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"},
            cwd=home,
            start_new_session=True,
        )
        address = f"http://127.0.0.1:{port}"
        try:
            with httpx.Client(base_url=address, trust_env=False, timeout=ANSWER_SECONDS) as client:
                _wait(client, process, complaints)
                yield client
        finally:
            process.kill()
            process.wait()


def _wait(client: httpx.Client, process: subprocess.Popen, complaints) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(httpx.HTTPError):
            if client.get("/liveness").status_code == 200:
                return
        if process.poll() is not None or time.monotonic() >= deadline:
            complaints.seek(0)
            said = complaints.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise WitnessError(f"the gateway does not start: {said or 'it says nothing'}", next_step=NEXT_STEP)
        time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
