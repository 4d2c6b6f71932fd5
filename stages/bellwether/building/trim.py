"""What an installed environment does without: files that nothing on a CPU loads, and second copies of large files."""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from bellwether.errors import MaterialError

SHARED_BYTES = 1 << 18
"""From this size on a file is shared: there are few of them, they hold most of the bytes, and nobody edits them."""


def patterns(file: Path) -> list[tuple[int, str]]:
    """Return line number and pattern of each line of `file`, paths or globs below site-packages; '#' begins a comment.
    Without a file there are none.

    Raises:
        MaterialError: a line leaves the folder, or names a whole package.
    """
    if not file.is_file():
        return []
    found = []
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        path = PurePosixPath(line)
        if path.is_absolute() or ".." in path.parts or len(path.parts) < 2:
            raise MaterialError(f"{file}:{number}: {line!r} is not below a package", next_step="Name a part of one.")
        found.append((number, line))
    return found


def prune(packages: Path, file: Path) -> None:
    """Remove what the lines of `file` name.

    Raises:
        MaterialError: as `patterns`, or nothing is there that a line names: another release has it elsewhere.
    """
    for number, pattern in patterns(file):
        found = sorted(packages.glob(pattern))
        if not found:
            raise MaterialError(f"{file}:{number}: nothing is at {pattern!r}", next_step="Remove the line, or mend it.")
        for one in found:
            if one.is_dir() and not one.is_symlink():
                shutil.rmtree(one)
            else:
                one.unlink()


def share(packages: Path, others: Iterable[Path]) -> int:
    """Replace large files by hard links to equal ones at the same place in other environments; return the bytes saved.

    Where the system has no hard links, the copies stay.
    """
    saved = 0
    others = list(others)
    for path in sorted(packages.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.stat().st_size < SHARED_BYTES:
            continue
        for other in others:
            twin = other / path.relative_to(packages)
            if twin.is_symlink() or not twin.is_file() or twin.stat().st_size != path.stat().st_size:
                continue
            if twin.samefile(path) or not filecmp.cmp(twin, path, shallow=False):
                continue
            link = path.with_name(f"{path.name}.link")
            try:
                os.link(twin, link)
            except OSError:
                return saved
            link.replace(path)
            saved += path.stat().st_size
            break
    return saved
