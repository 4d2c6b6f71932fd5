"""The rows of queries/verdict.sql, computed once and then read as often as outputs need, a batch at a time.

The query joins everything that is recorded; all that is made from it would pay for it again. Its rows go to a Parquet
file in a temporary folder, so memory does not grow with their number, and while they are there other queries read them
under the name `verdict` too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from bellwether.corpora.store import sql_path
from bellwether.errors import ParamsError

BATCH = 1000

Row = dict[str, Any]
"""Column → value, in the order of the query's columns."""


class Rows:
    """The verdicts of a verification, in the order of the query."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, path: Path) -> None:
        self._connection = connection
        self.table = f"read_parquet({sql_path(path)})"

    def __iter__(self) -> Iterator[Row]:
        return self.select("select * from verdicts")

    def select(self, query: str, parameters: list[Any] | None = None) -> Iterator[Row]:
        """Yield the rows of a query over `verdicts`. One such query is read at a time."""
        relation = self._connection.sql(f"with verdicts as (from {self.table}) {query}", params=parameters or [])
        for batch in relation.to_arrow_reader(BATCH):
            yield from batch.to_pylist()


@contextmanager
def spooled(connection: duckdb.DuckDBPyConnection) -> Iterator[Rows]:
    """Give the rows of the view `verdict`, which stands for them until the end.

    Raises:
        ParamsError: the query does not run.
    """
    with tempfile.TemporaryDirectory(prefix="bellwether-verdicts-") as folder:
        path = Path(folder) / "verdicts.parquet"
        try:
            connection.execute(f"copy (select * from verdict) to {sql_path(path)} (format parquet, compression zstd)")
        except duckdb.Error as error:
            raise ParamsError(f"queries/verdict.sql does not run: {error}", next_step="Mend the query.") from None
        rows = Rows(connection, path)
        # a temporary view comes before one of the same name
        connection.execute(f"create temp view verdict as from {rows.table}")
        try:
            yield rows
        finally:
            connection.execute("drop view temp.verdict")
