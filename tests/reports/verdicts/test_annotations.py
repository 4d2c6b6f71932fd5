"""Workflow commands for GitHub."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bellwether.reports.verdicts.annotations import annotations
from bellwether.reports.verdicts.summary import Listed
from verdict_rows import example, row, summed, verdicts


def test_a_finding_is_one_line() -> None:
    """Title and message as GitHub reads them: a colon of the title is escaped, a line end everywhere."""
    with verdicts(
        row("regression", fingerprint="f", engines=["sglang"]),
        row("regression", fingerprint="f", engines=["sglang"], case_id="render/common/b"),
    ) as rows:
        lines = annotations(summed(rows, examples={("f", "regression"): [example("render/common/b")]}))
    assert lines == [
        "::error title=template/prompt-ids%3A qwen3-8b behind smg-1.13.0::"
        "The prompt has another text: 2 cases, 2 replays. Engines that differ from the truth there: sglang.%0A"
        "bellwether verify --target smg-1.13.0 --slug qwen3-8b "
        "--case render/common/b"
    ]


def test_failures_are_errors_and_missing_measurements_warnings() -> None:
    """A stale entry is an error; what is excused or told is none."""
    with verdicts(
        row("missing", code="no_capture", what=None),
        row("known_difference", fingerprint="k"),
        row("match"),
    ) as rows:
        lists = [Listed("stale-waiver", "a,b", "gone", "fail"), Listed("unchecked-waiver", "c", "not asked", "none")]
        lines = annotations(summed(rows, lists=lists, stopped=True))
    assert [line.split("::")[1] for line in lines] == [
        "error title=stale-waiver%3A a%2Cb",
        "warning title=Stopped early",
        "warning title=missing (no_capture)%3A qwen3-8b behind smg-1.13.0",
    ]


def test_at_most_ten_of_a_level_and_the_rest_is_counted() -> None:
    """GitHub drops more without a word."""
    failing = [row("regression", fingerprint=f"f{n}", checkpoint=f"c{n}") for n in range(12)]
    failed = [row("measurement_failed", fingerprint=f"m{n}", code=f"e{n}", what=None) for n in range(11)]
    with verdicts(*failing, *failed) as rows:
        lines = annotations(summed(rows))
    levels = [line.split(" ")[0] for line in lines]
    assert levels == ["::error"] * 10 + ["::warning"] * 10 + ["::notice"]
    assert lines[-1].endswith("::Left out: 2 more errors and 1 more warning. The report holds all of them.")


def test_words_of_a_list_stay_in_their_line() -> None:
    """A reason is a person's, and may hold what ends a line."""
    with verdicts(row()) as rows:
        lines = annotations(summed(rows, lists=[Listed("stale-waiver", "a\rb", "one\r\n::two 100%", "fail")]))
    assert lines == ["::error title=stale-waiver%3A a%0Db::one%0D%0A::two 100%25"]


def test_one_of_each_kind_comes_before_more_of_a_kind() -> None:
    """Many checkpoints with one fault do not push another fault out of the ten."""
    same = [row("regression", fingerprint=f"f{n}", checkpoint=f"c{n}") for n in range(12)]
    with verdicts(*same, row("engine_defect", engines=["sglang"])) as rows:
        titles = [line.split("::")[1].removeprefix("error title=") for line in annotations(summed(rows))]
    assert [title.split("%3A")[0] for title in titles[:3]] == [
        *("template/prompt-ids", "engine_defect (sglang)", "template/prompt-ids")
    ]


def test_a_clean_run_says_nothing() -> None:
    """No line, no annotation."""
    with verdicts(row()) as rows:
        assert annotations(summed(rows)) == []


@settings(max_examples=20, deadline=None)
@given(st.text())
def test_no_words_of_a_gateway_begin_a_command(message: str) -> None:
    """One line, which no word of the gateway ends."""
    message = message.encode("utf-8", "replace").decode() + "\n::add-mask::x\r::stop-commands::y"
    with verdicts(
        row("rejected", what="rejected", first_layer="api", code="c%,:\n::warning::", message=message)
    ) as rows:
        lines = annotations(summed(rows))
    assert len(lines) == 1
    assert "\n" not in lines[0] and "\r" not in lines[0]
    title = lines[0].removeprefix("::error title=").split("::")[0]
    assert ":" not in title and "," not in title
