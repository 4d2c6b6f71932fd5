"""The count table of the README: printed, written, and checked against what is recorded."""

from __future__ import annotations

from pathlib import Path

from bellwether.errors import Finding
from bellwether.reports.database import Database, connect
from bellwether.reports.render import between_markers, markdown
from bellwether.whole import write_whole

NOT_RECORDED = """
select
    checkpoint,
    case status
        when 'member' then 'member, recorded as ' || group_slug
        when 'pending' then 'pending, every file can be had: list it in params.yaml'
        else 'unavailable, ' || only_on_hub || ' of ' || files || ' files only on the Hub: '
            || array_to_string(missing, ', ')
    end as why,
from manifests
where status <> 'recorded' and (status = 'unavailable' or not in_scope)
order by status desc, checkpoint
"""


def so_far(root: Path) -> tuple[str, tuple[str, ...]]:
    """Return the Markdown table of queries/count.sql with a list of what is pinned and not recorded below it, and the
    tables of the scope that are missing. Raises as `connect`."""
    database = connect(root)
    return "\n\n".join(filter(None, [_markdown(root, database), _not_recorded(database)])), database.missing


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
    database.require_all(witnesses=False)
    return between_markers((root / "README.md").read_text("utf-8"), "count", _markdown(root, database))


def _markdown(root: Path, database: Database) -> str:
    result = database.connection.execute((root / "queries" / "count.sql").read_text("utf-8"))
    return markdown([column[0] for column in result.description], result.fetchall())


def _not_recorded(database: Database) -> str:
    """Return a line per checkpoint that is pinned and has no row in the table above, or cannot get one."""
    rows = database.connection.execute(NOT_RECORDED).fetchall()
    return "\n".join(["Pinned, not recorded:", *(f"- {checkpoint}: {why}" for checkpoint, why in rows)]) if rows else ""
