"""Checkouts in which gateways were observed: rows by hand beside those of `witnessed`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bellwether.layout import observation_table
from bellwether.observing.table import OBSERVATION
from bellwether.tables import TableWriter
from witnessed import SLUG, Row, checkout, digest, holds

TARGET = "smg-1.13.0"


def replay(case_id: str, said: str | None = "a", plan: str | None = None, target: str = TARGET, **columns: Any) -> Row:
    """Return the row of a replay that gave `said`; digest options of `holds` are taken too. With a plan it is a
    stream."""
    kind = case_id.split("/")[0]
    options = {name: columns.pop(name) for name in ("given", "spelt", "spaced") if name in columns}
    row = {"checkpoint": SLUG, "case_id": case_id, "kind": kind, "target": target, "target_version": "1.13.0"}
    row |= {"mode": "full" if plan is None else "stream", "plan": plan, "outcome": "result", "http_status": 200}
    return row | holds(kind, said, **options) | columns


def turned_away(case_id: str, code: str | None = "bad_request", **columns: Any) -> Row:
    """Return the row of a replay the gateway refused."""
    said = {"outcome": "refused", "reason_code": code, "reason": "in its words", "http_status": 400}
    return replay(case_id, None, **said | columns)


def broken(case_id: str, outcome: str = "measurement_failed", **columns: Any) -> Row:
    """Return the row of a replay without an answer."""
    said = {"measurement_failed": "timeout", "missing": "no-capture"}
    return replay(case_id, None, **{"outcome": outcome, "reason_code": said[outcome]} | columns)


def prompts(said: str, *, text: str | None = None, bare: str | None = None, baseline: str = "a") -> Row:
    """Return what is recorded of a prompt that differs, of which `text` and `bare` are the text and the ids without
    special ones; `baseline` stands for both of the reference's. None: it was not seen."""
    row = {"prompt_sha256": digest(said), "prompt_text_sha256": None if text is None else digest(text)}
    row |= {"baseline_text_sha256": digest(baseline), "bare_sha256": None if bare is None else digest(bare)}
    return row | {"baseline_bare_sha256": digest(baseline)}


def observed(
    root: Path,
    claims: Sequence[Row],
    answers: Sequence[Row],
    replays: Sequence[Row],
    *,
    targets: Sequence[str] = (TARGET,),
    cases: Iterable[str] = (),
    **options: Any,
) -> Path:
    """Write a checkout as `witnessed.checkout` does, with these replays in it."""
    checkout(root, claims, answers, cases=[*cases, *(row["case_id"] for row in replays)], **options)
    params = root / "params.yaml"
    params.write_text(f"{params.read_text('utf-8')}targets: [{', '.join(targets)}]\n", "utf-8")
    for target in targets:
        for slug in options.get("slugs", (SLUG,)):
            write_replays(root, target, slug, replays)
    return root


def write_replays(root: Path, target: str, slug: str, replays: Iterable[Row]) -> None:
    with TableWriter(observation_table(root, target, slug), OBSERVATION) as table:
        table.write_rows(row for row in replays if (row["target"], row["checkpoint"]) == (target, slug))


def list_known(root: Path, *entries: tuple[str, str, str | None], target: str = TARGET) -> None:
    """List known differences: entry, verdict, code."""
    folder = root / "queries" / "known"
    folder.mkdir(exist_ok=True)
    texts = []
    for entry, verdict, code in entries:
        lines = [f'["{entry}"]', f'verdict = "{verdict}"', 'reason = "r"', 'issue = "https://example.org/1"']
        texts.append("\n".join([*lines, *([f'code = "{code}"'] if code else [])]))
    (folder / f"{target}.toml").write_text("\n".join(texts) + "\n", "utf-8")


def waive(root: Path, *waived: tuple[str, str, str]) -> None:
    """Write waivers: engine, range, case as `<kind>/<name>`."""
    texts = []
    for engine, versions, case in waived:
        lines = ["[[waiver]]", f'engine = "{engine}"', f'versions = "{versions}"', 'model = "o/m"']
        lines += [f'case = "{SLUG}/{case}"', 'reason = "r"', 'evidence = "e"', 'upstream = "https://example.org/2"']
        texts.append("\n".join(lines))
    (root / "queries" / "waivers.toml").write_text("\n".join(texts) + "\n", "utf-8")
