"""A verification as JUnit XML: a suite per target, checkpoint and kind, a test per replay.

passed: a match, or what is excused · skipped: no truth to judge by, with the reason · failure: differs from the truth,
or an entry or an engine does · error: there was no measurement. Entries of lists have a suite of their own, and so has
whether the run came to its end, so that a run of which nothing was judged is not read as a pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from xml.sax.saxutils import escape, quoteattr

from bellwether.reports.verdicts import rules
from bellwether.reports.verdicts.playbook import page
from bellwether.reports.verdicts.rows import Row
from bellwether.reports.verdicts.summary import Summary
from bellwether.reports.verdicts.words import cut, played, rule, visible

PASSED, SKIPPED, FAILURE, ERROR = "passed", "skipped", "failure", "error"

REASONS = {
    "no_reference": "the reference claims nothing",
    "other_output": "the reference is of other output ids",
    "not_observable": "nothing was seen to compare by",
    "not_sent": "the run stopped before it",
    "not_selected": "it was not selected",
    "hf": "disputed: the gateway gives what the reference gives, and vLLM differs",
    "vllm": "disputed: the gateway gives what vLLM gives, and the reference differs",
    "neither": "disputed: reference and vLLM differ, and the gateway differs from both",
    "unknown": "disputed: reference and vLLM differ",
}
"""Reason of a row that is not judged → in words."""


@dataclass(frozen=True, slots=True)
class Test:
    """One test of a suite."""

    name: str
    outcome: str
    kind: str = ""
    """Why it has this outcome, in a word."""
    message: str = ""
    """The same in a line."""
    body: str = ""


def junit(summary: Summary, rows: Iterable[Row]) -> Iterator[str]:
    """Yield the document piece by piece. `rows` are those `summary` is of, in the order of the query."""
    own = {name: tests for name, tests in (("lists", _lists(summary)), ("run", _run(summary))) if tests}
    counts = {"/".join(suite): _by_outcome(gates) for suite, gates in summary.suites.items()}
    counts |= {name: Counter(test.outcome for test in tests) for name, tests in own.items()}
    totals = sum(counts.values(), Counter[str]())
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    title = "bellwether verify " + ", ".join(summary.targets)
    yield f"<testsuites name={_attribute(title)} {_numbers(totals)}>\n"
    for suite, its in groupby(rows, key=lambda row: (row["target"], row["checkpoint"], row["kind"])):
        name = "/".join(suite)
        yield from _suite(name, counts[name], (_test(row, summary) for row in its))
    for name, tests in own.items():
        yield from _suite(name, counts[name], tests)
    yield "</testsuites>\n"


def _suite(name: str, counts: Mapping[str, int], tests: Iterable[Test]) -> Iterator[str]:
    yield f'<testsuite name={_attribute(name)} {_numbers(counts)} skipped="{counts.get(SKIPPED, 0)}">\n'
    for test in tests:
        opened = f"<testcase classname={_attribute(name)} name={_attribute(test.name)}"
        if test.outcome == PASSED:
            yield f"{opened}/>\n"
            continue
        said = f"type={_attribute(test.kind)} message={_attribute(test.message)}"
        body = f">{_text(test.body)}</{test.outcome}>" if test.body else "/>"
        yield f"{opened}><{test.outcome} {said}{body}</testcase>\n"
    yield "</testsuite>\n"


def _test(row: Row, summary: Summary) -> Test:
    name = f"{row['case_id']} [{played(row['mode'], row['plan'])}]"
    if row["encoder"] == "class":  # a case of which two encoders make two outputs has two tests
        name = f"{name[:-1]}, class]"
    outcome = rules.OUTCOMES[rules.gate(row["verdict"], row["gate"])]
    verdict = row["verdict"]
    if outcome == PASSED:
        return Test(name, outcome)
    if outcome == SKIPPED:
        reason = row["reason"]
        return Test(name, outcome, verdict, REASONS.get(reason) or visible(reason or "no such case can exist"))
    its = page(verdict, row["first_layer"], row["what"], row["field"])
    kind = rule(verdict, row["first_layer"], row["what"])
    detail = row["field"] or row["code"]
    message = f"{kind}: {its.title}" + (f" ({visible(detail)})" if detail else "")
    return Test(name, outcome, kind, message, "\n".join(_body(row, summary)))


def _body(row: Row, summary: Summary) -> Iterator[str]:
    yield f"verdict: {row['verdict']} · standing: {row['standing']}"
    if row["first_layer"]:
        yield f"first layer: {row['first_layer']} ({row['localisation']})"
    if row["engines"]:
        yield f"engines that differ: {', '.join(row['engines'])}"
    if row["known"]:
        yield f"known: {row['known']}"
    if row["http_status"] is not None or row["message"]:
        yield f"gateway: {row['http_status'] or '-'} {cut(row['message'] or '')}".rstrip()
    if row["parser_used"]:
        yield f"parser: {visible(row['parser_used'])}"
    if row["fingerprint"]:
        yield f"finding: {visible(row['fingerprint'])}"
    yield summary.command(row["target"], row["checkpoint"], row["case_id"], row["plan"])


def _lists(summary: Summary) -> list[Test]:
    return [
        Test(one.entry, FAILURE if one.gate == rules.FAIL else SKIPPED, one.about, visible(one.why))
        for one in summary.lists
    ]


def _run(summary: Summary) -> list[Test]:
    ended = Test("all replays were made", PASSED)
    if summary.stopped:
        ended = Test(ended.name, ERROR, "stopped", "the run stopped early: the cases left are not judged")
    judged = Test("something was judged", PASSED)
    if not rules.is_judged(summary.verdicts):
        judged = Test(judged.name, ERROR, "nothing-judged", "nothing was held against a truth: this is no pass")
    return [ended, judged]


def _by_outcome(gates: Mapping[str, int]) -> Counter[str]:
    return Counter({rules.OUTCOMES[gate]: replays for gate, replays in gates.items()})


def _numbers(counts: Mapping[str, int]) -> str:
    return f'tests="{sum(counts.values())}" failures="{counts.get(FAILURE, 0)}" errors="{counts.get(ERROR, 0)}"'


def _attribute(text: str) -> str:
    return quoteattr(visible(text))


def _text(text: str) -> str:
    """Return escaped text, visible line by line."""
    return escape("\n".join(visible(line) for line in text.split("\n")))
