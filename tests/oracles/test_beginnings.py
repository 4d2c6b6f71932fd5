"""How many places two texts have in common from their start on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bellwether.oracles.beginnings import shared_ends

letters = st.text("aé你", max_size=8)


@given(letters, letters, letters, st.sets(st.integers(0, 16)))
def test_counts_the_ends_that_lie_in_what_both_share(beginning, one, other, places):
    """Written out: an end counts when the two texts are equal up to it."""
    before, text = beginning + one, beginning + other
    ends = sorted(place for place in places if place <= len(before))
    assert shared_ends(text, before, ends) == sum(text[:end] == before[:end] for end in ends)


def test_text_before_may_be_longer():
    """A conversation that starts again from an earlier turn shares what is left of it."""
    assert shared_ends("ab", "abcd", [1, 2, 3, 4]) == 2
    assert shared_ends("", "abcd", [1, 4]) == shared_ends("x", "", []) == 0
