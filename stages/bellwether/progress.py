"""Progress of long work: one line that moves on a terminal, a line now and then elsewhere. Always to standard error.

Several processes may share a terminal: whatever is written there takes the place of the line that stands.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable

EVERY_SECONDS = 10.0
AFRESH = "\r\x1b[K"
"""To the begin of an empty line, on a terminal."""


def say(message: str) -> None:
    """Write one line to standard error."""
    print(f"{AFRESH * sys.stderr.isatty()}{message}", file=sys.stderr, flush=True)


class Progress:
    """Counts done items of `total` and shows them with the rate."""

    def __init__(self, label: str, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.label = label
        self.total = total
        self.done = 0
        self._clock = clock
        self._begin = self._shown = clock()
        self._moves = sys.stderr.isatty()

    def advance(self, count: int) -> None:
        self.done += count
        now = self._clock()
        if now - self._shown >= (0.1 if self._moves else EVERY_SECONDS):
            self._shown = now
            self._show(end="" if self._moves else "\n")

    def finish(self) -> None:
        self._show(end="\n")

    def _show(self, end: str) -> None:
        seconds = max(self._clock() - self._begin, 1e-9)
        line = f"{self.label}: {self.done:,} of {self.total:,} cases, {self.done / seconds:,.0f}/s"
        print(f"{AFRESH * self._moves}{line}", end=end, file=sys.stderr, flush=True)


class Line:
    """One changing line about one piece of work. Elsewhere than on a terminal it is written anew now and then."""

    def __init__(self, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.label = label
        self._clock = clock
        self._shown = clock()
        self._moves = sys.stderr.isatty()

    def show(self, text: str) -> None:
        text = f"{self.label}: {text}"
        if self._moves:
            width = shutil.get_terminal_size().columns - 1
            print(f"{AFRESH}{text[:width]}", end="", file=sys.stderr, flush=True)
        elif self._clock() - self._shown >= EVERY_SECONDS:
            self._shown = self._clock()
            say(text)

    def clear(self) -> None:
        """Leave the line empty on a terminal, for what is said next."""
        if self._moves:
            print(AFRESH, end="", file=sys.stderr, flush=True)
