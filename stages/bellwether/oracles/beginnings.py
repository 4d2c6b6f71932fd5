"""Which places of a text still stand where they stood in the text before: what an agent sends mostly begins alike."""

from __future__ import annotations

from collections.abc import Sequence


def shared_ends(text: str, before: str, ends: Sequence[int]) -> int:
    """Return how many of `ends`, ascending lengths of beginnings of `before`, are also beginnings of `text`.

    The search halves the ends, and compares no character that it knows to be shared.
    """
    low, high, known = 0, len(ends), 0
    while low < high:
        middle = (low + high + 1) // 2
        end = ends[middle - 1]
        if text.startswith(before[known:end], known):
            low, known = middle, end
        else:
            high = middle - 1
    return low
