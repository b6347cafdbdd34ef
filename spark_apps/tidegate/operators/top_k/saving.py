"""States as Arrow tables: saved and loaded, put together and divided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tidegate.operators.positions import Position, even_shares, position_of, together
from tidegate.operators.schedule import Int64s, Schedule
from tidegate.operators.top_k.operator import State, best_of_panes, start
from tidegate.operators.top_k.spec import Spec


def state_tables(state: State) -> dict[str, pa.Table]:
    """The state as Arrow tables, from which ``state_from_tables`` makes it again; without spec and schedule.

    Returns:
        ``position``: one row (``positions.POSITION``), up to which window all is answered, and the last arrival.
        ``candidates``: the tuples held, best first.

    **Cost**: O(1), the candidates are a table already.
    """
    return {"position": _position(state).as_table(), "candidates": state.candidates}


def state_from_tables(spec: Spec, schedule: Schedule, tables: Mapping[str, pa.Table]) -> State:
    """The state that ``state_tables`` saved, to go on with the windows after the last one that it had answered.

    Args:
        spec: as when the state was saved.
        schedule: as then, or without windows that have been answered (window_index counts from its first), and, if
            the state began with ``open_end``, with more windows behind (see ``start``).
        tables: as saved; rows in any order.

    Raises:
        ValueError: a window to answer lies before tuples that the state has already seen, bounds are not multiples
            of the pane, or a table is missing.

    **Cost**: O(c log c) for c candidates. **Guarantee**: answers are the same as if the state had not been saved.
    """
    position = position_of(tables, ["position", "candidates"])
    saved = tables["candidates"].replace_schema_metadata(None).select(spec.input_schema.names).cast(spec.input_schema)
    return replace(
        start(spec, schedule, position.open_end),
        candidates=best_of_panes(spec, saved),
        next_window=schedule.resume(position.answered_us, position.last_arrival_us),
        answered_us=position.answered_us,
        last_arrival_us=position.last_arrival_us,
        peak_bytes=position.peak_bytes,
    )


def merged(states: Sequence[State]) -> State:
    """One state of those of disjoint parts of the tuples, so that fewer partitions can go on.

    Of answers it is ``merge`` that puts them together. The peak is the sum of theirs.

    Raises:
        ValueError: there are none, or they have answered different windows (``advance`` all to one instant first).

    **Cost**: O(c log c) for c candidates. **Guarantee**: answers from here on as if all had been in one partition.
    """
    position = together([_position(state) for state in states])
    every = pa.concat_tables([state.candidates for state in states])
    return replace(
        states[0],
        candidates=best_of_panes(states[0].spec, every),
        last_arrival_us=position.last_arrival_us,
        peak_bytes=position.peak_bytes,
        open_end=position.open_end,
    )


def split(state: State, bucket_of: Callable[[pa.Table], Int64s], buckets: int) -> list[State]:
    """The state divided by a bucket of each candidate, so that more partitions can go on; see ``merged``.

    Args:
        state: of all tuples.
        bucket_of: the candidates → int64[n], each one's bucket.
        buckets: how many there are.

    Returns:
        One state for each bucket; each has an even share of the peak, the first what is left.

    Raises:
        ValueError: a bucket outside 0 … ``buckets`` − 1.
    """
    bucket = np.asarray(bucket_of(state.candidates), dtype=np.int64)
    if len(bucket) and not 0 <= bucket.min() <= bucket.max() < buckets:
        raise ValueError(f"buckets must lie in 0..{buckets - 1}")
    return [
        replace(
            state,
            candidates=state.candidates.filter(pa.array(bucket == number)).combine_chunks(),
            peak_bytes=peak,
        )
        for number, peak in enumerate(even_shares(state.peak_bytes, buckets))
    ]


def _position(state: State) -> Position:
    return Position(*state.answered_us, state.last_arrival_us, state.peak_bytes, state.open_end)
