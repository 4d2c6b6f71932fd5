"""Stage `record-parse`: the engine output the round trip proves for every parse case."""

from __future__ import annotations

from pathlib import Path

from bellwether.recording import Recording, record


def main(root: Path, slug: str, jobs: int | None = None) -> int:
    """Record the parse references of one checkpoint and return the number of rows. Raises what `record` raises."""
    return record(
        Recording(
            root=root,
            slug=slug,
            kinds=("parse",),
            oracle="bellwether.oracles.parse",
            recorded="parse",
        ),
        jobs,
    )
