"""The paper's random streams, as arrivals of the published algorithms and as batches of the production operator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from infra.research.published.join_aggregate import Arrival
from infra.research.published.join_aggregate.windows import TUPLE_BYTES

from tidegate.operators.join_aggregate import Measure, Side, Spec, State, start
from tidegate.operators.schedule import Schedule

SECOND_US = 1_000_000
GENERATOR = (
    "streams.py beside this figure's code: streams with Poisson arrivals and the same rate, join keys uniform, one "
    "of 1/selectivity; a tuple of 18 bytes"
)

Pieces = Sequence[tuple[float, float]]
"""A rate that changes: (seconds, tuples per second) one after the other."""


def tuples_per_s(byte_rate: float) -> float:
    """The paper gives rates in bytes; its tuples have 18."""
    return byte_rate / TUPLE_BYTES


def arrivals(seed: int, windows: int, pieces: Pieces, keys: int, identical: bool = False) -> list[Arrival]:
    """The streams' tuples in order of time, the key as group too.

    Args:
        seed: of numpy's default generator.
        windows: how many streams.
        pieces: the rate of each stream.
        keys: how many join keys: a pair matches with probability 1 / keys.
        identical: every tuple comes on all streams at once, instead of independent streams.
    """
    random = np.random.default_rng(seed)
    found: list[Arrival] = []
    for side in range(1 if identical else windows):
        begin_us = 0
        for length_s, rate in pieces:
            length_us = round(length_s * SECOND_US)
            times_us = begin_us + random.integers(0, length_us, random.poisson(rate * length_s))
            drawn = random.integers(0, keys, len(times_us))
            for event_us, key in zip(times_us.tolist(), drawn.tolist(), strict=True):
                found += [Arrival(of, event_us, key, group=key) for of in (range(windows) if identical else (side,))]
            begin_us += length_us
    return sorted(found, key=lambda one: one.event_us)


def production(found: Sequence[Arrival], widths_us: Sequence[int], grouped: bool = False) -> tuple[State, pa.Table]:
    """The production operator before the first tuple, with a window that ends just after each; and the tuples."""
    spec = Spec(
        tuple(Side(f"w{side}", ("j0",), ("g0",) if grouped and side == 0 else ()) for side in range(len(widths_us))),
        (Measure("a0", "count"),),
        pa.schema([("j0", pa.int64()), *([("g0", pa.int64())] if grouped else [])]),
    )
    event_us = np.array([one.event_us for one in found], dtype=np.int64)
    ends_us = np.unique(event_us) + 1
    ranges_us = {f"w{side}": width_us for side, width_us in enumerate(widths_us)}
    keys = np.array([one.key for one in found], dtype=np.int64)
    sides = np.array([one.side for one in found], dtype=np.int8)
    batch = pa.table({"side": sides, "event_us": event_us, "arrival_us": event_us, "j0": keys, "g0": keys})
    return start(spec, Schedule.from_ticks(ends_us, 0, ranges_us)), batch.select(spec.input_schema.names)
