"""Gates and the exit status, as in the decision table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bellwether.errors import TableError
from bellwether.reports.verdicts.rules import GATES as OURS
from bellwether.reports.verdicts.rules import LAYERS, OUTCOMES, exit_status, gate, layer_place
from verdict_rows import GATES

JUDGED = {
    *("rejected", "regression", "known_difference", "known_but_matches"),
    *("engine_defect", "engine_defect_waived", "match"),
}
"""Rows 9 to 13 of the decision table: rows 6 and 7 hold a gateway against nothing."""
FAILS = {"rejected", "regression", "known_but_matches", "engine_defect"}
UNMEASURED = {"missing", "measurement_failed"}

counts = st.dictionaries(st.sampled_from(sorted(GATES)), st.integers(0, 3))
lists = st.lists(st.sampled_from(["fail", "none"]), max_size=3)


def expected(counts: dict[str, int], lists: list[str], stopped: bool) -> int:
    """The rule in the words of the decision table."""
    seen = {verdict for verdict, rows in counts.items() if rows > 0}
    if seen & FAILS or "fail" in lists:
        return 1
    if stopped or seen & UNMEASURED or not seen & JUDGED:
        return 2
    return 0


@given(counts, lists, st.booleans())
def test_the_exit_status_follows_the_decision_table(counts: dict[str, int], lists: list[str], stopped: bool) -> None:
    """1 on a failing row or entry; else 2 when stopped, unmeasured or nothing was judged; else 0."""
    assert exit_status(counts, lists, stopped=stopped) == expected(counts, lists, stopped)


@given(counts, lists, st.booleans(), st.sampled_from(sorted(GATES)))
def test_a_replay_more_never_turns_a_failure_into_a_pass(
    counts: dict[str, int], lists: list[str], stopped: bool, verdict: str
) -> None:
    """What failed stays failed, and only a judged row turns `nothing judged` into a pass."""
    before = exit_status(counts, lists, stopped=stopped)
    after = exit_status({**counts, verdict: counts.get(verdict, 0) + 1}, lists, stopped=stopped)
    assert before != 1 or after == 1
    assert not (before == 2 and after == 0) or verdict in JUDGED - FAILS


def test_nothing_at_all_is_no_pass() -> None:
    """No row was judged."""
    assert exit_status({}) == 2
    assert exit_status({"match": 0}) == 2
    assert exit_status({"disputed": 5, "unverified": 1, "not_applicable": 1}) == 2
    assert exit_status({"policy": 5, "engines_split": 1}) == 2


def test_a_failed_measurement_beside_matches_is_no_pass() -> None:
    """Never evidence."""
    assert exit_status({"match": 1000, "measurement_failed": 1}) == 2
    assert exit_status({"match": 1000, "missing": 1}) == 2


def test_a_stale_entry_fails_a_run_in_which_all_matches() -> None:
    """List findings are part of the rule."""
    assert exit_status({"match": 3}, ["none", "fail"]) == 1
    assert exit_status({"match": 3}, ["none"]) == 0


def test_every_verdict_has_the_gate_of_the_decision_table() -> None:
    """Total, and each gate has an outcome."""
    assert OURS == GATES
    assert {gate(verdict) for verdict in GATES} == set(OUTCOMES)


def test_an_unknown_verdict_or_another_gate_stops() -> None:
    """What is not understood is not counted."""
    with pytest.raises(TableError, match="no verdict is called 'fine'"):
        exit_status({"fine": 1})
    with pytest.raises(TableError, match="the gate of regression is fail, a row says pass"):
        gate("regression", "pass")


def test_layers_are_in_causal_order() -> None:
    """As first divergence is looked for."""
    order = "artifact template special_tokens tokens logits generation detokenize parse streaming api".split()
    assert list(LAYERS) == order
    assert [layer_place(layer) for layer in (*order, None)] == list(range(11))
