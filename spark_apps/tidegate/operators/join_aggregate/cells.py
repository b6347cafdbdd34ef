"""Tuples put together that no window of some schedules tells apart: few of them, for any number of questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.arrivals import received
from tidegate.operators.join_aggregate.held import without_the_late
from tidegate.operators.join_aggregate.operator import answered_in_turns, rows_at_once
from tidegate.operators.join_aggregate.running import signed
from tidegate.operators.join_aggregate.spec import Measure, Spec
from tidegate.operators.join_aggregate.state import BEFORE_ALL_US, State, start
from tidegate.operators.join_aggregate.tuples import AllCombinations, Books, Tuples, encoded, together
from tidegate.operators.schedule import Int64s, Schedule
from tidegate.values.ordered import orders_as_integers

WORTH_SHARE = 1 / 8
"""Cells that are more than this share of the tuples are not worth it."""
_LEAST_ROWS = 1 << 15
_GATHERED_ROWS = 1 << 18


@dataclass(frozen=True, eq=False)
class Cells:
    """The tuples of some windows, by group, bounds of event times and instants between which they lie.

    **Idea.** A window asks of a tuple only whether its event time is at or behind one bound and before another, and
    whether it arrived by an instant. Tuples with the same codes between the same neighbours among all bounds and all
    instants are one cell: a weight, sums in parts (see ``exact``), extremes.

    ``sides``: per side its cells in order of arrival, each at its bound and its instant.
    """

    spec: Spec
    books: Books
    combinations: AllCombinations
    sides: tuple[Tuples, ...]

    @staticmethod
    def of(spec: Spec, schedules: Sequence[Schedule], batches: Iterable[pa.Table]) -> Cells | None:
        """The cells of tuples (as for ``step``) for the windows of these schedules; None if they are not worth it.

        **Cost**: O(n log n) once, for any number of schedules. **Memory**: a batch, and the cells.
        """
        columns = [spec.columns.field(m.slot).type for m in spec.aggregates if m.extreme is not None]
        if not all(map(orders_as_integers, columns)):
            return None
        grids = [_Grid.of(schedules, side.alias) for side in spec.sides]
        state, last_us, rows = start(spec, schedules[0]), BEFORE_ALL_US, 0
        books, combinations = state.books, state.combinations
        found: list[list[Tuples]] = [[] for _ in spec.sides]
        for batch in batches:
            table = received(batch, spec.input_schema, last_us)
            books, combinations, parts = encoded(spec, table, books, combinations)
            rows += table.num_rows
            for own, part, grid in zip(found, parts, grids, strict=True):
                own.append(_pooled(spec, grid.cells(part)))
                if sum(map(len, own)) > _GATHERED_ROWS:
                    own[:] = [_pooled(spec, _joined(own))]
            if rows >= _LEAST_ROWS and sum(len(cells) for own in found for cells in own) > WORTH_SHARE * rows:
                return None
        return Cells(spec, books, combinations, tuple(_pooled(spec, _joined(own)) for own in found))

    def answers(self, schedule: Schedule) -> Iterator[tuple[int, int, pa.Table]]:
        """The partial answers of a schedule among those the cells were made for: [first, last) windows, and their rows.

        **Guarantee**: the rows that ``step`` and ``finish`` give.
        """
        state = replace(start(self.spec, schedule), books=self.books, combinations=self.combinations)
        cuts = [np.searchsorted(side.arrival_us, schedule.emit_us, side="right") for side in self.sides]
        weights = [np.append(0, np.cumsum(np.abs(side.weight), dtype=np.int64)) for side in self.sides]  # type: ignore[arg-type]
        arrived = np.sum([weight[cut] for weight, cut in zip(weights, cuts, strict=True)], axis=0)
        first, windows = 0, len(schedule)
        while first < windows:
            taken = arrived[first - 1] if first else 0
            last = int(np.searchsorted(arrived, taken + rows_at_once(state), side="right"))
            last = min(max(last, first + 1), windows)
            rows = [slice(cut[first - 1] if first else 0, cut[last - 1]) for cut in cuts]
            fuller = self._absorbed(state, rows)
            for state, partial in answered_in_turns(fuller, last):
                yield first, state.next_window, partial
                first = state.next_window

    def _absorbed(self, state: State, rows: Sequence[slice]) -> State:
        emit_us, first = state.plan.schedule.emit_us, state.next_window
        sides = tuple(
            held.with_fresh(without_the_late(side[own], emit_us[first:], needed_from_us[first:], spans_us))
            for held, side, own, needed_from_us, spans_us in zip(
                state.sides, self.sides, rows, state.plan.needed_from_us, state.plan.spans_us, strict=True
            )
        )
        return replace(state, sides=sides)


@dataclass(frozen=True, eq=False)
class _Grid:
    """All bounds of event times that windows of one side have, and all instants; each once, ascending."""

    bounds_us: Int64s
    instants_us: Int64s

    @staticmethod
    def of(schedules: Sequence[Schedule], alias: str) -> _Grid:
        bounds = [bound for schedule in schedules for bound in (schedule.lower_us[alias], schedule.window_end_us)]
        return _Grid(np.unique(np.concatenate(bounds)), np.unique(np.concatenate([s.emit_us for s in schedules])))

    def cells(self, part: Tuples) -> Tuples:
        """The tuples that some window may see, each as a cell at its bound and instant."""
        bound = np.searchsorted(self.bounds_us, part.event_us, side="right") - 1
        instant = np.searchsorted(self.instants_us, part.arrival_us, side="left")
        rows = np.flatnonzero((bound >= 0) & (bound < len(self.bounds_us) - 1) & (instant < len(self.instants_us)))
        values: dict[Any, Any] = {slot: column[rows] for slot, column in part.values.items()}
        sign = None if part.sign is None else part.sign[rows]
        nulls = {slot: signed(column[rows].astype(np.int64), sign) for slot, column in part.nulls.items()}
        event_us, arrival_us = self.bounds_us[bound[rows]], self.instants_us[instant[rows]]
        weight = signed(np.ones(len(rows), dtype=np.int64), sign)
        return Tuples(event_us, arrival_us, part.code[rows], values, nulls, weight, sign)


def _joined(parts: Sequence[Tuples]) -> Tuples:
    """Cells one behind the other: what a part has no column of is 0."""
    keys = dict.fromkeys(key for part in parts for key in part.values)
    nothing = [np.zeros(len(part), dtype=np.int64) for part in parts]
    filled = [
        replace(part, values={key: part.values.get(key, zeros) for key in keys})
        for part, zeros in zip(parts, nothing, strict=True)
    ]
    nobody = np.zeros(0, dtype=np.int64)
    return together(filled) if filled else Tuples(nobody, nobody, nobody, weight=nobody)


def _pooled(spec: Spec, cells: Tuples) -> Tuples:
    """Cells of the same code, bound and instant as one; in order of arrival."""
    measures = {measure.slot: measure for measure in spec.aggregates}
    assert cells.weight is not None
    order = np.lexsort((cells.code, cells.event_us, cells.arrival_us))
    new = np.ones(len(order), dtype=bool)
    for column in (cells.code, cells.event_us, cells.arrival_us):
        own = column[order]
        new[1:] &= own[1:] == own[:-1]
    new[1:] = ~new[1:]
    first = np.flatnonzero(new)
    if not len(first):
        return replace(cells, values={})
    return Tuples(
        cells.event_us[order][first],
        cells.arrival_us[order][first],
        cells.code[order][first],
        dict(_values(cells, measures, order, first)),
        {slot: np.add.reduceat(column[order], first) for slot, column in cells.nulls.items()},
        np.add.reduceat(cells.weight[order], first),
    )


def _values(
    cells: Tuples, measures: Mapping[str, Measure], order: Int64s, first: Int64s
) -> Iterator[tuple[Any, Int64s]]:
    for key, column in cells.values.items():
        if isinstance(key, tuple):
            yield key, np.add.reduceat(column[order], first)
            continue
        for name, total in measures[key].sums:
            for part, numbers in total.split(column).items():
                numbers = signed(numbers.astype(np.int64), cells.sign)
                yield (name, part), np.add.reduceat(numbers[order], first)
        extreme = measures[key].extreme
        if extreme is not None:
            own = column[order]
            if key in cells.nulls:
                none = (cells.nulls[key] == cells.weight)[order]
                own = np.where(none, extreme.absent, own)
            yield key, extreme.pick.reduceat(own, first)
