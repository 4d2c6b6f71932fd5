"""Which tables of an engine or a gateway are up to date, by their provenance."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from bellwether.freshness import Count, remove_others, up_to_date

TABLE = b"rows"
PROVENANCE = {
    "checkpoint": "a",
    "outcomes": {"render": {"result": 2, "refused": 1}, "parse": {"result": 3}},
    "key": "k",
    "table_sha256": hashlib.sha256(TABLE).hexdigest(),
}


def recorded(folder: Path, provenance: str = json.dumps(PROVENANCE), table: bytes = TABLE) -> Path:
    path = folder / "a.parquet"
    path.write_bytes(table)
    path.with_suffix(".json").write_text(provenance, "utf-8")
    return path


def test_a_table_of_the_same_key_and_bytes_is_up_to_date(tmp_path: Path) -> None:
    """Its count is that of all kinds together."""
    assert up_to_date(recorded(tmp_path), "k") == Count("a", Counter(result=5, refused=1), recorded=False)


@pytest.mark.parametrize(
    "provenance",
    ["", "[]", "{}", json.dumps(PROVENANCE | {"key": "other"}), json.dumps(PROVENANCE | {"outcomes": None})],
    ids=["empty", "a list", "nothing in it", "another key", "no outcomes"],
)
def test_what_its_provenance_does_not_prove_is_not(tmp_path: Path, provenance: str) -> None:
    """Whatever stands there instead is no reason to stop: the table is recorded again."""
    assert up_to_date(recorded(tmp_path, provenance), "k") is None


def test_a_table_of_other_bytes_is_not(tmp_path: Path) -> None:
    """Cut short, or edited: its sha256 is another."""
    assert up_to_date(recorded(tmp_path, table=TABLE[:-1]), "k") is None


def test_a_table_that_is_not_there_is_not(tmp_path: Path) -> None:
    """Nor is one without provenance."""
    path = recorded(tmp_path)
    path.with_suffix(".json").unlink()
    assert up_to_date(path, "k") is None
    assert up_to_date(tmp_path / "b.parquet", "k") is None


def test_tables_of_other_checkpoints_are_removed(tmp_path: Path) -> None:
    """With their provenance; what is no table stays."""
    for name in ("a.parquet", "a.json", "b.parquet", "b.json", "notes.txt", ".gitignore"):
        (tmp_path / name).write_text("")
    remove_others(tmp_path, ["a"])
    assert {path.name for path in tmp_path.iterdir()} == {"a.parquet", "a.json", "notes.txt", ".gitignore"}
