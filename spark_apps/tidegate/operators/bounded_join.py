"""Two streams whose tuples match by keys and by their distance in time, as one stream of what the join's result has.

**Idea.** A tuple of the left stream and one of the right that match are a pair from the later of their arrivals on, at
the event time of the left one. So the pairs are a stream like any other, in order of arrival, and whatever answers
windows over one stream answers them. A semi join has of each left tuple the first pair alone. An anti join has a left
tuple from its arrival until its first match arrives: what is taken back then is a second tuple that counts −1. A left
join is the pairs, and the anti join's tuples with NULLs on the right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.declarations.models import JoinKind
from tidegate.operators.arrivals import held_bytes, int64s
from tidegate.operators.codes import NULL, codes, group_ids
from tidegate.operators.expressions import columns_of, truth
from tidegate.operators.join_aggregate.spec import SIGN
from tidegate.operators.schedule import NEVER_US, Int64s, Schedule

PAIRS_AT_ONCE = 1 << 20
_TIMES = ("event_us", "arrival_us")


@dataclass(frozen=True)
class BoundedJoin:
    """What matches, and what comes of it.

    Args:
        kind: of the join.
        alias: of the left stream, as in the schedules' ``lower_us``.
        low_us, high_us: least and greatest event time of a match, less that of the left tuple.
        keys: slots that both sides have, in which matches are equal; a NULL equals nothing.
        left, right: the slots that each side has besides.
        conditions: SQL over these slots that must be true of a match.
        shown: the slots that the result has.
        missing: of a left join, the values that ``right`` has in it where there is no match, a row.
    """

    kind: JoinKind
    alias: str
    low_us: int
    high_us: int
    keys: tuple[str, ...]
    left: tuple[str, ...]
    right: tuple[str, ...]
    conditions: tuple[str, ...]
    shown: pa.Schema
    missing: pa.Table | None = None

    @property
    def takes_back(self) -> bool:
        """Whether the result has tuples that count −1."""
        return self.kind in ("left", "anti")


@dataclass
class Matching:
    """The state: tuples that may still match.

    ``held``: left and right tuples, in order of arrival. ``waits``: bool[n] of the left ones, which have had no match.
    ``peak_bytes``: the most that they have taken.
    """

    join: BoundedJoin
    schedules: Sequence[Schedule]
    held: list[pa.Table] = field(default_factory=list)
    waits: Any = field(default_factory=lambda: np.zeros(0, dtype=bool))
    peak_bytes: int = 0

    def __post_init__(self) -> None:
        """Note which event times are needed from each window on."""
        self._needed = [(s.emit_us, s.needed_from_us(self.join.alias)) for s in self.schedules if len(s)]

    def matched(self, batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The result, of tuples of both sides in order of arrival.

        Args:
            batches: columns ``side`` (0 left, 1 right), ``event_us``, ``arrival_us`` and the slots.

        Returns:
            Tables with ``side`` 0, ``event_us`` of the left tuple, ``arrival_us``, the slots ``shown`` and, if the
            join takes back, ``sign``; in order of arrival, across tables too.

        **Cost**: O(n log n) a batch for n tuples of it and held, and O(pairs within the bound with equal keys).
        **Memory**: the tuples of the windows still to be answered, and ``PAIRS_AT_ONCE`` pairs.
        **Guarantee**: which tuples an instant sees of a window does not depend on batches, nor on other windows.
        """
        join = self.join
        for batch in batches:
            if not self.held:
                self.held = [self._side(batch.slice(0, 0), side) for side in (0, 1)]
            fresh = [self._side(batch, side) for side in (0, 1)]
            rows = self._rows(fresh)
            everything = [pa.concat_tables(both) for both in zip(self.held, fresh, strict=True)]
            self.peak_bytes = max(self.peak_bytes, sum(map(held_bytes, everything)))
            self.held = everything
            if batch.num_rows:
                self._forget(int(batch.column("arrival_us")[-1].as_py()))
            found = [part for part in rows if part.num_rows]
            if found:
                table = pa.concat_tables(found)
                order = np.argsort(int64s(table.column("arrival_us")), kind="stable")
                names = ["side", *_TIMES, *join.shown.names, *([SIGN] if join.takes_back else [])]
                yield table.take(pa.array(order)).select(names)

    def _side(self, batch: pa.Table, side: int) -> pa.Table:
        slots = self.join.right if side else self.join.left
        own = batch.select(list(dict.fromkeys([*_TIMES, *self.join.keys, *slots])))
        return own.filter(pa.array(int64s(batch.column("side")) == side)).combine_chunks()

    def _rows(self, fresh: Sequence[pa.Table]) -> list[pa.Table]:
        """What the result gets by fresh tuples; which left tuples wait is brought up to date."""
        join, (left, right) = self.join, fresh
        every_right = pa.concat_tables([self.held[1], right])
        rows: list[pa.Table] = []
        first_us = []
        waiting = self.held[0] if join.kind in ("inner", "left") else self.held[0].filter(pa.array(self.waits))
        for own, others in ((waiting, right), (left, every_right)):
            earliest_us = np.full(own.num_rows, NEVER_US)
            arrival_us = int64s(own.column("arrival_us"))
            for from_left, from_right in self._pairs(own, others):
                at_us = int64s(others.column("arrival_us"))[from_right]
                np.minimum.at(earliest_us, from_left, at_us)
                if join.kind in ("inner", "left"):
                    at_us = np.maximum(at_us, arrival_us[from_left])
                    rows.append(self._shown(own, from_left, at_us, 1, others.take(pa.array(from_right))))
            first_us.append(np.where(earliest_us == NEVER_US, NEVER_US, np.maximum(earliest_us, arrival_us)))
        if join.kind == "semi":
            for own, at_us in ((waiting, first_us[0]), (left, first_us[1])):
                there = np.flatnonzero(at_us < NEVER_US)
                rows.append(self._shown(own, there, at_us[there], 1))
        if join.takes_back:
            arrival_us = int64s(left.column("arrival_us"))
            comes = np.flatnonzero(first_us[1] > arrival_us)
            rows.append(self._shown(left, comes, arrival_us[comes], 1))
            goes = comes[first_us[1][comes] < NEVER_US]
            rows.append(self._shown(left, goes, first_us[1][goes], -1))
            own_us = first_us[0]
            goes = np.flatnonzero(own_us < NEVER_US)
            if join.kind == "left":
                goes = goes[self.waits[goes]]
            rows.append(self._shown(waiting, goes, own_us[goes], -1))
        waits = self.waits.copy()
        if join.kind in ("inner", "left"):
            waits &= first_us[0] == NEVER_US
        else:
            waits[np.flatnonzero(self.waits)] = first_us[0] == NEVER_US
        self.waits = np.concatenate([waits, first_us[1] == NEVER_US])
        return rows

    def _shown(self, left: pa.Table, rows: Int64s, at_us: Int64s, sign: int, right: pa.Table | None = None) -> pa.Table:
        """Rows of the result, of some left tuples; without ``right`` with what stands for it."""
        join, count = self.join, len(rows)
        own = left.take(pa.array(rows))
        columns: dict[str, Any] = {"side": pa.array(np.zeros(count, dtype=np.int8))}
        columns |= {"event_us": own.column("event_us"), "arrival_us": pa.array(at_us)}
        for name in join.shown.names:
            if name in join.left:
                columns[name] = own.column(name)
            elif right is not None:
                columns[name] = right.column(name)
            else:
                assert join.missing is not None
                columns[name] = join.missing.column(name).take(pa.array(np.zeros(count, dtype=np.int64)))
        if join.takes_back:
            columns[SIGN] = pa.array(np.full(count, sign, dtype=np.int8))
        return pa.table(columns)

    def _pairs(self, left: pa.Table, right: pa.Table) -> Iterator[tuple[Int64s, Int64s]]:
        """The rows of each side that match, ``PAIRS_AT_ONCE`` or those of a left tuple at a time."""
        join = self.join
        for from_left, from_right in matches(left, right, join.keys, join.low_us, join.high_us):
            yield self._met(left, right, from_left, from_right)

    def _met(self, left: pa.Table, right: pa.Table, from_left: Int64s, from_right: Int64s) -> tuple[Int64s, Int64s]:
        """Those of some pairs for which all conditions are true."""
        join = self.join
        names = [*left.schema.names, *right.schema.names]
        for sql in join.conditions:
            read = columns_of(sql, names)
            of_left, of_right = left.take(pa.array(from_left)), right.take(pa.array(from_right))
            values = {name: (of_left if name in join.left else of_right).column(name) for name in read}
            met = truth(sql, pa.table(values))
            from_left, from_right = from_left[met], from_right[met]
        return from_left, from_right

    def _forget(self, arrived_us: int) -> None:
        """Let go of what no window needs that is answered once so much has arrived."""
        needed_us = NEVER_US
        for emit_us, from_us in self._needed:
            needed_us = min(needed_us, int(from_us[np.searchsorted(emit_us, arrived_us, side="left")]))
        least_us = (needed_us, needed_us if needed_us == NEVER_US else needed_us + self.join.low_us)
        stays = [int64s(own.column("event_us")) >= us for own, us in zip(self.held, least_us, strict=True)]
        if self.join.kind in ("semi", "anti"):
            stays[0] &= self.waits
        self.waits = self.waits[stays[0]]
        self.held = [own.filter(pa.array(stay)).combine_chunks() for own, stay in zip(self.held, stays, strict=True)]


def matches(
    left: pa.Table, right: pa.Table, keys: Sequence[str], low_us: int, high_us: int
) -> Iterator[tuple[Int64s, Int64s]]:
    """The rows of two sides that are equal in their keys and not too far apart, some at a time.

    Args:
        left, right: columns ``event_us`` and the keys; a NULL equals nothing.
        keys: at least one.
        low_us, high_us: least and greatest event time of the right row, less that of the left one.

    Returns:
        int64[n] twice: rows of the left, rows of the right; ``PAIRS_AT_ONCE`` or those of one left row at a time.
    """
    count = left.num_rows
    if not count or not right.num_rows:
        return
    both = pa.concat_tables([left.select(keys), right.select(keys)])
    of_keys = [codes(both.column(key))[0] for key in keys]
    ids, known = group_ids(of_keys, count + right.num_rows), np.ones(count + right.num_rows, dtype=bool)
    for key in of_keys:
        known &= key != NULL
    event_us, other_us = int64s(left.column("event_us")), int64s(right.column("event_us"))
    times_us = np.unique(other_us)
    stride = len(times_us) + 1
    place = ids[count:] * stride + np.searchsorted(times_us, other_us)
    place = np.where(known[count:], place, -1)
    order = np.argsort(place, kind="stable")
    place = place[order]
    base = ids[:count] * stride
    begin = np.searchsorted(place, base + np.searchsorted(times_us, event_us + low_us, side="left"))
    end = np.searchsorted(place, base + np.searchsorted(times_us, event_us + high_us, side="right"))
    numbers = np.where(known[:count], end - begin, 0)
    some = np.flatnonzero(numbers)
    total = np.cumsum(numbers[some])
    done = 0
    while done < len(some):
        before = total[done - 1] if done else 0
        last = max(done + 1, int(np.searchsorted(total, before + PAIRS_AT_ONCE, side="right")))
        rows = some[done:last]
        number = numbers[rows]
        from_left = np.repeat(rows, number)
        at = np.arange(len(from_left)) + np.repeat(begin[rows] - (np.cumsum(number) - number), number)
        yield from_left, order[at]
        done = last
