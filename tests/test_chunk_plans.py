"""Chunk plans: the published names, counts and lengths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bellwether.chunk_plans import chunk_plans


@pytest.mark.parametrize(("length", "plans"), [(1, 32), (2, 33), (16, 52), (24, 61), (32, 69), (33, 38), (1000, 38)])
def test_number_of_plans(length, plans):
    """The published counts; 69 is the most, from 33 ids on there are no splits."""
    assert len(chunk_plans(length)) == plans


@pytest.mark.parametrize(
    ("length", "name", "plan"),
    [
        (16, "random-1", [3, 2, 5, 2, 4]),
        (16, "random-2", [1, 2, 2, 6, 3, 2]),
        (32, "random-30", [5, 1, 4, 5, 1, 7, 7, 2]),
        (5, "size-2", [2, 2, 1]),
        (5, "size-3", [3, 2]),
        (5, "random-1", [3, 2]),
        (5, "split-1", [1, 4]),
        (5, "whole", [5]),
        (3, "per_token", [1, 1, 1]),
    ],
)
def test_published_plans(length, name, plan):
    """Check values of existing consumers."""
    assert chunk_plans(length)[name] == plan


def test_order_of_names():
    """whole, per_token, sizes below the length, splits, thirty random plans."""
    names = list(chunk_plans(4))
    assert names[:7] == ["whole", "per_token", "size-2", "size-3", "split-1", "split-2", "split-3"]
    assert names[7:] == [f"random-{seed}" for seed in range(1, 31)]


@given(st.integers(1, 400))
def test_every_plan_covers_the_output(length):
    """The chunks of a plan are not empty and add up to the output."""
    for plan in chunk_plans(length).values():
        assert sum(plan) == length
        assert min(plan) > 0


def test_empty_output_has_no_plan():
    """There is nothing to cut."""
    with pytest.raises(ValueError, match="no chunk plan"):
        chunk_plans(0)
