"""The bytes that windows really hold, pane by pane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tidegate.operators.window_sizing.needs import Floats, Integers


class Slot(NamedTuple):
    """What arrives on one stream in one tick: panes of event time ascending, tuples and bytes, int64[p] each."""

    pane_us: Integers
    tuples: Integers
    bytes: Integers


@dataclass(frozen=True, eq=False)
class Arrivals:
    """What arrived on one stream, counted by tick of arrival and pane of event time.

    Arguments, sorted by (slot, pane), each pair once: ``slot_us`` int64[m], start of the tick in which tuples arrived;
    ``pane_us`` int64[m], their event time rounded down to the tick; ``tuples`` int64[m]; ``bytes`` float64[m], what
    they take, rounded up to whole bytes here.
    """

    slot_us: Integers
    pane_us: Integers
    tuples: Integers
    bytes: Floats

    @classmethod
    def of(cls, arrival_us: Integers, event_us: Integers, size_bytes: Floats | float, tick_us: int) -> Arrivals:
        """The counts of single tuples, in any order: int64[n] each, and float64[n] (or one number) of bytes."""
        slot = np.asarray(arrival_us, dtype=np.int64) // tick_us * tick_us
        pane = np.asarray(event_us, dtype=np.int64) // tick_us * tick_us
        sizes = np.broadcast_to(np.asarray(size_bytes, dtype=np.float64), slot.shape)
        # Summed in canonical order, so that the order of the arrivals does not matter.
        order = np.lexsort((sizes, pane, slot))
        slot, pane, sizes = slot[order], pane[order], sizes[order]
        first = np.ones(len(slot), dtype=bool)
        first[1:] = (slot[1:] != slot[:-1]) | (pane[1:] != pane[:-1])
        begins = np.flatnonzero(first)
        tuples = np.diff(np.append(begins, len(slot)))
        total = np.add.reduceat(sizes, begins) if len(begins) else np.zeros(0)
        return cls(slot[begins], pane[begins], tuples.astype(np.int64), total)

    def cut(self, ticks_us: Integers) -> list[Slot]:
        """What arrives in each of the ticks [t, next t), ascending; ValueError if anything arrives outside of them."""
        if len(self.slot_us) and (self.slot_us[0] < ticks_us[0] or self.slot_us[-1] >= ticks_us[-1]):
            raise ValueError("arrivals outside the interval")
        size = np.ceil(self.bytes).astype(np.int64)
        edges = self.slot_us.searchsorted(ticks_us).tolist()
        return [
            Slot(self.pane_us[begin:end], self.tuples[begin:end], size[begin:end])
            for begin, end in zip(edges[:-1], edges[1:], strict=True)
        ]

    @classmethod
    def none(cls) -> Arrivals:
        """Nothing arrived."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(nothing, nothing, nothing, np.zeros(0))


class Ledger:
    """The panes of one stream's window: tuples and bytes held, mutable, the working copy within one call.

    Idea: what is held during the tick [t, t + tick) is every tuple that has arrived in a pane that t's evictions left,
    whole: a pane goes only when the bound has passed its end. A tuple that arrives before its event time counts as one
    that arrives at it: until then its pane waits and takes no memory. So the bytes counted are at least those held at
    any instant of the tick.

    ``pane_us`` int64[p] ascending, multiples of the tick; ``tuples``, ``bytes`` int64[p]. ``now_us``: panes from
    here on wait. ``held_tuples``, ``held_bytes``: totals of the others, exact.

    **Cost**: O(p) numpy a tick.
    """

    def __init__(self, pane_us: Integers, tuples: Integers, size_bytes: Integers, now_us: int) -> None:
        self.pane_us, self.tuples, self.bytes = pane_us, tuples, size_bytes
        due = int(np.searchsorted(pane_us, now_us))
        self.held_tuples, self.held_bytes = int(tuples[:due].sum()), int(size_bytes[:due].sum())
        self._due = due

    def evict_before(self, lower_us: int) -> int:
        """Let go of all panes before the bound; returns the tuples that had been held in them."""
        if not len(self.pane_us) or self.pane_us[0] >= lower_us:
            return 0
        gone = int(self.pane_us.searchsorted(lower_us))
        held = min(gone, self._due)
        tuples = int(self.tuples[:held].sum())
        self.held_tuples -= tuples
        self.held_bytes -= int(self.bytes[:held].sum())
        self.pane_us, self.tuples, self.bytes = self.pane_us[gone:], self.tuples[gone:], self.bytes[gone:]
        self._due -= held
        return tuples

    def take_in(self, slot: Slot, lower_us: int, until_us: int) -> None:
        """Add what arrives in panes from the bound on, and let panes before ``until_us`` count from now on."""
        late = int(slot.pane_us.searchsorted(lower_us))
        pane_us, tuples, size_bytes = (column[late:] for column in slot)
        if len(pane_us):
            if not len(self.pane_us):
                self._make_room(pane_us, in_order=True)
            elif len(fresh := pane_us[self.pane_us.take(self.pane_us.searchsorted(pane_us), mode="clip") != pane_us]):
                self._make_room(fresh, in_order=bool(fresh[0] > self.pane_us[-1]))
            place = self.pane_us.searchsorted(pane_us)
            self.tuples[place] += tuples
            self.bytes[place] += size_bytes
        elif self._due == len(self.pane_us):
            return
        self._due = int(self.pane_us.searchsorted(until_us))
        self.held_tuples, self.held_bytes = int(self.tuples[: self._due].sum()), int(self.bytes[: self._due].sum())

    def _make_room(self, fresh: Integers, in_order: bool) -> None:
        """Insert empty panes."""
        nothing = np.zeros(len(fresh), dtype=np.int64)
        columns = (np.concatenate(c) for c in ((self.pane_us, fresh), (self.tuples, nothing), (self.bytes, nothing)))
        self.pane_us, self.tuples, self.bytes = columns
        if not in_order:
            order = np.argsort(self.pane_us)
            self.pane_us, self.tuples, self.bytes = self.pane_us[order], self.tuples[order], self.bytes[order]

    @property
    def held_panes(self) -> tuple[Integers, Integers]:
        """Panes that take memory and their bytes, oldest first."""
        return self.pane_us[: self._due], self.bytes[: self._due]
