"""A snapshot folder against its pins."""

from __future__ import annotations

from pathlib import Path

import pytest

from bellwether.errors import InputUnavailable, PinMismatch
from bellwether.materials.pins import sha256_of, verify
from bellwether.params import InputFile, Manifest

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
"""sha256 of b"abc", as FIPS 180-2 prints it."""
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""sha256 of no bytes."""
INPUTS = {"abc.txt": ABC, "sub/empty.txt": EMPTY}
MANIFEST = Manifest(
    slug="tiny",
    model="owner/tiny",
    revision="0" * 40,
    tier=1,
    license="MIT",
    inputs=INPUTS,
    files={name: InputFile(name, sha256, "identical", "copy") for name, sha256 in INPUTS.items()},
    authority={"render": ("hf-template",), "parse": ("roundtrip",)},
    unreached={},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "abc.txt").write_bytes(b"abc")
    (tmp_path / "sub" / "empty.txt").write_bytes(b"")
    return tmp_path


def test_sha256_of_known_bytes():
    """The two best known values."""
    assert (sha256_of(b"abc"), sha256_of(b"")) == (ABC, EMPTY)


def test_a_folder_of_pinned_bytes_passes(folder: Path):
    """Every file, in sub-folders too; an empty folder beside them does not count."""
    (folder / "nothing").mkdir()
    verify(MANIFEST, folder)


def test_a_changed_byte_is_named_with_both_sha256s(folder: Path):
    """File, expected and actual; the next step lays the folder out again."""
    (folder / "abc.txt").write_bytes(b"")
    with pytest.raises(PinMismatch) as caught:
        verify(MANIFEST, folder)
    assert str(caught.value) == (
        f"{folder} is not what fixtures/tiny/manifest.toml pins\n  abc.txt: expected sha256 {ABC}, got {EMPTY}"
    )
    assert "dvc repro fixtures/dvc.yaml:inputs@tiny" in caught.value.next_step


def test_an_extra_file_is_named(folder: Path):
    """The tokenizer loader would read a file that nobody pinned."""
    (folder / "sub" / "added_tokens.json").write_bytes(b"{}")
    with pytest.raises(PinMismatch, match=r"\n  sub/added_tokens\.json: not in the manifest$"):
        verify(MANIFEST, folder)


def test_all_differences_are_listed_at_once(folder: Path):
    """Changed files in manifest order, then extra ones by name."""
    (folder / "abc.txt").write_bytes(b"abd")
    (folder / "sub" / "empty.txt").write_bytes(b"abc")
    (folder / "z").touch()
    (folder / ".hidden").touch()
    with pytest.raises(PinMismatch) as caught:
        verify(MANIFEST, folder)
    assert [line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:]] == [
        *("abc.txt", "sub/empty.txt", ".hidden", "z")
    ]


def test_a_missing_file_is_named(folder: Path):
    """That is no mismatch: the stage that lays out has not run."""
    (folder / "sub" / "empty.txt").unlink()
    with pytest.raises(InputUnavailable) as caught:
        verify(MANIFEST, folder)
    assert str(caught.value) == f"{folder / 'sub' / 'empty.txt'} is missing"
    assert "dvc repro fixtures/dvc.yaml:inputs@tiny" in caught.value.next_step


def test_a_missing_folder_is_a_missing_file(tmp_path: Path):
    """Nothing was laid out at all."""
    with pytest.raises(InputUnavailable, match=r"abc\.txt is missing"):
        verify(MANIFEST, tmp_path / "inputs")


def test_a_folder_in_a_file_s_place_is_a_missing_file(folder: Path):
    """It has no bytes to compare."""
    (folder / "abc.txt").unlink()
    (folder / "abc.txt").mkdir()
    with pytest.raises(InputUnavailable, match=r"abc\.txt is missing"):
        verify(MANIFEST, folder)
