"""The better problem of level C: windows swing as far as they may, their ramps staggered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tidegate.operators.window_sizing.needs import Floats, Needs, floor_to
from tidegate.operators.window_sizing.ramps import Ramps, best_ramps, saving_estimate

Classes = list[tuple[float, list[int]]]

_PASSES = 6


@dataclass(frozen=True, eq=False)
class Reaches:
    """How far each window may swing with a given period.

    Idea: all queries whose tolerable width exceeds what is always held answer at the slots' ends, so the period must be
    at most the delay of each. With period P a window may therefore swing D ≤ min(P, Min_T − widest tolerable width of
    the queries with a delay below P). Between the delays at which that limit falls, a longer period is the better.

    ``steps``: per window the pairs of delay and widest tolerable width of the queries with at most that delay.
    """

    needs: Needs
    quantum_s: float | None
    steps: tuple[tuple[Floats, Floats], ...]

    @classmethod
    def of(cls, needs: Needs, always: NDArray[np.bool_] | None, quantum_s: float | None) -> Reaches:
        """The reaches; the pairs in ``always`` bool[e] never rely on a slot."""
        delay = needs.delay_s[needs.entry_query]
        # With a period of all slots one after the other nothing overlaps: a longer one is no better.
        delay = np.minimum(delay, math.fsum(needs.min_t.tolist()))
        if always is not None:
            delay = np.where(always, 0.0, delay)
        if quantum_s is not None:
            delay = floor_to(delay, quantum_s)
        order = np.lexsort((delay, needs.entry_window))
        cuts = np.searchsorted(needs.entry_window[order], np.arange(1, len(needs.window_ids)))
        steps = []
        for own in np.split(order, cuts):
            widest = np.maximum.accumulate(needs.tolerable_s[own])
            rises = np.append(widest[:1] > 0, widest[1:] > widest[:-1])
            steps.append((delay[own][rises], widest[rises]))
        return cls(needs, quantum_s, tuple(steps))

    def at(self, period_s: float) -> Floats:
        """float64[d], s: how far each window may swing with this period; 0 where it costs nothing to hold it."""
        reach = np.zeros(len(self.steps))
        for w, (delay, widest) in enumerate(self.steps):
            before = int(np.searchsorted(delay, period_s, side="left"))
            held = widest[before - 1] if before else 0.0
            if self.needs.byte_rate[w] > 0 and len(widest):
                reach[w] = min(period_s, widest[-1] - held)
        return reach

    def farthest_s(self, window: int) -> float:
        """The farthest that the window may swing with any period."""
        delay, widest = self.steps[window]
        if not len(delay) or self.needs.byte_rate[window] <= 0:
            return 0.0
        return float(np.minimum(delay, widest[-1] - np.append(0.0, widest[:-1])).max())

    @cached_property
    def best(self) -> tuple[Floats, Floats]:
        """Per window the most bytes that its swing alone saves in the mean, and the period that does it (0: none)."""
        saved, period = np.zeros(len(self.steps)), np.zeros(len(self.steps))
        for w, (delays, widest) in enumerate(self.steps):
            rate = self.needs.byte_rate[w]
            for i in range(len(delays)):
                swing = min(delays[i], widest[-1] - (widest[i - 1] if i else 0.0))
                mean = rate * swing * (1 - swing / (2 * delays[i])) if delays[i] > 0 else 0.0
                if mean > saved[w]:
                    saved[w], period[w] = mean, delays[i]
        return saved, period


def joint_ramps(reaches: Reaches) -> list[tuple[list[int], Ramps]]:
    """Windows in classes of one period each, with their slots: what saves most among what is tried.

    Idea: each class is planned by :func:`best_ramps`; peaks of classes add up, since different periods drift against
    each other. Sorted by the period that suits each window best, the classes are intervals, chosen by dynamic
    programming over an estimate of what an interval saves; then single windows move to other classes while that helps.

    **Cost**: O(d²) estimates of O(d), then per class at most 24 small linear programs. Deterministic. **Guarantee**:
    none but the exact saving of what is returned; :func:`mean_bound_bytes` bounds what any other could save.
    """
    rate = reaches.needs.byte_rate
    classes = _relocated(reaches, _intervals(reaches))
    found = []
    for period, windows in classes:
        reach = reaches.at(period)[windows]
        if reaches.quantum_s is not None:
            reach = floor_to(reach, reaches.quantum_s)
        members = [w for w, swing in zip(windows, reach, strict=True) if swing > 0]
        if len(members) > 1:
            ramps = best_ramps(rate[members], reach[reach > 0], period, reaches.quantum_s)
            if ramps.saved_bytes > 0:
                found.append((members, ramps))
    return found


def mean_bound_bytes(reaches: Reaches) -> float:
    """No schedule in which every window swings with a period of its own holds less than this at its peak.

    The peak is at least the mean, and a window with slot D and period P holds D − D²/2P less than Min_T in the mean.
    If fewer than two windows can swing there is nothing to share.
    """
    saved, _ = reaches.best
    whole = reaches.needs.bytes_of(reaches.needs.min_t)
    return whole - math.fsum(saved.tolist()) if np.count_nonzero(saved) > 1 else whole


def _estimate(reaches: Reaches, period_s: float, windows: Sequence[int], cache: dict[float, Floats]) -> float:
    if period_s not in cache:
        cache[period_s] = reaches.at(period_s)
    own = list(windows)
    return saving_estimate(reaches.needs.byte_rate[own], cache[period_s][own], period_s)


def _intervals(reaches: Reaches) -> Classes:
    """The best partition into intervals of the windows, longest period first; an interval swings with its shortest."""
    _, period = reaches.best
    able = [int(w) for w in np.lexsort((np.arange(len(period)), -period)) if period[w] > 0]
    cache: dict[float, Floats] = {}
    most = [0.0] * (len(able) + 1)
    begin = [0] * (len(able) + 1)
    for end in range(1, len(able) + 1):
        shortest = float(period[able[end - 1]])
        savings = [
            most[start] + _estimate(reaches, shortest, able[start:end], cache) if end - start > 1 else most[start]
            for start in range(end)
        ]
        begin[end] = int(np.argmax(savings))
        most[end] = savings[begin[end]]
    classes: Classes = []
    end = len(able)
    while end:
        classes.append((float(period[able[end - 1]]), able[begin[end] : end]))
        end = begin[end]
    return classes


def _relocated(reaches: Reaches, classes: Classes) -> Classes:
    """Move windows to other classes, and classes to other periods of their members, while the estimate rises."""
    cache: dict[float, Floats] = {}
    classes = [(period, list(windows)) for period, windows in classes]
    worth = [_estimate(reaches, period, windows, cache) if windows else 0.0 for period, windows in classes]
    for _ in range(_PASSES):
        before = math.fsum(worth)
        for i, (period, windows) in enumerate(classes):
            for w in list(windows):
                without = [v for v in windows if v != w]
                lost = worth[i] - (_estimate(reaches, period, without, cache) if without else 0.0)
                gains = [
                    _estimate(reaches, p, [*ws, w], cache) - worth[j] if j != i else lost
                    for j, (p, ws) in enumerate(classes)
                ]
                to = int(np.argmax(gains))
                if to != i and gains[to] > lost * (1 + 1e-9) + 1e-9 * before:
                    windows.remove(w)
                    classes[to][1].append(w)
                    worth[i] -= lost
                    worth[to] += gains[to]
            for other in sorted({float(delay) for w in windows for delay in reaches.steps[w][0] if delay > 0}):
                changed = _estimate(reaches, other, windows, cache)
                if changed > worth[i] * (1 + 1e-9):
                    classes[i], worth[i] = (other, windows), changed
                    period = other
        if math.fsum(worth) <= before * (1 + 1e-9):
            break
    return [(period, sorted(windows)) for period, windows in classes if windows]
