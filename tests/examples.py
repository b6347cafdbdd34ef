"""How many examples a law is tried on: all of them, or a quarter for a first look (`make test-unit`)."""

from __future__ import annotations

import os

_SHARE = float(os.environ.get("TIDEGATE_EXAMPLES", "1"))


def examples(count: int) -> int:
    """So many examples, times TIDEGATE_EXAMPLES (0.25 in `make test-unit`; above 1 to search for longer)."""
    return max(5, round(count * _SHARE))
