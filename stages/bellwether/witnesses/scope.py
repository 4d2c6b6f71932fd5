"""Which cases an engine is asked, and by which chunk plans. Drawn by hashes: the same on every machine, in any order.

| cases | asked | chunk plans |
|---|---|---|
| hand-made | all | all |
| imported | the share whose ids' hashes are lowest | `whole`, `per_token` and DRAWN more, drawn by hash; or all |

A larger share adds cases and takes none away. A case that is not asked has no row: not run is never equal.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from types import MappingProxyType

from bellwether.chunk_plans import chunk_plans
from bellwether.params import Scope

HANDMADE = "handmade"
"""The corpus of hand-made cases."""
ALWAYS = ("whole", "per_token")
DRAWN = 3
DIGITS = 16
"""Hexadecimal digits of a hash that are compared."""


def hash_of(text: str) -> str:
    """Return the first DIGITS digits of the sha256 of `text` in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def bound(share: float) -> str:
    """Return the text below which the hashes of a share of the cases lie."""
    below = int(share * 16**DIGITS)
    return "g" if below >= 16**DIGITS else f"{below:0{DIGITS}x}"


def is_asked(case_id: str, corpus: str, scope: Scope) -> bool:
    """Return whether an engine is asked the case."""
    return corpus == HANDMADE or hash_of(case_id) < bound(scope.share)


def plans(case_id: str, corpus: str, length: int, scope: Scope) -> dict[str, list[int]]:
    """Return plan name → chunk lengths by which an output of `length` ids is streamed, in the order of chunk_plans.

    An empty output is not streamed.
    """
    if length < 1:
        return {}
    every = _every(length)
    if corpus == HANDMADE or scope.plans == "all":
        return dict(every)
    others = [name for name in every if name not in ALWAYS]
    drawn = {*ALWAYS, *sorted(others, key=lambda name: hash_of(f"{case_id} {name}"))[:DRAWN]}
    return {name: lengths for name, lengths in every.items() if name in drawn}


@functools.lru_cache(maxsize=256)
def _every(length: int) -> Mapping[str, list[int]]:
    """Keep the plans of lengths that come up again: drawing their random chunks takes longer than a parser."""
    return MappingProxyType(chunk_plans(length))
