"""Conversations as cases, and the cutting into sets, on turns made by hand."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bellwether.case import Case, LeftOut, Origin, Repeat
from bellwether.corpora.conversations import Turn, Unusable, arguments_text, cases, cut_sets
from bellwether.corpora.repeats import drop_repeats

ORIGIN = Origin("toy", "hf:datasets/toy/toy@" + "0" * 40, "toy.json", "", "MIT")
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
CONVERSATION = [
    Turn("system", 0, "Be brief."),
    Turn("user", 1, "Two of them."),
    Turn("assistant", 2, calls=(("f", {"a": "é"}), ("f", {}))),
    Turn("tool", 3, results=("1", "2")),
    Turn("assistant", 4, "Done."),
    Turn("user", 5, "Once more."),
    Turn("assistant", 6, calls=(("f", {}),)),
]


def made(turns: list[Turn], tools: list | None = None) -> list[Case]:
    return cases("toy", "toy-7", ORIGIN, "7", [TOOL] if tools is None else tools, turns)


def test_every_assistant_turn_is_an_output_and_what_it_answers_a_request():
    """Names, rows and order follow the turns."""
    got = made(CONVERSATION)
    assert [(case.kind, case.name, case.row) for case in got] == [
        ("render", "toy-7-1", "7:1"),
        ("parse", "toy-7-2", "7:2"),
        ("render", "toy-7-3", "7:3"),
        ("parse", "toy-7-4", "7:4"),
        ("render", "toy-7-5", "7:5"),
        ("parse", "toy-7-6", "7:6"),
    ]
    for asked, answered in zip(got[::2], got[1::2], strict=True):
        assert asked.request == answered.request


def test_messages_are_openai_s():
    """Calls have ids in the history, numbered over the conversation, and none in the message; tools come last."""
    got = made(CONVERSATION)
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    with_letter = {"type": "function", "function": {"name": "f", "arguments": '{"a": "é"}'}}
    assert json.loads(got[1].message) == {"content": "", "tool_calls": [with_letter, call]}
    assert json.loads(got[-1].message) == {"content": "", "tool_calls": [call]}
    request = json.loads(got[-1].request)
    assert list(request) == ["messages", "tools"]
    assert request["messages"][2:5] == [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "call_0", **with_letter}, {"id": "call_1", **call}]},
        {"role": "tool", "tool_call_id": "call_0", "content": "1"},
        {"role": "tool", "tool_call_id": "call_1", "content": "2"},
    ]
    assert [case.written for case in got] == [(), (), *[("tool call ids",)] * 4]


def test_request_without_tools_has_no_key_for_them():
    """Servers refuse an empty list."""
    assert "tools" not in json.loads(made([Turn("user", 0, "a"), Turn("assistant", 1, "b")], tools=[])[0].request)


def test_assistant_turn_after_another_has_no_request_of_its_own():
    """No turn of a user or tool ends there; the output still stands."""
    got = made([Turn("user", 0, "a"), Turn("assistant", 1, "b"), Turn("assistant", 2, "c")])
    assert [(case.kind, case.row) for case in got] == [("render", "7:0"), ("parse", "7:1"), ("parse", "7:2")]


ASK = Turn("user", 0, "a")
CALL = Turn("assistant", 1, calls=(("f", {}),))


@pytest.mark.parametrize(
    ("turns", "tools", "reason"),
    [
        pytest.param([ASK, CALL, Turn("user", 2, "b")], [TOOL], "a call without a result", id="no result"),
        pytest.param([ASK, Turn("tool", 1, results=("1",))], [TOOL], "a result without a call", id="no call"),
        pytest.param([ASK, CALL, Turn("tool", 2, results=("1", "2"))], [TOOL], "2 results of 1 calls", id="too many"),
        pytest.param([ASK, CALL], [], "a call of 'f', which is not declared", id="undeclared"),
        pytest.param([ASK], [TOOL, TOOL], "two tools have one name", id="one name"),
        pytest.param([ASK], [{"name": "f"}], "a tool is no function", id="no function"),
        pytest.param([ASK], [{"type": "function", "function": {"name": ""}}], "a tool is no function", id="no name"),
        pytest.param([ASK], ["f"], "a tool is no function", id="text"),
        pytest.param([Turn("user", 0, "\ud800"), CALL], [TOOL], "a value that cannot be written", id="surrogate"),
        pytest.param(
            [ASK, CALL],
            [{"type": "function", "function": {"name": "f", "x": float("nan")}}],
            "a value that cannot be written",
            id="NaN",
        ),
    ],
)
def test_row_without_a_faithful_form_is_unusable(turns, tools, reason):
    """The reason is one of few, so that rows can be counted by it."""
    with pytest.raises(Unusable, match=reason):
        made(turns, tools)


def test_arguments_that_json_cannot_say_are_unusable():
    with pytest.raises(Unusable, match="cannot say"):
        arguments_text({"a": float("inf")})


def numbered(sizes: list[int]) -> list[Case]:
    """Return cases of rows with that many requests and outputs each."""
    return [
        Case(kind, "toy", f"toy-{row}-{turn}", ORIGIN, f"{row}:{turn}", request=f"{row}/{turn}", message="m")
        for row, size in enumerate(sizes)
        for turn in range(size)
        for kind in ("render", "parse")
    ]


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(4, 9))
def test_sets_are_cut_between_rows_and_never_too_large(sizes, limit):
    """Order stays, a row is never torn, no set is over the limit, and no set could have taken the next row as well."""
    items = numbered(sizes)
    got = list(cut_sets(items, "toy", limit))
    assert [case.name for case in got] == [case.name for case in items]
    counts = Counter((case.set, case.kind) for case in got)
    assert all(count <= limit for count in counts.values())
    of_row: dict[str, set[str]] = {}
    for case in got:
        of_row.setdefault(case.row.partition(":")[0], set()).add(case.set)
    assert all(len(sets) == 1 for sets in of_row.values())
    first = {}
    for row, (name,) in of_row.items():
        first.setdefault(name, sizes[int(row)])
    names = list(first)
    for name, following in pairwise(names):
        assert counts[name, "parse"] + first[following] > limit
    assert names == [f"toy-{number:02d}" for number in range(len(names))]


def test_repeats_name_the_set_of_the_case_that_stays():
    """What is dropped counts in no set; its case_id is the final one."""
    items = numbered([2, 2])
    twins = [Case("parse", "toy", "toy-9-0", ORIGIN, "9:0", request=items[1].request, message="m")]
    got = list(cut_sets([*drop_repeats([*items, *twins]), LeftOut("parse", "toy", "10", "torn")], "toy", 2))
    assert got[-2:] == [
        Repeat("parse", "toy-01", "toy-9-0", repeats="parse/toy-00/toy-0-0"),
        LeftOut("parse", "toy-01", "10", "torn"),
    ]
