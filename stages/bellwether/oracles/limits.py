"""Limits around a checkpoint's template: it is untrusted code of a stranger, sandboxed by transformers, bounded
here."""

from __future__ import annotations

import contextlib
import resource
import signal
from collections.abc import Iterator

from bellwether.errors import TemplateTimeout

MEMORY_BYTES = 4 << 30
"""Address space of a recording process. A sandboxed template can still multiply strings."""


@contextlib.contextmanager
def time_limit(seconds: float, what: str) -> Iterator[None]:
    """Interrupt the body after `seconds` of wall time. Works in the main thread of a process only.

    Python cannot interrupt one long operation of its own, such as a huge power; after three times `seconds` of
    processor time the system ends the process, and whoever waits for it learns of its death.

    Raises:
        TemplateTimeout: the body ran too long. `what` names the case.
    """

    def stop(signum: int, frame: object) -> None:
        raise TemplateTimeout(
            f"the chat template did not end within {seconds:g} s on {what}",
            next_step="Look for an endless loop in it; oracle.template_seconds in params.yaml sets the limit.",
        )

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_PROF, 3 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def limit_memory(limit: int = MEMORY_BYTES) -> None:
    """Bound this process's address space where the system can."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
