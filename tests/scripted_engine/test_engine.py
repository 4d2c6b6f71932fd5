"""The engine as a whole: what it keeps, what it drops, and when captures are written."""

from __future__ import annotations

import asyncio
import gc
import json
from pathlib import Path
from typing import Any

import pytest

from bellwether.errors import EngineError
from bellwether.scripted_engine import ScriptedEngine
from bellwether.scripted_engine.capture import Capture, Record
from bellwether.scripted_engine.checkpoint import Checkpoint
from bellwether.scripted_engine.script import Script, ScriptFile
from bellwether.scripted_engine.sinks import JsonLines
from scripted_engine.workers import Worker, connected, served, talk

ASKED = {
    "stream": False,
    "input_ids": [5],
    "text": None,
    "sampling": {},
    "stop": [],
    "constraint": None,
    "other": {},
    "body": None,
}


def ask(engine: ScriptedEngine, request_id: str, folder: Path = Path("nowhere")) -> Record:
    """Ask as a server does, and have the whole answer."""
    record = engine.begin(
        request_id,
        checkpoint=Checkpoint(served(folder)),
        wire="vllm",
        route="Generate",
        read=lambda: dict(ASKED),
        prompt=lambda: ASKED["input_ids"],
        size=100,
        prompt_tokens=1,
    )
    with engine.under_way(record) as end:
        end()
    return record


def kept() -> int:
    """Return how many records and scripts there are in this process."""
    gc.collect()
    return sum(isinstance(one, Record | Script) for one in gc.get_objects())


def test_prompts_are_taken_instead_of_captures() -> None:
    """The same requests, in the same order, and forgotten like them."""
    engine = ScriptedEngine()
    for number in range(2):
        ask(engine, f"case-{number}")
    ask(engine, "case")
    assert engine.take_prompts("case") == [(served(Path("nowhere")).model, ASKED["input_ids"])] * 3
    assert engine.take("case") == []


def test_memory_is_flat_when_captures_are_taken() -> None:
    engine = ScriptedEngine()
    before = kept()
    for number in range(20_000):
        engine.expect(f"case-{number}", [[1], [2]])
        ask(engine, f"case-{number}-0192")
        assert len(engine.take(f"case-{number}")) == 1

    assert kept() - before == 0
    assert (engine.requests, engine.dropped) == (20_000, 0)


@pytest.mark.parametrize("scripted", [True, False])
def test_memory_is_flat_when_nobody_takes_them_and_they_are_counted(scripted: bool) -> None:
    """A dropped capture is never taken for a request that did not come."""
    engine = ScriptedEngine(keep=100)
    before = kept()
    for number in range(20_000):
        if scripted:
            engine.expect(f"case-{number}", [[1], [2]])
        ask(engine, f"case-{number}-0192")

    assert kept() - before == 200  # each with a script
    assert engine.dropped == 19_900
    assert len(engine.take("case-19999")) == 1
    with pytest.raises(EngineError, match="19,900 were dropped"):
        engine.take("case-0")


def test_memory_is_bounded_by_bytes_too() -> None:
    engine = ScriptedEngine(keep_bytes=1000)
    for number in range(100):
        ask(engine, str(number))

    assert engine.dropped == 90


def test_an_engine_that_keeps_nothing_answers_all_the_same(tmp_path: Path) -> None:
    """The command writes captures and takes none; a refused one is dropped like the others."""
    path = tmp_path / "script.jsonl"
    path.write_text('{"key": "a", "chunks": [[1]]}\n')
    engine = ScriptedEngine(script_file=ScriptFile(path), keep=0)
    ask(engine, "a")
    path.write_text("{")
    for _ in range(2):
        with pytest.raises(EngineError):
            ask(engine, "a")

    assert (engine.requests, engine.refused, engine.dropped) == (3, 2, 3)


def test_captures_of_one_key_are_dropped_together() -> None:
    """Two of three would pass for all there were."""
    engine = ScriptedEngine(keep=3)
    engine.expect("a", [[1]])
    for request_id in ("a-1", "a-2", "other", "another"):
        ask(engine, request_id)

    assert engine.dropped == 2
    with pytest.raises(EngineError):
        engine.take("a")


def test_a_capture_that_is_dropped_leaves_the_script_that_took_its_place() -> None:
    engine = ScriptedEngine(keep=1)
    engine.expect("a", [[1]])
    ask(engine, "a-1")
    engine.expect("a", [[2]])
    ask(engine, "other")

    assert ask(engine, "a-2").script == Script(((2,),))


def test_a_key_without_a_request_has_no_captures() -> None:
    """Also when captures of others were dropped: its script waits still, so its own were not."""
    engine = ScriptedEngine(keep=1)
    engine.expect("a", [[1]])
    ask(engine, "x")
    ask(engine, "y")

    assert engine.dropped == 1
    assert engine.take("a") == []


def test_a_request_that_comes_twice_is_captured_twice() -> None:
    engine = ScriptedEngine()
    engine.expect("a", [[1]])
    for request_id in ("a-1", "a-2"):
        ask(engine, request_id)

    assert [capture.request_id for capture in engine.take("a")] == ["a-1", "a-2"]


def test_a_script_is_forgotten_when_its_captures_are_taken() -> None:
    engine = ScriptedEngine()
    engine.expect("a", [[1]])
    ask(engine, "a")
    engine.take("a")

    assert ask(engine, "a").answered_by is None


def test_a_key_is_not_for_an_id_that_only_begins_like_it() -> None:
    engine = ScriptedEngine()
    engine.expect("case-1", [[1]])

    assert ask(engine, "case-10-0192").answered_by is None
    assert engine.take("case-1") == []


def test_the_longer_of_two_keys_answers() -> None:
    engine = ScriptedEngine()
    engine.expect("case", [[1]])
    engine.expect("case-1", [[2]])

    assert ask(engine, "case-1-0192").answered_by == "case-1"
    assert [len(engine.take(key)) for key in ("case", "case-1")] == [0, 1]


def test_a_malformed_script_is_not_expected() -> None:
    with pytest.raises(ValueError, match="-1 is no token id"):
        ScriptedEngine().expect("a", [[-1]])


def test_an_unknown_wire_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="trtllm"):
        asyncio.run(ScriptedEngine().serve(served(tmp_path), "trtllm"))


def test_the_line_is_written_before_the_answer_is_complete(tmp_path: Path) -> None:
    """Whoever has the answer finds the capture, in memory and in the file."""
    path = tmp_path / "capture.jsonl"

    async def use(engine: ScriptedEngine, worker: Worker) -> None:
        for number in range(50):
            key = f"case-{number}"
            engine.expect(key, [[1], [2]])
            await worker.generate(f"{key}-0192", [5], stream=bool(number % 2))
            (capture,) = engine.take(key)
            assert capture.ended == "complete"
            assert json.loads(path.read_text().splitlines()[-1])["request_id"] == f"{key}-0192"

    talk("vllm", served(tmp_path), use, sinks=[JsonLines(path)])


def test_what_is_under_way_when_the_engine_ends_is_written_as_closed(tmp_path: Path) -> None:
    path = tmp_path / "capture.jsonl"

    async def run() -> None:
        engine = ScriptedEngine(sinks=[JsonLines(path)])
        async with connected(await engine.serve(served(tmp_path)), "vllm") as worker:
            engine.expect("a", [[1 << 31] * 1000] * 3000)
            call = worker.stub.Generate(
                worker.messages.GenerateRequest(request_id="a", stream=True, tokenized={"input_ids": [5]})
            )
            await call.read()
            await engine.__aexit__()
        assert engine.closed_early == 1

    asyncio.run(run())
    assert [json.loads(line)["ended"] for line in path.read_text().splitlines()] == ["closed"]


def test_a_server_that_was_stopped_gives_its_port_back(tmp_path: Path) -> None:
    async def run() -> list[str]:
        async with ScriptedEngine() as engine:
            urls = []
            for wire in ("vllm", "http"):
                url = await engine.serve(served(tmp_path), wire)
                await engine.stop(url)
                urls += [url, await engine.serve(served(tmp_path), wire, int(url.rpartition(":")[2]))]
            return urls

    first, again, http, http_again = asyncio.run(run())
    assert (first, http) == (again, http_again)


@pytest.mark.parametrize("wire", ["vllm", "http"])
def test_a_folder_whose_config_is_torn_is_an_error_of_serving(tmp_path: Path, wire: str) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(EngineError, match=r"config\.json"):
        asyncio.run(ScriptedEngine().serve(served(tmp_path), wire))


def test_two_checkpoints_are_served_at_a_time(tmp_path: Path) -> None:
    async def run() -> list[tuple[Any, ...]]:
        async with ScriptedEngine() as engine:
            for wire in ("vllm", "sglang"):
                async with connected(await engine.serve(served(tmp_path, model=f"on/{wire}"), wire), wire) as worker:
                    await worker.generate(f"case-{wire}-1", [5])
            return [(one.model, one.wire) for wire in ("vllm", "sglang") for one in engine.take(f"case-{wire}")]

    assert asyncio.run(run()) == [("on/vllm", "vllm"), ("on/sglang", "sglang")]


def test_a_sink_gets_what_take_gives(tmp_path: Path) -> None:
    class Kept:
        def __init__(self) -> None:
            self.captures: list[Capture] = []
            self.closed = 0

        def write(self, capture: Capture) -> None:
            self.captures.append(capture)

        def close(self) -> None:
            self.closed += 1

    sink = Kept()

    async def use(engine: ScriptedEngine, worker: Worker) -> list[Capture]:
        engine.expect("a", [[1]])
        await worker.generate("a", [5])
        return engine.take("a")

    assert talk("vllm", served(tmp_path), use, sinks=[sink]) == sink.captures
    assert sink.closed == 1
