"""A synthetic stream, interval by interval, the same in every run: an id, an event time, a value, a kind of 25."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

INTERVAL_TUPLES, KINDS, TICK_US = 1_000_000, 25, 1_000


def intervals(tuples: int, seed: int) -> Iterator[pa.Table]:
    """Intervals of a million tuples, a tick apart; the values drift by a third of their range over the stream."""
    for number in range(tuples // INTERVAL_TUPLES):
        rng, first = np.random.default_rng([seed, number]), number * INTERVAL_TUPLES
        row = np.arange(first, first + INTERVAL_TUPLES)
        value = rng.uniform(-1_000, 10_000, len(row)).round(2) + 3_000 * row / tuples
        yield pa.table(
            {
                "event_id": pc.cast(pa.array(row), pa.string()),
                "event_us": pa.array(row * TICK_US),
                "value": pa.array(value),
                "kind": pa.array(rng.integers(0, KINDS, len(row)).astype(np.int8)),
            }
        )
