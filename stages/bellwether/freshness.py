"""Tables of an engine or a gateway, one per checkpoint with its provenance beside it: which of them are up to date."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bellwether.materials.pins import sha256_of_file


@dataclass(frozen=True, slots=True)
class Count:
    """What one checkpoint came to."""

    slug: str
    outcomes: Counter[str]
    """Outcome → rows."""
    recorded: bool
    """False: its table was up to date."""


def count_of(provenance: dict[str, Any], *, recorded: bool) -> Count:
    """Return what the provenance of a table says."""
    outcomes: Counter[str] = Counter()
    for by_kind in provenance["outcomes"].values():
        outcomes.update(by_kind)
    return Count(provenance["checkpoint"], outcomes, recorded)


def up_to_date(table: Path, key: str) -> Count | None:
    """Return the count of a table that would come out the same, None when there is no such table.

    Args:
        table: Its provenance lies beside it, as `<slug>.json`.
        key: The sha256 over all that has a part in it.
    """
    try:
        provenance = json.loads(table.with_suffix(".json").read_text("utf-8"))
        same = provenance["key"] == key and provenance["table_sha256"] == sha256_of_file(table)
        return count_of(provenance, recorded=False) if same else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def remove_others(folder: Path, slugs: Collection[str]) -> None:
    """Remove the tables of `folder` whose checkpoints are not in `slugs`, with their provenance."""
    for path in folder.glob("*.*"):
        if path.suffix in (".parquet", ".json") and path.stem not in slugs:
            path.unlink()
