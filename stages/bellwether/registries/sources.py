"""The registry files of a package: which they are, their sha256, and their text.

`fixtures/registries.toml` pins each file an engine's registries stand in. The archive is pinned as a whole too; the
second pin is there because it names the file that changed when a release moves, and because a reader of registries is
told by it that there is something new to look at.
"""

from __future__ import annotations

import tarfile
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from bellwether.errors import MaterialError, ParamsError, PinMismatch
from bellwether.materials.pins import sha256_of
from bellwether.params import SHA256

FILE_LIMIT = 16 << 20
"""Largest registry file read, in bytes; the largest pinned one has 130 kB."""


@dataclass(frozen=True, slots=True)
class Source:
    """The registry files of one engine or gateway."""

    engine: str
    package: str
    """Name in fixtures/packages.toml."""
    top: str
    """Folder of the archive in which paths begin, with a slash at its end; empty for a wheel."""
    files: Mapping[str, str]
    """Path, or a folder and a name with `*` for all such files directly in it → sha256."""


def read_sources(root: Path) -> dict[str, Source]:
    """Return fixtures/registries.toml: engine → its registry files.

    Raises:
        ParamsError: the file is missing, is not TOML, or has an unknown, missing or malformed key.
    """
    path = root / "fixtures" / "registries.toml"
    sources = {}
    try:
        top = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ParamsError(f"{path} does not exist", next_step="Run inside a checkout, or pass --root.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParamsError(f"{path} is not TOML: {error}", next_step="Mend the file.") from None
    for engine, raw in top.items():
        where = f"{path}: [{engine}]"
        if not isinstance(raw, dict) or set(raw) != {"package", "top", "files"} or not isinstance(raw["files"], dict):
            raise ParamsError(f"{where} is of another shape", next_step="Its keys are package, top and files.")
        for name, sha256 in raw["files"].items():
            if not isinstance(sha256, str) or not SHA256.match(sha256):
                raise ParamsError(f"{where}: {name} has no sha256", next_step="Write 64 hex digits.")
        sources[engine] = Source(engine, str(raw["package"]), str(raw["top"]), raw["files"])
    return sources


def read_files(source: Source, archive: Path) -> dict[str, str]:
    """Return path → text of every registry file of `source`, each checked against its pin; paths in their own order.

    Raises:
        MaterialError: the archive is torn, lacks a file, or holds one that is too large or not UTF-8.
        PinMismatch: a file has another sha256. Names all such files.
    """
    found = dict(sorted(_members(archive, source.top, lambda path: any(_fits(path, name) for name in source.files))))
    wrong = []
    for name, expected in source.files.items():
        paths = [path for path in found if _fits(path, name)]
        if not paths:
            raise MaterialError(
                f"{archive.name} has no {source.top}{name}",
                next_step="The engine has moved it: find it, and correct fixtures/registries.toml.",
            )
        if (actual := digest({path: found[path] for path in paths}, name)) != expected:
            wrong.append(f"{name}: expected sha256 {expected}, got {actual}")
    if wrong:
        raise PinMismatch(
            f"registry files of {archive.name} differ from fixtures/registries.toml\n  " + "\n  ".join(wrong),
            next_step="Compare the releases, then pin what was looked at.",
        )
    try:
        return {path: data.decode() for path, data in found.items()}
    except UnicodeDecodeError as error:
        raise MaterialError(f"{archive.name}: a registry file is not UTF-8: {error}", next_step="Report it.") from None


def digest(files: Mapping[str, bytes], name: str) -> str:
    """Return the pin of `name`: of a file its sha256, of `folder/*.rs` the sha256 of lines `<sha256>  <path>`."""
    if "*" not in name:
        return sha256_of(files[name])
    return sha256_of("".join(f"{sha256_of(files[path])}  {path}\n" for path in sorted(files)).encode())


def _fits(path: str, name: str) -> bool:
    """Whether `path` is `name`, or lies directly in the folder of a pattern."""
    return path.rpartition("/")[0] == name.rpartition("/")[0] and fnmatchcase(path, name)


def _members(archive: Path, top: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield path below `top` and bytes of the wanted files, reading the archive once: a gzipped tar has no index."""
    try:
        if archive.name.endswith(".whl"):
            with zipfile.ZipFile(archive) as zipped:
                for info in zipped.infolist():
                    path = info.filename.removeprefix(top)
                    if info.filename.startswith(top) and wanted(path):
                        yield path, zipped.read(_within_limit(archive, info, info.file_size))
            return
        with tarfile.open(archive, "r|gz") as tar:
            for info in tar:
                path = info.name.removeprefix(top)
                if info.isreg() and info.name.startswith(top) and wanted(path):
                    stream = tar.extractfile(_within_limit(archive, info, info.size))
                    yield path, stream.read() if stream else b""
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, RuntimeError, zlib.error) as error:
        raise MaterialError(
            f"{archive.name} is truncated or no archive: {error}",
            next_step="Delete it from the download cache (`bellwether cache`) and run again.",
        ) from None


def _within_limit(archive: Path, info: zipfile.ZipInfo | tarfile.TarInfo, size: int):
    if size > FILE_LIMIT:
        raise MaterialError(
            f"a registry file of {archive.name} says it has {size:,} bytes, more than {FILE_LIMIT:,}",
            next_step="No registry is that large: distrust the archive.",
        )
    return info
