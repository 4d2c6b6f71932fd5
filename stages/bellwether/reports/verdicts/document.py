"""A verification as one JSON document, described by verdicts.schema.json beside this module.

The head holds counts, findings with examples and pages of the playbook, lists and coverage; `replays` every row of
queries/verdict.sql.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from bellwether.reports.verdicts.playbook import Entry
from bellwether.reports.verdicts.rows import Row
from bellwether.reports.verdicts.summary import Example, Finding, Listed, Summary

SCHEMA_VERSION = "1"
DISTRIBUTION = "bellwether-fixtures"


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the document."""
    return json.loads((files(__package__) / "verdicts.schema.json").read_text("utf-8"))


def document(summary: Summary, rows: Iterable[Row]) -> Iterator[str]:
    """Yield the document piece by piece, a row per line."""
    head = json.dumps(as_value(summary), ensure_ascii=False, indent=2)
    yield head.removesuffix("\n}") + ',\n  "replays": ['
    comma = ""
    for row in rows:
        yield f"{comma}\n    {json.dumps(_plain(row), ensure_ascii=False)}"
        comma = ","
    yield "\n  ]\n}\n"


def as_value(summary: Summary) -> dict[str, Any]:
    """Return the document without its rows."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": DISTRIBUTION, "version": version(DISTRIBUTION)},
        "targets": [{"name": name, "version": its} for name, its in summary.targets.items()],
        "exit_status": summary.exit_status,
        "stopped": summary.stopped,
        "counts": {
            "cases": summary.cases,
            "replays": summary.replays,
            "gates": summary.gates,
            "verdicts": dict(summary.verdicts),
            "disputed": dict(summary.disputed),
            "respelled": summary.respelled,
        },
        "findings": [_finding(one, summary) for one in summary.findings],
        "lists": [_listed(one) for one in summary.lists],
        "coverage": [asdict(one) for one in summary.coverage],
    }


def _finding(one: Finding, summary: Summary) -> dict[str, Any]:
    value = {name: _plain(item) for name, item in asdict(one).items() if name != "examples"}
    return {
        **value,
        "rule": one.rule,
        "playbook": _page(one.page),
        "examples": [_example(one, example, summary) for example in one.examples],
    }


def _example(one: Finding, example: Example, summary: Summary) -> dict[str, Any]:
    return {**asdict(example), "command": summary.command(one.target, one.checkpoint, example.case_id, example.plan)}


def _listed(one: Listed) -> dict[str, Any]:
    return {**asdict(one), "playbook": None if one.page is None else _page(one.page)}


def _page(one: Entry) -> dict[str, str]:
    return {"title": one.title, "means": one.means, "cause": one.cause, "try": one.try_}


def _plain(value: Any) -> Any:
    """Return a value JSON can say; digests as hex."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
