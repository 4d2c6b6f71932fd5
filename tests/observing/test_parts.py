"""An interrupted table goes on where it was, and comes out the same."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bellwether.observing import parts as room
from bellwether.observing.parts import Parts


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PART_ROWS", 2)


def rows(*numbers: int) -> list[dict]:
    return [{"case_id": f"render/common/a{number}", "kind": "render"} for number in numbers]


def test_an_interrupted_table_comes_out_the_same(tmp_path: Path) -> None:
    """Byte for byte, and no part stays."""
    whole, torn = tmp_path / "whole" / "a.parquet", tmp_path / "torn" / "a.parquet"
    parts = Parts(whole, "k")
    for numbers in ((0, 1), (2, 3), (4,)):
        parts.add(rows(*numbers))
    parts.finish()
    Parts(torn, "k").add(rows(0, 1))
    again = Parts(torn, "k")
    assert again.rows == 2
    again.add(rows(2, 3))
    again.add(rows(4))
    again.finish()
    assert torn.read_bytes() == whole.read_bytes()
    assert pq.read_table(torn)["case_id"].to_pylist() == [row["case_id"] for row in rows(0, 1, 2, 3, 4)]
    assert [path.name for path in torn.parent.iterdir()] == ["a.parquet"]


def test_parts_of_another_key_are_thrown_away(tmp_path: Path) -> None:
    """They answer another question."""
    path = tmp_path / "a.parquet"
    Parts(path, "old").add(rows(0, 1))
    assert Parts(path, "new").rows == 0
    assert Parts(path, "old").rows == 0


def test_a_part_after_a_gap_does_not_count(tmp_path: Path) -> None:
    """What is kept is the beginning."""
    path = tmp_path / "a.parquet"
    parts = Parts(path, "k")
    first, _ = parts.add(rows(0, 1)), parts.add(rows(2, 3))
    first.unlink()
    assert Parts(path, "k").rows == 0


def test_no_rows_are_a_table(tmp_path: Path) -> None:
    """A checkpoint of which nothing is asked."""
    path = tmp_path / "a.parquet"
    Parts(path, "k").finish()
    assert pq.read_table(path).num_rows == 0
