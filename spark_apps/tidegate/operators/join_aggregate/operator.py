"""Join-aggregates over sliding windows, answered from per-key totals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.arrivals import held_bytes, int64s, received
from tidegate.operators.join_aggregate.evaluate import evaluate
from tidegate.operators.join_aggregate.spec import Spec
from tidegate.operators.schedule import NEVER_US, Schedule

BEFORE_ALL_US = -NEVER_US


@dataclass(frozen=True, eq=False)
class State:
    """The tuples that the windows still to answer can need, per side, in order of arrival.

    ``next_window``: index of the next window to answer. ``answered_us``: (emit_us, window_end_us) of the last one
    answered. ``last_arrival_us``: no tuple that arrives before it is still to come. ``peak_bytes``: the most that was
    held at any answer.
    """

    spec: Spec
    schedule: Schedule
    held: tuple[pa.Table, ...]
    next_window: int = 0
    answered_us: tuple[int, int] = (BEFORE_ALL_US, BEFORE_ALL_US)
    last_arrival_us: int = BEFORE_ALL_US
    peak_bytes: int = 0

    def to_arrow(self) -> pa.Table:
        """The state as one Arrow table: the held tuples with their side, and its position in the schema's metadata."""
        parts = [
            held.add_column(0, "side", pa.array(np.full(held.num_rows, index, dtype=np.int8)))
            for index, held in enumerate(self.held)
        ]
        position = {
            "emit_us": self.answered_us[0],
            "window_end_us": self.answered_us[1],
            "last_arrival_us": self.last_arrival_us,
            "peak_bytes": self.peak_bytes,
        }
        table = pa.concat_tables([self.spec.input_schema.empty_table(), *parts], promote_options="default")
        return table.replace_schema_metadata({key: str(value) for key, value in position.items()})

    @staticmethod
    def from_arrow(table: pa.Table, spec: Spec, schedule: Schedule) -> State:
        """The state that ``to_arrow`` saved, to go on with the windows after the last one that it had answered.

        The schedule may have grown by later windows, and lost answered ones, since the state was saved; but nothing
        comes back that the windows scheduled then did not need.

        Raises:
            ValueError: a window to answer lies before tuples that the state has already seen.
        """
        position = {key.decode(): int(value) for key, value in (table.schema.metadata or {}).items()}
        answered_us = (position["emit_us"], position["window_end_us"])
        next_window = schedule.resume(answered_us, position["last_arrival_us"])
        side = table.column("side").to_numpy()
        held = tuple(
            table.filter(pa.array(side == index)).select(schema.names).replace_schema_metadata(None).cast(schema)
            for index, schema in enumerate(map(spec.side_schema, range(len(spec.sides))))
        )
        last_arrival_us, peak_bytes = position["last_arrival_us"], position["peak_bytes"]
        return State(spec, schedule, held, next_window, answered_us, last_arrival_us, peak_bytes)


def start(spec: Spec, schedule: Schedule) -> State:
    """The state before any tuple has been seen.

    Raises:
        ValueError: the schedule lacks the bounds of an alias.
    """
    missing = [side.alias for side in spec.sides if side.alias not in schedule.lower_us]
    if missing:
        raise ValueError(f"schedule has no lower bounds for aliases {missing}; it has {schedule.aliases}")
    held = tuple(spec.side_schema(index).empty_table() for index in range(len(spec.sides)))
    return State(spec, schedule, held)


def step(state: State, batch: pa.RecordBatch | pa.Table) -> tuple[State, pa.Table]:
    """Absorb a batch and answer every window that no later tuple can still reach.

    **Idea.** A window is answered from the tuples held at its instant. Each side is first summed up per (join key,
    group), then the sides are joined key by key: counts multiply, a sum multiplies with the other sides' counts, an
    extreme stays what it is. A class that no later side has is summed away before the next join, so that chains and
    stars need no more than the totals per key; the join's result is never formed.

    Args:
        state: from ``start``, ``step`` or ``State.from_arrow``.
        batch: rows of ``spec.input_schema`` in ascending order of ``arrival_us``, across batches too; the effective
            arrival time, max(arrival, event). Columns that a row's side does not own are ignored.

    Returns:
        The new state, and the partial answers (``spec.output_schema``) of every window whose ``emit_us`` lies before
        the last arrival seen: a tuple that arrives at ``emit_us`` still belongs, so only then is the window complete.
        Rows ascend by window_index, then group (NULL group last). Groups without pairs are not among them.
        ``<slot>_count``: pairs in which the slot's value is not NULL (COUNT(*): all pairs); ``_sum``, ``_min`` and
        ``_max`` are NULL where that is 0. Partials of disjoint hash partitions of a class that all sides share
        combine by adding counts and sums and taking extremes.

    Raises:
        ValueError: rows out of order, a missing column, a side that is not declared.
        OverflowError: an integer total beyond 64 bits.

    **Cost.** Space O(tuples in the windows and slack), plus the answers. Per answered window O(w log w) time for w
    held tuples, plus the matching (key, group) totals. Nothing is kept from one answer to the next.

    **Guarantee.** Exact; doubles are added in ascending order of value, so that the same tuples give the same
    bytes in any order of arrival and any division into batches. Divided into other hash partitions the sums of
    doubles may differ by rounding (relative 1e-15 or so per addition), the rest does not.

    >>> from tidegate.operators.join_aggregate import Measure, Side, Spec
    >>> spec = Spec((Side("d", groups=("g0",)),), (Measure("a0", "count"),), pa.schema([("g0", pa.string())]))
    >>> schedule = Schedule.from_ticks(np.array([10, 20]), 5, {"d": 10})
    >>> batch = pa.table({"side": [0, 0, 0], "event_us": [3, 12, 9], "arrival_us": [3, 12, 15], "g0": list("xyx")})
    >>> state, answers = step(start(spec, schedule), batch)
    >>> answers.num_rows  # a tuple could still arrive at 15
    0
    >>> state, answers = finish(state)
    >>> answers.select(["window_index", "g0", "pairs"]).to_pylist()
    [{'window_index': 0, 'g0': 'x', 'pairs': 2}, {'window_index': 1, 'g0': 'y', 'pairs': 1}]

    **Source.** papers/02, "Beyond the paper" (factorised totals); the papers' own IC and TC keep tuples and counters.
    """
    spec, schedule = state.spec, state.schedule
    table = received(batch, spec.input_schema, state.last_arrival_us)
    if table.num_rows == 0:
        return state, spec.output_schema.empty_table()
    last_arrival_us = int(table.column("arrival_us")[-1].as_py())
    complete = int(np.searchsorted(schedule.emit_us, last_arrival_us, side="left"))
    return _answer_up_to(replace(state, last_arrival_us=last_arrival_us), _by_side(spec, table), complete)


def advance(state: State, until_us: int) -> tuple[State, pa.Table]:
    """Answer the windows whose ``emit_us`` lies before ``until_us``: no tuple arrives before it any more."""
    until_us = max(until_us, state.last_arrival_us)
    complete = int(np.searchsorted(state.schedule.emit_us, until_us, side="left"))
    nothing = [state.spec.side_schema(index).empty_table() for index in range(len(state.spec.sides))]
    return _answer_up_to(replace(state, last_arrival_us=until_us), nothing, complete)


def finish(state: State) -> tuple[State, pa.Table]:
    """Answer all windows that are left: no tuple will come any more."""
    return advance(state, NEVER_US)


def state_bytes(state: State) -> int:
    """Bytes of the tuples held now."""
    return sum(held_bytes(held) for held in state.held)


def _by_side(spec: Spec, table: pa.Table) -> list[pa.Table]:
    """The rows and columns of each side, without the tuples that can never join (a NULL in a join key)."""
    side = table.column("side").to_numpy()
    if not np.isin(side, np.arange(len(spec.sides))).all():
        raise ValueError(f"column side must lie in 0..{len(spec.sides) - 1}")
    parts = []
    for index, declared in enumerate(spec.sides):
        rows = side == index
        for name in declared.classes:
            rows &= pc.is_valid(table.column(name)).to_numpy()
        parts.append(table.filter(pa.array(rows)).select(spec.side_schema(index).names))
    return parts


def _answer_up_to(state: State, fresh: list[pa.Table], complete: int) -> tuple[State, pa.Table]:
    """Answer the windows ``state.next_window`` … ``complete`` − 1, taking in fresh tuples as each one needs them."""
    spec, schedule = state.spec, state.schedule
    needed_from_us = [schedule.needed_from_us(side.alias) for side in spec.sides]
    arrivals_us = [int64s(part.column("arrival_us")) for part in fresh]
    taken = [0] * len(fresh)
    held, peak_bytes, answers = list(state.held), state.peak_bytes, []
    for window in range(state.next_window, max(complete, state.next_window)):
        emit_us, end_us = schedule.emit_us[window], schedule.window_end_us[window]
        contents = []
        for index, side in enumerate(spec.sides):
            upto = int(np.searchsorted(arrivals_us[index], emit_us, side="right"))
            more = fresh[index].slice(taken[index], upto - taken[index])
            taken[index] = upto
            held[index] = _needed(held[index], more, int(needed_from_us[index][window]))
            event_us = int64s(held[index].column("event_us"))
            inside = (event_us >= schedule.lower_us[side.alias][window]) & (event_us < end_us)
            contents.append(held[index].filter(pa.array(inside)))
        peak_bytes = max(peak_bytes, sum(held_bytes(part) for part in held))
        answers.append(evaluate(spec, window, contents))
    next_window, answered_us = max(complete, state.next_window), state.answered_us
    if next_window > state.next_window:
        answered_us = (int(schedule.emit_us[next_window - 1]), int(schedule.window_end_us[next_window - 1]))
    for index, part in enumerate(fresh):
        held[index] = _needed(held[index], part.slice(taken[index]), int(needed_from_us[index][next_window]))
    advanced = replace(state, held=tuple(held), next_window=next_window, answered_us=answered_us, peak_bytes=peak_bytes)
    return advanced, pa.concat_tables([spec.output_schema.empty_table(), *answers]).combine_chunks()


def _needed(held: pa.Table, more: pa.Table, from_us: int) -> pa.Table:
    """What is held and what has come, without the tuples whose event time no window needs any more."""
    both = pa.concat_tables([held, more]).combine_chunks() if more.num_rows else held
    keep = int64s(both.column("event_us")) >= from_us
    return both if keep.all() else both.filter(pa.array(keep)).combine_chunks()
