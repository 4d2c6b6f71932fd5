"""A verification as SARIF 2.1.0, for code scanning: a result per finding and case.

What fails is an error, what could not be measured a warning; what is excused is no result. GitHub takes 25,000 results
of a run, shows the 5,000 worst, and refuses files above 10 MB compressed. So a finding gives at most PER_FINDING cases,
and a run at most MOST results, errors first. Totals are among the properties; a notification says what was left out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib.metadata import version
from itertools import islice
from typing import Any
from urllib.parse import quote

from bellwether.reports.verdicts.document import DISTRIBUTION
from bellwether.reports.verdicts.playbook import Entry
from bellwether.reports.verdicts.rows import Row, Rows
from bellwether.reports.verdicts.rules import FAIL, is_judged
from bellwether.reports.verdicts.summary import Finding, Listed, Summary
from bellwether.reports.verdicts.words import counted, cut, listed, place, played, visible

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
PER_FINDING = 20
MOST = 5000
LISTS = {"waiver": "queries/waivers.toml", "known-difference": "queries/known"}
"""End of an entry's `about` → where its list lies."""

# The first cases of each finding
RESULTS = """
select
    fingerprint,
    verdict,
    checkpoint,
    kind,
    case_id,
    arg_min({mode: mode, plan: plan, message: message, engines: engines}, position) as one,
    count(*)::bigint as replays,
from (select *, row_number() over () as position from verdicts)
where fingerprint is not null and gate in ('fail', 'no_verdict')
group by fingerprint, verdict, checkpoint, kind, case_id
qualify row_number() over (partition by fingerprint, verdict order by min(position)) <= ?
order by min(position)
"""


def sarif(summary: Summary, rows: Rows) -> Iterator[str]:
    """Yield the document piece by piece."""
    shown = [*summary.failing(), *summary.without_verdict()]
    lists = [one for one in summary.lists if one.gate == FAIL]
    rules = _rules(shown, lists)
    places = {rule["id"]: number for number, rule in enumerate(rules)}
    head = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {"name": "Bellwether", "version": version(DISTRIBUTION), "rules": rules},
                },
                "automationDetails": {"id": f"bellwether/{'+'.join(summary.targets)}/"},
                "columnKind": "unicodeCodePoints",
                "properties": {
                    "targets": dict(summary.targets),
                    "verdicts": dict(summary.verdicts),
                    "cases": summary.cases,
                    "replays": summary.replays,
                },
            }
        ],
    }
    opened = json.dumps(head, ensure_ascii=False, indent=1)
    yield opened.removesuffix("\n  }\n ]\n}") + ',\n   "results": ['
    written = 0
    for result in islice(_results(summary, shown, lists, rows), MOST):
        result["ruleIndex"] = places[result["ruleId"]]
        yield f"{',' if written else ''}\n    {json.dumps(result, ensure_ascii=False)}"
        written += 1
    whole = sum(one.cases for one in shown) + len(lists)
    yield '\n   ],\n   "invocations": [' + json.dumps(_invocation(summary, whole - written), ensure_ascii=False) + "]"
    yield "\n  }\n ]\n}\n"


def _results(summary: Summary, shown: list[Finding], lists: list[Listed], rows: Rows) -> Iterator[dict[str, Any]]:
    """Yield all that is shown of each finding, what fails first."""
    yield from (_listed(one) for one in lists)
    cases: dict[tuple[str, str], list[Row]] = {}
    for row in rows.select(RESULTS, [PER_FINDING]):
        cases.setdefault((row["fingerprint"], row["verdict"]), []).append(row)
    for one in shown:
        yield from (_result(one, row, summary) for row in cases[one.fingerprint, one.verdict])


def _result(one: Finding, row: Row, summary: Summary) -> dict[str, Any]:
    first = row["one"]
    said = [f"{one.page.title} ({played(first['mode'], first['plan'])})."]
    if one.detail:
        said.append(f"{visible(one.detail)}.")
    if first["message"]:
        said.append(cut(first["message"]))
    if first["engines"]:
        said.append(f"Engines that differ from the truth here: {listed(first['engines'])}.")
    example = next((example for example in one.examples if example.case_id == row["case_id"]), None)
    if example is not None:
        said += [f"{side.part}: truth {_side(side.truth)}, gateway {_side(side.gateway)}." for side in example.sides]
    said.append(summary.command(one.target, row["checkpoint"], row["case_id"], first["plan"]))
    where = place(row["checkpoint"], row["case_id"])
    return {
        "ruleId": one.rule,
        "level": "error" if one.gate == FAIL else "warning",
        "message": {"text": _literal(" ".join(said))},
        "locations": [_location(f"fixtures/{where}", where)],
        "partialFingerprints": _fingerprints(one.fingerprint, row["case_id"]),
        "properties": {
            "fingerprint": one.fingerprint,
            "verdict": one.verdict,
            "checkpoint": row["checkpoint"],
            "kind": row["kind"],
            "replays": row["replays"],
            "casesOfFinding": one.cases,
            "replaysOfFinding": one.replays,
            "casesLeftOut": max(0, one.cases - PER_FINDING),
        },
    }


def _listed(one: Listed) -> dict[str, Any]:
    uri = next((path for end, path in LISTS.items() if one.about.endswith(end)), "queries")
    return {
        "ruleId": one.about,
        "level": "error",
        "message": {"text": _literal(f"{visible(one.entry)}: {visible(one.why)}")},
        "locations": [_location(uri, one.entry)],
        "partialFingerprints": _fingerprints(one.about, one.entry),
    }


def _location(uri: str, name: str) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(uri), "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": 1},
        },
        "logicalLocations": [{"fullyQualifiedName": name, "name": name.rsplit("/", 1)[-1], "kind": "resource"}],
    }


def _fingerprints(finding: str, case: str) -> dict[str, str]:
    """Return what tells results apart between runs; GitHub reads the name it computes itself for source files."""
    digest = hashlib.sha256(f"{finding}\n{case}".encode()).hexdigest()
    return {"bellwether/v1": digest, "primaryLocationLineHash": f"{digest[:16]}:1"}


def _rules(shown: list[Finding], lists: list[Listed]) -> list[dict[str, Any]]:
    """Return a rule per kind of finding, in the order of the findings; its page speaks of no field."""
    pages: dict[str, tuple[Entry, str]] = {}
    for one in lists:
        if one.page is not None:
            pages.setdefault(one.about, (one.page, "error"))
    for finding in shown:
        pages.setdefault(finding.rule, (finding.kind_page, "error" if finding.gate == FAIL else "warning"))
    return [_rule(name, its, level) for name, (its, level) in pages.items()]


def _rule(name: str, its: Entry, level: str) -> dict[str, Any]:
    return {
        "id": name,
        "name": "".join(word.capitalize() for word in name.replace("/", "-").replace("_", "-").split("-")),
        "shortDescription": {"text": _literal(its.title)},
        "fullDescription": {"text": _literal(its.means)},
        "help": {"text": _literal(its.help), "markdown": _literal(its.markdown)},
        "defaultConfiguration": {"level": level},
    }


def _invocation(summary: Summary, left: int) -> dict[str, Any]:
    notes = []
    if summary.stopped:
        notes.append(_note("The run stopped early; the cases left are not judged."))
    if not is_judged(summary.verdicts):
        notes.append(_note("Nothing was held against a truth: this is no pass."))
    if left > 0:
        notes.append(
            _note(f"Left out: {counted(left, 'case')} of the findings, beyond {PER_FINDING} each or {MOST:,} in all.")
        )
    return {
        "executionSuccessful": summary.exit_status != 2,
        "exitCode": summary.exit_status,
        "toolExecutionNotifications": notes,
    }


def _note(text: str) -> dict[str, Any]:
    return {"level": "warning", "message": {"text": text}}


def _literal(text: str) -> str:
    """Return text as a message has to spell it: braces are placeholders, `[…](…)` is a link (SARIF 3.11.5, 3.11.6)."""
    return text.replace("{", "{{").replace("}", "}}").replace("](", "]\\(")


def _side(value: str | None) -> str:
    return "gives nothing" if value is None else f"`{cut(value, 200)}`"
