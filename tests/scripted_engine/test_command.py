"""Command `engine`, run as people run it."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from bellwether.errors import EngineError
from bellwether.gateways.answer import Served
from bellwether.scripted_engine.command import served
from scripted_engine.workers import STUBS, connected
from support import snapshot


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a script in it."""
    (tmp_path / "script.jsonl").write_text('{"key": "a", "chunks": [[1], [2]], "matched_token_id": 2}\n')
    return tmp_path


def arguments(folder: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "bellwether", "engine", "--model", "some/model"),
        *("--folder", str(folder), "--script", str(folder / "script.jsonl"), *more),
    ]


@contextmanager
def running(folder: Path, *more: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """Give the process and the address it printed."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(arguments(folder, *more), **pipes) as process:
        try:
            yield process, process.stdout.readline().rstrip("\n")
        finally:
            process.kill()


def ask(url: str, wire: str, request_id: str) -> list[list[int]]:
    """Return the ids of each message of a streamed answer."""

    async def run() -> list[list[int]]:
        async with connected(url, wire) as worker:
            answers = await worker.generate(request_id, [5, 6])
        return [list(one.chunk.token_ids or one.complete.output_ids) for one in answers]

    return asyncio.run(run())


def fails(folder: Path, *more: str) -> str:
    """Return what the command says when it ends with 2."""
    done = subprocess.run(arguments(folder, *more), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("wire", "number"), [("vllm", signal.SIGTERM), ("sglang", signal.SIGINT), ("tokenspeed", signal.SIGTERM)]
)
def test_it_answers_captures_and_ends_cleanly(folder: Path, wire: str, number: int) -> None:
    assert wire in STUBS
    lines, table = folder / "capture.jsonl", folder / "capture.arrow"
    with running(folder, "--wire", wire, "--capture", str(lines), "--capture-arrow", str(table)) as (process, url):
        assert ask(url, wire, "a-0192") == [[1], [2], [1, 2]]
        (line,) = map(json.loads, lines.read_text().splitlines())
        process.send_signal(number)
        out, complaints = process.communicate(timeout=60)

    assert (process.returncode, out) == (0, "")
    assert complaints == "1 requests: 0 closed early, 0 refused for the script, 0 calls of Abort\n"
    assert (line["request_id"], line["input_ids"], line["stream"], line["ended"]) == (
        "a-0192",
        [5, 6],
        True,
        "complete",
    )
    with table.open("rb") as file:
        (row,) = pa.ipc.open_stream(file).read_all().to_pylist()
    assert {name: row[name] for name in ("request_id", "model", "input_ids")} == {
        name: line[name] for name in ("request_id", "model", "input_ids")
    }


def test_a_changed_script_is_followed_and_a_malformed_one_told(folder: Path) -> None:
    script = folder / "script.jsonl"
    with running(folder) as (process, url):
        script.write_text('{"key": "a", "chunks": [[3]]}\n')
        assert ask(url, "vllm", "a") == [[3], [3]]
        script.write_text('{"key": "a", "chunks": [[4]]}\n{\n')
        with pytest.raises(Exception, match=r"script\.jsonl:2: "):
            ask(url, "vllm", "a")
        script.write_text('{"key": "a", "chunks": [[5]]}\n')
        assert ask(url, "vllm", "a") == [[5], [5]]
        process.terminate()
        _, complaints = process.communicate(timeout=60)

    assert process.returncode == 0
    told, summary = complaints.splitlines()
    assert told.startswith(f"error: {script}:2: ")
    assert summary.startswith("3 requests: 0 closed early, 1 refused for the script")


def test_it_ends_by_itself_after_its_seconds(folder: Path) -> None:
    done = subprocess.run(
        arguments(folder, "--wire", "http", "--seconds", "0.1"), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert done.stdout.startswith("http://127.0.0.1:")
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("wire", ["vllm", "http"])
def test_a_port_in_use_is_a_sentence(folder: Path, wire: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = fails(folder, "--wire", wire, "--port", str(port))

    assert said.splitlines() == [
        f"error: port {port} of 127.0.0.1 cannot be had: Address already in use",
        "next:  Choose another port.",
    ]


def test_a_malformed_script_is_named_with_its_line(folder: Path) -> None:
    script = folder / "script.jsonl"
    script.write_text('{"key": "a", "chunks": [[1]]}\n{"key": "b", "chunks": [[-1]]}\n')
    assert fails(folder).startswith(f"error: {script}:2: -1 is no token id\nnext:")


def test_a_script_that_is_not_there_is_named(folder: Path) -> None:
    (folder / "script.jsonl").unlink()
    assert f"{folder / 'script.jsonl'}: No such file or directory" in fails(folder)


def test_a_capture_that_cannot_be_written_is_named(folder: Path) -> None:
    assert "nowhere" in fails(folder, "--capture", str(folder / "nowhere" / "capture.jsonl"))


def test_a_folder_says_what_it_is() -> None:
    """Qwen3-8B: generation_config.json names <|im_end|> and <|endoftext|> as what ends a turn."""
    folder = snapshot("qwen3-8b")
    assert served(folder, "Qwen/Qwen3-8B") == Served(
        slug=folder.name,
        model="Qwen/Qwen3-8B",
        folder=folder,
        eos_ids=(151645, 151643),
        vocabulary_size=0,
    )


def test_a_config_of_parts_is_read_by_its_text_part(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"text_config": {"vocab_size": 7, "eos_token_id": 6}}')
    said = served(tmp_path, "some/model")
    assert (said.vocabulary_size, said.eos_ids) == (7, (6,))


def test_a_torn_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(EngineError, match=r"generation_config\.json"):
        served(tmp_path, "some/model")
