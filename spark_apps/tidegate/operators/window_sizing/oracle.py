"""Brute force for the tests, written to be believed at sight. Nothing else imports it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tidegate.operators.window_sizing.c_support import Swings
from tidegate.operators.window_sizing.needs import Needs


def partitions(items: Sequence[int]) -> Iterator[list[list[int]]]:
    """Every partition of the items."""
    if not items:
        yield []
        return
    first, *others = items
    for partition in partitions(others):
        yield [[first], *partition]
        for i, group in enumerate(partition):
            yield [*partition[:i], [first, *group], *partition[i + 1 :]]


def least_share_bytes(swing: Swings, windows: Sequence[int]) -> float:
    """The least total share over every partition of the windows into serial groups."""
    return min(
        sum(max(float(swing.exchange_bytes[w]) for w in group) for group in partition)
        for partition in partitions(windows)
        if all(swing.serial(group) for group in partition)
    )


def greedy_b_widths(needs: Needs, budget_bytes: float) -> list[float]:
    """B-Support as the paper prints it: widen the window of the highest gain, one step at a time."""
    widths = [float(width) for width in needs.min_t]
    left = budget_bytes - needs.bytes_of(needs.min_t)
    for w, rate in enumerate(needs.byte_rate):
        if rate == 0:
            widths[w] = float(needs.max_t[w])
    while True:
        best: tuple[float, str, int, float] | None = None
        for w, window in enumerate(needs.window_ids):
            rate = float(needs.byte_rate[w])
            mine = needs.entry_window == w
            wider = mine & (needs.range_s > widths[w])
            if rate == 0 or not wider.any():
                continue
            gain = float(needs.weight[needs.entry_query[wider]].sum()) / rate
            if best is None or (-gain, window) < best[:2]:
                best = (-gain, window, w, float(needs.range_s[wider].min()))
        if best is None or left <= 0:
            return widths
        _, _, w, step_end = best
        added = min(step_end - widths[w], left / float(needs.byte_rate[w]))
        left = left - added * float(needs.byte_rate[w]) if widths[w] + added == step_end else 0.0
        widths[w] += added


def simulated_lower_us(
    plans: Sequence[tuple[int, int]], initial_lower_us: int, width_at: Callable[[int], int], start_us: int, end_us: int
) -> list[int]:
    """The lower bound at every microsecond of [start, end): evict under the old width, then under the new one."""
    lower, bounds = initial_lower_us, []
    changes = {start for start, _ in plans}
    for t in range(start_us, end_us):
        if t in changes and t > start_us:
            lower = max(lower, t - width_at(t - 1))
        lower = max(lower, t - width_at(t))
        bounds.append(lower)
    return bounds
