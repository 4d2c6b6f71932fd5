"""Ends of conversations, in a batch and across batches."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from bellwether.neighbours import AFTER, BEFORE, conversation_ends, with_neighbours

A, B, C = ({"role": "user", "content": name} for name in "abc")


def cases_of(conversations: list[list[dict]]) -> list[dict]:
    return [{"request": json.dumps({"messages": messages})} for messages in conversations]


def ends(cases: list[dict]) -> list[int]:
    return conversation_ends(cases, [json.loads(case["request"]) for case in cases])


def test_conversation_goes_on_as_long_as_all_messages_come_again_with_more():
    """A request alone is no conversation; the same request again, or one without messages, goes on with nothing."""
    cases = cases_of([[A], [A, B], [A, B, C], [B], [C], [C, A], [C, B], [C, B], [C, B, A], [], [A]])
    assert ends(cases) == [0, 2, 4, 5, 7, 8]
    assert ends(cases[1:3]) == [0, 1]
    assert ends(cases[:1]) == ends([]) == []


def test_batches_know_the_requests_beside_them():
    """The first has none before it, the last none after; a batch of one case has both; requests may be missing."""
    one, two, three, four = cases_of([[A], [B], [C], [A, B]])
    batches = list(with_neighbours([[one, two], [three], [four]]))
    assert batches == [
        [one, two | {AFTER: three["request"]}],
        [three | {BEFORE: two["request"], AFTER: four["request"]}],
        [four | {BEFORE: three["request"]}],
    ]
    assert [set(case) for case in (one, two, three, four)] == [{"request"}] * 4
    assert list(with_neighbours([])) == []
    assert list(with_neighbours([[{"request": None}], [{"request": None}]]))[1] == [{"request": None, BEFORE: None}]


@given(st.lists(st.lists(st.sampled_from([A, B]), max_size=4), max_size=12), st.integers(1, 5))
def test_ends_are_the_same_however_cases_are_cut_into_batches(conversations, size):
    """A conversation that is cut has no more ends than one that is not."""
    cases = cases_of(conversations)
    cut = with_neighbours([cases[start : start + size] for start in range(0, len(cases), size)])
    found = [number * size + place for number, batch in enumerate(cut) for place in ends(batch)]
    assert found == ends(cases)


def test_batches_are_read_one_ahead():
    """A stream stays a stream."""
    seen = []

    def batches():
        for number in range(4):
            seen.append(number)
            yield cases_of([[A]])

    stream = with_neighbours(batches())
    next(stream)
    assert seen == [0, 1]
