"""Progress of long work, on a terminal and elsewhere."""

from __future__ import annotations

import sys

import pytest

from bellwether.progress import EVERY_SECONDS, Line


def test_a_line_moves_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text takes the place of the one before, within the width; nothing is left of it afterwards."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    line = Line("toy")
    line.show("one")
    line.show("x" * 40)
    line.clear()
    assert capsys.readouterr() == ("", "\rtoy: one\x1b[K\rtoy: " + "x" * 14 + "\x1b[K\r\x1b[K")


def test_elsewhere_a_line_is_written_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    """In a log: whole lines, none before the first interval is over."""
    times = iter([0.0, 1.0, EVERY_SECONDS, EVERY_SECONDS, EVERY_SECONDS + 1, 2 * EVERY_SECONDS, 2 * EVERY_SECONDS])
    line = Line("toy", lambda: next(times))
    for text in ("one", "two", "three", "four"):
        line.show(text)
    line.clear()
    assert capsys.readouterr() == ("", "toy: two\ntoy: four\n")
