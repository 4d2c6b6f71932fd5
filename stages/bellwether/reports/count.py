"""The count table of the README: printed, written, and checked against what is recorded."""

from __future__ import annotations

from pathlib import Path

from bellwether.errors import Finding
from bellwether.reports.database import connect
from bellwether.reports.render import between_markers, markdown


def table(root: Path) -> str:
    """Return the Markdown table of queries/count.sql. Raises TableError as `connect`."""
    result = connect(root).connection.execute((root / "queries" / "count.sql").read_text("utf-8"))
    return markdown([column[0] for column in result.description], result.fetchall())


def write_readme(root: Path, block: str) -> None:
    """Put `block` between the `count` markers of README.md."""
    readme = root / "README.md"
    readme.write_text(between_markers(readme.read_text("utf-8"), "count", block), "utf-8", newline="\n")


def check(root: Path) -> None:
    """Compare README.md with the tables.

    Raises:
        Finding: README.md holds another table.
    """
    text = (root / "README.md").read_text("utf-8")
    if between_markers(text, "count", table(root)) != text:
        raise Finding("README.md holds an old count", next_step="Run `bellwether count --readme` and commit.")
