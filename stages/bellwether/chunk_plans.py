"""Chunk plans: how an output's token ids are cut into the chunks an engine streams. Generated, never stored.

Names and lengths are a contract with consumers of the JSON Lines tree; the random plans are CPython's Mersenne Twister,
whose sequence has been stable since Python 3.2.
"""

from __future__ import annotations

import random

SIZES = (2, 3, 5, 7, 11, 23)
SPLITS_UP_TO = 32
"""Outputs of at most this many ids are also cut in two at every place."""
RANDOM_SEEDS = range(1, 31)
RANDOM_LONGEST = 8
FEW = frozenset({"whole", "per_token", "size-3"})
"""Plans for a release that is there to show what moved since: that is seen at once, and most of the time with an engine
or a gateway goes into streams."""


def chunk_plans(length: int) -> dict[str, list[int]]:
    """Return plan name → chunk lengths for `length` ids, in the order of the contract. Each plan sums to `length`.

    Raises:
        ValueError: `length` is below 1; an empty output has no plan.
    """
    if length < 1:
        raise ValueError(f"an output of {length} ids has no chunk plan")
    plans = {"whole": [length], "per_token": [1] * length}
    for size in SIZES:
        if size < length:
            full, rest = divmod(length, size)
            plans[f"size-{size}"] = [size] * full + ([rest] if rest else [])
    if length <= SPLITS_UP_TO:
        plans |= {f"split-{first}": [first, length - first] for first in range(1, length)}
    return plans | {f"random-{seed}": _random(length, seed) for seed in RANDOM_SEEDS}


def _random(length: int, seed: int) -> list[int]:
    draw = random.Random(seed)
    plan, left = [], length
    while left:
        plan.append(min(draw.randint(1, RANDOM_LONGEST), left))
        left -= plan[-1]
    return plan
