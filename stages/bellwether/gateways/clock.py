"""The moment a gateway's process believes it is: some write today's date into a prompt, and have no setting for it.

libfaketime stands between the process and the system's clock. It starts at the moment given and goes on from there, and
leaves alone the clock that timers go by. Whether it took hold is seen in the answers: HTTP servers say the date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from bellwether.environments import environment
from bellwether.errors import GatewayError

NAME = "clock"
LIBRARY = "libfaketime/vendor/libfaketime/src/libfaketime.so.1"


def clock(moment: datetime, say: Callable[[str], None]) -> dict[str, str]:
    """Return the environment variables that set a process's clock to `moment`, which is UTC.

    Raises:
        GatewayError: there is no such library for this system.
        MaterialError, VersionMismatch: it cannot be obtained.
    """
    library = environment(NAME, say).packages / LIBRARY
    if sys.platform != "linux" or not library.is_file():
        raise GatewayError(
            "the clock of a gateway cannot be set on this system",
            next_step="Observe it on Linux, or leave its clock alone: cases that show a date then differ.",
        )
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"@{moment:%Y-%m-%d %H:%M:%S}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "TZ": "UTC",
    }


def on_the_day(moment: datetime, headers: Mapping[str, str]) -> bool:
    """Return whether an HTTP answer was given on the day of `moment`, by the clock of who gave it."""
    try:
        return parsedate_to_datetime(headers.get("date", "")).astimezone(UTC).date() == moment.date()
    except ValueError:
        return False
