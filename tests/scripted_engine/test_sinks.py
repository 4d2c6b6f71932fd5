"""Files of captures."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from pathlib import Path

import pyarrow as pa

from bellwether.scripted_engine.capture import Capture
from bellwether.scripted_engine.sinks import ROWS, SCHEMA, ArrowStream, JsonLines

CAPTURE = Capture(
    request_id="a-1",
    model="some/model",
    wire="vllm",
    route="Generate",
    stream=True,
    input_ids=[0, 4294967295],
    text=None,
    sampling={"temperature": 0.7},
    stop=["END", "ü\n"],
    constraint={"json_schema": "{}"},
    other={},
    body=None,
    answered_by="a",
    finish_reason="stop",
    prompt_tokens=2,
    completion_tokens=3,
    ended="complete",
    aborted=False,
)


def read(path: Path) -> list[dict]:
    """Return the rows of an Arrow stream, also of one that was not ended."""
    with path.open("rb") as file:
        return pa.ipc.open_stream(file).read_all().to_pylist()


def test_lines_are_there_at_once_and_are_appended(tmp_path: Path) -> None:
    """A second run continues the file of the first."""
    path = tmp_path / "capture.jsonl"
    for name in ("first", "second"):
        lines = JsonLines(path)
        lines.write(replace(CAPTURE, request_id=name))
        assert json.loads(path.read_text().splitlines()[-1]) == asdict(CAPTURE) | {"request_id": name}
        lines.close()

    assert len(path.read_text().splitlines()) == 2


def test_a_table_holds_every_field(tmp_path: Path) -> None:
    path = tmp_path / "capture.arrow"
    table = ArrowStream(path)
    table.write(CAPTURE)
    table.write(replace(CAPTURE, input_ids=None, text="Hi", constraint=None, answered_by=None))
    table.close()
    table.close()

    first, second = read(path)
    assert list(first) == [field.name for field in fields(Capture)] == SCHEMA.names
    assert first == asdict(CAPTURE) | {
        "sampling": '{"temperature":0.7}',
        "constraint": '{"json_schema":"{}"}',
        "other": "{}",
    }
    assert (second["input_ids"], second["text"], second["constraint"], second["answered_by"]) == (
        None,
        "Hi",
        None,
        None,
    )


def test_a_table_that_nobody_ended_is_read_to_its_last_batch(tmp_path: Path) -> None:
    """An engine may be killed."""
    path = tmp_path / "capture.arrow"
    table = ArrowStream(path)
    for number in range(ROWS + 1):
        table.write(replace(CAPTURE, request_id=str(number)))

    assert [row["request_id"] for row in read(path)] == [str(number) for number in range(ROWS)]
    table.close()
    assert len(read(path)) == ROWS + 1
