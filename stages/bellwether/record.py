"""Stage `record`: what the reference code of one checkpoint makes of every case.

| table | holds |
|---|---|
| render | the prompt every render case gets from the checkpoint's chat template, or its vendor's encoder |
| parse | the engine output the round trip proves for every parse case |
| tokens | ids of every tokenize case, streamed pieces of every detokenize case |

One stage for the three, because loading a checkpoint takes longer than most of what is recorded with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bellwether.recording import Recording, Table, record

TABLES = {
    "render": Table("render", ("render",), "bellwether.oracles.render"),
    "parse": Table("parse", ("parse",), "bellwether.oracles.parse"),
    "tokens": Table("tokens", ("tokenize", "detokenize"), "bellwether.oracles.tokens"),
}


def main(root: Path, slug: str, jobs: int | None = None, tables: Sequence[str] = tuple(TABLES)) -> dict[str, int]:
    """Record the `tables` of one checkpoint and return table → number of rows. Raises what `record` raises."""
    return record(Recording(root, slug, tuple(TABLES[name] for name in tables)), jobs)
