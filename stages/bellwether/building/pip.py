"""pip, run beside this process: its own settings hold, its chatter does not reach the user, its errors do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bellwether.errors import MaterialError

TETHER = Path(__file__).resolve().parents[2] / "environments" / "tether.py"
STALLED_SECONDS = 600.0
"""pip is ended when it says nothing and writes nothing for so long."""
LOOK_SECONDS = 0.5
LOCAL = re.compile(r"[A-Za-z0-9._-]+==[0-9A-Za-z.!]+\+cpu")

Tell = Callable[[Sequence[str], int], None]
"""Is told now and then what pip said so far, and the most bytes the watched folder held."""


def run(
    arguments: Sequence[str], name: str, folder: Path, tell: Tell, variables: Mapping[str, str] | None = None
) -> None:
    """Run pip, which fills `folder`, for the environment `name`. It never outlives this process.

    Raises:
        MaterialError: pip fails, or does nothing for `STALLED_SECONDS`. The next step is about its complaint.
    """
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), *pip],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **(variables or {})},
    )
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(process.stdout), daemon=True)
    reader.start()
    try:
        stalled = not _ends(process, said, folder, tell)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        reader.join()
        process.stdout.close()
    if stalled:
        raise _error(name, [f"error: nothing happened for {STALLED_SECONDS:g} s"])
    if process.returncode:
        raise _error(name, said)


def size(folder: Path) -> int:
    """Return how many bytes the files below a folder hold; files that come and go meanwhile are no matter."""
    total = 0
    for where, _, files in os.walk(folder):
        for file in files:
            try:
                total += Path(where, file).lstat().st_size
            except OSError:
                continue
    return total


def _ends(process: subprocess.Popen, said: list[str], folder: Path, tell: Tell) -> bool:
    """Wait, and return whether it ended by itself."""
    before, moved, wait, largest = (-1, -1), time.monotonic(), LOOK_SECONDS, 0
    while True:
        try:
            process.wait(wait)
            return True
        except subprocess.TimeoutExpired:
            begin = time.monotonic()
        now = (len(said), size(folder))
        if now != before:
            before, moved = now, begin
        if begin - moved > STALLED_SECONDS:
            return False
        largest = max(largest, now[1])
        tell(tuple(said), largest)
        wait = max(LOOK_SECONDS, 10 * (time.monotonic() - begin))  # looking costs a tenth of the time at most


def _error(name: str, said: Sequence[str]) -> MaterialError:
    lines = [line.strip() for line in said if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    complaint = "; ".join(errors[:4] or lines[-1:] or ["pip says nothing"])
    if "No space left" in complaint or "Disk quota" in complaint:
        step = "Free some space, and run again; what is downloaded is kept."
    elif build := LOCAL.search(complaint):
        step = (
            f"Give pip a source that has {build[0]}, a build without CUDA: PyTorch's index of CPU builds, or a folder "
            "with its wheel, as `extra-index-url` or `find-links` in pip's own settings; then run again."
        )
    else:
        step = "Give pip a registry or a mirror that has these packages (pip's own settings), and run again."
    return MaterialError(f"the environment {name} cannot be built: {complaint}", next_step=step)
