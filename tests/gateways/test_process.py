"""A gateway's process dies with us, with all of its group, and says why it ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bellwether.errors import GatewayError
from bellwether.gateways import process
from bellwether.gateways.process import Process, free_ports, until_ready
from processes import alive, wait_for
from support import ROOT

WITH_A_CHILD = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
print("pids", os.getpid(), child.pid, flush=True)
time.sleep(3600)
"""
LOUD = """
import time
print("the beginning")
for _ in range(10_000):
    print("x" * 1000)
print("\\x1b[31mthe end\\x1b[0m", flush=True)
time.sleep(3600)
"""
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(3600)
"""
LEAVES_A_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
print("child", child.pid, flush=True)
"""
PARENT = """
import asyncio, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits that it is ignored
from bellwether.gateways.process import Process

async def main():
    async with Process([sys.executable, "-c", sys.argv[1]]) as started:
        while "pids" not in started.said():
            await asyncio.sleep(0.01)
        print(started.said(), flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def with_process(code: str, use: Callable[[Process], Awaitable[Any]], **environment: str) -> Any:
    async def run() -> Any:
        async with Process(python(code), environment) as started:
            return await use(started)

    return asyncio.run(run())


async def said(started: Process, word: str) -> str:
    while word not in started.said():
        await asyncio.sleep(0.01)
    return started.said()


def pids(text: str) -> list[int]:
    return [int(word) for word in text.split()[1:3]]


def orphan(send: signal.Signals) -> list[int]:
    """Return what a program of ours started, which got a signal."""
    parent = subprocess.Popen(
        [*python(PARENT), WITH_A_CHILD],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "stages")},
        text=True,
    )
    with parent:
        started = pids(parent.stdout.readline())
        assert all(map(alive, started))
        parent.send_signal(send)
    return started


# ── its end ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_of_its_group_is_left() -> None:
    """What a gateway starts is part of it."""

    async def use(started: Process) -> list[int]:
        return pids(await said(started, "pids"))

    started = with_process(WITH_A_CHILD, use)
    wait_for(lambda: not any(map(alive, started)))


def test_one_that_does_not_listen_is_ended_too() -> None:
    """SIGTERM is not asked for: some take it, and think about it."""

    async def use(started: Process) -> int:
        await said(started, "deaf")
        return started.pid

    pid = with_process(DEAF, use)
    assert not alive(pid)


def test_an_exception_leaves_no_process() -> None:
    """Whatever goes wrong while it runs."""
    seen = []

    async def use(started: Process) -> None:
        seen.extend(pids(await said(started, "pids")))
        raise RuntimeError

    with pytest.raises(RuntimeError):
        with_process(WITH_A_CHILD, use)
    wait_for(lambda: not any(map(alive, seen)))


def test_what_it_left_behind_goes_when_it_ends_by_itself() -> None:
    """At that moment: later its number might be another's."""

    async def use(started: Process) -> None:
        child = int((await said(started, "\n")).split()[1])
        while not started.ended:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(wait_for, lambda: not alive(child))

    with_process(LEAVES_A_CHILD, use)


def test_ctrl_c_leaves_no_process() -> None:
    """The interrupted program ends what it started."""
    started = orphan(signal.SIGINT)
    wait_for(lambda: not any(map(alive, started)))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has that wish")
def test_our_own_death_ends_it() -> None:
    """A program that is killed ends nothing; the gateway itself still goes."""
    gateway, child = orphan(signal.SIGKILL)
    try:
        wait_for(lambda: not alive(gateway))
    finally:
        os.kill(child, signal.SIGKILL)


# ── what it says ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_much_output_is_read_and_not_kept() -> None:
    """Nobody waits for a reader, and memory stays: the beginning and the end are there, without colours."""

    async def use(started: Process) -> tuple[str, str]:
        return await said(started, "the end"), started.last_words()

    text, last = with_process(LOUD, use)
    assert text.startswith("the beginning")
    assert last == "the end"
    assert len(text) < 3 * process.KEPT


def test_one_that_ends_before_it_is_ready_is_quoted() -> None:
    """By its last line."""

    async def use(started: Process) -> None:
        async def ready() -> bool:
            return False

        await until_ready(started, ready, 60)

    with pytest.raises(
        GatewayError, match=r"it ended before it was ready, with status 1, its last words: RuntimeError: no port$"
    ):
        with_process("raise RuntimeError('no port')", use)
    with pytest.raises(GatewayError, match=r"it ended before it was ready, with status \d, without a word$"):
        with_process("", use)


def test_one_that_is_never_ready_has_a_deadline() -> None:
    """And is quoted as well."""

    async def use(started: Process) -> None:
        async def ready() -> bool:
            return False

        await said(started, "loading")
        await until_ready(started, ready, 0.1)

    with pytest.raises(GatewayError, match=r"it was not ready within 0\.1 s; its last words: loading$"):
        with_process("import time; print('loading', flush=True); time.sleep(3600)", use)


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    """It ends at once."""

    async def run() -> None:
        async with Process([tmp_path / "nothing"]) as started:

            async def ready() -> bool:
                return False

            await until_ready(started, ready, 60)

    with pytest.raises(GatewayError, match="FileNotFoundError"):
        asyncio.run(run())


def test_it_sees_nothing_of_our_environment_but_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies, tokens and settings of ours are no part of what is observed."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_TOKEN", "of ours")

    async def use(started: Process) -> str:
        return await said(started, "]")

    text = with_process("import json, os; print(json.dumps(sorted(os.environ)))", use, OWN="1")
    assert set(json.loads(text)) - {"LC_CTYPE"} == {"PATH", "LANG", "TZ", "HF_HUB_OFFLINE", "OWN"}


def test_free_ports_are_different() -> None:
    """Several are looked for at a time."""
    assert len(set(free_ports(20))) == 20
