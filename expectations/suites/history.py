"""The sampled past: leaves with their exact aggregates, their samples, and how often estimates hold the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import bdtr

from expectations.policy import Policy
from expectations.suites.suite import Rules, Suite
from expectations.tables import SUBJECT, Case, Cases, instants, joined, nulls, shaped
from tidegate.declarations.models import Pipeline

_FRAME = pa.schema(
    [
        *SUBJECT,
        ("grain", pa.string()),
        ("nulls", pa.int64()),
        ("tuples", pa.int64()),
        ("sampled", pa.int64()),
        ("fraction", pa.float64()),
        ("unsound_aggregates", pa.int64()),
        ("samples_due", pa.int64()),
        ("samples_found", pa.int64()),
        ("beyond_fraction", pa.int64()),
        ("unsound_weights", pa.int64()),
        ("coverage_measured", pa.float64()),
        ("coverage_promised", pa.float64()),
    ]
)
_KEYS = ["leaf_start", "u", "fraction", "weight", "event_id", "event_time", "arrival_time"]


def frame(cases: Cases, policy: Policy) -> pa.Table:
    """One row a leaf, one row a stream with its samples, one more where a pass judged its estimates."""
    streams = [s.name for s in cases.pipeline.streams if s.history is not None]
    if not streams:
        return _FRAME.empty_table()
    samples = (_samples(case, stream) for case in cases for stream in streams)
    coverage = (_coverage(case, stream, policy) for case in cases for stream in streams)
    return joined([_leaves(cases.read("history_leaves")), *samples, *coverage], _FRAME)


def _leaves(rows: pa.Table) -> pa.Table:
    name = pc.binary_join_element_wise(
        pc.coalesce(rows["stream"], "∅"), instants(rows["leaf_start"]), instants(rows["leaf_end"]), " "
    )
    return shaped(
        {
            "interval": rows["interval"],
            "table": "history_leaves",
            "subject": name,
            "grain": name,
            "nulls": nulls(rows, ["stream", "leaf_start", "leaf_end", "tuples", "sampled", "fraction"]),
            "tuples": rows["tuples"],
            "sampled": rows["sampled"],
            "fraction": rows["fraction"],
            "unsound_aggregates": _unsound(rows),
        },
        _FRAME,
        rows.num_rows,
    )


def _unsound(rows: pa.Table) -> pa.ChunkedArray | pa.Array:
    """How many columns of a leaf have a count above its tuples, a least above a largest, or a negative square."""
    total: pa.ChunkedArray | pa.Array = pa.array([0] * rows.num_rows, pa.int64())
    for column in (name.removesuffix("_sum_squares") for name in rows.column_names if name.endswith("_sum_squares")):
        bad = pc.or_(
            pc.or_(
                pc.greater(rows[f"{column}_count"], rows["tuples"]),
                pc.greater(rows[f"{column}_min"], rows[f"{column}_max"]),
            ),
            pc.less(rows[f"{column}_sum_squares"], 0.0),
        )
        total = pc.add(total, pc.cast(pc.fill_null(bad, False), pa.int64()))
    return total


def _samples(case: Case, stream: str) -> pa.Table:
    table = f"history_samples_{stream}"
    leaves, rows = case.read("history_leaves"), case.read(table, _KEYS)
    due = pc.sum(leaves.filter(pc.equal(leaves["stream"], stream))["sampled"]).as_py() or 0
    weight_gap = pc.abs(pc.subtract(pc.multiply(rows["weight"], rows["fraction"]), 1.0))
    return shaped(
        {
            "interval": case.interval.label,
            "table": table,
            "subject": stream,
            "nulls": pc.sum(nulls(rows, _KEYS)).as_py() or 0,
            "samples_due": due,
            "samples_found": rows.num_rows,
            "beyond_fraction": pc.sum(pc.greater_equal(rows["u"], rows["fraction"])).as_py() or 0,
            "unsound_weights": pc.sum(pc.greater(weight_gap, 1e-9)).as_py() or 0,
        },
        _FRAME,
        1,
    )


def _coverage(case: Case, stream: str, policy: Policy) -> pa.Table:
    """The share of the stream's intervals that hold the truth; what is exact has no interval, unless it is wrong."""
    judged = case.read("history_accuracy")
    rows = judged.filter(pc.and_(pc.equal(judged["stream"], stream), pc.is_valid(judged["holds"])))
    rows = rows.filter(pc.invert(pc.and_(rows["exact"], rows["holds"])))
    if not rows.num_rows:
        return _FRAME.empty_table()
    held = pc.sum(rows["holds"]).as_py()
    least = least_holding(rows.num_rows, policy.history_coverage, policy.history_chance)
    return shaped(
        {
            "interval": case.interval.label,
            "table": f"history_samples_{stream}",
            "subject": f"{held} of {rows.num_rows} contain the true value; chance allows for no fewer than {least}",
            "grain": "estimates",
            "coverage_measured": held / rows.num_rows,
            "coverage_promised": least / rows.num_rows,
        },
        _FRAME,
        1,
    )


def least_holding(count: int, share: float, chance: float) -> int:
    """The largest k such that fewer than k of ``count`` independent intervals hold with at most this probability.

    >>> least_holding(40, 0.95, 0.001), least_holding(1, 0.95, 0.001)
    (33, 0)
    """
    return int((bdtr(np.arange(count), count, share) <= chance).sum())


def expectations(gxe: Any, pipeline: Pipeline, policy: Policy) -> list[Any]:
    """The expectations on ``frame``."""
    rules = Rules(gxe, policy)
    rules.at_most("history_values_known", "no null in the keys", "nulls", 0)
    rules.unique("history_grain_unique", "one row per stream and leaf", ["interval", "table", "grain"])
    says = "no leaf has more samples than tuples"
    rules.pair("history_sampled_within_tuples", says, "tuples", "sampled", measured="sampled")
    rules.between("history_fraction_in_range", "sampling fractions lie in [0, 1]", "fraction", 0, 1)
    says = "counts, minima, maxima and sums of squares of every leaf are consistent"
    rules.at_most("history_aggregates_sound", says, "unsound_aggregates", 0)
    says = "the leaves count exactly the samples that are stored"
    rules.equal("history_samples_in_leaves", says, "samples_found", "samples_due")
    says = "only tuples whose priority is within the fraction are sampled"
    rules.at_most("history_samples_by_priority", says, "beyond_fraction", 0)
    rules.at_most("history_weights_sound", "a sample's weight is 1/fraction", "unsound_weights", 0)
    says = "95 % of the intervals of history estimates contain the true value, within what chance allows"
    rules.pair(
        "history_interval_coverage", says, "coverage_measured", "coverage_promised", measured="coverage_measured"
    )
    return rules.made


SUITE = Suite("history", "leaves, their exact aggregates, their samples", frame, expectations)
