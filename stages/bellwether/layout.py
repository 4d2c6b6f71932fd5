"""Where things lie in a checkout."""

from __future__ import annotations

from pathlib import Path

RECORDED = ("render", "parse", "tokens")
"""Folders of a checkpoint that hold a reference table; each is named like the stage that writes it."""


def pins_folder(root: Path, corpus: str) -> Path:
    """What Git holds of a corpus: its pins, or its hand-written lines."""
    return root / "corpus" / corpus


def corpus_folder(root: Path, corpus: str) -> Path:
    """The tables of one imported corpus."""
    return root / "corpus" / "imported" / corpus


def checkpoint_folder(root: Path, slug: str) -> Path:
    """Everything about one checkpoint."""
    return root / "fixtures" / slug


def inputs_folder(root: Path, slug: str) -> Path:
    """The checkpoint's oracle inputs, shaped like a Hub snapshot."""
    return checkpoint_folder(root, slug) / "inputs"


def materials_table(root: Path, slug: str) -> Path:
    """What is proved of each of the checkpoint's files."""
    return checkpoint_folder(root, slug) / "materials.parquet"


def reference_table(root: Path, slug: str, recorded: str) -> Path:
    """The references of one of RECORDED; `provenance.json` lies beside it."""
    return checkpoint_folder(root, slug) / recorded / "reference.parquet"


def witness_table(root: Path, name: str, slug: str) -> Path:
    """The answers of the engine release `name` for one checkpoint; their provenance, `<slug>.json`, lies beside it."""
    return root / "fixtures" / "witnesses" / name / f"{slug}.parquet"


def observation_table(root: Path, target: str, slug: str) -> Path:
    """What the gateway `target` did with the cases, for one checkpoint; the provenance, `<slug>.json`, lies beside
    it."""
    return root / "fixtures" / "observations" / target / f"{slug}.parquet"


def second_references_folder(root: Path) -> Path:
    """The chat templates of the second references, `<name>.jinja`."""
    return root / "fixtures" / "second-references"
