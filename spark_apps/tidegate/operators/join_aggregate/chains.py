"""A schedule cut into chains of windows that never move back, in which a tuple is seen from one window to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.operators.join_aggregate.tuples import Tuples
from tidegate.operators.schedule import NEVER_US, Int64s, Schedule

# Far before all times, and yet differences to it do not overflow.
BEFORE_ALL_US = -(2**62)
# A chain that gets no window for so long has ended: it would hold back what the others have long taken in.
LONGEST_GAP = 64


@dataclass(frozen=True, eq=False)
class Bounds:
    """Consecutive windows of one chain, and as much as matters of the windows before and behind them.

    Args:
        index: int64[n], the windows' places in the schedule.
        emit_us: int64[n + 1], instants of the answers; the first is that of the window before (or BEFORE_ALL_US).
        end_us: int64[n + 1], ends, alike.
        lower_us: per side int64[n + 1], starts; the last is that of the window behind (or NEVER_US).
    """

    index: Int64s
    emit_us: Int64s
    end_us: Int64s
    lower_us: tuple[Int64s, ...]
    _left: dict[tuple[int, int], Int64s] = field(default_factory=dict)

    def __len__(self) -> int:
        """Count the windows."""
        return len(self.index)

    def entered(self, part: Tuples) -> Int64s:
        """First window that may see a tuple: −1 for the one before, n for none of these."""
        cuts = np.searchsorted(part.arrival_us, self.emit_us, side="right")
        by_arrival = np.repeat(np.arange(-1, len(cuts)), np.diff(cuts, prepend=0, append=len(part)))
        if part.latest_us < self.end_us[0]:
            return by_arrival
        by_event = places(self.end_us, part)
        by_event -= 1
        return np.maximum(by_arrival, by_event, out=by_event)

    def left(self, side: int, part: Tuples) -> Int64s:
        """First window that no longer sees a tuple: n for the one behind, n + 1 for none up to there."""
        if (side, id(part)) not in self._left:
            self._left[side, id(part)] = places(self.lower_us[side], part)
        return self._left[side, id(part)]


def places(bounds_us: Int64s, part: Tuples) -> Int64s:
    """``rank`` of a part's event times."""
    if not part.in_order:
        return rank(bounds_us, part.event_us)
    cuts = np.searchsorted(part.event_us, bounds_us)
    return np.repeat(np.arange(len(cuts) + 1), np.diff(cuts, prepend=0, append=len(part)))


def rank(bounds_us: Int64s, times_us: Int64s) -> Int64s:
    """How many of the ascending bounds are at most each time. **Cost**: O(1) each if the bounds are evenly spaced."""
    steps = np.diff(bounds_us)
    if len(steps) > 1 and steps[0] > 0 and (steps == steps[0]).all():
        ranks: Int64s = times_us - (bounds_us[0] - steps[0])
        ranks //= steps[0]
        np.clip(ranks, 0, len(bounds_us), out=ranks)
        return ranks
    if len(steps) > 2 and steps[1] > 0 and (steps[1:] == steps[1]).all():  # the first is BEFORE_ALL_US
        ranks = rank(bounds_us[1:], times_us)
        ranks += times_us >= bounds_us[0]
        return ranks
    if len(steps) > 2 and steps[0] > 0 and (steps[:-1] == steps[0]).all():  # the last is NEVER_US
        ranks = rank(bounds_us[:-1], times_us)
        ranks += times_us >= bounds_us[-1]
        return ranks
    return np.asarray(np.searchsorted(bounds_us, times_us, side="right"))


def cut(schedule: Schedule, aliases: Sequence[str]) -> Int64s:
    """The chain that each window belongs to.

    **Idea.** Instants of answers ascend. Where ends and lower bounds do so too, the windows that see a tuple follow
    upon each other. They do not when the slack falls (a later window is answered first), so the windows are dealt to
    as few chains as it takes: each to the chain that ends nearest before it.

    Returns:
        int64[n], numbered as they begin.

    **Cost**: O(n), vectorised if one chain is enough; otherwise O(n · chains in use), window by window.

    >>> falling = Schedule.from_ticks(np.array([10, 20, 30, 40]), np.array([25, 25, 1, 1]), {"a": 10})
    >>> falling.window_end_us.tolist(), cut(falling, ["a"]).tolist()
    ([30, 10, 40, 20], [0, 1, 0, 1])
    """
    bounds = np.column_stack([schedule.window_end_us, *(schedule.lower_us[alias] for alias in aliases)])
    if (np.diff(bounds, axis=0) >= 0).all():
        return np.zeros(len(schedule), dtype=np.int64)
    chains = np.empty(len(schedule), dtype=np.int64)
    last: dict[int, tuple[int, tuple[int, ...]]] = {}
    begun = 0
    for window, row in enumerate(map(tuple, bounds.tolist())):
        last = {chain: item for chain, item in last.items() if window - item[0] <= LONGEST_GAP}
        fitting = [
            (reached, chain)
            for chain, (_, reached) in last.items()
            if all(a <= b for a, b in zip(reached, row, strict=True))
        ]
        chain = max(fitting)[1] if fitting else begun
        begun = max(begun, chain + 1)
        last[chain] = (window, row)
        chains[window] = chain
    return chains


def blocks(arrival_us: Int64s, schedule: Schedule, first: int, complete: int, rows: int) -> Iterator[tuple[int, int]]:
    """Cut the windows first … complete − 1 so that about ``rows`` of the arrivals come in before the answers of each.

    Yields:
        (number of arrivals up to the last answer of the block, window behind the block).
    """
    arrived = np.searchsorted(arrival_us, schedule.emit_us[first:complete], side="right")
    taken, window = 0, first
    while window < complete:
        upto = int(np.searchsorted(arrived, taken + rows, side="right"))
        window = min(max(first + upto, window + 1), window + rows, complete)
        taken = int(arrived[window - 1 - first])
        yield taken, window


def next_bounds(
    schedule: Schedule, aliases: Sequence[str], windows: Int64s, before: int | None, behind: int | None
) -> Bounds:
    """The bounds of some windows of a chain; ``before`` is the last one answered, ``behind`` the next one to come."""

    def with_before(values: Int64s) -> Int64s:
        return np.concatenate(([BEFORE_ALL_US if before is None else values[before]], values[windows]))

    def with_behind(values: Int64s) -> Int64s:
        return np.concatenate((values[windows], [NEVER_US if behind is None else values[behind]]))

    return Bounds(
        windows,
        with_before(schedule.emit_us),
        with_before(schedule.window_end_us),
        tuple(with_behind(schedule.lower_us[alias]) for alias in aliases),
    )
