"""Files and folders that appear whole: under errors, under leftovers of killed runs, and under two runs at once."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bellwether.tables import REQUESTS, TableWriter
from bellwether.whole import whole_file, whole_folder, work_name, write_whole

GONE = 999_999_999
"""A process id that no process has."""


def test_file_appears_when_the_body_ends_well(tmp_path: Path):
    """Until then the earlier file stays as it was."""
    write_whole(tmp_path / "a", "old")
    with whole_file(tmp_path / "a") as partial:
        partial.write_text("new")
        assert (tmp_path / "a").read_text() == "old"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "new")]


@pytest.mark.parametrize("whole", [whole_file, whole_folder])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_changes_when_the_body_fails(tmp_path: Path, whole, error):
    """The earlier file or folder stays, and nothing else does."""
    with pytest.raises(error), whole(tmp_path / "a") as partial:
        (partial / "x" if partial.is_dir() else partial).write_text("half")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_folder_is_replaced_as_a_whole(tmp_path: Path):
    """No file of the earlier folder stays in the new one."""
    for name in ("one", "two"):
        with whole_folder(tmp_path / "a") as partial:
            (partial / name).write_text(name)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["two"]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_two_writers_of_one_table_both_write_whole_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The one that ends later wins; neither writes into the other's file."""
    path = tmp_path / "t.parquet"
    with TableWriter(path, REQUESTS) as first:
        first.write_rows([{"request": "first"}])
        monkeypatch.setattr(os, "getpid", lambda: os.getppid())
        with TableWriter(path, REQUESTS) as second:
            second.write_rows([{"request": "second"}])
        assert pq.read_table(path).column("request").to_pylist() == ["second"]
    assert pq.read_table(path).column("request").to_pylist() == ["first"]
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_leftovers_of_dead_processes_go_and_those_of_running_ones_stay(tmp_path: Path):
    """Only a name of ours with the id of a process that is gone is a leftover."""
    (tmp_path / f"a.{GONE}.partial").write_text("half")
    (tmp_path / f"a.{os.getppid()}.partial").write_text("running")
    (tmp_path / f"ab.{GONE}.partial").write_text("another file's")
    write_whole(tmp_path / "a", "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"a", f"a.{os.getppid()}.partial", f"ab.{GONE}.partial"}


def test_folder_put_aside_by_a_killed_run_is_put_back(tmp_path: Path):
    """Between its two renames, a killed run leaves only the old folder; it is not lost."""
    old = tmp_path / f"a.{GONE}.old"
    old.mkdir()
    (old / "kept").write_text("kept")
    with pytest.raises(ValueError, match="no"), whole_folder(tmp_path / "a"):
        raise ValueError("no")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["kept"]


def test_names_hold_the_process(tmp_path: Path):
    """Two processes never share a work name."""
    assert work_name(tmp_path / "a", "partial").name == f"a.{os.getpid()}.partial"
