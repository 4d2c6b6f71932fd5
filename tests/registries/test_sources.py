"""Registry files against their pins, in wheels and source archives."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from bellwether.errors import MaterialError, ParamsError, PinMismatch
from bellwether.registries import sources
from bellwether.registries.sources import Source, read_files, read_sources

FILES = {"pkg/names.py": b"NAMES = []\n", "pkg/models/a.py": b"a\n", "pkg/models/b.py": b"b\n"}
ASIDE = {"pkg/models/deep/c.py": b"c\n", "pkg/models/notes.md": b"n\n", "other/names.py": b"o\n"}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def folder_pin(**files: bytes) -> str:
    """By hand: the sha256 of one line per file, as `sha256sum` prints them."""
    return sha("".join(f"{sha(data)}  pkg/models/{name}.py\n" for name, data in files.items()).encode())


def wheel(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as zipped:
        for name, data in files.items():
            zipped.writestr(name, data)
    return path


def sdist(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(f"pkg-1.0/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def source(top: str = "", **changed: str) -> Source:
    pins = {"pkg/names.py": sha(b"NAMES = []\n"), "pkg/models/*.py": folder_pin(a=b"a\n", b=b"b\n")}
    return Source("engine", "pkg", top, pins | changed)


@pytest.mark.parametrize(("make", "name", "top"), [(wheel, "p.whl", ""), (sdist, "p.tar.gz", "pkg-1.0/")])
def test_pinned_files_and_folders_are_read(tmp_path, make, name, top):
    """A folder pin takes the modules directly in it: no deeper ones, no other files."""
    archive = make(tmp_path / name, FILES | ASIDE)
    assert read_files(source(top), archive) == {path: data.decode() for path, data in sorted(FILES.items())}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"pkg/names.py": b"NAMES = ['x']\n"}, "pkg/names.py: expected sha256"),
        ({"pkg/models/a.py": b"changed\n"}, r"pkg/models/\*\.py: expected sha256"),
        ({"pkg/models/new.py": b"new\n"}, r"pkg/models/\*\.py: expected sha256"),
    ],
)
def test_a_changed_or_added_file_is_a_mismatch(tmp_path, change, told):
    """A model added to the folder changes the registry as much as a changed line does."""
    with pytest.raises(PinMismatch, match=told):
        read_files(source(), wheel(tmp_path / "p.whl", FILES | change))


@pytest.mark.parametrize("gone", ["pkg/names.py", "pkg/models"])
def test_a_missing_file_is_an_error(tmp_path, gone):
    """An engine that moved its registry registers no fewer parsers: nothing is returned."""
    held = {path: data for path, data in FILES.items() if not path.startswith(gone)}
    with pytest.raises(MaterialError, match=r"p\.whl has no pkg/"):
        read_files(source(), wheel(tmp_path / "p.whl", held))


@pytest.mark.parametrize("name", ["p.whl", "p.tar.gz"])
def test_a_torn_archive_is_told(tmp_path, name):
    """A download cut short is no archive without registries."""
    make, top = (wheel, "") if name.endswith("whl") else (sdist, "pkg-1.0/")
    path = make(tmp_path / name, FILES)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(MaterialError, match="truncated or no archive"):
        read_files(source(top), path)


def test_a_file_that_claims_to_be_huge_is_not_read(tmp_path, monkeypatch):
    """A registry has kilobytes; a member of gigabytes is a decompression bomb."""
    monkeypatch.setattr(sources, "FILE_LIMIT", 4)
    with pytest.raises(MaterialError, match="more than 4"):
        read_files(source(), wheel(tmp_path / "p.whl", FILES))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[engine]\npackage = 'p'\ntop = ''", "of another shape"),
        ("[engine]\npackage = 'p'\ntop = ''\nmore = 1\n[engine.files]", "of another shape"),
        ("[engine]\npackage = 'p'\ntop = ''\n[engine.files]\n'a.py' = 'abc'", "has no sha256"),
        ("[engine", "is not TOML"),
    ],
)
def test_the_pins_are_read_strictly(tmp_path, text, told):
    """A misspelt key would leave a registry unpinned."""
    (tmp_path / "fixtures").mkdir()
    (tmp_path / "fixtures" / "registries.toml").write_text(text)
    with pytest.raises(ParamsError, match=told):
        read_sources(tmp_path)


def test_a_checkout_without_pins_is_told(tmp_path):
    """The command runs in a checkout."""
    with pytest.raises(ParamsError, match="does not exist"):
        read_sources(tmp_path)
