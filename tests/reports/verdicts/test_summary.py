"""Counts and findings of a verification."""

from __future__ import annotations

import pytest

from bellwether.errors import TableError
from bellwether.reports.verdicts.summary import Listed
from verdict_rows import example, row, summed, verdicts


def test_replays_are_counted_by_verdict_gate_and_suite() -> None:
    """Every row once; cases are counted per checkpoint."""
    with verdicts(
        row(),
        row(case_id="render/common/b"),
        row("regression", case_id="render/common/c"),
        row(kind="parse", case_id="parse/common/a"),
        row(kind="parse", case_id="parse/common/a", mode="stream", plan="whole", respelled=True),
        row(checkpoint="phi-4"),
        row("disputed", checkpoint="phi-4", case_id="render/common/b", reason="vllm", standing="disputed"),
        row("disputed", checkpoint="phi-4", case_id="render/common/c", reason=None, standing="disputed"),
    ) as rows:
        summary = summed(rows)
    assert summary.verdicts == {"match": 5, "regression": 1, "disputed": 2}
    assert list(summary.verdicts) == ["match", "regression", "disputed"]
    assert summary.gates == {"pass": 5, "fail": 1, "no_verdict": 0, "none": 2}
    assert (summary.replays, summary.cases, summary.respelled) == (8, 7, 1)
    assert summary.disputed == {"vllm": 1, "unknown": 1}
    assert {suite: {gate: n for gate, n in gates.items() if n} for suite, gates in summary.suites.items()} == {
        ("smg-1.13.0", "qwen3-8b", "render"): {"pass": 2, "fail": 1},
        ("smg-1.13.0", "qwen3-8b", "parse"): {"pass": 2},
        ("smg-1.13.0", "phi-4", "render"): {"pass": 1, "none": 2},
    }
    assert next(iter(summary.suites)) == ("smg-1.13.0", "qwen3-8b", "render")
    assert summary.exit_status == 1


def test_findings_are_one_per_fingerprint_in_causal_order() -> None:
    """What fails by layer, then what has no verdict, then what is excused."""
    parse = {"kind": "parse", "what": "message", "field": "content"}
    with verdicts(
        row("measurement_failed", code="timeout", what=None),
        row("engine_defect", engines=["sglang"], case_id="render/common/z"),
        row("regression", **parse, first_layer="streaming", mode="stream", plan="whole", localisation="at_or_before"),
        row("regression", **parse, first_layer="streaming", mode="stream", plan="size-2", engines=["sglang"]),
        row("regression", **parse, first_layer="parse", standing="provisional"),
        row("known_difference", known="qwen3-8b/render/a", fingerprint="k"),
        row("regression", case_id="render/common/b"),
        row("regression", case_id="render/common/c", checkpoint="phi-4"),
    ) as rows:
        summary = summed(rows)
    assert [(one.gate, one.rule, one.checkpoint, one.cases, one.replays) for one in summary.findings] == [
        ("fail", "template/prompt-ids", "qwen3-8b", 1, 1),
        ("fail", "template/prompt-ids", "phi-4", 1, 1),
        ("fail", "parse/message", "qwen3-8b", 1, 1),
        ("fail", "streaming/message", "qwen3-8b", 1, 2),
        ("fail", "engine_defect", "qwen3-8b", 1, 1),
        ("no_verdict", "measurement_failed", "qwen3-8b", 1, 1),
        ("pass", "template/prompt-ids", "qwen3-8b", 1, 1),
    ]
    streamed = summary.findings[3]
    assert (streamed.streamed, streamed.settled, streamed.localised) == (2, 2, 1)
    assert (streamed.engines, streamed.detail, streamed.kinds) == (("sglang",), "content", ("parse",))
    assert summary.findings[2].settled == 0
    assert summary.findings[-1].known == ("qwen3-8b/render/a",)
    assert [len(part) for part in (summary.failing(), summary.without_verdict(), summary.excused())] == [5, 1, 1]


def test_the_smallest_example_comes_first() -> None:
    """By the bytes of what is asked, then by name; those of another verdict are another finding's."""
    small, large, first = example("render/common/s"), example("render/common/a", size=900), example("render/common/b")
    examples = {("f", "regression"): [large, small, first], ("f", "known_difference"): [example("render/common/0")]}
    with verdicts(row("regression", fingerprint="f")) as rows:
        (finding,) = summed(rows, examples=examples, alike={"f": "sglang 2"}).findings
    assert finding.examples == (first, small, large)
    assert finding.alike == "sglang 2"


def test_what_excuses_and_what_fails_are_two_findings() -> None:
    """They may have one fingerprint: a listed case beside one that is not."""
    with verdicts(
        row("known_difference", fingerprint="f", known="e"),
        row("regression", fingerprint="f", case_id="render/common/b"),
    ) as rows:
        summary = summed(rows)
    assert [(one.gate, one.cases) for one in summary.findings] == [("fail", 1), ("pass", 1)]


def test_no_rows_are_no_pass() -> None:
    """A run of which nothing came back."""
    with verdicts() as rows:
        summary = summed(rows)
    assert (summary.replays, summary.cases, summary.exit_status) == (0, 0, 2)


def test_a_stale_entry_and_a_stop_reach_the_exit_status() -> None:
    """Both are the run's, not a row's."""
    with verdicts(row()) as rows:
        assert summed(rows).exit_status == 0
        assert summed(rows, stopped=True).exit_status == 2
        assert summed(rows, lists=[Listed("stale-waiver", "w", "gone", "fail")]).exit_status == 1


def test_a_gate_that_is_not_the_verdicts_stops() -> None:
    """Two tables that say different things are not summed up."""
    with verdicts(row("regression", gate="pass")) as rows, pytest.raises(TableError, match="gate of regression"):
        summed(rows)


def test_a_command_names_the_gateway_as_it_was_asked() -> None:
    """A pinned one by its name; a running one by its address, and the scope if it was another."""
    with verdicts(row()) as rows:
        pinned, running = summed(rows), summed(rows, asked=["--target", "vllm", "--url", "http://h"])
    case = ("qwen3-8b", "render/common/a", "size-2")
    assert pinned.command("smg-1.13.0", *case) == (
        "bellwether verify --target smg-1.13.0 --slug qwen3-8b --case render/common/a --plan size-2"
    )
    assert running.command("mine", *case) == (
        "bellwether verify --target vllm --url http://h --slug qwen3-8b --case render/common/a --plan size-2"
    )
