"""Which cases of a batch begin or end a conversation, also where a conversation reaches beyond the batch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

BEFORE, AFTER = "request_before", "request_after"
"""Keys of a batch's first and last case: the request, as JSON text, of the case before and after the batch."""

Case = dict[str, Any]


def with_neighbours(batches: Iterable[list[Case]]) -> Iterator[list[Case]]:
    """Yield `batches`, none of them empty, with BEFORE and AFTER where there is such a case. One is read ahead."""
    before: Case = {}
    for cases, following in pairwise(chain(batches, [[]])):
        after = {AFTER: following[0]["request"]} if following else {}
        first, *rest = [*cases[:-1], cases[-1] | after]
        yield [first | before, *rest]
        before = {BEFORE: cases[-1]["request"]}


def conversation_ends(cases: Sequence[Case], requests: Sequence[dict[str, Any]]) -> list[int]:
    """Return the places of the first and the last case of each conversation, in order.

    A conversation is a run of requests each of which has all messages of the one before and more; a request alone is
    none. `requests` are those of `cases`. Without a neighbour a batch is taken for all there is.
    """
    if not cases:
        return []

    def goes_on(before: list, after: list) -> bool:
        return 0 < len(before) < len(after) and after[: len(before)] == before

    own = [request["messages"] for request in requests]
    beside = [_messages(cases[0].get(BEFORE)), *own, _messages(cases[-1].get(AFTER))]
    continues = [goes_on(before, after) for before, after in pairwise(beside)]
    return [place for place, pair in enumerate(pairwise(continues)) if pair[0] != pair[1]]


def _messages(request: str | None) -> list:
    return json.loads(request)["messages"] if request is not None else []
