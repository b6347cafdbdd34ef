"""What a window really holds: the effective lower bound that follows from a stream's plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.operators.window_sizing.needs import Floats, Integers

UNBOUNDED_US = -(2**62)
"""A lower bound before all time: nothing has been evicted yet, the window counts as filled."""

NOT_YET_US = 2**62
"""A tuple that does not leave its window within the plans that are known."""

Slot = tuple[int, int, int]
"""A window's slots at level C: offset of the first slot's start from the plan's instant, length, period; all µs."""


@dataclass(frozen=True, eq=False)
class EffectiveBounds:
    """The effective lower bound of one stream's window as a step function of time.

    Idea: a plan's width is a target. At t the window holds event times from ``lower(t)`` on, and what has been evicted
    is gone: the bound never moves back. Within one plan of width w it is max(bound so far, t − w), except during the
    slots of level C, in which nothing is evicted: there it stays at max(bound so far, slot start − w), so that the
    width grows to w + slot. When the plan changes at u, what the old plan has evicted by then has gone. Widening by Δ
    therefore takes Δ of event time, narrowing happens at once.

    Arguments: ``effective_from_us`` int64[n] ascending and ``width_us`` int64[n], n ≥ 1: the plans. ``offset_us``,
    ``slot_us``, ``period_us`` int64[n]: slot k = 0, 1, … of plan i is [u + offset + k·period, … + slot], u its instant;
    slot 0: the window does not swing. The offset may be negative: then the slot was running when the plan came.
    ``base_us`` int64[n]: the bound that each plan inherits. ``until_us``: the plans are known for instants before it
    (None: for good). Before the first plan its width is taken to have been in effect, since a new pipeline's window
    counts as filled. For instants from t on, plans that ended at t − W or before make no difference and may be left
    out, W being the widest width (with its slot) planned from t on.

    **Cost**: O(n) to build, O(m log n) for m instants. **Guarantee**: equals a simulation that evicts at every
    microsecond; ``lower_us`` never falls.

    >>> bounds = EffectiveBounds.of([0, 100, 200], [50, 10, 50])
    >>> bounds.lower_us(np.array([90, 100, 110, 200, 220, 250])).tolist()
    [40, 90, 100, 190, 190, 200]
    >>> bounds.leave_tick_us(np.array([89, 190, 191]), tick_us=10).tolist()
    [100, 250, 250]

    Slots of 20 every 50, the first from 10 to 30; answers at its end come before the eviction:

    >>> swinging = EffectiveBounds.from_rows([0], [40], [(10, 20, 50)], initial_lower_us=-60)
    >>> swinging.lower_us(np.array([0, 10, 29, 30, 60])).tolist()
    [-40, -30, -30, -10, 20]
    >>> swinging.lower_before_us(np.array([30, 80])).tolist()
    [-30, 20]

    **Source**: papers/01, "Settled here, for all levels" (widening takes time) and "C-Support" (slots).
    """

    effective_from_us: Integers
    width_us: Integers
    offset_us: Integers
    slot_us: Integers
    period_us: Integers
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
        """The bounds under plans without slots: :meth:`from_rows`."""
        starts = list(effective_from_us)
        return cls.from_rows(starts, width_us, [None] * len(starts), initial_lower_us, until_us)

    @classmethod
    def from_rows(
        cls,
        effective_from_us: Iterable[int],
        width_us: Iterable[int],
        slots: Sequence[Slot | None],
        initial_lower_us: int | None = None,
        until_us: int | None = None,
        evicted_us: Mapping[int, int] | None = None,
    ) -> EffectiveBounds:
        """The bounds under these plans, in any order; of two with the same instant the later given one counts.

        ``initial_lower_us``: what had been evicted by the first plan; None: nothing. ``evicted_us``: instant of a plan
        → bound below which all was evicted early at that instant.
        """
        given = zip(effective_from_us, width_us, slots, strict=True)
        plans = {int(start): (int(width), *(slot or (0, 0, 1))) for start, width, slot in given}
        if not plans:
            raise ValueError("a stream without any window plan has no bounds")
        starts = np.array(sorted(plans), dtype=np.int64)
        width, offset, slot, period = np.array([plans[start] for start in starts.tolist()], dtype=np.int64).T
        base = np.full(len(starts), UNBOUNDED_US if initial_lower_us is None else initial_lower_us, dtype=np.int64)
        bounds = cls(starts, width, offset, slot, period, base, until_us)
        base[1:] = np.maximum(base[1:], bounds._before(starts[1:], np.arange(len(starts) - 1)))
        for i, start in enumerate(starts.tolist()):
            base[i] = max(int(base[i]), (evicted_us or {}).get(start, UNBOUNDED_US))
        np.maximum.accumulate(base, out=base)
        return bounds

    def _plan_at(self, t_us: Integers) -> Integers:
        plan: Integers = np.maximum(np.searchsorted(self.effective_from_us, t_us, side="right") - 1, 0)
        return plan

    def _since_slot(self, t_us: Integers, plan: Integers) -> Integers:
        """How long the slot that holds t has been running under the plan; 0 outside of slots and at their ends."""
        since = t_us - self.effective_from_us[plan] - self.offset_us[plan]
        phase = since % self.period_us[plan]
        running: Integers = np.where((since > 0) & (phase < self.slot_us[plan]), phase, 0)
        return running

    def _before(self, t_us: Integers, plan: Integers) -> Integers:
        """The bound that the plan alone gives just before t: at a slot's end nothing has been evicted yet."""
        since = t_us - self.effective_from_us[plan] - self.offset_us[plan]
        phase = (since - 1) % self.period_us[plan] + 1
        running = np.where((since > 0) & (phase <= self.slot_us[plan]), phase, 0)
        before: Integers = t_us - running - self.width_us[plan]
        return before

    def lower_us(self, t_us: Integers) -> Integers:
        """The least event time held at each instant once its evictions are done, int64 µs."""
        t = np.asarray(t_us, dtype=np.int64)
        plan = self._plan_at(t)
        lower: Integers = np.maximum(self.base_us[plan], t - self._since_slot(t, plan) - self.width_us[plan])
        return lower

    def lower_before_us(self, t_us: Integers) -> Integers:
        """The least event time held just before each instant: what an answer given at it finds, int64 µs."""
        t = np.asarray(t_us, dtype=np.int64)
        plan = np.maximum(np.searchsorted(self.effective_from_us, t, side="left") - 1, 0)
        lower: Integers = np.maximum(self.base_us[plan], self._before(t, plan))
        return lower

    def held_from_us(self, t_us: Integers, tick_us: int) -> Integers:
        """The least event time that an answer at each instant finds in a store that evicts at ticks only, int64 µs.

        Answers come before the evictions of their instant, so it is the bound of the last tick before it; but a window
        planned at width 0 outside of a slot holds nothing, not even what has arrived since that tick.
        """
        t = np.asarray(t_us, dtype=np.int64)
        tick = (-(-t // tick_us) - 1) * tick_us
        plan = self._plan_at(tick)
        return np.where(self.closed(tick), np.maximum(t, self.base_us[plan]), self.lower_us(tick))

    def closed(self, t_us: Integers) -> np.ndarray:
        """Whether the window is planned at width 0, outside of a slot, from each instant on: bool[m]."""
        t = np.asarray(t_us, dtype=np.int64)
        plan = self._plan_at(t)
        since = t - self.effective_from_us[plan] - self.offset_us[plan]
        in_slot = (since >= 0) & (since % self.period_us[plan] < self.slot_us[plan])
        closed: np.ndarray = (self.width_us[plan] <= 0) & ~in_slot
        return closed

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
        at_last = np.maximum(
            self.base_us[ticked], last[ticked] - self._since_slot(last[ticked], ticked) - self.width_us[ticked]
        )
        place = np.searchsorted(at_last, events, side="right")
        known = place < len(ticked)
        plan = ticked[np.minimum(place, len(ticked) - 1)]
        by_width = ((events + self.width_us[plan]) // tick_us + 1) * tick_us
        # A slot that is running then holds the event until its end, unless it began after the event had left.
        running = self._since_slot(by_width, plan)
        frozen = (running > 0) & (by_width - running - self.width_us[plan] <= events)
        slot_end = -(-(by_width - running + self.slot_us[plan]) // tick_us) * tick_us
        tick = np.maximum(
            first[plan], np.where(self.base_us[plan] > events, first[plan], np.where(frozen, slot_end, by_width))
        )
        return np.where(known, tick, NOT_YET_US)
