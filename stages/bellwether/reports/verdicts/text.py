"""A verification for a person at a terminal: what was judged, what differs and where first, what to do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import wrap

from tabulate import tabulate

from bellwether.reports.verdicts import rules
from bellwether.reports.verdicts.summary import Example, Finding, Summary
from bellwether.reports.verdicts.words import counted, cut, listed, place, played, visible

MOST = 10
"""Kinds of findings in the gateway that are shown one by one."""

MOST_ROWS = 40
"""Kinds of findings in the table."""

WIDTH = 110
"""Columns of running text."""

DEFECT = "engine_defect"

WORDS = {0: "everything that was judged passes", 1: "it differs", 2: "no verdict"}
"""Exit status → in words."""

MEANINGS = {
    "match": "as the truth",
    "policy": "malformed outputs: no rule says what to make of them",
    "engines_split": "no truth, and engines differ among themselves",
    "known_difference": "differs as listed in queries/known/",
    "engine_defect_waived": "as the truth; an engine differs and is waived",
    "regression": "differs from the truth",
    "rejected": "refused, and the truth is an answer",
    "known_but_matches": "listed as known, and matches",
    "engine_defect": "as the truth; an engine differs and is not waived",
    "missing": "answered without asking the engine",
    "measurement_failed": "neither answer nor refusal",
    "disputed": "reference and vLLM differ: not judged",
    "not_applicable": "no such case can exist",
    "unverified": "no truth: not judged",
}

UNSEEN = {
    "no_reference": "the reference claims nothing",
    "other_output": "the engine gave other ids than the reference is of",
    "not_observable": "the target shows nothing to compare by",
    "not_sent": "not sent",
    "not_selected": "not selected",
}

APART = "In disputed cases, as neither the reference nor vLLM has it: no verdict, layers beside the reference"


def text(summary: Summary, *, most: int = MOST) -> str:
    """Return the report, with a final newline. Shown one by one are at most `most` kinds of findings in the gateway,
    and one of those in engines."""
    kinds = [list(group) for _, group in groupby(_shown(summary), key=_kind)]
    blocks = [
        _head(summary),
        _verdicts(summary),
        _table("Findings, earliest layer first", kinds),
        *_blocks(summary, kinds, most),
        _table(APART, [list(group) for _, group in groupby(summary.apart(), key=_kind)]),
        _lists(summary),
        _coverage(summary),
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _blocks(summary: Summary, kinds: Sequence[Sequence[Finding]], most: int) -> Iterator[str]:
    numbered = list(enumerate(kinds, 1))
    own = [one for one in numbered if one[1][0].verdict != DEFECT]
    defects = [one for one in numbered if one[1][0].verdict == DEFECT]
    shown = sorted([*own[:most], *defects[:1]])
    before = None
    for number, kind in shown:
        yield _block(summary, number, kind, before)
        before = kind[0].rule
    if more := len(kinds) - len(shown):
        yield f"{counted(more, 'more kind')} of findings, with examples: --json."


def _head(summary: Summary) -> str:
    said = [f"{name} (says it is {version})" for name, version in summary.targets.items()]
    lines = [", ".join(map(visible, said)) or "no target"]
    where = {checkpoint for _, checkpoint, _ in summary.suites}
    lines.append(
        f"{counted(summary.replays, 'replay')} of {counted(summary.cases, 'case')}"
        f" for {counted(len(where), 'checkpoint')}"
    )
    status = summary.exit_status
    why = [counted(len(summary.failing()), "finding")] if summary.failing() else []
    why += [f"{counted(number, 'entry', 'entries')} of lists"] if (number := _failing_entries(summary)) else []
    without = summary.gates[rules.NO_VERDICT]
    why += [f"{counted(without, 'replay')} without a measurement"] if without else []
    why += ["the run stopped early"] if summary.stopped else []
    if not rules.is_judged(summary.verdicts):
        why.append("nothing was held against a truth")
    lines.append(f"exit {status}: {WORDS[status]}" + (f" ({', '.join(why)})" if why else ""))
    return "\n".join(lines)


def _failing_entries(summary: Summary) -> int:
    return sum(one.gate == rules.FAIL for one in summary.lists)


def _verdicts(summary: Summary) -> str:
    rows = [
        (verdict, f"{replays:,}", rules.gate(verdict).replace("_", " "), MEANINGS[verdict] + _more(summary, verdict))
        for verdict, replays in summary.verdicts.items()
    ]
    return _tabulated(rows, ("verdict", "replays", "gate", ""), right=(1,)) if rows else ""


def _more(summary: Summary, verdict: str) -> str:
    if verdict == "match" and summary.respelled:
        return f"; {summary.respelled:,} spell arguments in another way"
    if verdict == "disputed" and summary.disputed:
        names = {"hf": "as the reference", "vllm": "as vLLM", "neither": "as neither", "unknown": "unknown"}
        return " (" + ", ".join(f"{replays:,} {names[side]}" for side, replays in summary.disputed.items()) + ")"
    return ""


def _shown(summary: Summary) -> Sequence[Finding]:
    return (*summary.failing(), *summary.without_verdict())


def _kind(one: Finding) -> tuple[str | None, ...]:
    """Return what findings of several checkpoints are shown together by."""
    return (one.target, one.gate, one.rule, one.detail)


def _table(title: str, kinds: Sequence[Sequence[Finding]]) -> str:
    rows = [
        (
            number,
            kind[0].layer or "-",
            _what(kind[0]),
            listed([one.checkpoint for one in kind], 3),
            f"{sum(one.cases for one in kind):,}",
            f"{sum(one.replays for one in kind):,}",
        )
        for number, kind in enumerate(kinds[:MOST_ROWS], 1)
    ]
    if not rows:
        return ""
    headings = ("", "layer", "what", "checkpoints", "cases", "replays")
    more = f"\nand {len(kinds) - MOST_ROWS} more" if len(kinds) > MOST_ROWS else ""
    return f"{title}\n{_tabulated(rows, headings, right=(0, 4, 5))}{more}"


def _what(one: Finding) -> str:
    what = one.what if one.layer and one.what else one.verdict
    return visible(f"{what} {one.detail}" if one.detail else what)


def _block(summary: Summary, number: int, kind: Sequence[Finding], before: str | None) -> str:
    """Return what is known of a kind of finding; what its rule means is not said again after another of the rule."""
    one = min(kind, key=lambda finding: (not finding.examples, finding.examples[0].size if finding.examples else 0))
    lines = [f"{number}. {one.rule}{f' ({visible(one.detail)})' if one.detail else ''}: {one.page.title}"]
    if one.rule != before:
        lines += [*_filled(one.page.means), *_filled(f"Try: {one.page.try_}")]
    if len(kind) > 1:
        lines.append("   " + listed([f"{its.checkpoint} {its.cases:,}" for its in kind], 8))
    lines += [f"   {line}" for line in _facts(kind)]
    if one.message and one.verdict != DEFECT:
        lines.append(f"   gateway: {cut(one.message, 200)}")
    if one.examples:
        lines += [f"   {line}" for line in _example(summary, one, one.examples[0])]
    return "\n".join(lines)


def _filled(sentences: str) -> list[str]:
    return wrap(sentences, WIDTH, initial_indent="   ", subsequent_indent="   ", break_on_hyphens=False)


def _facts(kind: Sequence[Finding]) -> Iterator[str]:
    """Say who else says what, and how sure the layer is."""
    replays, settled = sum(one.replays for one in kind), sum(one.settled for one in kind)
    engines = sorted({engine for one in kind for engine in one.engines})
    if kind[0].gate == rules.FAIL and kind[0].layer:
        agreed = "reference and vLLM agree" if settled == replays else "reference alone; vLLM has said nothing"
        if 0 < settled < replays:
            agreed = f"reference and vLLM agree on {settled:,} of {replays:,}, on the others the reference alone"
        yield f"truth: {agreed}"
        if engines:
            yield f"on some of the cases engines differ from it too: {listed(engines)}"
        if said := [f"{one.checkpoint}: {one.alike}" for one in kind if one.alike]:
            yield f"says what the gateway says: {'; '.join(said[:3])}" + (" …" if len(said) > 3 else "")
    localised = sum(one.localised for one in kind)
    if kind[0].layer and localised < replays:
        seen = f"what comes before was seen to be right in {localised:,} of {replays:,}"
        yield f"layer: {kind[0].layer} or before it; {seen}"


def _example(summary: Summary, one: Finding, example: Example) -> Iterator[str]:
    where = f"smallest: {place(one.checkpoint, example.case_id)} [{played(example.mode, example.plan)}]"
    if example.place is not None:
        unit = "id" if example.part == "ids" else "character"
        where += f", first difference at {unit} {example.place:,}"
    if example.truth_length is not None and example.gateway_length is not None:
        where += f" (lengths {example.truth_length:,} and {example.gateway_length:,})"
    yield where
    width = max((len(side.part) for side in example.sides), default=0)
    for side in example.sides:
        yield f"  {side.part:<{width}}  truth    {_said(side.truth, side.part)}"
        yield f"  {'':<{width}}  gateway  {_said(side.gateway, side.part)}"
    yield summary.command(one.target, one.checkpoint, example.case_id, example.plan)


def _said(value: str | None, part: str) -> str:
    """Return a side; a text stands in quotes, since white space at its ends may be what differs."""
    if value is None:
        return "(not seen)"
    shown = cut(value, 200)
    return shown if part in ("ids", "answer") else f'"{shown}"'


def _lists(summary: Summary) -> str:
    if not summary.lists:
        return ""
    rows = [(one.about, visible(one.entry), one.gate, visible(one.why)) for one in summary.lists]
    return "Lists\n" + _tabulated(rows, ("what", "entry", "gate", "why"))


def _coverage(summary: Summary) -> str:
    """Return, by target and kind, how many of the recorded cases were judged, and why the others were not."""
    if not summary.coverage:
        return ""
    totals: dict[tuple[str, str], Counter[str]] = {}
    reasons = Counter[str]()
    for one in summary.coverage:
        counts = totals.setdefault((one.target, one.kind), Counter())
        counts.update(cases=one.cases, sent=one.sent, judged=one.judged)
        reasons.update(one.not_judged)
    rows = [
        (target, kind, *(f"{counts[name]:,}" for name in ("cases", "sent", "judged")))
        for (target, kind), counts in totals.items()
    ]
    headings = ("target", "kind", "recorded", "sent", "judged")
    block = "Coverage of these checkpoints, in cases\n" + _tabulated(rows, headings, right=(2, 3, 4))
    said = [f"{cases:,} {UNSEEN.get(reason, reason.replace('_', ' '))}" for reason, cases in reasons.items() if cases]
    return block + (f"\nNot judged: {'; '.join(said)}." if said else "")


def _tabulated(rows: Sequence[Sequence[object]], headings: Sequence[str], right: Sequence[int] = ()) -> str:
    aligned = ["right" if place in right else "left" for place in range(len(headings))]
    shown = tabulate(rows, headings, tablefmt="plain", disable_numparse=True, colalign=aligned)
    return "\n".join(line.rstrip() for line in shown.splitlines())
