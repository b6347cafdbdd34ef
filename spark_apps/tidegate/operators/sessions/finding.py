"""Sessions of keyed tuples, each answered as it stands a wait after its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tidegate.operators.schedule import Int64s
from tidegate.operators.sessions.minima import Minima

_PAIRS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Spec:
    """What a session is; microseconds.

    ``gap_us``: the tuples of a session are at most this far apart, one after the other; as in Spark and Flink a tuple
    exactly so much later belongs to it. ``longest_us``: at a multiple of it since 1970 a session is cut that began as
    long before, or earlier; at least the gap.
    """

    gap_us: int
    longest_us: int

    def __post_init__(self) -> None:
        """Refuse what is no session."""
        if not 0 < self.gap_us <= self.longest_us:
            raise ValueError(f"a gap of {self.gap_us} µs does not fit into sessions of {self.longest_us} µs at most")

    @property
    def reach_us(self) -> int:
        """How far before its last event the tuples lie that a session depends on, at most."""
        return 2 * self.longest_us + self.gap_us


@dataclass(frozen=True, eq=False)
class Answered:
    """Sessions that are answered, in the order of their keys and ends, and their tuples.

    ``start_us``, ``end_us``, ``emit_us`` int64[n]: the first event, the last one plus the gap, and the instant of the
    answer. ``session``, ``tuples`` int64[m]: of each tuple of each session the session's number, ascending, and its
    row among those that were given. A tuple may belong to several sessions, which are answered at different instants.
    """

    start_us: Int64s
    end_us: Int64s
    emit_us: Int64s
    session: Int64s
    tuples: Int64s

    def __len__(self) -> int:
        """How many sessions there are."""
        return len(self.end_us)

    @property
    def first_tuples(self) -> Int64s:
        """Of each session the row of its first tuple."""
        return self.tuples[np.searchsorted(self.session, np.arange(len(self)))]

    def between(self, first: int, last: int) -> Answered:
        """The sessions of these numbers, ``last`` not among them."""
        own = slice(*np.searchsorted(self.session, [first, last]))
        start_us, end_us, emit_us = (times[first:last] for times in (self.start_us, self.end_us, self.emit_us))
        return Answered(start_us, end_us, emit_us, self.session[own] - first, self.tuples[own])

    def where(self, which: np.ndarray) -> Answered:
        """Those of bool[n]."""
        number, own = np.cumsum(which) - 1, which[self.session]
        start_us, end_us, emit_us = (times[which] for times in (self.start_us, self.end_us, self.emit_us))
        return Answered(start_us, end_us, emit_us, number[self.session[own]], self.tuples[own])

    def most_tuples(self, arrival_us: Int64s) -> int:
        """How many tuples sessions hold at most at an instant, each from its arrival to the last answer that has it.

        Args:
            arrival_us: int64[n], of all tuples that were given.
        """
        order = np.lexsort((self.emit_us[self.session], self.tuples))
        own = self.tuples[order]
        last = np.append(own[1:] != own[:-1], True)[: len(own)]
        come_us, go_us = arrival_us[own[last]], self.emit_us[self.session[order[last]]]
        come_us, go_us = np.sort(come_us), np.sort(go_us)
        there = np.arange(1, len(come_us) + 1) - np.searchsorted(go_us, come_us, side="left")
        return int(there.max(initial=0))


@dataclass(frozen=True, eq=False)
class Tuples:
    """Keyed tuples, sorted, of which sessions are asked for.

    **Idea.** A session is known by its last event e. It is answered at an instant that depends on e alone, from the
    tuples that have arrived by then: if e is among them, and none of its key that continues the session. What comes
    later does not change it: that makes another session, which is answered at its own instant. So whether e ends a
    session follows from the least arrival of the events within the gap after it (``Minima``), and its start from the
    visible events before it, back to the last gap or cut.

    Args of ``of``:
        spec: what a session is.
        key: int64[n], a number that tells keys apart.
        event_us: int64[n], microseconds of event time.
        arrival_us: int64[n], effective arrival times: max(arrival, event).

    **Cost.** O(n log n) time and O(n log g) space for n tuples, g of them within a gap; asked for sessions, O(n), and
    O(1) for each tuple within ``reach_us`` before a session's end that is not farther than the next gap of all tuples.
    **Guarantee.** Exact.

    >>> event_us, arrival_us = np.array([0, 8, 30]), np.array([0, 13, 30])
    >>> tuples = Tuples.of(Spec(gap_us=10, longest_us=100), np.array([1, 1, 1]), event_us, arrival_us)
    >>> found = tuples.answered(event_us + 10, from_us=0, until_us=100)  # 8 comes after [0, 10) is answered
    >>> list(zip(found.start_us.tolist(), found.end_us.tolist(), found.emit_us.tolist(), strict=True))
    [(0, 10, 10), (0, 18, 18), (30, 40, 40)]

    **Source.** What a session is: Spark's ``MergingSessionsIterator``. When it is answered, and where it is cut:
    infra/decisions/0041-sessions.md.
    """

    spec: Spec
    order: Int64s
    event_us: Int64s
    arrival_us: Int64s
    first: Int64s
    """Where the tuples of each event (of a key) begin: the first of them to arrive is the first."""
    chain: Int64s
    """Of each event the event with which the session begins that all tuples make, cuts left out."""
    before_cut: Int64s
    behind_gap: Int64s
    """Of each event the first that is behind the next cut, or the gap; the first that is behind the gap."""
    minima: Minima

    @classmethod
    def of(cls, spec: Spec, key: Int64s, event_us: Int64s, arrival_us: Int64s) -> Tuples:
        """Tuples in any order."""
        order = np.lexsort((arrival_us, event_us, key))
        key, event_us, arrival_us = key[order], event_us[order], arrival_us[order]
        first = np.flatnonzero(_changes(key) | _changes(event_us))
        keys, events_us = key[first], event_us[first]
        begins = _changes(keys)
        begins[1:] |= np.diff(events_us) > spec.gap_us
        chain = np.flatnonzero(begins)[np.cumsum(begins) - 1]
        behind_gap = _behind(keys, events_us, events_us + spec.gap_us)
        cut_us = (events_us // spec.longest_us + 1) * spec.longest_us
        before_cut, cut = behind_gap.copy(), np.flatnonzero(cut_us <= events_us + spec.gap_us)
        before_cut[cut] = _behind(keys, events_us, cut_us - 1, cut)
        minima = Minima.of(arrival_us[first], int((behind_gap - np.arange(len(first))).max(initial=1)))
        return cls(spec, order, event_us, arrival_us, first, chain, before_cut, behind_gap, minima)

    def answered(self, emit_us: Int64s, from_us: int, until_us: int) -> Answered:
        """The sessions whose instant of emission lies in [from, until).

        Tuples that arrive later than they are answered, or whose event lies more than ``reach_us`` before the last
        event of any of them, make no difference.

        Args:
            emit_us: int64[n], of each tuple as it was given the instant at which a session is answered that ends with
                it: its event, the gap and the wait in effect at that end.
            from_us: the first instant that counts.
            until_us: the first that does not any more.
        """
        bounds = np.append(self.first, len(self.order))
        emit_us = emit_us[self.order[self.first]] if len(self.first) else np.zeros(0, np.int64)
        wanted = (emit_us >= from_us) & (emit_us < until_us) & (self.arrival_us[self.first] <= emit_us)
        ends = np.flatnonzero(wanted)
        ends = ends[~self.minima.any_by(ends + 1, self.before_cut[ends], emit_us[ends])]
        goes_on = self.minima.any_by(self.before_cut[ends], self.behind_gap[ends], emit_us[ends])
        found, number = [], 0
        for some in _portions(bounds[ends + 1] - bounds[self.chain[ends]]):
            part = self._sessions(bounds, ends[some], emit_us[ends[some]], goes_on[some])
            found.append((part.start_us, part.end_us, part.emit_us, part.session + number, part.tuples))
            number += len(part)
        nothing = (np.zeros(0, np.int64),) * 5
        return Answered(*(np.concatenate(columns) for columns in zip(nothing, *found, strict=True)))

    def _sessions(self, bounds: Int64s, ends: Int64s, emit_us: Int64s, goes_on: np.ndarray) -> Answered:
        """The sessions that end with these events.

        ``goes_on``: whether a visible tuple continues it behind the next multiple of the longest session: then it is
        one only if it is cut there.
        """
        longest_us, last_us = self.spec.longest_us, self.event_us[self.first[ends]]
        aligned_us = last_us // longest_us * longest_us
        counts = bounds[ends + 1] - bounds[self.chain[ends]]
        session = np.repeat(np.arange(len(ends)), counts)
        tuples = np.arange(len(session)) + np.repeat(bounds[ends + 1] - np.cumsum(counts), counts)
        event_us = self.event_us[tuples]
        # What lies before is not looked at: sessions are the same whatever is known of it.
        near = event_us >= (aligned_us - longest_us - self.spec.gap_us)[session]
        visible = near & (self.arrival_us[tuples] <= emit_us[session])
        session, tuples, event_us = session[visible], tuples[visible], event_us[visible]
        begins = _changes(session)
        begins[1:] |= np.diff(event_us) > self.spec.gap_us
        starts = np.searchsorted(session, np.arange(len(ends)))
        place = np.maximum.reduceat(np.where(begins, np.arange(len(session)), 0), starts) if len(starts) else starts
        begun_us = event_us[place]
        cut = begun_us <= aligned_us - longest_us
        there = ~goes_on | (begun_us <= aligned_us)
        kept = there[session] & (np.arange(len(session)) >= place[session])
        kept &= ~cut[session] | (event_us >= aligned_us[session])
        number = (np.cumsum(there) - 1)[session[kept]]
        start_us = event_us[kept][np.searchsorted(number, np.arange(int(there.sum())))]
        end_us = last_us[there] + self.spec.gap_us
        return Answered(start_us, end_us, emit_us[there], number, self.order[tuples[kept]])


def _changes(column: Int64s) -> np.ndarray:
    """Where a value is not that of the row before; also at the first row."""
    changed = np.ones(len(column), dtype=bool)
    changed[1:] = column[1:] != column[:-1]
    return changed


def _behind(keys: Int64s, events_us: Int64s, until_us: Int64s, which: Int64s | None = None) -> Int64s:
    """Of each event (or those of ``which``) the first of its key that is later than an instant of its own."""
    which = np.arange(len(keys)) if which is None else which
    every = np.concatenate([keys, keys[which]]), np.concatenate([events_us, until_us[which]])
    asked = np.arange(len(every[0])) >= len(keys)
    order = np.lexsort((asked, every[1], every[0]))
    before = np.cumsum(~asked[order])
    found = np.empty(len(order), dtype=np.int64)
    found[order] = before
    return found[len(keys) :]


def _portions(counts: Int64s) -> Iterator[slice]:
    """Runs with about ``_PAIRS_AT_ONCE`` together, one at least each."""
    total, first = np.concatenate([[0], np.cumsum(counts)]), 0
    while first < len(counts):
        last = max(first + 1, int(np.searchsorted(total, total[first] + _PAIRS_AT_ONCE, side="right")) - 1)
        yield slice(first, last)
        first = last
