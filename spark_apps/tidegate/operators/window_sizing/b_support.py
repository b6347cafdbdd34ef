"""B-Support: every query within its error, the memory that is left spent where it mends most error."""

from __future__ import annotations

import math

import numpy as np

from tidegate.operators.window_sizing.needs import Floats, Integers, Needs, within_budget


def b_support(needs: Needs, budget_bytes: float, floors_s: Floats, quantum_s: float | None = None) -> Floats:
    """Widths at level B, seconds, one per window.

    Idea: widening window w at width y by one second costs byte_rate(w) bytes and mends one second of every query on w
    whose range exceeds y. That gain per byte only falls as y grows, so it is enough to cut every window into segments
    of constant gain, sort all segments once by gain and take them while memory lasts.

    Arguments: ``floors_s`` float64[d], widths to start from (Min_T), with Σ floor·byte_rate ≤ ``budget_bytes``;
    ``quantum_s``: widths are multiples of it (needs and floors must be, too); then the last memory goes, in order of
    gain, to whatever whole quantum still fits.

    **Cost**: O(e log e) time, O(e) space, e pairs of query and window. **Guarantee**: floor ≤ width, Σ width·byte_rate
    ≤ budget; without a quantum the weighted accumulated error is the least possible (equals the linear program's
    optimum); equal gains go to the window with the smaller id; windows of byte rate 0 get their Max_T.

    >>> from tidegate.operators.window_sizing.needs import Needs, QueryNeed, WindowNeed
    >>> windows = [WindowNeed("a", 1.0), WindowNeed("b", 1.0)]
    >>> queries = [QueryNeed("p", {"a": 10.0}, 10.0), QueryNeed("q", {"a": 8.0, "b": 5.0}, 8.0)]
    >>> needs = Needs.of(windows, queries)
    >>> b_support(needs, 11.0, needs.min_t).tolist()
    [10.0, 1.0]

    **Source**: papers/01, "B-Support" (Li & Zhang 2004, 4.2). Instead of a greedy step at a time, one sort; the cost of
    a step is counted from the current width, where the print counts from zero.
    """
    free = needs.byte_rate <= 0
    widths = np.where(free, np.maximum(needs.max_t, floors_s), floors_s)
    window, lower, upper = _segments_by_gain(needs, floors_s)
    left = budget_bytes - needs.bytes_of(floors_s)
    cost = (upper - lower) * needs.byte_rate[window]
    whole = int(np.searchsorted(np.cumsum(cost), left, side="right"))
    np.maximum.at(widths, window[:whole], upper[:whole])
    if whole < len(window):
        left -= math.fsum(cost[:whole].tolist())
        if quantum_s is None:
            last = window[whole]
            widths[last] = min(lower[whole] + max(left, 0.0) / needs.byte_rate[last], upper[whole])
        else:
            _spend_quanta(needs, widths, left, window[whole:], upper[whole:], quantum_s)
    return within_budget(needs, widths, floors_s, budget_bytes)


def _segments_by_gain(needs: Needs, floors_s: Floats) -> tuple[Integers, Floats, Floats]:
    """Window, lower and upper width of every segment, dearest gain first."""
    order = np.lexsort((needs.range_s, needs.entry_window))
    window = needs.entry_window[order]
    upper = np.maximum(needs.range_s[order], floors_s[window])
    first = np.ones(len(order), dtype=bool)
    first[1:] = window[1:] != window[:-1]
    lower = np.where(first, floors_s[window], np.roll(upper, 1))
    # Weight of the queries that a segment helps: its own and all wider ones on the same window.
    from_here = np.cumsum(needs.weight[needs.entry_query[order]][::-1])[::-1]
    after_window = np.append(from_here[np.flatnonzero(first)][1:], 0.0)
    helped = from_here - after_window[np.cumsum(first) - 1] if len(order) else from_here
    kept = np.flatnonzero((upper > lower) & (needs.byte_rate[window] > 0))
    window, lower, upper = window[kept], lower[kept], upper[kept]
    with np.errstate(over="ignore"):  # next to nothing a second: an infinite gain goes first, as it should
        gain = helped[kept] / needs.byte_rate[window]
    # Rounding must not let a wider segment of a window overtake a narrower one: the gain only falls.
    by_gain = np.lexsort((lower, needs.id_rank[window], -gain))
    return window[by_gain], lower[by_gain], upper[by_gain]


def _spend_quanta(needs: Needs, widths: Floats, left: float, window: Integers, upper: Floats, quantum_s: float) -> None:
    """Widen in place by whole quanta, in order of gain; a window that does not get all of a segment gets no more."""
    stopped: set[int] = set()
    for w, top in zip(window.tolist(), upper.tolist(), strict=True):
        if w in stopped:
            continue
        quantum_bytes = quantum_s * needs.byte_rate[w]
        wanted = round((top - widths[w]) / quantum_s)
        # Compared before it is divided: at next to no bytes a second the quotient is infinite.
        quanta = wanted if left >= wanted * quantum_bytes else max(math.floor(left / quantum_bytes), 0)
        widths[w] += quanta * quantum_s
        left -= quanta * quantum_bytes
        if quanta < wanted:
            stopped.add(w)
