"""Memory that the stages really took, against their budgets.

Run metrics are measured, not computed: a second run measures something else. So results of rules that pass leave the
measured value out (``repeatable=False``), and ``quality_results`` stays the same when an interval is run again.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from expectations.policy import Policy
from expectations.suites.suite import Rules, Suite
from expectations.tables import SUBJECT, Cases, nulls, shaped
from tidegate.declarations.models import Pipeline

_BYTES = ("peak_state_bytes", "memory_budget_bytes", "peak_process_bytes", "process_budget_bytes")
_NUMBERS = ("rows_failed", *_BYTES)
_FRAME = pa.schema(
    [*SUBJECT, ("grain", pa.string()), ("nulls", pa.int64()), *((name, pa.int64()) for name in _NUMBERS)]
)
# The stages after them have either not run yet or left the account of an earlier run.
STAGES = (
    "ingest",
    "plan_windows",
    "join_aggregate",
    "top_k",
    "sample_history",
    "resample_history",
    "calibrate_learn",
    "calibrate_widths",
    "calibrate",
)


def frame(cases: Cases, policy: Policy) -> pa.Table:
    """One row a stage (and query) of an interval."""
    rows = cases.read("run_metrics")
    rows = rows.filter(pc.is_in(rows["app"], pa.array(STAGES)))
    name = pc.binary_join_element_wise(rows["app"], pc.coalesce(rows["query"], ""), " ", null_handling="replace")
    columns: dict[str, object] = {
        "interval": rows["interval"],
        "table": "run_metrics",
        "query": rows["query"],
        "subject": pc.utf8_trim_whitespace(name),
    }
    required = ["app", "memory_budget_bytes", "process_budget_bytes"]
    columns |= {"grain": name, "nulls": nulls(rows, required), **{column: rows[column] for column in _NUMBERS}}
    return shaped(columns, _FRAME, rows.num_rows)


def expectations(gxe: Any, pipeline: Pipeline, policy: Policy) -> list[Any]:
    """The expectations on ``frame``."""
    rules = Rules(gxe, policy)
    rules.at_most("metrics_values_known", "stage and budgets are known", "nulls", 0)
    rules.unique("metrics_grain_unique", "one row per stage and query", ["interval", "table", "grain"])
    rules.at_most("metrics_rows_computed", "no expression of a query failed on a row", "rows_failed", 0)
    for rule, what, peak, budget in (
        ("state_within_memory_budget", "windows", "peak_state_bytes", "memory_budget_bytes"),
        ("process_within_budget", "processes", "peak_process_bytes", "process_budget_bytes"),
    ):
        says = f"the {what} never took more memory than their budget"
        rules.pair(rule, says, budget, peak, measured=peak, repeatable=False)
    return rules.made


SUITE = Suite("run_metrics", "measured memory", frame, expectations)
