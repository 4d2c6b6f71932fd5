"""Query results as text for people and programs."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import duckdb
import pyarrow.parquet as pq
from tabulate import tabulate

from bellwether.errors import ParamsError

FORMATS = ("table", "csv", "json", "parquet")
FETCH = 1000


def write(result: duckdb.DuckDBPyConnection, form: str, stream: TextIO) -> int:
    """Write the rows of `result` as `table`, `csv` or `json` (an array of objects) and return their number.

    Digests are written as hex. csv and json are streamed; a table needs all its rows to measure the columns.

    Raises:
        ParamsError: two columns have one name, which a JSON object cannot say.
    """
    names = [column[0] for column in result.description]
    if form == "table":
        rows = [[_plain(value) for value in row] for row in result.fetchall()]
        stream.write(tabulate(rows, headers=names, disable_numparse=True, missingval="") + "\n")
        return len(rows)
    if form == "csv":
        writer = csv.writer(stream, lineterminator="\n")
        careful = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerow(names)
        count = 0
        while batch := result.fetchmany(FETCH):
            for row in batch:
                cells = [_plain(value, nested=_json) for value in row]
                # Python before 3.13 leaves a lone CR unquoted, and a reader takes it for the end of the row
                (careful if any("\r" in cell for cell in cells if isinstance(cell, str)) else writer).writerow(cells)
            count += len(batch)
        return count
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise ParamsError(f"two columns are named {twice[0]!r}", next_step="Rename one of them with `as`.")
    count = 0
    stream.write("[")
    while batch := result.fetchmany(FETCH):
        for row in batch:
            value = {name: _plain(item) for name, item in zip(names, row, strict=True)}
            stream.write(("," if count else "") + "\n" + _json(value))
            count += 1
    stream.write("\n]\n")
    return count


def write_parquet(relation: duckdb.DuckDBPyRelation, path: Path) -> int:
    """Write the rows of `relation` as one Parquet file and return their number."""
    reader = relation.to_arrow_reader(FETCH)
    count = 0
    with pq.ParquetWriter(path, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def markdown(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table without a final newline; numbers are right-aligned and grouped by thousands."""
    texts = [[f"{value:,}" if isinstance(value, int) else _plain(value) for value in row] for row in rows]
    numeric = [bool(rows) and all(isinstance(row[place], int) for row in rows) for place in range(len(names))]
    aligned = ["right" if number else "left" for number in numeric]
    return tabulate(texts, headers=names, tablefmt="pipe", colalign=aligned, disable_numparse=True, missingval="")


def between_markers(text: str, name: str, block: str) -> str:
    """Return `text` with the lines between `<!-- name -->` and `<!-- /name -->` replaced by `block`.

    Raises:
        ParamsError: the markers are not there.
    """
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ParamsError(f"no {begin.strip()} … {end} in the file", next_step="Add the two marker lines.")
    return f"{head}{begin}{block}\n{end}{tail}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _plain(value: Any, nested: Any = None) -> Any:
    """Return a value JSON can say: digests as hex, NaN and infinities as text, lists and structs likewise inside."""
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict | list):
        inner = (
            {key: _plain(item) for key, item in value.items()}
            if isinstance(value, dict)
            else [_plain(item) for item in value]
        )
        return nested(inner) if nested else inner
    return value
