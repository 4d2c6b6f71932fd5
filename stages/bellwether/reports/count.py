"""The count table of the README: printed, written, and checked against what is recorded."""

from __future__ import annotations

from pathlib import Path

from bellwether.errors import Finding
from bellwether.reports.database import Database, connect
from bellwether.reports.render import between_markers, markdown
from bellwether.whole import write_whole


def so_far(root: Path) -> tuple[str, tuple[str, ...]]:
    """Return the Markdown table of queries/count.sql, and the tables of the scope it lacks. Raises as `connect`."""
    database = connect(root)
    return _markdown(root, database), database.missing


def write_readme(root: Path) -> None:
    """Put the table between the `count` markers of README.md.

    Raises:
        TableError: a table of the scope is missing or torn.
        ParamsError: README.md has no markers.
    """
    write_whole(root / "README.md", _counted(root))


def check(root: Path) -> None:
    """Compare README.md with the tables.

    Raises:
        Finding: README.md holds another table. Otherwise as `write_readme`.
    """
    if _counted(root) != (root / "README.md").read_text("utf-8"):
        raise Finding("README.md holds an old count", next_step="Run `bellwether count --readme` and commit.")


def _counted(root: Path) -> str:
    """Return README.md with the table of what is recorded."""
    database = connect(root)
    database.require_all()
    return between_markers((root / "README.md").read_text("utf-8"), "count", _markdown(root, database))


def _markdown(root: Path, database: Database) -> str:
    result = database.connection.execute((root / "queries" / "count.sql").read_text("utf-8"))
    return markdown([column[0] for column in result.description], result.fetchall())
