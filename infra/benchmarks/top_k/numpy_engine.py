"""A plain numpy kernel on the same Parquet: the physical limit.

It wants all tuples at once, and a stream that has ended; it knows no arrival, no ties, no state, no other query.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from infra.benchmarks.top_k.job import SECOND_US, STREAM, Int64s, Job, serve

NOBODY = -1


def run(_: None, job: Job) -> None:
    """The k best of every pane and key by partition; of every window from runs of 1, 2, 4 … panes."""
    columns = ["event_time", "event_id", "score", *(["key"] if job.grouped else [])]
    table = ds.dataset(job.stream(STREAM)).to_table(columns)
    event_us = table["event_time"].cast(pa.int64()).to_numpy()
    pane = (event_us - job.start_us) // (job.every_s * SECOND_US)
    score = table["score"].to_numpy()
    unit = pane * job.keys + table["key"].to_numpy() if job.grouped else pane
    windows = len(job.ends_us)
    best = _of_units(unit, score, windows * job.keys, job.k).reshape(windows, job.keys, job.k)
    answers = _of_windows(best, np.append(score, -np.inf), job.panes)
    window, _, _ = np.nonzero(answers != NOBODY)
    row = answers[answers != NOBODY]
    job.write(job.ends_us[window], table["event_id"].to_numpy()[row], score[row])


def _of_units(unit: Int64s, score: np.ndarray, units: int, k: int) -> Int64s:
    """int64[units, k]: places of each unit's best, NOBODY where there are fewer."""
    order = np.argsort(unit.astype(np.uint16) if units <= 1 << 16 else unit, kind="stable")
    cuts = np.searchsorted(unit[order], np.arange(units + 1))
    best = np.full((units, k), NOBODY)
    for number, (begin, end) in enumerate(zip(cuts[:-1], cuts[1:], strict=True)):
        own = order[begin:end]
        if len(own) > k:
            own = own[np.argpartition(score[own], len(own) - k)[-k:]]
        best[number, : len(own)] = own
    return best


def _of_windows(best: Int64s, score: np.ndarray, width: int) -> Int64s:
    """int64[windows, keys, k]: the best of the ``width`` panes up to each. ``score`` ends with NOBODY's."""
    found = np.full_like(best, NOBODY)
    run, length, done = best, 1, 0
    while True:
        if width & length:
            # The run of this length that ends where what has been found begins.
            found = _better(found, _shifted(run, done), score)
            done += length
        if done == width:
            return found
        run = _better(run, _shifted(run, length), score)
        length *= 2


def _shifted(run: Int64s, panes: int) -> Int64s:
    nobody = np.full_like(run[:panes], NOBODY)
    return np.concatenate([nobody, run[: len(run) - panes]]) if panes else run


def _better(a: Int64s, b: Int64s, score: np.ndarray) -> Int64s:
    both = np.concatenate([a, b], axis=2)
    k = a.shape[2]
    chosen: Int64s = np.take_along_axis(both, np.argpartition(score[both], k, axis=2)[:, :, k:], axis=2)
    return chosen


if __name__ == "__main__":
    serve(lambda job: None, run)
