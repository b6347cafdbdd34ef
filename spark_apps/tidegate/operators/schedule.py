"""When which window is answered, and from which tuples: computed by a host, obeyed by the operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Query
from tidegate.values.calendar import KNOWN_FROM_US

Int64s = npt.NDArray[np.int64]
NEVER_US = int(np.iinfo(np.int64).max)


def instants_us(column: pa.ChunkedArray | pa.Array) -> Int64s:
    """A timestamp column without NULLs as microseconds since 1970."""
    return np.asarray(column.cast(pa.int64()).to_numpy())


def ticks_between(start_us: int, end_us: int, every_us: int) -> Int64s:
    """The multiples of ``every_us`` since 1970 in [start_us, end_us).

    >>> ticks_between(7, 21, 5).tolist()
    [10, 15, 20]
    """
    first = -(-start_us // every_us) * every_us
    return np.arange(first, end_us, every_us, dtype=np.int64)


def window_ends_us(query: Query, start_us: int, end_us: int) -> Int64s:
    """The ends in [start, end) of a query's windows: the multiples of EVERY, or the calendar's begins.

    Raises:
        UserError: the calendar is asked for times before 1972, when clocks were not set by quarters of an hour.
    """
    if query.calendar is None:
        return ticks_between(start_us, end_us, round(query.every_s * 1e6))
    if start_us < end_us and start_us < KNOWN_FROM_US:
        raise UserError(f"query {query.id}: AT TIME ZONE is of times since 1972, not of any before")
    return query.calendar.starts_us(start_us, end_us)


def window_ranges_us(query: Query, ends_us: Int64s) -> dict[str, Int64s]:
    """Alias → int64[n]: how far back each of a query's windows with a RANGE reaches, by its end."""
    return {
        window.alias: np.full(len(ends_us), round(window.range_s * 1e6), dtype=np.int64)
        if window.calendar is None
        else ends_us - window.calendar.before_us(ends_us)
        for window in query.ranged
    }


@dataclass(frozen=True, eq=False)
class Schedule:
    """The windows to answer, in the order in which they are answered.

    The window with index i is answered at the instant ``emit_us[i]`` from exactly the tuples of each alias with
    arrival time ≤ ``emit_us[i]`` and event time in [``lower_us[alias][i]``, ``window_end_us[i]``). The rows are sorted
    by (emit_us, window_end_us); the ends need not be ascending, for when the slack falls by more than the distance of
    two ticks the later window is answered first.

    Args:
        window_end_us: int64[n], end of the window (exclusive), microseconds of event time since 1970.
        emit_us: int64[n], instant of the answer, microseconds of arrival time; never before the window's end.
        lower_us: alias → int64[n], start of the alias' window (inclusive), at most the window's end.

    >>> hour = Schedule.from_ticks(np.array([100, 110]), np.array([30, 5]), {"d": 60}, {"d": np.array([0, 75])})
    >>> hour.emit_us.tolist(), hour.window_end_us.tolist(), hour.lower_us["d"].tolist()
    ([115, 130], [110, 100], [75, 40])
    """

    window_end_us: Int64s
    emit_us: Int64s
    lower_us: Mapping[str, Int64s]

    def __post_init__(self) -> None:
        """Refuse bounds that contradict each other."""
        columns = {"window_end_us": self.window_end_us, "emit_us": self.emit_us}
        columns |= {f"lower_us[{alias!r}]": lower for alias, lower in self.lower_us.items()}
        for name, values in columns.items():
            if values.dtype != np.int64 or values.shape != (len(self.emit_us),):
                raise ValueError(
                    f"Schedule: {name} must be int64[{len(self.emit_us)}], not {values.dtype}{list(values.shape)}"
                )
        if not self.lower_us:
            raise ValueError("Schedule: lower_us names no alias")
        if (self.emit_us < self.window_end_us).any():
            raise ValueError("Schedule: a window is answered before its end")
        for alias, lower in self.lower_us.items():
            if (lower > self.window_end_us).any():
                raise ValueError(f"Schedule: a window of {alias!r} starts after its end")
        emit_step, end_step = np.diff(self.emit_us), np.diff(self.window_end_us)
        if ((emit_step < 0) | ((emit_step == 0) & (end_step <= 0))).any():
            raise ValueError("Schedule: rows must ascend by (emit_us, window_end_us), each pair once")

    @classmethod
    def from_ticks(
        cls,
        window_end_us: Int64s,
        slack_us: Int64s | int,
        ranges_us: Mapping[str, Int64s | int],
        stream_lower_us: Mapping[str, Int64s] | None = None,
    ) -> Schedule:
        """The schedule of the windows that end at the given ticks.

        Args:
            window_end_us: int64[n], the ticks, in any order.
            slack_us: K in effect at each tick (int64[n]), or one for all.
            ranges_us: alias → declared range, at each tick (int64[n]), or one for all.
            stream_lower_us: alias → int64[n], the stream's effective lower bound at each tick; an alias that is not
                named is held over its whole range.
        """
        ends = np.asarray(window_end_us, dtype=np.int64)
        emit = ends + np.asarray(slack_us, dtype=np.int64)
        order = np.lexsort((ends, emit))
        lower = {}
        for alias, range_us in ranges_us.items():
            bound = ends - np.asarray(range_us, dtype=np.int64)
            if stream_lower_us is not None and alias in stream_lower_us:
                bound = np.minimum(np.maximum(bound, stream_lower_us[alias]), ends)
            lower[alias] = bound[order]
        return cls(ends[order], emit[order], lower)

    def __len__(self) -> int:
        """Count the windows."""
        return len(self.emit_us)

    @property
    def aliases(self) -> tuple[str, ...]:
        """The aliases that the schedule has bounds for."""
        return tuple(self.lower_us)

    def width_us(self, alias: str) -> Int64s:
        """How much event time each window of the alias spans."""
        return self.window_end_us - self.lower_us[alias]

    def slice(self, emit_from_us: int, emit_to_us: int) -> Schedule:
        """The windows answered in [emit_from_us, emit_to_us), indexed anew from 0."""
        first, last = np.searchsorted(self.emit_us, [emit_from_us, emit_to_us], side="left")
        rows = slice(int(first), max(int(first), int(last)))
        return Schedule(
            self.window_end_us[rows], self.emit_us[rows], {alias: lower[rows] for alias, lower in self.lower_us.items()}
        )

    def needed_from_us(self, alias: str) -> Int64s:
        """int64[n + 1]: the least event time that the windows i, i + 1, … need of an alias; none (NEVER_US) at n.

        A tuple with an earlier event time may be forgotten once window i is the next to answer. A window that holds
        nothing of the alias needs nothing, not even a tuple of its very end.
        """
        begin_us = self.lower_us[alias]
        lower = np.where(begin_us < self.window_end_us, begin_us, NEVER_US)
        lower = np.append(lower, NEVER_US)
        return np.minimum.accumulate(lower[::-1])[::-1]

    def spans_us(self, alias: str) -> tuple[Int64s, Int64s]:
        """Begins and ends (int64[s] each, ascending, disjoint) of the event times that some window holds of an alias.

        Between two of them lies what no window asks for: windows may be narrower than the distance of their ends.
        """
        begin_us, end_us = self.lower_us[alias], self.window_end_us
        some = np.flatnonzero(begin_us < end_us)
        order = some[np.argsort(begin_us[some], kind="stable")]
        begin_us, until_us = begin_us[order], np.maximum.accumulate(end_us[order])
        apart = np.flatnonzero(begin_us[1:] > until_us[:-1])
        first, last = np.append(0, apart + 1), np.append(apart, len(order) - 1)
        return (begin_us[first], until_us[last]) if len(order) else (begin_us, until_us)
