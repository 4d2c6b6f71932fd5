"""Where captures are written as their requests end: JSON Lines for reading along, Arrow for queries."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from bellwether.scripted_engine.capture import Capture

ROWS = 256
"""Captures per record batch."""

TEXTS = ("sampling", "constraint", "other")
"""Fields whose shape depends on the wire: JSON text in a table."""

SCHEMA = pa.schema(
    [
        pa.field("request_id", pa.string()),
        pa.field("model", pa.string()),
        pa.field("wire", pa.string(), metadata={"description": "vllm, sglang, tokenspeed or http"}),
        pa.field("route", pa.string(), metadata={"description": "Generate, or the path of an HTTP request"}),
        pa.field("stream", pa.bool_()),
        pa.field("input_ids", pa.list_(pa.uint32()), metadata={"description": "null when it came as text or messages"}),
        pa.field("text", pa.string(), metadata={"description": "the prompt's text, when it was sent"}),
        pa.field(
            "sampling", pa.string(), metadata={"description": "sampling parameters as JSON text, names of the wire"}
        ),
        pa.field("stop", pa.list_(pa.string())),
        pa.field("constraint", pa.string(), metadata={"description": "what binds the output, as JSON text"}),
        pa.field("other", pa.string(), metadata={"description": "everything else the request said, as JSON text"}),
        pa.field("body", pa.string(), metadata={"description": "the body of an HTTP request as it came"}),
        pa.field("answered_by", pa.string(), metadata={"description": "key of the script; null when there was none"}),
        pa.field("finish_reason", pa.string()),
        pa.field("prompt_tokens", pa.int64()),
        pa.field("completion_tokens", pa.int64()),
        pa.field("ended", pa.string(), metadata={"description": "complete, closed or refused"}),
        pa.field("aborted", pa.bool_()),
    ]
)


class JsonLines:
    """A line per capture at the end of a file, there as soon as the request has ended. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)  # a line is one write, so lines of two engines do not mix

    def write(self, capture: Capture) -> None:
        self._file.write(orjson.dumps(asdict(capture), option=orjson.OPT_APPEND_NEWLINE))

    def close(self) -> None:
        self._file.close()


class ArrowStream:
    """An Arrow IPC stream, written anew; a row per capture, in batches of `ROWS`. Raises OSError.

    A stream and no Parquet: what an engine that was killed has written is read to its last batch, where Parquet has
    nothing before its footer. The last batch comes with `close`.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._stream = pa.ipc.new_stream(self._file, SCHEMA)
        self._rows: list[dict[str, Any]] = []

    def write(self, capture: Capture) -> None:
        row = {one.name: getattr(capture, one.name) for one in fields(capture)}
        self._rows.append(
            row | {name: None if row[name] is None else orjson.dumps(row[name]).decode() for name in TEXTS}
        )
        if len(self._rows) >= ROWS:
            self._flush()

    def close(self) -> None:
        if self._file.closed:
            return
        try:
            self._flush()
            self._stream.close()
        finally:
            self._file.close()

    def _flush(self) -> None:
        if self._rows:
            self._stream.write_batch(pa.RecordBatch.from_pylist(self._rows, schema=SCHEMA))
            self._file.flush()
            self._rows = []
