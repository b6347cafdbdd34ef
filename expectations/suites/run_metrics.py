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
from tidegate.declarations.tables import CLIENT, JVM

_BYTES = (
    "peak_state_bytes",
    "memory_budget_bytes",
    "peak_process_bytes",
    "process_budget_bytes",
    "jvm_bytes",
    "jvm_budget_bytes",
)
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
    """One row a stage (and query) of an interval, and one of its workers, and of a JVM that it shared with others."""
    rows = cases.read("run_metrics")
    rows = rows.filter(pc.is_in(rows["app"], pa.array(STAGES)))
    kind = pc.coalesce(rows["kind"], CLIENT)
    shared, client = pc.equal(kind, JVM), pc.equal(kind, CLIENT)
    about = pc.if_else(client, pc.coalesce(rows["query"], ""), kind)
    name = pc.binary_join_element_wise(rows["app"], about, " ")
    # A stage answers for its processes. Nobody owns a JVM that several share: its budget is another matter.
    nothing = pa.scalar(None, pa.int64())
    rows = rows.append_column("jvm_bytes", pc.if_else(shared, rows["peak_process_bytes"], nothing))
    rows = rows.append_column("jvm_budget_bytes", pc.if_else(shared, rows["process_budget_bytes"], nothing))
    for column in ("peak_process_bytes", "process_budget_bytes"):
        place = rows.schema.get_field_index(column)
        rows = rows.set_column(place, column, pc.if_else(shared, nothing, rows[column]))
    columns: dict[str, object] = {
        "interval": rows["interval"],
        "table": "run_metrics",
        "query": rows["query"],
        "subject": pc.utf8_trim_whitespace(name),
    }
    unknown = nulls(rows, ["app"])
    for column, due in (("memory_budget_bytes", client), ("process_budget_bytes", pc.invert(shared))):
        unknown = pc.add(unknown, pc.cast(pc.and_(due, pc.is_null(rows[column])), pa.int64()))
    columns |= {"grain": name, "nulls": unknown, **{column: rows[column] for column in _NUMBERS}}
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
        ("server_within_budget", "JVM of the Spark server", "jvm_bytes", "jvm_budget_bytes"),
    ):
        says = f"the {what} never took more memory than their budget"
        rules.pair(rule, says, budget, peak, measured=peak, repeatable=False)
    return rules.made


SUITE = Suite("run_metrics", "measured memory", frame, expectations)
