"""Truth of the windows that became final, and how far the answers were from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations.policy import Policy
from expectations.suites.answers import grain
from expectations.suites.suite import Rules, Suite
from expectations.tables import SUBJECT, Cases, instants, joined, nulls, seconds, shaped
from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.promises import DIGITS

_FRAME = pa.schema(
    [
        *SUBJECT,
        ("grain", pa.string()),
        ("nulls", pa.int64()),
        ("final_after_start_s", pa.float64()),
        ("hit_rate", pa.float64()),
        ("least_hit_rate", pa.float64()),
        ("relative_error", pa.float64()),
        ("tolerated_error", pa.float64()),
        ("out_of_range", pa.int64()),
        ("kept", pa.int64()),
        ("kept_by_value", pa.int64()),
    ]
)


def frame(cases: Cases, policy: Policy) -> pa.Table:
    """One row a truth row, one row an accuracy row."""
    return joined([*(_truth(cases, query) for query in cases.pipeline.queries), _accuracy(cases)], _FRAME)


def _truth(cases: Cases, query: Query) -> pa.Table:
    rows = cases.read(f"truth_{query.id}")
    return shaped(
        {
            "interval": rows["interval"],
            "table": f"truth_{query.id}",
            "query": query.id,
            "window_end": instants(rows["window_end"]),
            "grain": grain(query, rows),
            "nulls": nulls(
                rows,
                [
                    "window_end",
                    *(["rank"] if query.is_ranked else []),
                    *(["event_id"] if query.kind == "top_k" else []),
                ],
            ),
            "final_after_start_s": pc.add(_final(cases, rows), query.lag_s),
        },
        _FRAME,
        rows.num_rows,
    )


def _final(cases: Cases, rows: pa.Table) -> pa.ChunkedArray:
    """Seconds from the interval's start to when the windows are final, but for a bound's lag."""
    return pc.add(seconds(rows["window_end"], cases.starts(rows)), float(cases.pipeline.horizon_s))


def _lags(cases: Cases, rows: pa.Table) -> pa.Array:
    """How much later windows are final by the bound of their query."""
    lags = {query.id: query.lag_s for query in cases.pipeline.queries}
    return pa.array([lags.get(query, 0.0) for query in rows["query"].to_pylist()], pa.float64())


def _accuracy(cases: Cases) -> pa.Table:
    rows = cases.read("accuracy")
    hit, error = (pc.equal(rows["metric"], metric) for metric in ("hit_rate", "relative_error"))
    # As the judge rounds, who compares them exactly then.
    value, promised = pc.round(rows["value"], DIGITS), pc.round(rows["promised"], DIGITS)
    none = pa.scalar(None, pa.float64())
    out_of_range = pc.or_(pc.less(value, 0.0), pc.and_(hit, pc.greater(value, 1.0)))
    by_value = pc.if_else(hit, pc.greater_equal(value, promised), pc.less_equal(value, promised))
    return shaped(
        {
            "interval": rows["interval"],
            "table": "accuracy",
            "query": rows["query"],
            "window_end": instants(rows["window_end"]),
            "grain": pc.binary_join_element_wise(
                pc.coalesce(rows["query"], "∅"),
                rows["metric"],
                instants(rows["window_end"]),
                pc.coalesce(rows["group_key"], "∅"),
                " ",
                null_handling="replace",
            ),
            "nulls": nulls(rows, ["query", "window_end", "metric"]),
            "final_after_start_s": pc.add(_final(cases, rows), _lags(cases, rows)),
            "hit_rate": pc.if_else(hit, value, none),
            "least_hit_rate": pc.if_else(hit, promised, none),
            "relative_error": pc.if_else(error, value, none),
            "tolerated_error": pc.if_else(error, promised, none),
            "out_of_range": pc.cast(out_of_range, pa.int64()),
            "kept": pc.cast(rows["kept"], pa.int64()),
            "kept_by_value": pc.cast(by_value, pa.int64()),
        },
        _FRAME,
        rows.num_rows,
    )


def expectations(gxe: Any, pipeline: Pipeline, policy: Policy) -> list[Any]:
    """The expectations on ``frame``."""
    rules = Rules(gxe, policy)
    before_end = np.nextafter(pipeline.interval_s, 0)
    rules.at_most("truth_values_known", "no null in the keys", "nulls", 0)
    rules.unique("truth_grain_unique", "one row per window and group (rank, metric)", ["interval", "table", "grain"])
    rules.between(
        "truth_window_final", "each window became final in the interval", "final_after_start_s", 0, before_end
    )
    rules.at_most("accuracy_value_in_range", "errors are at least 0, hit rates in [0, 1]", "out_of_range", 0)
    rules.equal("accuracy_kept_agrees", "kept agrees with value and promised", "kept", "kept_by_value")
    says = "the window's hit rate is at least the promised accuracy"
    rules.pair("window_hit_rate", says, "hit_rate", "least_hit_rate", measured="hit_rate")
    says = "the window's relative error is at most the tolerated one"
    rules.pair("window_relative_error", says, "tolerated_error", "relative_error", measured="relative_error")
    return rules.made


SUITE = Suite("accuracy", "the true answers of final windows, and the error of the given answers", frame, expectations)
