"""What windows of any height on a stream would have taken of late, exactly.

**Idea.** A window of **height** h holds event times back to h before the clock. Which tuples it would have held at a
past instant is known from the arrivals alone, whatever was really held: the sum of the newest panes. So the bytes that
a longer wait, or a wider window, would take need no rate to be assumed. The most that came of late stands for what will
come; a height that reaches back further than the stream has been seen is taken in proportion.

**Source.** papers/05, "Height".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidegate.operators.window_sizing.ledger import Arrivals
from tidegate.operators.window_sizing.needs import Floats, Integers

_DAY_US = 86_400_000_000
_MOST_PANES = 2048
_EVERY_HEIGHT = 64
_GROWTH = 1.05
_BLOCKS = 24
_INSTANTS = 64

FOOTPRINT_SCHEMA = pa.schema([("kind", pa.string()), ("at_us", pa.int64()), ("bytes", pa.float64())])
_PANE, _PEAK, _FIRST = "pane", "peak", "first"


@dataclass(frozen=True)
class FootprintSpec:
    """What is looked at.

    ``tick_us``: the pipeline's; ``height_us``: the greatest height of interest, a multiple of it. Panes are ticks, or
    so many ticks that there are at most 2048. Peaks are remembered for a day, which has each hour of the day: a burst
    counts for the heights that reach back to it, and no longer. They are taken at the ends of at most 64 spans of each
    interval.
    """

    tick_us: int
    height_us: int

    @property
    def pane_us(self) -> int:
        """The grain of event time."""
        ticks = max(self.height_us // self.tick_us, 1)
        return self.tick_us * -(-ticks // _MOST_PANES)

    @cached_property
    def heights(self) -> Integers:
        """int64[g], in panes, ascending: those at which peaks are kept; every one at first, then a 20th apart."""
        most, heights = -(-self.height_us // self.pane_us), [1]
        while heights[-1] < most:
            step = 1 if heights[-1] < _EVERY_HEIGHT else int(heights[-1] * (_GROWTH - 1))
            heights.append(min(heights[-1] + step, most))
        return np.array(heights, dtype=np.int64)

    @property
    def block_us(self) -> int:
        """Peaks are kept by blocks of so many microseconds."""
        return _DAY_US // _BLOCKS


@dataclass(frozen=True, eq=False)
class Footprint:
    """What arrived on a stream, by event time, and what windows of any height would have taken at most.

    ``pane_us``, ``bytes`` int64[p]: of the panes within the greatest height, and of those whose time is still to come.
    ``peaks``: block → float64[g], bytes at the spec's heights. ``first_us``: when the stream was seen first.
    ``now_us``: the end of the last interval that was looked at.
    """

    spec: FootprintSpec
    pane_us: Integers
    bytes: Integers
    peaks: Mapping[int, Floats]
    first_us: int | None = None
    now_us: int = 0

    @classmethod
    def initial(cls, spec: FootprintSpec) -> Footprint:
        """Before anything arrived."""
        none = np.zeros(0, dtype=np.int64)
        return cls(spec, none, none, {})

    def bytes_at(self, height_us: int) -> float:
        """The most bytes that a window of that height took of late; more where the stream is not known for so long.

        **Guarantee.** Of the heights kept, and instants looked at, exact; between two heights in proportion.
        """
        if not self.peaks or height_us <= 0:
            return 0.0
        taken = float(np.interp(height_us, *self._most))
        seen_us = self.now_us - (self.now_us if self.first_us is None else self.first_us)
        if 0 < seen_us < height_us:
            seen = float(np.interp(seen_us, *self._most))
            taken = max(taken, seen * height_us / seen_us)
        return taken

    @cached_property
    def _most(self) -> tuple[Integers, Floats]:
        """Heights in microseconds, 0 first, and the most bytes at each: asked for again and again."""
        known = np.maximum.reduce(list(self.peaks.values()))
        return np.append(0, self.spec.heights * self.spec.pane_us), np.append(0.0, known)

    def to_arrow(self) -> pa.Table:
        """``FOOTPRINT_SCHEMA``."""
        parts = [(_PANE, self.pane_us, self.bytes.astype(np.float64))]
        parts += [(_PEAK, np.full(len(peak), block), peak) for block, peak in self.peaks.items()]
        if self.first_us is not None:
            parts.append((_FIRST, np.array([self.first_us]), np.array([float(self.now_us)])))
        kinds = np.repeat([kind for kind, *_ in parts], [len(at) for _, at, _ in parts])
        columns = [np.concatenate([part[i] for part in parts]) for i in (1, 2)]
        return pa.table([pa.array(kinds.tolist(), pa.string()), *columns], schema=FOOTPRINT_SCHEMA)

    @classmethod
    def from_arrow(cls, table: pa.Table, spec: FootprintSpec) -> Footprint:
        """The inverse of ``to_arrow``; under another spec nothing is known."""
        kind = np.array(table.column("kind").to_pylist(), dtype=object)
        at, size = (table.column(name).to_numpy() for name in ("at_us", "bytes"))
        panes, peak, first = (kind == name for name in (_PANE, _PEAK, _FIRST))
        blocks = {int(block): size[peak & (at == block)] for block in np.unique(at[peak]).tolist()}
        if not first.any() or any(len(own) != len(spec.heights) for own in blocks.values()):
            return cls.initial(spec)
        return cls(spec, at[panes], size[panes].astype(np.int64), blocks, int(at[first][0]), int(size[first][0]))


def observed(before: Footprint, start_us: int, end_us: int, arrivals: Arrivals) -> Footprint:
    """The footprint after what arrived in [start, end).

    **Cost.** O(a log a + 64 p) numpy for a counts of arrivals and p panes.

    **Guarantee.** A function of what arrived, interval by interval.

    >>> spec = FootprintSpec(tick_us=60_000_000, height_us=300_000_000)
    >>> times = np.arange(0, 600_000_000, 10_000_000)
    >>> arrivals = Arrivals.of(times, times, 50.0, tick_us=60_000_000)
    >>> footprint = observed(Footprint.initial(spec), 0, 600_000_000, arrivals)
    >>> footprint.bytes_at(60_000_000), footprint.bytes_at(300_000_000)
    (300.0, 1500.0)
    """
    spec, first_us = before.spec, before.first_us
    if first_us is None and len(arrivals.slot_us):
        first_us = int(arrivals.slot_us[0])
    if first_us is None:
        return before
    pane_us = spec.pane_us
    pane = np.concatenate([before.pane_us, arrivals.pane_us // pane_us * pane_us])
    size = np.concatenate([before.bytes, np.ceil(arrivals.bytes).astype(np.int64)])
    # What arrives before its event time counts from then on.
    seen_us = np.concatenate([np.full(len(before.pane_us), start_us), arrivals.slot_us + spec.tick_us])
    due_us = np.maximum(seen_us, pane + 1)
    order = np.argsort(due_us, kind="stable")
    pane, size, due_us = pane[order], size[order], due_us[order]
    span_us = -(-(end_us - start_us) // _INSTANTS // pane_us) * pane_us
    instants = np.unique(np.append(np.arange(start_us + span_us, end_us, span_us), end_us))
    oldest_us = (start_us - spec.height_us) // pane_us * pane_us - pane_us
    count = -(-(end_us - oldest_us) // pane_us)
    held, heights, taken, done = np.zeros(count, dtype=np.int64), spec.heights, np.zeros(len(spec.heights)), 0
    for instant_us in instants.tolist():
        upto = int(np.searchsorted(due_us, instant_us, side="right"))
        place = (pane[done:upto] - oldest_us) // pane_us
        within = place >= 0
        np.add.at(held, place[within], size[done:upto][within])
        done = upto
        newest = -(-(instant_us - oldest_us) // pane_us)
        total = np.append(0, np.cumsum(held[:newest]))
        # Of panes that are coarser than ticks the oldest and the newest may reach in by a part.
        reach = heights if pane_us == spec.tick_us else heights + 1
        taken = np.maximum(taken, total[-1] - total[np.maximum(newest - reach, 0)])
    block = start_us // spec.block_us
    oldest = (end_us - _BLOCKS * spec.block_us) // spec.block_us
    peaks = {at: peak for at, peak in before.peaks.items() if at >= oldest}
    peaks[block] = np.maximum(peaks[block], taken) if block in peaks else taken
    within = pane >= end_us - spec.height_us - pane_us
    kept, where = np.unique(pane[within], return_inverse=True)
    summed = np.zeros(len(kept), dtype=np.int64)
    np.add.at(summed, where, size[within])
    return Footprint(spec, kept, summed, peaks, first_us, end_us)
