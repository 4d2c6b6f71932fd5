"""Files and folders that appear whole or not at all: built beside their place under a name of their own, then renamed.

The name holds the process id, so two runs never write into each other's work; what a killed run left is cleared by the
next one.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WORK = re.compile(r"\.(\d+)\.(partial|old)\Z")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a path to write; it takes the place of `path` when the body ends well, and is removed when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    clear_leftovers(path)
    partial = work_name(path, "partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write `text` in UTF-8, line ends as they are, to a file that appears whole."""
    with whole_file(path) as partial:
        partial.write_bytes(text.encode())


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Give a new folder to fill; it takes the place of `folder` when the body ends well, else `folder` stays."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    clear_leftovers(folder)
    partial, old = work_name(folder, "partial"), work_name(folder, "old")
    partial.mkdir()
    try:
        yield partial
        if folder.exists():
            folder.rename(old)
        partial.rename(folder)
    finally:
        if old.exists() and not folder.exists():
            old.rename(folder)
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def work_name(path: Path, kind: str) -> Path:
    """Return this process's name beside `path`."""
    return path.with_name(f"{path.name}.{os.getpid()}.{kind}")


def clear_leftovers(path: Path) -> None:
    """Remove what processes that no longer run left beside `path`; an old folder without a new one is put back."""
    for left in path.parent.glob("*.*.*"):
        match = WORK.search(left.name)
        if match is None or left.name[: match.start()] != path.name or _runs(int(match[1])):
            continue
        if match[2] == "old" and not path.exists():
            left.rename(path)
        elif left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
