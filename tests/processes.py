"""Processes that tests start, and wait to be gone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def alive(pid: int) -> bool:
    """Return whether a process runs; one that waits for its parent to take note of its end does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children(pid: int) -> list[int]:
    """Return the processes a process started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for(condition: Callable[[], object]) -> None:
    """Return when `condition` holds. Raises AssertionError when it does not within ten seconds."""
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("waited in vain")
