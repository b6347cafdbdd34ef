"""How long each query may wait, given that windows must hold event times back to range and wait.

**Idea.** A query that answers for a range W after waiting K needs windows of height W + K; all queries on a stream
share its tuples, so memory is a function of the greatest heights alone. If all K that the promises ask for fit, they
stand: with memory ample this chooses nothing. So they do if windows can take turns. Else as many promises as can be are
kept, by priority, those first that take least; the other queries get what is left where it betters their accuracy most
per byte, each with the least K, then the widest window, that gives as much.

The order is greedy, where the heights of many streams would be a knapsack: on one stream, where all that counts is the
greatest height, it is the best choice; on several no proof is given.

**Source.** papers/05. K fixed (whatever is chosen here) leaves papers/01 as it is; M ample leaves papers/04's K.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidegate.operators.accuracy.slack import rounded_up
from tidegate.operators.accuracy.support import SHARES, Support
from tidegate.operators.window_sizing.joint import Reaches, mean_bound_bytes
from tidegate.operators.window_sizing.needs import Needs, QueryNeed, WindowNeed

_LEFT_FREE = 0.05
"""Where waits must be cut, so much of M is left for what comes to be more than came of late."""


@dataclass(frozen=True, eq=False)
class Want:
    """What a query would have.

    ``ranges_s``: stream → range. ``slack_s``: K that its promise asks for. ``share``: of its ranges, the least with
    which the promise is kept. ``support``: what is known of its past; None without a promise. ``delay_s``: EVERY.
    ``longest_wait_s``: how long its answers wait for the last time, whatever K is; 0: K.
    """

    query: str
    ranges_s: Mapping[str, float]
    slack_s: float
    share: float
    support: Support | None
    delay_s: float
    priority: int = 0
    longest_wait_s: float = 0.0


@dataclass(frozen=True)
class Wait:
    """What a query gets: K and the share of its ranges that is foreseen.

    ``limited``: whether K is less than its promise asks for. ``bytes_needed``: what all windows would take with that K,
    and the share that keeps the promise, the other queries as chosen.
    """

    slack_s: float
    share: float
    limited: bool
    bytes_needed: float


Heights = Mapping[str, int]
"""Stream → height in microseconds."""


@dataclass(frozen=True)
class Room:
    """Memory, and what heights take of it: ``bytes_at``, (stream, height in µs) → bytes."""

    budget_bytes: float
    tick_us: int
    bytes_at: Callable[[str, int], float]

    def heights(self, want: Want, slack_s: float, share: float) -> Heights:
        """Those of the query's windows; K and the width in whole ticks each, as windows hold them."""
        until_s = max(slack_s, want.longest_wait_s) if share > 0 else slack_s
        return {s: self._ticks(share * range_s) + self._ticks(until_s) for s, range_s in want.ranges_s.items()}

    def taken(self, heights: Heights) -> float:
        """The bytes of windows of these heights, together."""
        return math.fsum(self.bytes_at(stream, height_us) for stream, height_us in sorted(heights.items()))

    def rounded_up(self, slack_s: float, most_s: float) -> float:
        """A K that is as short as that to three digits, and takes no more memory."""
        return min(float(rounded_up(slack_s)), self._ticks(slack_s) / 1e6, most_s)

    def _ticks(self, seconds: float) -> int:
        ticks, rest = divmod(round(seconds * 1e6), self.tick_us)
        return int(ticks + (rest > 0)) * self.tick_us


def together(*heights: Heights) -> dict[str, int]:
    """The greatest of each stream."""
    greatest: dict[str, int] = {}
    for one in heights:
        for stream, height_us in one.items():
            greatest[stream] = max(greatest.get(stream, 0), height_us)
    return greatest


def choose_waits(wants: Sequence[Want], room: Room) -> dict[str, Wait]:
    """Query → its wait.

    **Cost.** O(q) where all fits; else O(q log q), and O(l² · s) for l queries that are limited, with s useful steps.

    **Guarantee.** No K is more than was wanted, and none depends on updates unless all fits beside them. All are those
    wanted if they fit M, over whole ranges or over the shares that keep the promises. A query is limited only if its
    promise does not fit beside those that were kept before it.

    >>> import numpy as np
    >>> days = np.arange(9.0) * 86400
    >>> support = Support(days, np.full(9, 1.0), np.ones(9), 1.0)
    >>> want = Want("late", {"s": 86400.0}, 8 * 86400.0, 1.0, support, delay_s=86400.0)
    >>> for budget_bytes in (900.0, 450.0):
    ...     room = Room(budget_bytes, 86400_000_000, lambda stream, height_us: height_us / 86400e6 * 100)
    ...     wait = choose_waits([want], room)["late"]
    ...     print(wait.slack_s / 86400, wait.limited, wait.bytes_needed)
    8.0 False 900.0
    3.0 True 900.0
    """
    with_updates, without = wants, [replace(want, longest_wait_s=0.0) for want in wants]
    # Where they do not fit beside updates, promises do not give way to them.
    for wants in (with_updates, without):
        chosen = _all_wanted(wants, room)
        if chosen is not None:
            return _told(with_updates, chosen, room)
    usable = Room(room.budget_bytes * (1 - _LEFT_FREE), room.tick_us, room.bytes_at)
    reserved: dict[str, int] = {}
    cells: dict[str, Cell] = {}
    left = []
    alone = {w.query: usable.taken(usable.heights(w, w.slack_s, w.share)) for w in wants}
    for want in sorted(wants, key=lambda w: (-w.priority, alone[w.query], w.query)):
        raised = together(reserved, usable.heights(want, want.slack_s, want.share))
        if usable.taken(raised) <= usable.budget_bytes:
            reserved, cells[want.query] = raised, (want.slack_s, want.share)
        else:
            left.append(want)
    for priority in sorted({want.priority for want in left}, reverse=True):
        own = [want for want in left if want.priority == priority]
        reserved = _spend(own, reserved, usable, cells)
    # What fits into the part that is left free is not refused for it: should more come, eviction takes from those with
    # the least priority first, which is milder than not to wait at all.
    for want in left:
        raised = together(reserved, room.heights(want, want.slack_s, want.share))
        if room.taken(raised) <= room.budget_bytes:
            reserved, cells[want.query] = raised, (want.slack_s, want.share)
    return _told(with_updates, cells, room)


Cell = tuple[float, float]
"""K in seconds, share of the ranges."""


def _all_wanted(wants: Sequence[Want], room: Room) -> dict[str, Cell] | None:
    """The K wanted, over whole ranges, over the shares that keep the promises, or in turns; None if they do not fit."""
    whole = {w.query: (w.slack_s, 1.0) for w in wants}
    least = {w.query: (w.slack_s, w.share) for w in wants}
    for cells in (whole, least):
        if room.taken(together(*(room.heights(w, *cells[w.query]) for w in wants))) <= room.budget_bytes:
            return cells
    return least if _turns_do(wants, room) else None


def _turns_do(wants: Sequence[Want], room: Room) -> bool:
    """Whether windows that take turns (level C) may do with M: by the bound that no schedule goes below."""
    needs, greatest = [], together(*(room.heights(w, w.slack_s, w.share) for w in wants))
    if len(greatest) < 2:
        return False
    for want in wants:
        exact = {s: height_us / 1e6 for s, height_us in room.heights(want, want.slack_s, want.share).items()}
        needs.append(QueryNeed(want.query, exact, 0.0, want.delay_s, priority=want.priority))
    rates = {s: room.bytes_at(s, height_us) / max(height_us / 1e6, 1e-6) for s, height_us in greatest.items()}
    windows = [WindowNeed(stream, rate) for stream, rate in rates.items()]
    tick_s = room.tick_us / 1e6
    return mean_bound_bytes(Reaches.of(Needs.of(windows, needs).in_quanta(tick_s), None, tick_s)) <= room.budget_bytes


def _spend(wants: Sequence[Want], reserved: dict[str, int], room: Room, cells: dict[str, Cell]) -> dict[str, int]:
    """Give queries what is left, step by step where it betters accuracy most per byte; the heights then reserved."""
    steps = {want.query: _steps(want, room) for want in wants}
    worth = dict.fromkeys(steps, 0.0)
    for want in wants:
        cells[want.query] = (0.0, 0.0)
    while True:
        best: tuple[float, float, float, str] | None = None
        found: tuple[Want, float, Cell, dict[str, int]] | None = None
        taken = room.taken(reserved)
        for want in wants:
            for accuracy, cell in steps[want.query]:
                gain = accuracy - worth[want.query]
                if gain <= 0:
                    continue
                raised = together(reserved, room.heights(want, *cell))
                cost = room.taken(raised) - taken
                if taken + cost > room.budget_bytes:
                    continue
                # Of equal gains a byte, whoever has least, by the smallest step; what costs nothing, by the largest.
                rate = round(gain / cost, 12) if cost > 0 else math.inf
                key = (-rate, worth[want.query], gain if cost > 0 else -gain, want.query)
                if best is None or key < best:
                    best, found = key, (want, accuracy, cell, raised)
        if found is None:
            return reserved
        want, accuracy, cell, reserved = found
        worth[want.query], cells[want.query] = accuracy, cell


def _steps(want: Want, room: Room) -> list[tuple[float, Cell]]:
    """Accuracy and cell of those that no cheaper one equals; cheapest first, of equals the least K, the widest."""
    support = want.support
    if support is None:
        return [(share, (0.0, share)) for share in SHARES[1:]]
    tried = []
    for slack_s in (room.rounded_up(s, want.slack_s) for s in support.slacks_to_try(want.slack_s)):
        for share in SHARES[1:]:
            # Before anything is known, more is better, and the range comes before the wait.
            known = support.accuracy(slack_s, share)
            accuracy = known if support.known else share * (1 + slack_s / max(want.slack_s, 1e-9)) / 2
            tried.append((room.taken(room.heights(want, slack_s, share)), -accuracy, slack_s, -share))
    steps: list[tuple[float, Cell]] = []
    for _, lost, slack_s, narrow in sorted(tried):
        if not steps or -lost > steps[-1][0] + 1e-12:
            steps.append((-lost, (slack_s, -narrow)))
    return steps


def _told(wants: Sequence[Want], cells: Mapping[str, Cell], room: Room) -> dict[str, Wait]:
    heights = {w.query: room.heights(w, *cells[w.query]) for w in wants}
    found = {}
    for want in wants:
        others = together(*(own for query, own in heights.items() if query != want.query))
        needed = room.taken(together(others, room.heights(want, want.slack_s, want.share)))
        slack_s, share = cells[want.query]
        found[want.query] = Wait(slack_s, share, slack_s < want.slack_s, needed)
    return found
