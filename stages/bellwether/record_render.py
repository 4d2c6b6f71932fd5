"""Stage `record-render`: the prompt every render case gets from the checkpoint's own chat template."""

from __future__ import annotations

from pathlib import Path

from bellwether.recording import Recording, record


def main(root: Path, slug: str, jobs: int | None = None) -> int:
    """Record the render references of one checkpoint and return the number of rows. Raises what `record` raises."""
    return record(
        Recording(
            root=root,
            slug=slug,
            kinds=("render",),
            oracle="bellwether.oracles.render",
            recorded="render",
        ),
        jobs,
    )
