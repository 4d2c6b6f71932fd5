"""Stage `report`: run the queries that have a stored result, and write each as a small CSV file kept in Git."""

from __future__ import annotations

import io
from pathlib import Path

from bellwether.errors import TableError
from bellwether.reports.database import connect
from bellwether.reports.render import write

REPORTS = ("inventory", "rejections", "materials", "repeats")
"""Queries whose result is stored as queries/reports/<name>.csv."""


def main(root: Path) -> dict[str, int]:
    """Write every report and return report name → rows.

    Raises:
        TableError: a table of the scope is missing, torn, or of another schema version.
    """
    database = connect(root)
    if database.missing:
        raise TableError(
            f"{len(database.missing)} tables of the scope are missing: {', '.join(database.missing[:5])}",
            next_step="Run `make repro`; a report over a part would look complete.",
        )
    counts = {}
    for name in REPORTS:
        text = io.StringIO()
        result = database.connection.execute((root / "queries" / f"{name}.sql").read_text("utf-8"))
        counts[name] = write(result, "csv", text)
        path = root / "queries" / "reports" / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.getvalue(), "utf-8", newline="\n")
    return counts
