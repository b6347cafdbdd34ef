"""The answers: no row contradicts itself or the declaration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations.policy import Policy
from expectations.suites.suite import Rules, Suite
from expectations.tables import SUBJECT, Cases, instants, joined, nulls, seconds, shaped
from tidegate.declarations.models import Pipeline, Query, Window

_FRAME = pa.schema(
    [
        *SUBJECT,
        ("grain", pa.string()),
        ("nulls", pa.int64()),
        ("emitted_after_start_s", pa.float64()),
        ("emitted_after_end_s", pa.float64()),
        ("slack_s", pa.float64()),
        ("off_tick_s", pa.float64()),
        ("coverage", pa.float64()),
        ("product_of_widths", pa.float64()),
        ("width_s", pa.float64()),
        ("range_s", pa.float64()),
        ("support_level", pa.string()),
        ("rank", pa.int64()),
        ("limit", pa.int64()),
    ]
)
_CONTRACT = ["window_end", "emitted_at", "width_s", "range_s", "coverage", "support_level", "slack_s"]


def grain(query: Query, rows: pa.Table) -> pa.Array | pa.ChunkedArray:
    """What tells a query's rows apart, as text."""
    texts = [pc.coalesce(pc.cast(rows[key], pa.string()), "∅") for key in query.answer_keys]
    return pc.binary_join_element_wise(instants(rows["window_end"]), *texts, " ", null_handling="replace")


def frame(cases: Cases, policy: Policy) -> pa.Table:
    """All queries' answers, reduced to what they have in common."""
    return joined([_answers(cases, query) for query in cases.pipeline.queries], _FRAME)


def _answers(cases: Cases, query: Query) -> pa.Table:
    rows = cases.read(f"answers_{query.id}")
    width_s, range_s, product = _widths(query, rows)
    # At level C, and where a plan leaves it, windows end at ticks between the multiples of EVERY.
    tick_us = cases.pipeline.tick_s * 1_000_000
    end_us = pc.cast(rows["window_end"], pa.int64())
    off_us = pc.subtract(end_us, pc.multiply(pc.divide(end_us, tick_us), tick_us))
    return shaped(
        {
            "interval": rows["interval"],
            "table": f"answers_{query.id}",
            "query": query.id,
            "window_end": instants(rows["window_end"]),
            "grain": grain(query, rows),
            "nulls": nulls(rows, [*_CONTRACT, *_keys(query)]),
            "emitted_after_start_s": seconds(rows["emitted_at"], cases.starts(rows)),
            "emitted_after_end_s": _after_end(rows, query.lag_s),
            "slack_s": rows["slack_s"],
            "off_tick_s": None if query.sessions is not None else pc.divide(pc.cast(off_us, pa.float64()), 1e6),
            "coverage": rows["coverage"],
            "product_of_widths": product,
            "width_s": width_s,
            "range_s": range_s,
            "support_level": rows["support_level"],
            "rank": rows["rank"] if query.is_ranked else None,
            "limit": query.limit if query.is_ranked else None,
        },
        _FRAME,
        rows.num_rows,
    )


def _keys(query: Query) -> list[str]:
    """The columns beside the query's own that are never NULL."""
    return ["rank", *(["event_id"] if query.kind == "top_k" else [])] if query.is_ranked else []


def _after_end(rows: pa.Table, lag_s: float) -> pa.ChunkedArray:
    """Seconds from the window's end and a bound's lag to the answer; the slack where they agree to the microsecond."""
    waited = pc.subtract(seconds(rows["emitted_at"], rows["window_end"]), lag_s)
    agree = pc.less_equal(pc.abs(pc.subtract(waited, rows["slack_s"])), 1e-6)
    return pc.if_else(agree, rows["slack_s"], waited)


def _widths(query: Query, rows: pa.Table) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Width and range of the alias that fills most of its range, and the product of width/range; of those with one."""
    if rows.num_rows == 0:
        empty = pa.array([], pa.float64())
        return empty, empty, empty
    by_alias = [pc.map_lookup(rows["width_s"], pa.scalar(w.alias), "first") for w in query.ranged]
    # An alias that the map does not name counts as beyond its range: nobody can tell what it held.
    widths = np.array([pc.fill_null(w, np.inf).to_numpy() for w in by_alias])
    ranges = np.array([_ranges(w, rows) for w in query.ranged])
    if query.sessions is not None:
        ranges = _lengths(query, rows)
    fullest = np.argmax(widths / ranges, axis=0)
    at = np.arange(rows.num_rows)
    product = np.prod(widths / ranges, axis=0)
    # To nine digits: the order of the factors is the application's own affair.
    coverage = pc.fill_null(rows["coverage"], np.nan).to_numpy()
    product = np.where(np.isclose(product, coverage, rtol=1e-9, atol=0), coverage, product)
    return pa.array(widths[fullest, at]), pa.array(ranges[fullest, at]), pa.array(product)


def _lengths(query: Query, rows: pa.Table) -> np.ndarray:
    """How long the rows' sessions are, seconds; 0, which no width is within, of one that is longer than any may be."""
    assert query.sessions is not None
    length_s = seconds(rows["window_end"], rows["window_start"]).to_numpy()
    return np.where(length_s <= query.sessions.reach_us / 1e6, length_s, 0.0)[None]


def _ranges(window: Window, rows: pa.Table) -> np.ndarray:
    """How far back the window of an alias should reach, seconds, by the rows' window ends."""
    if window.calendar is None:
        return np.full(rows.num_rows, window.range_s)
    ends_us = np.asarray(pc.cast(rows["window_end"], pa.int64()).to_numpy(), dtype=np.int64)
    return np.asarray((ends_us - window.calendar.before_us(ends_us)) / 1e6, dtype=np.float64)


def expectations(gxe: Any, pipeline: Pipeline, policy: Policy) -> list[Any]:
    """The expectations on ``frame``."""
    rules = Rules(gxe, policy)
    length, horizon = pipeline.interval_s, pipeline.horizon_s
    rules.at_most("answer_values_known", "no null where the contract has a value", "nulls", 0)
    rules.unique("answer_grain_unique", "one row per window and group (and rank)", ["interval", "table", "grain"])
    before_end = np.nextafter(length, 0)
    rules.between(
        "answer_emitted_in_interval", "emitted_at lies in the interval", "emitted_after_start_s", 0, before_end
    )
    rules.equal(
        "answer_emitted_at_slack", "emitted_at = window_end + lag of a bound + slack", "emitted_after_end_s", "slack_s"
    )
    rules.at_most("answer_on_tick", "window_end is a multiple of the tick", "off_tick_s", 0)
    rules.between("answer_coverage_in_range", "coverage lies in [0, 1]", "coverage", 0, 1)
    rules.equal("answer_coverage_is_product", "coverage = product of width/range", "coverage", "product_of_widths")
    rules.pair("answer_width_within_range", "no window is wider than its range", "range_s", "width_s", "width_s")
    rules.between("answer_slack_within_horizon", "slack lies in [0, horizon]", "slack_s", 0, horizon)
    levels = ["A", "B", "C", "unsupported"]
    rules.in_set("answer_support_level_known", "the support level is one that exists", "support_level", levels)
    rules.pair("answer_rank_within_limit", "no rank above LIMIT", "limit", "rank", "rank")
    return rules.made


SUITE = Suite("answers", "no answer contradicts itself", frame, expectations)
