"""Wheels are fetched block by block, and what was fetched outlasts what goes wrong later."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bellwether.building import pip, wheels
from bellwether.errors import MaterialError
from processes import children
from wheel_files import wheel


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels as pip's only source."""
    folder = tmp_path / "source"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setattr(pip, "LOOK_SECONDS", 0.01)
    return folder


def test_what_is_fetched_and_how_much_is_shown(source: Path, tmp_path: Path) -> None:
    """The number is that of the package at hand; nothing is said of pip's own chatter."""
    wheel(source, "one_package", "1.0")
    wheel(source, "two", "2.0+cpu")
    shown: list[str] = []
    wheels.fetch([{"one-package": "1.0"}, {"two": "2.0+cpu"}], tmp_path / "kept", "toy", shown.append)
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {
        "one_package-1.0-py3-none-any.whl",
        "two-2.0+cpu-py3-none-any.whl",
    }
    assert shown[0].startswith("downloading 1 of 2, 0 MB so far: ")
    assert shown[-1].startswith("downloading 2 of 2, 0 MB so far: ")
    assert not [line for line in shown if "Collecting" in line or "Looking" in line or str(source) in line]


def test_blocks_before_the_one_that_fails_are_kept(source: Path, tmp_path: Path) -> None:
    """The next run asks for the rest only: the first block's source may be gone."""
    source_of_one, kept = wheel(source, "one", "1.0"), tmp_path / "kept"
    blocks = [{"one": "1.0"}, {"two": "2.0"}]
    with pytest.raises(MaterialError, match=r"two==2\.0"):
        wheels.fetch(blocks, kept, "toy", print)
    assert [path.name for path in kept.iterdir()] == ["one-1.0-py3-none-any.whl"]
    source_of_one.unlink()
    wheel(source, "two", "2.0")
    wheels.fetch(blocks, kept, "toy", print)
    assert len(wheels.found({"one": "1.0", "two": "2.0"}, kept)) == 2


def test_half_a_block_of_a_killed_run_is_removed_and_never_taken(source: Path, tmp_path: Path) -> None:
    """It lies in a folder of its own until it is whole."""
    wheel(source, "one", "1.0")
    half = tmp_path / "kept" / "part-x" / "whole"
    half.mkdir(parents=True)
    (half / "one-1.0-py3-none-any.whl").write_bytes(b"PK half")
    assert wheels.absent({"one": "1.0"}, tmp_path / "kept") == {"one": "1.0"}
    wheels.fetch([{"one": "1.0"}], tmp_path / "kept", "toy", print)
    [whole] = (tmp_path / "kept").iterdir()
    assert whole.read_bytes() == (source / whole.name).read_bytes()


def test_another_version_is_another_wheel(tmp_path: Path) -> None:
    """A local version too: a torch for CPUs is none for CUDA. Names are compared in normal form, versions by value."""
    for version in ("1.0", "1.0+cpu", "2.0"):
        wheel(tmp_path, "Some_Package", version)
    assert wheels.found({"some-package": "1.0.0"}, tmp_path) == [tmp_path / "Some_Package-1.0-py3-none-any.whl"]
    assert wheels.found({"some-package": "1.0+cpu"}, tmp_path) == [tmp_path / "Some_Package-1.0+cpu-py3-none-any.whl"]
    wheels.remove({"some-package": "1.0"}, tmp_path)
    assert wheels.absent({"some-package": "1.0"}, tmp_path) and not wheels.absent({"some-package": "2.0"}, tmp_path)


def test_pip_that_does_nothing_is_ended(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that never answers: a pipe without a writer. No process is left."""
    os.mkfifo(source / "one-1.0-py3-none-any.whl")
    monkeypatch.setattr(pip, "STALLED_SECONDS", 3)
    before = children(os.getpid())
    with pytest.raises(MaterialError, match="nothing happened for 3 s"):
        wheels.fetch([{"one": "1.0"}], tmp_path / "kept", "toy", lambda words: None)
    assert children(os.getpid()) == before


@pytest.mark.parametrize(
    ("said", "step"),
    [
        (["ERROR: Could not install: [Errno 28] No space left on device"], "Free some space"),
        (
            ["ERROR: No matching distribution found for torch==2.13.0+cpu"],
            "has torch==2.13.0+cpu, a build without CUDA",
        ),
        (["ERROR: No matching distribution found for other==1.0"], "a registry or a mirror"),
        ([], "a registry or a mirror"),
    ],
)
def test_the_next_step_is_about_the_complaint(said: list[str], step: str) -> None:
    """pip's warnings are not its errors."""
    error = pip._error("toy", ["WARNING: Location 'x' is ignored: it is neither a file nor a directory.", *said])
    assert step in error.next_step
    assert said == [] or "WARNING" not in str(error)
