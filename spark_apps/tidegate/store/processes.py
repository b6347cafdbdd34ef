"""Whether a process that has left its number somewhere is still at work."""

from __future__ import annotations

import psutil  # type: ignore[import-untyped]

_SAME_S = 0.001


def is_running(process: int, began_s: float) -> bool:
    """Whether the process of this machine with that number is the one that began then (seconds since 1970)."""
    try:
        return bool(abs(psutil.Process(process).create_time() - began_s) < _SAME_S)
    except psutil.Error:
        return False
