"""A verification as a few values: rows by verdict, findings with their smallest examples, coverage, lists.

Its size depends on the number of checkpoints and findings, not on that of replays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bellwether.reports.verdicts import rules
from bellwether.reports.verdicts.playbook import DIFFERENCES, LISTS, Entry, page
from bellwether.reports.verdicts.rows import Row, Rows
from bellwether.reports.verdicts.words import command, rule

Suite = tuple[str, str, str]
"""Target, checkpoint, kind."""


@dataclass(frozen=True, slots=True)
class Side:
    """One part of an answer around the first difference."""

    part: str
    """`ids`, the name of a text, or `answer`."""
    truth: str | None
    gateway: str | None


@dataclass(frozen=True, slots=True)
class Example:
    """A replay that shows a finding."""

    case_id: str
    mode: str
    plan: str | None
    size: int
    """Bytes of what is asked."""
    part: str | None
    """What `place` counts in: ids, or a text; None where a side has no value."""
    place: int | None
    """0-based; the shorter length where one side begins with the other. None where a side has no value."""
    truth_length: int | None
    gateway_length: int | None
    sides: tuple[Side, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong in one way with one checkpoint: all rows of a fingerprint."""

    fingerprint: str
    target: str
    checkpoint: str
    verdict: str
    gate: str
    layer: str | None
    what: str | None
    field: str | None
    code: str | None
    """Of a refusal or a failed measurement."""
    message: str | None
    """The gateway's words for it, of the first row."""
    known: tuple[str, ...]
    """Entries of queries/known/ that excuse its rows, or have to go."""
    kinds: tuple[str, ...]
    cases: int
    replays: int
    streamed: int
    """Of the replays."""
    settled: int
    """Replays of cases on which the reference and vLLM agree; of the others only the reference is known."""
    localised: int
    """Replays of which everything before the layer was seen to be equal."""
    engines: tuple[str, ...]
    """Whose pinned release differs from the truth on one of the cases."""
    alike: str | None = None
    """Engines whose pinned release says what the gateway says, each with the number of cases."""
    examples: tuple[Example, ...] = ()
    """Smallest first."""

    @property
    def rule(self) -> str:
        """Return its kind's name."""
        return rule(self.verdict, self.layer, self.what)

    @property
    def detail(self) -> str | None:
        """Return the field of the message, the code, or the engines a defect is of."""
        return ", ".join(self.engines) if self.verdict == "engine_defect" else self.field or self.code

    @property
    def page(self) -> Entry:
        """Return its page of the playbook."""
        return page(self.verdict, self.layer, self.what, self.field)

    @property
    def kind_page(self) -> Entry:
        """Return the page of its kind, whatever the field."""
        return page(self.verdict, self.layer, self.what)


@dataclass(frozen=True, slots=True)
class Listed:
    """An entry of a list in this checkout that says something about this verification."""

    about: str
    """`stale-waiver`, `stale-known-difference`, … : list and state."""
    entry: str
    why: str
    gate: str
    """fail, or none: told, and nothing follows from it."""

    @property
    def page(self) -> Entry | None:
        """Return its page of the playbook."""
        return LISTS.get(self.about)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of what is recorded for a checkpoint and kind was judged."""

    target: str
    checkpoint: str
    kind: str
    cases: int
    sent: int
    judged: int
    not_judged: Mapping[str, int]
    """Reason → cases; with `judged` they sum to `cases`."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A verification."""

    targets: Mapping[str, str]
    """Name → version, as the gateway said it."""
    cases: int
    verdicts: Mapping[str, int]
    """Verdict → replays, those without any left out, in the order of the rules."""
    suites: Mapping[Suite, Mapping[str, int]]
    """Suite → gate → replays, in the order of the rows."""
    findings: tuple[Finding, ...]
    """What fails, then what has no verdict, then what is excused; each by layer in causal order."""
    lists: tuple[Listed, ...]
    coverage: tuple[Coverage, ...]
    stopped: bool = False
    """Whether the run ended before all was replayed."""
    respelled: int = 0
    """Replays equal by value whose arguments have other bytes."""
    disputed: Mapping[str, int] = field(default_factory=dict)
    """Which of the two truths the gateway gives → replays of disputed cases."""
    asked: tuple[str, ...] = ()
    """Words after `bellwether verify` that name the gateway and the scope; none for a pinned gateway's name alone."""

    @property
    def replays(self) -> int:
        """Return the number of rows."""
        return sum(self.verdicts.values())

    @property
    def gates(self) -> dict[str, int]:
        """Return replays by gate."""
        counted = Counter[str]()
        for verdict, replays in self.verdicts.items():
            counted[rules.gate(verdict)] += replays
        return {gate: counted[gate] for gate in rules.OUTCOMES}

    @property
    def exit_status(self) -> int:
        """Return 0, 1 or 2, see rules.exit_status."""
        return rules.exit_status(self.verdicts, [one.gate for one in self.lists], stopped=self.stopped)

    def command(self, target: str, checkpoint: str, case_id: str, plan: str | None = None) -> str:
        """Return the command that shows one case of a target again."""
        return command(self.asked or ("--target", target), checkpoint, case_id, plan)

    def failing(self) -> tuple[Finding, ...]:
        """Return the findings a gate fails on."""
        return tuple(one for one in self.findings if one.gate == rules.FAIL)

    def without_verdict(self) -> tuple[Finding, ...]:
        """Return the findings that are failures to measure."""
        return tuple(one for one in self.findings if one.gate == rules.NO_VERDICT)

    def apart(self) -> tuple[Finding, ...]:
        """Return the findings in disputed cases: what is said is neither what the reference nor what vLLM says."""
        return tuple(one for one in self.findings if one.gate == rules.NONE)

    def excused(self) -> tuple[Finding, ...]:
        """Return the findings that are listed as known."""
        return tuple(one for one in self.findings if one.gate == rules.PASS)


COUNTS = """
select target, checkpoint, kind, verdict, gate, count(*) as replays, first(position) as position
from (select *, row_number() over () as position from verdicts)
group by target, checkpoint, kind, verdict, gate
order by min(position)
"""

FINDINGS = """
select
    fingerprint,
    verdict,
    min(target) as target,
    min(checkpoint) as checkpoint,
    min(gate) as gate,
    min(first_layer) as layer,
    min(what) as what,
    min(field) as field,
    min(code) as code,
    arg_min(message, position) as message,
    coalesce(list_sort(list(distinct known) filter (known is not null)), []) as known,
    list_sort(list(distinct kind)) as kinds,
    count(distinct case_id)::bigint as cases,
    count(*)::bigint as replays,
    (count(*) filter (mode = 'stream'))::bigint as streamed,
    (count(*) filter (standing = 'settled'))::bigint as settled,
    (count(*) filter (localisation = 'exact'))::bigint as localised,
    coalesce(list_sort(list_distinct(flatten(list(engines)))), []) as engines,
from (select *, row_number() over () as position from verdicts)
where fingerprint is not null
group by fingerprint, verdict
order by min(position)
"""

TOTALS = """
select
    count(distinct (checkpoint, case_id))::bigint as cases,
    (count(*) filter (respelled))::bigint as respelled,
    (count(*) filter (verdict = 'disputed' and reason = 'hf'))::bigint as hf,
    (count(*) filter (verdict = 'disputed' and reason = 'vllm'))::bigint as vllm,
    (count(*) filter (verdict = 'disputed' and reason = 'neither'))::bigint as neither,
    (count(*) filter (verdict = 'disputed'))::bigint - hf - vllm - neither as unknown,
from verdicts
"""

GATE_ORDER = (rules.FAIL, rules.NO_VERDICT, rules.PASS, rules.NONE)
"""In which findings are shown."""


def summarise(
    rows: Rows,
    targets: Mapping[str, str],
    examples: Mapping[tuple[str, str], Iterable[Example]],
    coverage: Iterable[Coverage],
    lists: Iterable[Listed],
    *,
    alike: Mapping[str, str] | None = None,
    stopped: bool = False,
    asked: Sequence[str] = (),
) -> Summary:
    """Return the summary of `rows`. `targets` are versions by name, `examples` those of a fingerprint and
    verdict, `alike` engines that say the same, by fingerprint.

    Raises:
        TableError: a row has a verdict or gate that rules.py does not know.
    """
    suites: dict[Suite, Counter[str]] = {}
    verdicts = Counter[str]()
    for row in rows.select(COUNTS):
        gate = rules.gate(row["verdict"], row["gate"])
        suites.setdefault((row["target"], row["checkpoint"], row["kind"]), Counter())[gate] += row["replays"]
        verdicts[row["verdict"]] += row["replays"]
    (totals,) = rows.select(TOTALS)
    findings = [
        _finding(row, examples.get((row["fingerprint"], row["verdict"]), ()), (alike or {}).get(row["fingerprint"]))
        for row in rows.select(FINDINGS)
    ]
    sides = {side: totals[side] for side in ("hf", "vllm", "neither", "unknown")}
    return Summary(
        targets=dict(targets),
        cases=totals["cases"],
        verdicts={verdict: verdicts[verdict] for verdict in rules.GATES if verdicts[verdict]},
        suites={suite: {gate: counts[gate] for gate in rules.OUTCOMES} for suite, counts in suites.items()},
        findings=tuple(sorted(findings, key=_place)),
        lists=tuple(lists),
        coverage=tuple(coverage),
        stopped=stopped,
        respelled=totals["respelled"],
        disputed={side: replays for side, replays in sides.items() if replays},
        asked=tuple(asked),
    )


def _finding(row: Row, examples: Iterable[Example], alike: str | None) -> Finding:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    return Finding(**values, alike=alike, examples=tuple(sorted(examples, key=lambda one: (one.size, one.case_id))))


def _place(finding: Finding) -> tuple[Any, ...]:
    """Return what findings are sorted by; those of one kind stay in the order of the rows."""
    differences = list(DIFFERENCES)
    return (
        GATE_ORDER.index(finding.gate),
        rules.layer_place(finding.layer),
        differences.index(finding.what) if finding.what in differences else len(differences),
        list(rules.GATES).index(finding.verdict),
        finding.detail or "",
    )
