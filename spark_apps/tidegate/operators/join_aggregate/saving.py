"""States as Arrow tables: saved and loaded, put together and divided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tidegate.operators.join_aggregate.spec import Spec
from tidegate.operators.join_aggregate.state import State, absorbed, start
from tidegate.operators.join_aggregate.tuples import held_schema
from tidegate.operators.positions import Position, even_shares, position_of, together
from tidegate.operators.schedule import Int64s, Schedule


def state_tables(state: State) -> dict[str, pa.Table]:
    """The state as Arrow tables, from which ``state_from_tables`` makes it again; without spec and schedule.

    Returns:
        ``position``: one row (``positions.POSITION``), up to which window all is answered, and the last arrival.
        ``side_0``, ``side_1`` …: each side's tuples that a window can still need, in order of arrival. The totals
        follow from the tuples and are not among them.

    **Cost**: O(tuples held).
    """
    tables = {"position": _position(state).as_table()}
    return tables | {_name(side): held for side, held in enumerate(state.held)}


def state_from_tables(spec: Spec, schedule: Schedule, tables: Mapping[str, pa.Table]) -> State:
    """The state that ``state_tables`` saved, to go on with the windows after the last one that it had answered.

    Args:
        spec: as when the state was saved.
        schedule: as then, or without windows that have been answered (window_index counts from its first), and, if
            the state began with ``open_end``, with more windows behind (see ``start``).
        tables: as saved; rows in any order, so that files or partitions may be read as they come.

    Raises:
        ValueError: a window to answer lies before tuples that the state has already seen; a table is missing.

    **Cost**: O(tuples held), and once more when the next window is answered.
    **Guarantee**: answers are the same bytes as if the state had not been saved.

    >>> from tidegate.operators.join_aggregate import Measure, Side, advance, finish, step
    >>> spec = Spec((Side("d"),), (Measure("a0", "count"),), pa.schema([]))
    >>> ticks = [Schedule.from_ticks(np.arange(10, end, 10), 0, {"d": 20}) for end in (21, 41)]
    >>> at = {"event_us": [3, 12, 19], "arrival_us": [3, 12, 19]}
    >>> state, _ = step(start(spec, ticks[0], open_end=True), pa.table({"side": [0, 0, 0], **at}))
    >>> state, answers = advance(state, 25)
    >>> answers.column("pairs").to_pylist()
    [3]
    >>> state, answers = finish(state_from_tables(spec, ticks[1], state_tables(state)))
    >>> answers.select(["window_index", "pairs"]).to_pylist()
    [{'window_index': 2, 'pairs': 2}]
    """
    names = ["position", *(_name(side) for side in range(len(spec.sides)))]
    position = position_of(tables, names)
    state = replace(
        start(spec, schedule, position.open_end),
        next_window=schedule.resume(position.answered_us, position.last_arrival_us),
        answered_us=position.answered_us,
        last_arrival_us=position.last_arrival_us,
        peak_bytes=position.peak_bytes,
    )
    parts = []
    for side, name in enumerate(names[1:]):
        schema = held_schema(spec, side)
        held = tables[name].replace_schema_metadata(None).select(schema.names).cast(schema)
        parts.append(held.add_column(0, "side", pa.array(np.full(held.num_rows, side, dtype=np.int8))))
    return absorbed(state, pa.concat_tables(parts, promote_options="default").sort_by("arrival_us"))


def merged(states: Sequence[State]) -> State:
    """One state of those of disjoint parts of the tuples, so that fewer partitions can go on.

    Its peak is the sum of theirs.

    Raises:
        ValueError: there are none, or they have answered different windows (``advance`` all to one instant first).

    **Cost**: O(tuples held). **Guarantee**: answers from here on as if all tuples had been in one partition.
    """
    position = together([_position(state) for state in states])
    plan, each = states[0].plan, [state_tables(state) for state in states]
    tables = {name: pa.concat_tables([own[name] for own in each]) for name in each[0]}
    return state_from_tables(plan.spec, plan.schedule, tables | {"position": position.as_table()})


def split(state: State, bucket_of: Callable[[int, pa.Table], Int64s], buckets: int) -> list[State]:
    """The state divided by a bucket of each tuple, so that more partitions can go on; ``merged`` is the way back.

    Args:
        state: of all tuples.
        bucket_of: (number of the side, its tuples as in ``state_tables``) → int64[n], each one's bucket; tuples
            that join must share it, as in any partitioning.
        buckets: how many there are.

    Returns:
        One state for each bucket; each has an even share of the peak, the first what is left.

    Raises:
        ValueError: a bucket outside 0 … ``buckets`` − 1.

    **Cost**: O(tuples held · log).
    """
    plan, tables = state.plan, state_tables(state)
    position = _position(state)
    peaks = even_shares(state.peak_bytes, buckets)
    shares = [{"position": replace(position, peak_bytes=peak).as_table()} for peak in peaks]
    for side in range(len(plan.spec.sides)):
        held = tables[_name(side)]
        chosen = np.asarray(bucket_of(side, held), dtype=np.int64)
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < buckets:
            raise ValueError(f"buckets must lie in 0..{buckets - 1}")
        order = np.argsort(chosen, kind="stable")
        cuts = np.searchsorted(chosen[order], np.arange(buckets + 1))
        ordered = held.take(pa.array(order))
        for number, own in enumerate(shares):
            own[_name(side)] = ordered.slice(cuts[number], cuts[number + 1] - cuts[number])
    return [state_from_tables(plan.spec, plan.schedule, own) for own in shares]


def _name(side: int) -> str:
    return f"side_{side}"


def _position(state: State) -> Position:
    return Position(*state.answered_us, state.last_arrival_us, state.peak_bytes, state.plan.open_end)
