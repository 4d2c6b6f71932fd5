"""NOTICE against the recorded corpora."""

from __future__ import annotations

from bellwether import notice
from support import ROOT


def test_notice_is_current():
    """Every byte of it follows from the imported tables and the pins."""
    notice.check(ROOT)
