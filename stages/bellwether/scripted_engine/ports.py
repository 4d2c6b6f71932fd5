"""Ports that cannot be had."""

from __future__ import annotations

import os

from bellwether.errors import EngineError


def unbound(port: int, error: Exception) -> EngineError:
    """Return the error of a port that could not be bound."""
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return EngineError(f"port {port} of 127.0.0.1 cannot be had: {reason}", next_step="Choose another port.")
