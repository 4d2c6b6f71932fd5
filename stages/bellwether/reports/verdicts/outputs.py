"""The outputs of a verification, from the views of a checkout.

- `write(database, root, *, json=None, junit=None, sarif=None, stopped=False, asked=()) -> Summary` writes the files.
- `text(summary) -> str`, `annotations(summary) -> list[str]` and `summary.exit_status` say the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import duckdb

from bellwether.errors import ParamsError
from bellwether.reports.database import Database
from bellwether.reports.verdicts import rules
from bellwether.reports.verdicts.annotations import annotations
from bellwether.reports.verdicts.document import document
from bellwether.reports.verdicts.junit import junit as junit_document
from bellwether.reports.verdicts.rows import Row, spooled
from bellwether.reports.verdicts.sarif import sarif as sarif_document
from bellwether.reports.verdicts.summary import Coverage, Example, Listed, Side, Summary, summarise
from bellwether.reports.verdicts.text import text
from bellwether.whole import whole_file

__all__ = ["annotations", "text", "write"]

TARGETS = "select target, max(target_version) as version from observation group by target order by target"

ALIKE = "select fingerprint, engines_like from defects where engines_like is not null"

# Of the gateways that were asked; a list may be of one release, or of all of a gateway
KNOWN = """
select *
from ({query}) as known
where target in (select target from targets union all select gateway from targets)
"""

COUNTED = ("target", "checkpoint", "kind", "cases", "sent", "replays", "judged")
"""Columns of queries/coverage.sql that are no reason why cases were not judged."""


REPLAYED = "select * from ({query}) where (target, checkpoint) in (select target, checkpoint from verdict)"
"""Of the coverage what is about checkpoints that were asked: the others were left out on purpose."""


def write(
    database: Database,
    root: Path,
    *,
    json: Path | None = None,
    junit: Path | None = None,
    sarif: Path | None = None,
    stopped: bool = False,
    asked: Sequence[str] = (),
) -> Summary:
    """Judge the observations of `database`, write the files asked for, and return what they are made from.

    `stopped` says that the run ended before all was replayed. `asked` are the words that named the gateway and the
    scope, e.g. `--target vllm --url http://127.0.0.1:8000 --all-plans`; commands that show one case begin with them.
    Without any they name the target, which is right for a pinned gateway and the scope of params.yaml.

    Files appear whole, one after the other. The same rows give the same bytes.

    Raises:
        ParamsError: a stored query is missing or does not run.
        TableError: a row has a verdict or gate that is not in the decision table.
    """
    connection = database.connection
    with spooled(connection) as rows:
        summary = summarise(
            rows,
            {row["target"]: row["version"] for row in _select(connection, TARGETS, "the observations")},
            _examples(_stored(connection, root, "verdict_examples")),
            (_coverage(row) for row in _stored(connection, root, "coverage", REPLAYED)),
            _lists(connection, root),
            alike={
                row["fingerprint"]: row["engines_like"] for row in _select(connection, ALIKE, "queries/defects.sql")
            },
            stopped=stopped,
            asked=asked,
        )
        if json is not None:
            _write(json, document(summary, rows))
        if junit is not None:
            _write(junit, junit_document(summary, rows))
        if sarif is not None:
            _write(sarif, sarif_document(summary, rows))
    return summary


def _write(path: Path, pieces: Iterable[str]) -> None:
    with whole_file(path) as partial, partial.open("w", encoding="utf-8", newline="") as stream:
        stream.writelines(pieces)


def _stored(connection: duckdb.DuckDBPyConnection, root: Path, name: str, within: str = "{query}") -> list[Row]:
    """Return the rows of a stored query, whose number does not depend on that of replays."""
    try:
        query = (root / "queries" / f"{name}.sql").read_text("utf-8")
    except FileNotFoundError:
        raise ParamsError(
            f"there is no queries/{name}.sql", next_step="Run inside a checkout, or pass --root."
        ) from None
    return _select(connection, within.replace("{query}", query), f"queries/{name}.sql")


def _select(connection: duckdb.DuckDBPyConnection, query: str, name: str) -> list[Row]:
    try:
        result = connection.execute(query)
        names = [column[0] for column in result.description]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]
    except duckdb.Error as error:
        raise ParamsError(f"{name} cannot be read: {error}", next_step="Mend the query.") from None


def _examples(rows: Iterable[Row]) -> dict[tuple[str, str], list[Example]]:
    found: dict[tuple[str, str], list[Example]] = {}
    for row in rows:
        found.setdefault((row["fingerprint"], row["verdict"]), []).append(_example(row))
    return found


def _example(row: Row) -> Example:
    part = row["part"]
    pairs = [
        Side("ids", row["truth_ids"], row["gateway_ids"]),
        Side("answer" if part is None else "text" if part == "ids" else part, row["truth_text"], row["gateway_text"]),
    ]
    return Example(
        case_id=row["case_id"],
        mode=row["mode"],
        plan=row["plan"],
        size=row["size"],
        part=part,
        place=row["place"],
        truth_length=row["truth_length"],
        gateway_length=row["gateway_length"],
        sides=tuple(side for side in pairs if side.truth is not None or side.gateway is not None),
    )


def _coverage(row: Row) -> Coverage:
    reasons = {name: cases for name, cases in row.items() if name not in COUNTED}
    counts = {name: row[name] for name in COUNTED if name != "replays"}
    return Coverage(**counts, not_judged={name: cases for name, cases in reasons.items() if cases})


def _lists(connection: duckdb.DuckDBPyConnection, root: Path) -> Iterator[Listed]:
    """Yield entries that have to go, and waivers that excuse nothing. Needed entries say nothing, nor do those of cases
    that were not asked."""
    for row in _stored(connection, root, "waivers"):
        if row["state"] != "active":
            entry = f"{row['engine']} {row['versions']}: {row['case']}"
            gate = rules.FAIL if row["state"] == "stale" else rules.NONE
            yield Listed(f"{row['state']}-waiver", entry, row["why"], gate)
    for row in _stored(connection, root, "known", KNOWN):
        entry = f"{row['target']}: {row['entry']}"
        if row["state"] == "stale":
            yield Listed("stale-known-difference", entry, "it names no case", rules.FAIL)
        # an entry of one case has a row that says so
        elif row["state"] == "matches" and row["entry"].endswith("*"):
            whole = row["asked"] >= row["cases"]
            why = f"nothing of its {row['cases']:,} cases differs as it says" + (
                "" if whole else f", of which {row['asked']:,} were asked"
            )
            yield Listed("matching-known-difference", entry, why, rules.FAIL if whole else rules.NONE)
