"""How many examples a law is tried on: all of them, a fifth (`make test`), or a tenth (`make test-unit`)."""

from __future__ import annotations

import os

_SHARE = float(os.environ.get("TIDEGATE_EXAMPLES", "1"))


def examples(count: int) -> int:
    """So many examples, times TIDEGATE_EXAMPLES (0.1 in `make test-unit`, 0.2 in `make test`, 5 when slow)."""
    return max(5, round(count * _SHARE))
