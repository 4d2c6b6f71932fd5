"""Stage `record-tokens`: ids of every tokenize case, streamed pieces of every detokenize case."""

from __future__ import annotations

from pathlib import Path

from bellwether.recording import Recording, record


def main(root: Path, slug: str, jobs: int | None = None) -> int:
    """Record the tokenize and detokenize references of one checkpoint and return the number of rows. Raises what
    `record` raises."""
    return record(
        Recording(
            root=root,
            slug=slug,
            kinds=("tokenize", "detokenize"),
            oracle="bellwether.oracles.tokens",
            recorded="tokens",
        ),
        jobs,
    )
