"""Run one query over the views and write its rows."""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

from bellwether.errors import ParamsError
from bellwether.reports.database import connect
from bellwether.reports.render import write, write_parquet


def run(root: Path, query: str, form: str, output: Path | None) -> tuple[str, ...]:
    """Run `query` (SQL, or the path of a file that holds it) and return the tables of the scope that are missing.

    Raises:
        ParamsError: the SQL does not run, or Parquet was asked for without a file to write.
        TableError: a table is torn.
    """
    if form == "parquet" and output is None:
        raise ParamsError("Parquet is no text", next_step="Name a file with --output.")
    database = connect(root)
    try:
        result = database.connection.execute(_text(query))
        if form == "parquet":
            write_parquet(result, output)
        elif output is None:
            write(result, form, sys.stdout)
        else:
            with output.open("w", encoding="utf-8", newline="\n") as stream:
                write(result, form, stream)
    except duckdb.Error as error:
        raise ParamsError(
            f"the query does not run: {error}", next_step="`bellwether sql --help` lists the views."
        ) from None
    return database.missing


def _text(query: str) -> str:
    if query.endswith(".sql"):
        try:
            return Path(query).read_text("utf-8")
        except FileNotFoundError:
            raise ParamsError(f"there is no file {query}", next_step="Pass an existing file, or SQL text.") from None
    return query
