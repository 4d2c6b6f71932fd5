"""What is known of every set of a corpus: how many cases it has, and the sha256 of its lines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from bellwether.case import Case
from support import ROOT


def digests(items: Iterable[object]) -> list[tuple[str, ...]]:
    """Return kind, set, cases and sha256 of the lines `{"name","request"[,"message"]}`, sorted, as the tables in
    tests/expected have them."""
    counts: dict[tuple[str, str], int] = {}
    sums: dict[tuple[str, str], hashlib._Hash] = {}
    for case in items:
        if isinstance(case, Case):
            message = f',"message":{case.message}' if case.message is not None else ""
            line = f'{{"name":"{case.name}","request":{case.request}{message}}}\n'
            key = (case.kind, case.set)
            counts[key] = counts.get(key, 0) + 1
            sums.setdefault(key, hashlib.sha256()).update(line.encode())
    return [(*key, str(counts[key]), sums[key].hexdigest()) for key in sorted(counts)]


def expected_sets(corpus: str) -> list[tuple[str, ...]]:
    """Return tests/expected/<corpus>_sets.tsv: known counts and digests of every set."""
    lines = (ROOT / "tests" / "expected" / f"{corpus}_sets.tsv").read_text("utf-8").splitlines()
    return sorted(tuple(line.split("\t")) for line in lines[1:])
