"""A-Support: every query exact, what is left of the memory shared out for queries to come."""

from __future__ import annotations

import numpy as np

from tidegate.operators.window_sizing.needs import LARGEST, Floats, Needs, floor_to, within_budget


def a_support(needs: Needs, budget_bytes: float, quantum_s: float | None = None) -> Floats:
    """Widths at level A, seconds, one per window.

    Idea: each window gets Max_T; the left-over *memory* goes to the windows in proportion to Max_T, since a stream
    with wide queries is likely to get more of them. A window that reaches its cap refuses the rest, which goes to the
    others in the same proportion (water-filling: windows in the order in which they fill up).

    Arguments: ``needs`` with Σ Max_T·byte_rate ≤ ``budget_bytes``; ``quantum_s``: widths are multiples of it (the
    needs must be, too: :meth:`Needs.in_quanta`).

    **Cost**: O(d log d). **Guarantee**: width ≥ Max_T, Σ width·byte_rate ≤ budget; surplus never passes a cap;
    windows of byte rate 0 get their Max_T.

    >>> from tidegate.operators.window_sizing.needs import Needs, QueryNeed, WindowNeed
    >>> windows = [WindowNeed("a", 1.0), WindowNeed("b", 2.0)]
    >>> a_support(Needs.of(windows, [QueryNeed("q", {"a": 10.0, "b": 30.0})]), 110.0).tolist()
    [20.0, 45.0]

    **Source**: papers/01, "A-Support" (Li & Zhang 2004, 4.1); caps and zero rates are settled there, not in the paper.
    """
    max_t = needs.max_t
    widths = max_t.copy()
    takers = np.flatnonzero((needs.byte_rate > 0) & (max_t > 0))
    room = np.maximum(np.minimum(needs.cap_s[takers], LARGEST) - max_t[takers], 0.0) * needs.byte_rate[takers]
    left = budget_bytes - needs.bytes_of(max_t)
    by_filling = np.argsort(room / max_t[takers], kind="stable")
    still_to_come = np.cumsum(max_t[takers][by_filling][::-1])[::-1]
    for i, proportion in zip(by_filling, still_to_come, strict=True):
        if left <= 0:
            break
        window = takers[i]
        given = min(left * max_t[window] / proportion, room[i])
        widths[window] = min(max_t[window] + given / needs.byte_rate[window], max(needs.cap_s[window], max_t[window]))
        left -= given
    if quantum_s is not None:
        widths = np.maximum(floor_to(widths, quantum_s), max_t)
    return within_budget(needs, widths, max_t, budget_bytes)
