"""What took effect: window plans, slacks, error-to-width maps."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from expectations.policy import Policy
from expectations.suites.suite import Rules, Suite
from expectations.tables import SUBJECT, Cases, instants, joined, nulls, shaped
from tidegate.declarations.models import Pipeline
from tidegate.declarations.units import show_bytes

_FRAME = pa.schema(
    [
        *SUBJECT,
        ("grain", pa.string()),
        ("nulls", pa.int64()),
        ("width_s", pa.float64()),
        ("min_width_s", pa.float64()),
        ("most_width_s", pa.float64()),
        ("planned_bytes", pa.float64()),
        ("held_bytes", pa.float64()),
        ("unsupported", pa.int64()),
        ("slack_s", pa.float64()),
        ("oracle_slack_s", pa.float64()),
        ("accuracy_expected", pa.float64()),
        ("accuracy_target", pa.float64()),
        ("wait_bytes", pa.float64()),
        ("coverage", pa.float64()),
    ]
)


def frame(cases: Cases, policy: Policy) -> pa.Table:
    """One row a plan row; the four plans one after another."""
    plan = cases.read("window_plan")
    parts = [
        _window_plan(cases, plan),
        _query_plan(cases),
        _together(plan),
        _held(cases),
        _slack_plan(cases),
        _error_width_plan(cases),
    ]
    return joined(parts, _FRAME)


def _grain(rows: pa.Table, keys: list[str]) -> pa.ChunkedArray:
    texts = [pc.coalesce(rows[key], "∅") for key in keys]
    return pc.binary_join_element_wise(*texts, instants(rows["effective_from"]), " ", null_handling="replace")


def _together(plan: pa.Table) -> pa.Table:
    """All windows of one plan: it is they together that must fit."""
    sums = _sums(plan, "effective_from", "planned_bytes")
    subject = pc.binary_join_element_wise("all streams", instants(sums["effective_from"]), " ", null_handling="replace")
    columns: dict[str, object] = {"interval": sums["interval"], "table": "window_plan"}
    columns |= {"subject": subject, "grain": subject, "nulls": 0}
    return shaped(columns | {"planned_bytes": sums["planned_bytes_sum"]}, _FRAME, sums.num_rows)


def _sums(rows: pa.Table, at: str, what: str) -> pa.Table:
    """The sum of ``what`` in each interval at each instant."""
    sums = rows.group_by(["interval", at]).aggregate([(what, "sum")])
    return sums.sort_by([("interval", "ascending"), (at, "ascending")])


def _held(cases: Cases) -> pa.Table:
    """What all windows held at most in a tick, together."""
    rates = cases.read("stream_rates")
    sums = _sums(rates, "tick", "held_bytes")
    subject = pc.binary_join_element_wise("all streams", instants(sums["tick"]), " ", null_handling="replace")
    columns: dict[str, object] = {"interval": sums["interval"], "table": "stream_rates"}
    columns |= {"subject": subject, "grain": subject, "nulls": 0}
    return shaped(columns | {"held_bytes": pc.cast(sums["held_bytes_sum"], pa.float64())}, _FRAME, sums.num_rows)


def _window_plan(cases: Cases, rows: pa.Table) -> pa.Table:
    # Surplus memory may widen a window beyond what its queries need, up to the stream's greatest width.
    names = [s.name for s in cases.pipeline.streams]
    index = pc.index_in(rows["stream"], pa.array(names, pa.string()))
    greatest = pa.array([cases.pipeline.max_width_s(name) for name in names], pa.float64())
    declared = greatest.take(pc.cast(index, pa.int64()))
    # Eviction only narrows: what it leaves was planned when queries may have needed more than they do now.
    planned = pc.and_(pc.is_valid(declared), pc.not_equal(rows["trigger"], "eviction"))
    required = ["stream", "effective_from", "support_level", "width_s", "min_width_s", "max_width_s", "planned_bytes"]
    return shaped(
        {
            "interval": rows["interval"],
            "table": "window_plan",
            "subject": _grain(rows, ["stream"]),
            "grain": _grain(rows, ["stream"]),
            "nulls": nulls(rows, required),
            # At level C a window reaches its least width at the end of its slot. What was evicted early, or is not
            # supported, has its own rows: there the budget decides, not the need.
            "width_s": pc.add(rows["width_s"], pc.coalesce(rows["slot_s"], 0.0)),
            "min_width_s": pc.if_else(_kept_at_least(rows), rows["min_width_s"], None),
            "most_width_s": pc.if_else(planned, pc.max_element_wise(declared, rows["max_width_s"]), None),
            "planned_bytes": rows["planned_bytes"],
        },
        _FRAME,
        rows.num_rows,
    )


def _query_plan(cases: Cases) -> pa.Table:
    rows = cases.read("query_plan")
    return shaped(
        {
            "interval": rows["interval"],
            "table": "query_plan",
            "query": rows["query"],
            "subject": _grain(rows, ["query"]),
            "grain": _grain(rows, ["query"]),
            "nulls": nulls(rows, ["query", "effective_from", "support_level"]),
            "unsupported": pc.cast(pc.equal(rows["support_level"], "unsupported"), pa.int64()),
        },
        _FRAME,
        rows.num_rows,
    )


def _kept_at_least(rows: pa.Table) -> pa.ChunkedArray:
    return pc.and_(pc.not_equal(rows["support_level"], "infeasible"), pc.not_equal(rows["trigger"], "eviction"))


def _slack_plan(cases: Cases) -> pa.Table:
    rows = cases.read("slack_plan")
    return shaped(
        {
            "interval": rows["interval"],
            "table": "slack_plan",
            "query": rows["query"],
            "subject": pa.array(list(map(_wait, rows.to_pylist(), _grain(rows, ["query"]).to_pylist())), pa.string()),
            "grain": _grain(rows, ["query"]),
            "nulls": nulls(rows, ["query", "effective_from", "slack_s", "windows", "method"]),
            "slack_s": rows["slack_s"],
            "oracle_slack_s": rows["oracle_slack_s"],
            "accuracy_expected": rows["accuracy_expected"],
            "accuracy_target": rows["accuracy_target"],
            "wait_bytes": pc.if_else(pc.equal(rows["method"], "memory"), rows["bytes_needed"], None),
        },
        _FRAME,
        rows.num_rows,
    )


def _wait(row: dict[str, Any], subject: str) -> str:
    """What a plan is about; of a K that memory limits, also what the promise would need."""
    if row["method"] != "memory":
        return subject
    least, given = (f"{row[name] / 3600:.4g} h" for name in ("slack_needed_s", "slack_s"))
    needed = show_bytes(math.ceil(row["bytes_needed"]))
    expected = "" if row["accuracy_expected"] is None else f", {row['accuracy_expected'] * 100:.1f} % expected"
    return f"{subject}: its promise asks for a wait of {least} and {needed} of memory; it waits {given}{expected}"


def _error_width_plan(cases: Cases) -> pa.Table:
    rows = cases.read("error_width_plan")
    return shaped(
        {
            "interval": rows["interval"],
            "table": "error_width_plan",
            "query": rows["query"],
            "subject": _grain(rows, ["query", "stream"]),
            "grain": _grain(rows, ["query", "stream"]),
            "nulls": nulls(rows, ["query", "stream", "effective_from", "slack_width_s"]),
            "coverage": rows["coverage"],
        },
        _FRAME,
        rows.num_rows,
    )


def expectations(gxe: Any, pipeline: Pipeline, policy: Policy) -> list[Any]:
    """The expectations on ``frame``."""
    rules = Rules(gxe, policy)
    budget, horizon = pipeline.memory_budget_bytes, pipeline.horizon_s
    rules.at_most("plan_values_known", "no null where a plan needs a value", "nulls", 0)
    rules.unique(
        "plan_grain_unique", "one plan per stream (or query) and effective time", ["interval", "table", "grain"]
    )
    rules.pair("plan_width_above_least", "no width below the least", "width_s", "min_width_s", measured="width_s")
    says = "no width above what the queries need and the stream's greatest width"
    rules.pair("plan_width_below_most", says, "most_width_s", "width_s", measured="width_s")
    rules.at_most("plan_within_memory_budget", "no plan takes more than the memory budget", "planned_bytes", budget)
    says = "all windows together never held more than the memory budget"
    rules.at_most("plan_held_within_memory_budget", says, "held_bytes", budget)
    rules.at_most("plan_feasible", "the memory budget supports every query at some level", "unsupported", 0)
    rules.between("plan_slack_within_horizon", "the slack K lies in [0, horizon]", "slack_s", 0, horizon)
    rules.between("plan_oracle_within_horizon", "the oracle's slack lies in [0, horizon]", "oracle_slack_s", 0, horizon)
    rules.between("plan_coverage_in_range", "coverage lies in [0, 1]", "coverage", 0, 1)
    says = "K is expected to meet its accuracy target"
    rules.pair("plan_expects_target", says, "accuracy_expected", "accuracy_target", measured="accuracy_expected")
    says = "memory holds what arrives while K is waited for, so that K is what the promise asks for"
    rules.at_most("plan_wait_fits", says, "wait_bytes", budget)
    return rules.made


SUITE = Suite("plans", "window plans and slacks that took effect", frame, expectations)
