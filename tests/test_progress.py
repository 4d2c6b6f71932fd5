"""Progress of long work, on a terminal and elsewhere."""

from __future__ import annotations

import sys

import pytest

from bellwether.progress import EVERY_SECONDS, Line, Progress, say


def test_a_line_moves_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text takes the place of what stood there, within the width; nothing is left of it afterwards."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    line = Line("toy")
    line.show("one")
    line.show("x" * 40)
    line.clear()
    assert capsys.readouterr() == ("", "\r\x1b[Ktoy: one\r\x1b[Ktoy: " + "x" * 14 + "\r\x1b[K")


def test_elsewhere_a_line_is_written_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    """In a log: whole lines, none before the first interval is over."""
    times = iter([0.0, 1.0, EVERY_SECONDS, EVERY_SECONDS, EVERY_SECONDS + 1, 2 * EVERY_SECONDS, 2 * EVERY_SECONDS])
    line = Line("toy", lambda: next(times))
    for text in ("one", "two", "three", "four"):
        line.show(text)
    line.clear()
    assert capsys.readouterr() == ("", "toy: two\ntoy: four\n")


def test_on_a_terminal_what_is_said_takes_the_place_of_a_line_that_moves(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line may be another process's, and longer."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    times = iter([0.0, 1.0, 1.0, 2.0])
    progress = Progress("toy", 4, lambda: next(times))
    progress.advance(2)
    say("one")
    progress.finish()
    assert capsys.readouterr().err == "\r\x1b[Ktoy: 2 of 4 cases, 2/s\r\x1b[Kone\n\r\x1b[Ktoy: 2 of 4 cases, 1/s\n"
