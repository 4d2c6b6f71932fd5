"""GitHub annotations: workflow commands, one line per finding, that a step prints to its log.

GitHub shows ten errors and ten warnings of a step and drops the rest without a word; here what is left out is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bellwether.reports.verdicts.rules import FAIL, is_judged
from bellwether.reports.verdicts.summary import Finding, Listed, Summary
from bellwether.reports.verdicts.words import counted, cut, listed

SHOWN = 10
"""Annotations of one level that GitHub shows of a step."""


def annotations(summary: Summary) -> list[str]:
    """Return the lines: errors, warnings, and a notice when some were left out."""
    errors = [_finding("error", one, summary) for one in _one_of_each_first(summary.failing())]
    errors += [_listed("error", one) for one in summary.lists if one.gate == FAIL]
    warnings = [_finding("warning", one, summary) for one in _one_of_each_first(summary.without_verdict())]
    if summary.stopped:
        warnings.insert(
            0, _command("warning", "Stopped early", "Not all cases were replayed; the others are not judged.")
        )
    if not is_judged(summary.verdicts):
        warnings.insert(0, _command("warning", "No verdict", "Nothing was held against a truth: this is no pass."))
    lines = errors[:SHOWN] + warnings[:SHOWN]
    left = [
        counted(len(more) - SHOWN, f"more {level}")
        for more, level in ((errors, "error"), (warnings, "warning"))
        if len(more) > SHOWN
    ]
    if left:
        lines.append(
            _command("notice", "More findings", f"Left out: {' and '.join(left)}. The report holds all of them.")
        )
    return lines


def _one_of_each_first(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings with the first of each kind before others: ten checkpoints with one fault would hide the rest."""
    seen = Counter[tuple[str, str | None]]()
    turns = []
    for one in findings:
        turns.append((seen[one.rule, one.detail] > 0, one))
        seen[one.rule, one.detail] += 1
    return [one for later in (False, True) for is_later, one in turns if is_later == later]


def _finding(level: str, one: Finding, summary: Summary) -> str:
    detail = f" ({one.detail})" if one.detail else ""
    said = f"{one.page.title}: {counted(one.cases, 'case')}, {counted(one.replays, 'replay')}."
    if one.engines and one.layer:
        said += f" Engines that differ from the truth there: {listed(one.engines)}."
    if one.message:
        said += f" {cut(one.message, 200)}"
    if one.examples:
        example = one.examples[0]
        said += f"\n{summary.command(one.target, one.checkpoint, example.case_id, example.plan)}"
    return _command(level, f"{one.rule}{detail}: {one.checkpoint} behind {one.target}", said)


def _listed(level: str, one: Listed) -> str:
    return _command(level, f"{one.about}: {one.entry}", one.why)


def _command(level: str, title: str, message: str) -> str:
    return f"::{level} title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    return _escaped(text, {"%": "%25", "\r": "%0D", "\n": "%0A"})


def _property(text: str) -> str:
    return _escaped(text, {"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def _escaped(text: str, spelling: dict[str, str]) -> str:
    return text.translate(str.maketrans(spelling))
