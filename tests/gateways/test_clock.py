"""A gateway's clock: where it was set, its answers say so."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest

from bellwether.errors import GatewayError
from bellwether.gateways import clock as module
from bellwether.gateways.clock import clock, on_the_day

MOMENT = datetime(2026, 1, 15, 12)
NOW = "import time, datetime; print(datetime.datetime.now().date(), time.monotonic() > 0)"


@pytest.mark.parametrize(
    ("date", "is_that_day"),
    [
        ("Thu, 15 Jan 2026 12:00:01 GMT", True),
        ("Fri, 16 Jan 2026 00:00:00 GMT", False),
        ("Thu, 15 Jan 2026 23:30:00 -0100", False),
        ("yesterday", False),
    ],
)
def test_the_day_stands_in_the_answer(date: str, is_that_day: bool) -> None:
    """In UTC, which is what the moment is in."""
    assert on_the_day(MOMENT, {"date": date}) is is_that_day


def test_an_answer_without_a_date_proves_nothing() -> None:
    """HTTP asks servers to say it, and some do not."""
    assert not on_the_day(MOMENT, {})


@pytest.mark.skipif(sys.platform != "linux", reason="a library for Linux")
def test_a_process_believes_it() -> None:
    """Any program: the library is loaded before it."""
    told = subprocess.run([sys.executable, "-c", NOW], env=clock(MOMENT, print), capture_output=True, text=True)
    assert told.stdout.split() == ["2026-01-15", "True"]
    assert datetime.now(UTC).date() != MOMENT.date()


def test_elsewhere_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than believed."""
    monkeypatch.setattr(module, "LIBRARY", "none")
    with pytest.raises(GatewayError, match="cannot be set on this system"):
        clock(MOMENT, print)
