"""Run one query over the views and write its rows."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from bellwether.errors import ParamsError
from bellwether.reports.database import connect
from bellwether.reports.render import write, write_parquet
from bellwether.whole import whole_file


def run(root: Path, query: str, form: str, output: Path | None, against: str | None = None) -> tuple[str, ...]:
    """Run `query` (SQL, or the path of a file that holds it) and return the tables of the scope that are missing.

    `output` appears whole or not at all. `against` is the Git revision whose answers the views `…_before` hold.

    Raises:
        ParamsError: the SQL does not run or holds no statement, or Parquet was asked for without a file to write.
        TableError: a table is torn. Otherwise as `connect`.
    """
    if form == "parquet" and output is None:
        raise ParamsError("Parquet is no text", next_step="Name a file with --output.")
    text = _text(query)
    database = connect(root, against, asked=text)
    ask = database.connection.sql if form == "parquet" else database.connection.execute
    try:
        result = _ask(database.connection, ask, text)
        if result is None:
            raise ParamsError("the query is empty", next_step="Write a SELECT.")
        if output is None:
            write(result, form, sys.stdout)
        else:
            with _target(output) as path:
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


def _ask(connection: duckdb.DuckDBPyConnection, ask: Callable[[str], Any], query: str) -> Any:
    """Run `query` in a thread of its own: a long one would keep this thread from seeing Ctrl-C."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ask, query)
        try:
            return running.result()
        except KeyboardInterrupt:
            connection.interrupt()
            raise


@contextmanager
def _target(path: Path) -> Iterator[Path]:
    """Give the path to write. Devices are written as such, and a link stays one."""
    if path.exists() and not path.is_file():
        yield path
    elif not path.resolve().parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path))
    else:
        with whole_file(path.resolve()) as partial:
            yield partial


def _text(query: str) -> str:
    if query.endswith(".sql"):
        try:
            return Path(query).read_text("utf-8")
        except FileNotFoundError:
            raise ParamsError(f"there is no file {query}", next_step="Pass an existing file, or SQL text.") from None
        except UnicodeDecodeError as error:
            raise ParamsError(f"{query} is not UTF-8: {error}", next_step="Save the file as UTF-8.") from None
    return query
