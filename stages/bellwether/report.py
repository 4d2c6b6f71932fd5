"""Stage `report`: run the queries that have a stored result, and write each as a small CSV file kept in Git."""

from __future__ import annotations

import io
from pathlib import Path

from bellwether.reports.database import connect
from bellwether.reports.render import write
from bellwether.whole import write_whole

REPORTS = (
    *("inventory", "rejections", "sources", "materials", "repeats", "checkpoints"),
    *("witnesses", "disputes", "dispute_examples", "front_ends", "engines_split", "chunk_dependence", "drift"),
    *("waivers", "gaps"),
    *("verdicts", "defects", "coverage", "stream_dependence", "target_drift"),
)
"""Queries whose result is stored as queries/reports/<name>.csv."""


def main(root: Path) -> dict[str, int]:
    """Write every report and return report name → rows.

    Raises:
        TableError: a table of the scope is missing, torn, or of another schema version.
    """
    database = connect(root)
    database.require_all()
    database.keep("verdict")
    counts, texts = {}, {}
    for name in REPORTS:  # all before the first is written: stored results are those of one run
        text = io.StringIO()
        result = database.connection.execute((root / "queries" / f"{name}.sql").read_text("utf-8"))
        counts[name] = write(result, "csv", text)
        texts[name] = text.getvalue()
    for name, csv in texts.items():
        write_whole(root / "queries" / "reports" / f"{name}.csv", csv)
    return counts
