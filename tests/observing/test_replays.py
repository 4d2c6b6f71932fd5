"""Which replays there are, and which of them a person chose."""

from __future__ import annotations

import pytest

from bellwether.gateways.answer import Output
from bellwether.observing.replays import Replay, Selection


def replay(plan: str | None) -> Replay:
    question = {"ids": [7, 8, 9, 10, 11], "stop_id": 2, "plans": {"whole": [5], "size-2": [2, 2, 1]}}
    return Replay("parse/common/a", "parse", "full" if plan is None else "stream", plan, question)


@pytest.mark.parametrize(
    ("plan", "chunks"), [(None, None), ("whole", [[7, 8, 9, 10, 11]]), ("size-2", [[7, 8], [9, 10], [11]])]
)
def test_chunks_are_the_output_cut_by_its_plan(plan: str | None, chunks: list[list[int]] | None) -> None:
    """An answer at once has none."""
    assert replay(plan).output == Output([7, 8, 9, 10, 11], chunks, 2)


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (Selection(), True),
        (Selection(sets=("common",)), True),
        (Selection(sets=("bfcl-*",)), False),
        (Selection(cases=("tools-*",)), True),
        (Selection(cases=("render/common/*",)), True),
        (Selection(cases=("common/*",)), False),
        (Selection(cases=("text-*", "tools-history-a")), True),
        (Selection(sets=("bfcl-*",), cases=("tools-*",)), False),
    ],
)
def test_patterns_choose_cases(selection: Selection, chosen: bool) -> None:
    """By set, and by the whole id or the name."""
    assert selection.of_case("render/common/tools-history-a") is chosen


@pytest.mark.parametrize(
    ("selection", "mode", "plan", "chosen"),
    [
        (Selection(), "stream", "whole", True),
        (Selection(plans=("random-*",)), "stream", "whole", False),
        (Selection(plans=("random-*",)), "stream", "random-3", True),
        (Selection(plans=("random-*",)), "full", None, True),
        (Selection(modes=("stream",)), "full", None, False),
        (Selection(modes=("full",)), "stream", "whole", False),
    ],
)
def test_patterns_choose_plans(selection: Selection, mode: str, plan: str | None, chosen: bool) -> None:
    """A pattern of plans says nothing about answers at once; a mode does."""
    assert selection.of_mode(mode, plan) is chosen
