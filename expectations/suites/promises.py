"""ERROR and ACCURACY: what ``promise_periods`` says of the periods judged in the interval, and of the open one.

The judgement is calibrate's, and the only one; here it is looked at, and compared with its own numbers.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from expectations.policy import Policy
from expectations.suites.suite import Rules, Suite
from expectations.tables import SUBJECT, Case
from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.promises import LEAST_PERIODS, PERIODS_KEPT, Row, period_length, show_measured, show_period

_PAIRS = ("kept", "fail", "met", "so_far", "slack")
_FRAME = pa.schema(
    [
        *SUBJECT,
        ("grain", pa.string()),
        ("verdict", pa.int64()),
        ("verdict_by_numbers", pa.int64()),
        *((f"{pair}_{side}", pa.float64()) for pair in _PAIRS for side in ("measured", "promised")),
    ]
)


def frame(case: Case, policy: Policy) -> pa.Table:
    """A row for each row of ``promise_periods``; for each query with a promise, K against its oracle."""
    strict = {query.id for query in case.pipeline.queries if query.on_miss == "fail"}
    rows = [_judged(row, row["query"] in strict) for row in case.read("promise_periods").to_pylist()]
    plans = case.trailing("slack_plan", policy.trailing)
    for query in case.pipeline.queries:
        if query.promised is not None:
            rows += _oracle(query, plans, policy)
    return pa.Table.from_pylist(rows, schema=_FRAME)


def _judged(row: Row, strict: bool) -> dict[str, object]:
    period = f"{row['query']}: {row['promise']}, {period_length(row)} {show_period(row)}"
    found: dict[str, object] = {
        "table": "promise_periods",
        "query": row["query"],
        "subject": f"{period}: {show_measured(row)}",
        "grain": f"{row['query']} {row['period_start'].isoformat()}",
    }
    if row["measured"] is None:
        return found
    judged = "fail" if strict else "kept"
    pair = "so_far" if row["kept"] is None else judged
    found |= {f"{pair}_measured": row["measured"], f"{pair}_promised": row["promised"]}
    if row["kept"] is not None:
        found |= {"verdict": int(row["kept"]), "verdict_by_numbers": int(row["measured"] >= row["promised"])}
        if row["periods_judged"] >= LEAST_PERIODS:
            found |= {"met_measured": row["met_so_far"], "met_promised": PERIODS_KEPT}
    return found


def _oracle(query: Query, plans: pa.Table, policy: Policy) -> list[dict[str, object]]:
    known = pc.and_(pc.equal(plans["query"], query.id), pc.is_valid(plans["oracle_slack_s"]))
    own = plans.filter(pc.and_(known, pc.is_valid(plans["slack_s"])))
    if own.num_rows == 0:
        return []
    hours = f"{policy.trailing.total_seconds() / 3600:g} h"
    return [
        {
            "table": "slack_plan",
            "query": query.id,
            "grain": query.id,
            "subject": f"{query.id}: mean of {own.num_rows} plans of the past {hours}",
            "slack_measured": pc.mean(own["slack_s"]).as_py(),
            "slack_promised": pc.mean(own["oracle_slack_s"]).as_py(),
        }
    ]


def expectations(gxe: Any, pipeline: Pipeline, policy: Policy) -> list[Any]:
    """The expectations on ``frame``."""
    rules = Rules(gxe, policy)
    rules.unique("promise_grain_unique", "one row per query and period", ["interval", "table", "grain"])
    says = "kept says what measured and promised say"
    rules.equal("promise_kept_agrees", says, "verdict", "verdict_by_numbers")
    for rule, pair, says in (
        ("promise_kept", "kept", "the promise is kept in the period that became final in this interval"),
        ("promise_fail", "fail", "no period is missed of a promise that is made ON MISS FAIL"),
        ("promise_met", "met", f"it is kept in {PERIODS_KEPT * 100:.0f} of 100 periods"),
        ("promise_so_far", "so_far", "the promise is kept so far in the open period"),
        ("slack_covers_oracle", "slack", "the slack K is on average at least the oracle's"),
    ):
        rules.pair(rule, says, f"{pair}_measured", f"{pair}_promised", measured=f"{pair}_measured")
    return rules.made


SUITE = Suite("promises", "ERROR and ACCURACY, period by period", frame, expectations)
