"""A plain numpy kernel on the same Parquet: the physical limit.

It holds a dense matrix of panes × keys, so it wants all tuples at once, whole numbers from 0 as keys, and a stream that
has ended; it knows no arrival, no state, no other query.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from infra.benchmarks.join_aggregate.job import SECOND_US, Int64s, Job, serve

MOST_CELLS = 1 << 24
"""Cells of one matrix; more keys than that go in blocks of keys."""


def columns(job: Job, side: str, valued: bool) -> tuple[Int64s, Int64s, np.ndarray]:
    """Each tuple's pane, key and value (ones if not wanted)."""
    table = ds.dataset(job.stream(side)).to_table(["event_time", "key", *(["value"] if valued else [])])
    event_us = table["event_time"].cast(pa.int64()).to_numpy()
    value = table["value"].to_numpy() if valued else np.ones(0)
    return (event_us - job.start_us) // (job.every_s * SECOND_US), table["key"].to_numpy(), value


def run(_: None, job: Job) -> None:
    """Counts and sums per pane and key; sliding totals per key; their products summed."""
    windows, width = len(job.ends_us), job.range_s // job.every_s
    left, right = columns(job, "left", valued=True), columns(job, "right", valued=False)
    count, total = np.zeros(windows), np.zeros(windows)
    keys = max(1, min(job.keys, MOST_CELLS // windows))
    for first in range(0, job.keys, keys):
        size = min(keys, job.keys - first)
        n, s = _cells(left, first, size, windows, job.keys, (False, True))
        (m,) = _cells(right, first, size, windows, job.keys, (False,))
        sliding = [np.zeros(size) for _ in range(3)]
        for window in range(windows):
            for running, panes in zip(sliding, (n, s, m), strict=True):
                running += panes[window]
                if window >= width:
                    running -= panes[window - width]
            count[window] += sliding[0] @ sliding[2]
            total[window] += sliding[1] @ sliding[2]
    job.write(job.ends_us, count, total)


def _cells(
    tuples: tuple[Int64s, Int64s, np.ndarray], first: int, size: int, windows: int, keys: int, valued: tuple[bool, ...]
) -> list[np.ndarray]:
    """For each asked, counts or sums: float64[panes, size] of the keys from ``first`` on."""
    pane, key, value = tuples
    kept = pane < windows
    if size < keys:
        kept &= (key >= first) & (key < first + size)
    if not kept.all():
        pane, key, value = pane[kept], key[kept], value[kept] if len(value) else value
    cell = pane * size + (key - first)
    parts = (np.bincount(cell, value if wanted else None, windows * size) for wanted in valued)
    return [part.reshape(windows, size) for part in parts]


if __name__ == "__main__":
    serve(lambda job: None, run)
