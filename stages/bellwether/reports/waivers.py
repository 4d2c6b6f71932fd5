"""Command `waivers`: what has become of each waiver and known difference, and whether one has to go."""

from __future__ import annotations

from pathlib import Path

from bellwether.errors import Finding, TableError
from bellwether.reports.database import Database, connect


def states(root: Path) -> tuple[list[str], tuple[str, ...]]:
    """Return a line per waiver and known difference, and the tables of the scope that are missing.

    Raises:
        TableError: the corpora are not imported: whether a case exists is not known. Otherwise as `connect`.
    """
    database = connect(root)
    return [line for _, line in _judged(root, database)], database.missing


def check(root: Path) -> tuple[list[str], tuple[str, ...]]:
    """Return what `states` does, when nothing is stale, and no known difference matches.

    Raises:
        Finding: entries are stale. Names each, with the reason. Otherwise as `states`.
    """
    database = connect(root)
    judged = _judged(root, database)
    if stale := [line for state, line in judged if state in ("stale", "matches")]:
        raise Finding(
            "\n       ".join(["what is listed below queries/ has to go:", *stale]), next_step="Remove these entries."
        )
    return [line for _, line in judged], database.missing


def _judged(root: Path, database: Database) -> list[tuple[str, str]]:
    """Return state and line of every entry."""
    if lost := [path for path in database.missing if path.startswith("corpus/")]:
        raise TableError(f"{lost[0]} is missing", next_step="Run `make repro`, or `dvc pull`.")

    def rows(name: str) -> list[tuple]:
        return database.connection.execute((root / "queries" / f"{name}.sql").read_text("utf-8")).fetchall()

    return [
        *(
            (state, f"{state}: {engine} {versions}, {case}: {why}")
            for engine, versions, _, case, state, why, *_ in rows("waivers")
        ),
        *(
            (state, f"{state}: {target}, {entry}: {cases:,} cases, {asked:,} asked, {excused:,} replays excused")
            for target, entry, _, _, cases, state, _, _, asked, excused in rows("known")
        ),
    ]
