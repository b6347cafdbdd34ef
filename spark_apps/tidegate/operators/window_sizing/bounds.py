"""What a window really holds: the effective lower bound that follows from a stream's plans."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tidegate.operators.window_sizing.needs import Floats, Integers

UNBOUNDED_US = -(2**62)
"""A lower bound before all time: nothing has been evicted yet, the window counts as filled."""

NOT_YET_US = 2**62
"""A tuple that does not leave its window within the plans that are known."""


@dataclass(frozen=True, eq=False)
class EffectiveBounds:
    """The effective lower bound of one stream's window as a step function of time.

    Idea: a plan's width is a target. At t the window holds event times from ``lower(t)`` on, and what has been evicted
    is gone: the bound never moves back. Within one plan of width w it is max(bound so far, t − w); when the plan
    changes at u, everything before u − w has gone, so the bound is at least u − w from then on. Widening by Δ therefore
    takes Δ of event time, narrowing happens at once.

    Arguments: ``effective_from_us`` int64[n] ascending and ``width_us`` int64[n], n ≥ 1: the plans. ``base_us``
    int64[n]: the bound that each plan inherits. ``until_us``: the plans are known for instants before it (None: for
    good). Before the first plan its width is taken to have been in effect, since a new pipeline's window counts as
    filled. For instants from t on, plans that ended at t − W or before make no difference and may be left out, W being
    the widest width planned from t on.

    **Cost**: O(n) to build, O(m log n) for m instants. **Guarantee**: equals a simulation that evicts at every
    microsecond; ``lower_us`` never falls.

    >>> bounds = EffectiveBounds.of([0, 100, 200], [50, 10, 50])
    >>> bounds.lower_us(np.array([90, 100, 110, 200, 220, 250])).tolist()
    [40, 90, 100, 190, 190, 200]
    >>> bounds.leave_tick_us(np.array([89, 190, 191]), tick_us=10).tolist()
    [100, 250, 250]

    **Source**: papers/01, "Settled here, for all levels" (widening takes time).
    """

    effective_from_us: Integers
    width_us: Integers
    base_us: Integers
    until_us: int | None = None

    @classmethod
    def of(
        cls,
        effective_from_us: Iterable[int],
        width_us: Iterable[int],
        initial_lower_us: int | None = None,
        until_us: int | None = None,
    ) -> EffectiveBounds:
        """The bounds under these plans, in any order; of two with the same instant the later given one counts.

        ``initial_lower_us``: what had been evicted by the first plan; None: nothing.
        """
        plans = dict(zip((int(u) for u in effective_from_us), (int(w) for w in width_us), strict=True))
        if not plans:
            raise ValueError("a stream without any window plan has no bounds")
        starts = np.array(sorted(plans), dtype=np.int64)
        widths = np.array([plans[start] for start in starts.tolist()], dtype=np.int64)
        base = np.full(len(starts), UNBOUNDED_US if initial_lower_us is None else initial_lower_us, dtype=np.int64)
        base[1:] = np.maximum(base[1:], starts[1:] - widths[:-1])
        return cls(starts, widths, np.maximum.accumulate(base), until_us)

    def _plan_at(self, t_us: Integers) -> Integers:
        plan: Integers = np.maximum(np.searchsorted(self.effective_from_us, t_us, side="right") - 1, 0)
        return plan

    def lower_us(self, t_us: Integers) -> Integers:
        """The least event time held at each instant, int64 µs."""
        t = np.asarray(t_us, dtype=np.int64)
        plan = self._plan_at(t)
        lower: Integers = np.maximum(self.base_us[plan], t - self.width_us[plan])
        return lower

    def width_s(self, t_us: Integers) -> Floats:
        """Seconds held at each instant, float64: t − lower(t)."""
        t = np.asarray(t_us, dtype=np.int64)
        return (t - self.lower_us(t)) / 1e6

    def leave_tick_us(self, event_us: Integers, tick_us: int) -> Integers:
        """The first tick (multiple of ``tick_us``) within the known plans whose lower bound exceeds the event time.

        int64 µs; ``NOT_YET_US`` if there is none. An event that had left before the first plan gets the first tick.
        """
        events = np.asarray(event_us, dtype=np.int64)
        first = -(-self.effective_from_us // tick_us) * tick_us
        ends = np.append(self.effective_from_us[1:], NOT_YET_US if self.until_us is None else self.until_us)
        last = (-(-ends // tick_us) - 1) * tick_us
        ticked = np.flatnonzero(first <= last)  # plans in effect at one tick at least
        if not len(ticked):
            return np.full(events.shape, NOT_YET_US, dtype=np.int64)
        first, base, width = first[ticked], self.base_us[ticked], self.width_us[ticked]
        at_last = np.maximum(base, last[ticked] - width)
        plan = np.searchsorted(at_last, events, side="right")
        known = plan < len(ticked)
        plan = np.minimum(plan, len(ticked) - 1)
        by_width = ((events + width[plan]) // tick_us + 1) * tick_us
        tick = np.maximum(first[plan], np.where(base[plan] > events, first[plan], by_width))
        return np.where(known, tick, NOT_YET_US)
