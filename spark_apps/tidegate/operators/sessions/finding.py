"""Sessions of keyed tuples, each answered as it stands a wait after its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tidegate.operators.schedule import Int64s
from tidegate.operators.sessions.minima import Minima

_PAIRS_AT_ONCE = 1 << 20


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
    """Sessions that are answered, in the order of their keys and ends.

    ``start_us``, ``end_us``, ``emit_us`` int64[n]: the first event, the last one plus the gap, and the instant of the
    answer. ``first``, ``behind`` int64[n]: their tuples are those of these places among the sorted ones that have
    arrived by that instant.
    """

    start_us: Int64s
    end_us: Int64s
    emit_us: Int64s
    first: Int64s
    behind: Int64s

    def __len__(self) -> int:
        """How many sessions there are."""
        return len(self.end_us)

    def of(self, which: np.ndarray | slice) -> Answered:
        """Some of them: bool[n], numbers, or a slice."""
        columns = self.start_us, self.end_us, self.emit_us, self.first, self.behind
        return Answered(*(column[which] for column in columns))


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

    **Cost.** O(n log n) time and O(n log l) space for n tuples, l in the longest run without a gap; asked for
    sessions, O(n), and O(log l) for each run of tuples within a session that have not arrived. **Guarantee.** Exact.

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
    keys: Int64s
    minima: Minima
    """Of the instants from which on events are there."""
    missing: Minima
    """Of those of up to which they are not, negative."""

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
        behind_gap = _behind(keys, events_us, keys, events_us + spec.gap_us)
        cut_us = (events_us // spec.longest_us + 1) * spec.longest_us
        before_cut, cut = behind_gap.copy(), np.flatnonzero(cut_us <= events_us + spec.gap_us)
        before_cut[cut] = _behind(keys, events_us, keys[cut], cut_us[cut] - 1)
        there_us, lasting = arrival_us[first], np.append(np.flatnonzero(begins), len(first))
        longest = int(np.diff(lasting).max(initial=1))
        minima, missing = Minima.of(there_us, longest), Minima.of(-there_us, longest)
        return cls(spec, order, event_us, arrival_us, first, chain, before_cut, behind_gap, keys, minima, missing)

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
        bounds, events_us = np.append(self.first, len(self.order)), self.event_us[self.first]
        emit_us = emit_us[self.order[self.first]]
        wanted = (emit_us >= from_us) & (emit_us < until_us) & (self.arrival_us[self.first] <= emit_us)
        ends = np.flatnonzero(wanted)
        ends = ends[~self.minima.any_by(ends + 1, self.before_cut[ends], emit_us[ends])]
        # A visible tuple behind the next multiple of the longest session: it is one only if it is cut there.
        goes_on = self.minima.any_by(self.before_cut[ends], self.behind_gap[ends], emit_us[ends])
        starts = self._starts(events_us, ends, emit_us[ends])
        aligned_us = events_us[ends] // self.spec.longest_us * self.spec.longest_us
        there = ~goes_on | (events_us[starts] <= aligned_us)
        ends, starts, aligned_us = ends[there], starts[there], aligned_us[there]
        cut = np.flatnonzero(events_us[starts] <= aligned_us - self.spec.longest_us)
        if len(cut):
            first = _behind(self.keys, events_us, self.keys[ends[cut]], aligned_us[cut] - 1)
            starts[cut] = self.minima.first_by(first, ends[cut] + 1, emit_us[ends[cut]])
        end_us = events_us[ends] + self.spec.gap_us
        return Answered(events_us[starts], end_us, emit_us[ends], bounds[starts], bounds[ends + 1])

    def _starts(self, events_us: Int64s, ends: Int64s, emit_us: Int64s) -> Int64s:
        """Where the sessions begin that end with these events, cuts left out: at the last gap of what is visible."""
        starts, at = np.empty(len(ends), dtype=np.int64), ends.copy()
        left = np.arange(len(ends))
        while len(left):
            begin, now_us = self.chain[ends[left]], emit_us[left]
            hidden = self.missing.last_by(begin, at[left], -now_us - 1)
            before = self.minima.last_by(begin, np.maximum(hidden, begin), now_us)
            starts[left] = hidden + 1
            goes_on = (hidden >= begin) & (before >= begin)
            goes_on[goes_on] = (events_us[hidden[goes_on] + 1] - events_us[before[goes_on]]) <= self.spec.gap_us
            at[left[goes_on]] = before[goes_on]
            left = left[goes_on]
        return starts

    def portions(self, found: Answered) -> Iterator[slice]:
        """Runs of sessions whose tuples fit into memory at once."""
        yield from _portions(found.behind - found.first)

    def tuples(self, found: Answered) -> tuple[Int64s, Int64s]:
        """Of each tuple of each session the session's number, ascending, and its row among those that were given.

        A tuple may belong to several sessions, which are answered at different instants.
        """
        counts = found.behind - found.first
        session = np.repeat(np.arange(len(found)), counts)
        place = np.arange(len(session)) + np.repeat(found.behind - np.cumsum(counts), counts)
        visible = self.arrival_us[place] <= found.emit_us[session]
        return session[visible], self.order[place[visible]]

    def most(self, found: Answered) -> int:
        """How many tuples sessions hold at most at an instant, each from its arrival to the last answer that has it."""
        until_us = np.full(len(self.order), -1, dtype=np.int64)
        arrival_us = np.empty(len(self.order), dtype=np.int64)
        arrival_us[self.order] = self.arrival_us
        for some in self.portions(found):
            own = found.of(some)
            session, rows = self.tuples(own)
            np.maximum.at(until_us, rows, own.emit_us[session])
        held = until_us >= 0
        come_us, go_us = np.sort(arrival_us[held]), np.sort(until_us[held])
        there = np.arange(1, len(come_us) + 1) - np.searchsorted(go_us, come_us, side="left")
        return int(there.max(initial=0))


def _changes(column: Int64s) -> np.ndarray:
    """Where a value is not that of the row before; also at the first row."""
    changed = np.ones(len(column), dtype=bool)
    changed[1:] = column[1:] != column[:-1]
    return changed


def _behind(keys: Int64s, events_us: Int64s, of_key: Int64s, until_us: Int64s) -> Int64s:
    """The first event of each key asked for that is later than an instant; events ascend by key and time."""
    asked = np.arange(len(keys) + len(of_key)) >= len(keys)
    order = np.lexsort((asked, np.concatenate([events_us, until_us]), np.concatenate([keys, of_key])))
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.cumsum(~asked[order])
    return found[len(keys) :]


def _portions(counts: Int64s) -> Iterator[slice]:
    """Runs with about ``_PAIRS_AT_ONCE`` together, one at least each."""
    total, first = np.concatenate([[0], np.cumsum(counts)]), 0
    while first < len(counts):
        last = max(first + 1, int(np.searchsorted(total, total[first] + _PAIRS_AT_ONCE, side="right")) - 1)
        yield slice(first, last)
        first = last
