"""Estimates of the past against the truth, where the tuples are still there: what the report shows of history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tidegate.apps.history import query_history
from tidegate.apps.history_past import Past
from tidegate.declarations.models import Stream, from_us
from tidegate.hosts.warehouse import Warehouse
from tidegate.operators.history.tree import COUNT, SUM

PARTS = 10


@dataclass(frozen=True)
class Judged:
    """One question about one part of a stream's past: AVG of a column where it is above its mean over all of it.

    ``fraction``: sampled share of the part's tuples. ``error``: relative, None if there is no estimate. ``holds``:
    whether the 95 % interval holds the truth; None if it has no bounds.
    """

    stream: str
    column: str
    start: datetime
    end: datetime
    tuples: int
    fraction: float
    truth: float
    estimate: float | None
    low: float | None
    high: float | None

    @property
    def error(self) -> float | None:
        """|estimate − truth| / |truth|."""
        if self.estimate is None or not self.truth:
            return None
        return abs(self.estimate - self.truth) / abs(self.truth)

    @property
    def holds(self) -> bool | None:
        """Whether the interval holds the truth."""
        if self.low is None or self.high is None:
            return None
        slack = 1e-9 * max(abs(self.truth), 1.0)
        return self.low - slack <= self.truth <= self.high + slack


def against_truth(warehouse: Warehouse, stream: Stream, parts: int = PARTS) -> list[Judged]:
    """The stream's past in parts of equal length, the oldest first, one numeric column estimated in each.

    Parts that hold no tuple, or tuples that are still in their windows, are left out. Nothing is estimated from exact
    aggregates: the predicate sends every question to the samples.

    Cost: reads the leaves and samples once a part, and the column of all events once.
    """
    if stream.history is None or not stream.numeric_columns or not warehouse.labels("history_leaves"):
        return []
    view = Past.open(warehouse, stream).view
    # A measurement rather than a number that names something, such as a flight's.
    column = next((c for c in stream.numeric_columns if stream.column(c).type == "double"), stream.numeric_columns[0])
    values, strata = view.values[:, stream.numeric_columns.index(column), :], view.strata
    count = float(values[:, COUNT].sum())
    if not count:
        return []
    mean = float(values[:, SUM].sum()) / count
    event_us, held = _events(warehouse, stream, column)
    edges = np.linspace(strata.start_us.min(), strata.end_us.max(), parts + 1).astype(np.int64)
    # Whole leaves, so that the leaves say how many tuples have entered.
    edges = np.unique([strata.start_us.min(), *(strata.end_us[strata.end_us <= e].max(initial=0) for e in edges[1:])])
    edges = edges[edges >= strata.start_us.min()]
    sql = f"SELECT AVG(`{column}`) AS mean FROM {stream.name} WHERE `{column}` > {mean!r}"
    found = []
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        own = (strata.start_us >= start) & (strata.end_us <= end)
        inside = (event_us >= start) & (event_us < end)
        chosen = held[inside & (held > mean)]
        tuples = int(strata.tuples[own].sum())
        if not len(chosen) or tuples != int(inside.sum()):
            continue
        span = (from_us(start), from_us(end))
        (row,) = query_history(warehouse.pipeline, warehouse.root, sql, *span)["rows"]
        answer = row["mean"]
        fraction = float(strata.sampled[own].sum()) / tuples
        bounds = (answer["estimate"], answer["low"], answer["high"])
        found.append(Judged(stream.name, column, *span, tuples, fraction, float(chosen.mean()), *bounds))
    return found


def _events(warehouse: Warehouse, stream: Stream, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Event time and value of every accepted tuple; NaN where it has none."""
    table = f"events_{stream.name}"
    files = list(warehouse.files(table, warehouse.labels(table)))
    if not files:
        return np.empty(0, np.int64), np.empty(0)
    rows = ds.dataset(files, schema=warehouse.schema(table), format="parquet").to_table(columns=["event_time", column])
    values = pc.fill_null(rows.column(column).cast(pa.float64()), np.nan).to_numpy()
    return np.asarray(rows.column("event_time").cast(pa.int64()).to_numpy()), values
