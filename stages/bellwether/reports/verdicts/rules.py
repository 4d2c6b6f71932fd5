"""The words of a verdict, what each does to a gate, and the exit status of a verification.

A row of queries/verdict.sql carries one verdict and its gate. The table below says the same from the other side, so a
row whose two words do not belong together stops the report instead of being counted as something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bellwether.errors import TableError

PASS, FAIL, NONE, NO_VERDICT = "pass", "fail", "none", "no_verdict"

GATES = {
    "match": PASS,
    "policy": PASS,
    "engines_split": PASS,
    "known_difference": PASS,
    "engine_defect_waived": PASS,
    "regression": FAIL,
    "rejected": FAIL,
    "known_but_matches": FAIL,
    "engine_defect": FAIL,
    "missing": NO_VERDICT,
    "measurement_failed": NO_VERDICT,
    "disputed": NONE,
    "not_applicable": NONE,
    "unverified": NONE,
}
"""Verdict → gate, in the order in which people are shown them: what passes, fails, gives no verdict, is not judged."""

LAYERS = (
    *("artifact", "template", "special_tokens", "tokens", "logits"),
    *("generation", "detokenize", "parse", "streaming", "api"),
)
"""In causal order: what goes wrong in one shows in those after it."""

COMPARED = ("match", "known_difference", "engine_defect_waived")
"""Verdicts that pass because something was held against a truth. What is malformed, or split among engines, passes
whatever a gateway makes of it: alone that says nothing of the gateway."""

OUTCOMES = {PASS: "passed", FAIL: "failure", NO_VERDICT: "error", NONE: "skipped"}
"""Gate → what a test report calls it."""


def gate(verdict: str, said: str | None = None) -> str:
    """Return the gate of a verdict.

    Raises:
        TableError: there is no such verdict, or the row `said` another gate.
    """
    found = GATES.get(verdict)
    if found is None:
        raise TableError(
            f"no verdict is called {verdict!r}", next_step="Bring queries/verdict.sql and rules.py together."
        )
    if said is not None and said != found:
        raise TableError(
            f"the gate of {verdict} is {found}, a row says {said}",
            next_step="Bring queries/verdict.sql and rules.py together.",
        )
    return found


def layer_place(layer: str | None) -> int:
    """Return the place of a layer in causal order; what has no layer stands after all that have one."""
    return len(LAYERS) if layer is None else LAYERS.index(layer)


def is_judged(counts: Mapping[str, int]) -> bool:
    """Return whether something was held against a truth. `counts` are rows by verdict."""
    return any(rows and (gate(verdict) == FAIL or verdict in COMPARED) for verdict, rows in counts.items())


def exit_status(counts: Mapping[str, int], lists: Iterable[str] = (), *, stopped: bool = False) -> int:
    """Return the exit status of a verification. First that holds:

    - 1: a row, or an entry of a list, failed its gate
    - 2: the run stopped early, an observation is missing or its measurement failed, or nothing was held against a truth
    - 0: all that was judged passed

    `counts` are rows by verdict, `lists` the gates of entries of lists.

    Raises:
        TableError: there is no such verdict.
    """
    gates = {gate(verdict) for verdict, rows in counts.items() if rows}
    if FAIL in gates or FAIL in lists:
        return 1
    if stopped or NO_VERDICT in gates or not is_judged(counts):
        return 2
    return 0
