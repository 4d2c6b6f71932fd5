"""What an engine says: the ids of an output in its pieces, and the one that ends the turn."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bellwether.gateways.answer import Output
from bellwether.gateways.spoken import spoken

IDS = st.lists(st.integers(0, 9), min_size=1)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (Output([1, 2, 3], None, 9), [[1, 2, 3, 9]]),
        (Output([1, 2, 3], [[1, 2], [3]], 9), [[1, 2], [3, 9]]),
        (Output([1, 2, 3], [[1], [2], [3]], 9), [[1], [2], [3], [9]]),
        (Output([1, 2, 3], [[1, 2], [3]]), [[1, 2], [3]]),
        (Output([1], None, 9), [[1, 9]]),
        (Output([], None, 9), [[9]]),
        (Output([], [], 9), [[9]]),
    ],
)
def test_the_id_that_ends_the_turn_comes_as_in_engines(output: Output, expected: list) -> None:
    """With the last chunk; alone where every id comes alone; never where the output was cut short."""
    assert spoken(output) == expected


@given(st.lists(IDS), st.none() | st.integers(10, 19))
def test_nothing_is_added_or_lost(chunks: list[list[int]], stop: int | None) -> None:
    """And what was given stays as it is."""
    ids = list(chain.from_iterable(chunks))
    before = [list(chunk) for chunk in chunks]
    said = spoken(Output(ids, chunks, stop))
    assert list(chain.from_iterable(said)) == ids + ([] if stop is None else [stop])
    assert chunks == before
