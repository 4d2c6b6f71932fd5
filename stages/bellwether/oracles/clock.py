"""A fixed clock for chat templates. transformers gives them one function that reads the time, `strftime_now`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime

from transformers.utils import chat_template_utils

READER = "strftime_now"
"""A template that does not spell this name cannot read the clock."""


class _FixedDatetime(datetime):
    moment: datetime

    @classmethod
    def now(cls, tz: object = None) -> datetime:
        return cls.moment


@contextlib.contextmanager
def fixed_clock(moment: datetime) -> Iterator[None]:
    """Make `strftime_now` see `moment` inside the body. Does not nest, and holds for the whole process."""
    _FixedDatetime.moment = moment
    chat_template_utils.datetime = _FixedDatetime
    try:
        yield
    finally:
        chat_template_utils.datetime = datetime
