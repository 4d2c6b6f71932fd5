"""Run one query over the views and write its rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from bellwether.errors import ParamsError
from bellwether.reports.database import connect
from bellwether.reports.render import write, write_parquet


def run(root: Path, query: str, form: str, output: Path | None) -> tuple[str, ...]:
    """Run `query` (SQL, or the path of a file that holds it) and return the tables of the scope that are missing.

    `output` appears whole or not at all.

    Raises:
        ParamsError: the SQL does not run or holds no statement, or Parquet was asked for without a file to write.
        TableError: a table is torn.
    """
    if form == "parquet" and output is None:
        raise ParamsError("Parquet is no text", next_step="Name a file with --output.")
    database = connect(root)
    ask = database.connection.sql if form == "parquet" else database.connection.execute
    try:
        result = ask(_text(query))
        if result is None:
            raise ParamsError("the query is empty", next_step="Write a SELECT.")
        if output is None:
            write(result, form, sys.stdout)
        else:
            with _whole(output) as path:
                if form == "parquet":
                    write_parquet(result, path)
                else:
                    with path.open("w", encoding="utf-8", newline="\n") as stream:
                        write(result, form, stream)
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except duckdb.Error as error:
        raise ParamsError(
            f"the query does not run: {error}", next_step="`bellwether sql --help` lists the views."
        ) from None
    return database.missing


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Give a path to write, which takes the place of `path` when the body ends well. Devices are written as such."""
    if path.exists() and not path.is_file():
        yield path
        return
    path = path.resolve()  # a link stays one
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _text(query: str) -> str:
    if query.endswith(".sql"):
        try:
            return Path(query).read_text("utf-8")
        except FileNotFoundError:
            raise ParamsError(f"there is no file {query}", next_step="Pass an existing file, or SQL text.") from None
        except UnicodeDecodeError as error:
            raise ParamsError(f"{query} is not UTF-8: {error}", next_step="Save the file as UTF-8.") from None
    return query
