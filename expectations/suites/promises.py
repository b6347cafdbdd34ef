"""ERROR and ACCURACY: kept over the trailing period?

ERROR x promises that at least 95 % of the windows lie within x of the truth. ACCURACY x promises that the mean hit rate
is at least x. Both are judged over the windows that became final in the period before the interval's end.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from expectations.policy import Policy
from expectations.suites.suite import Rules, Suite
from expectations.tables import SUBJECT, Case, instants
from tidegate.declarations.models import Pipeline, Query

_PAIRS = ("promise", "warming", "interval", "slack")
_FRAME = pa.schema(
    [*SUBJECT, *((f"{pair}_{side}", pa.float64()) for pair in _PAIRS for side in ("measured", "promised"))]
)


def frame(case: Case, policy: Policy) -> pa.Table:
    """Rows a query with a promise: over the trailing period, over the interval, K against its oracle."""
    accuracy, plans = case.trailing("accuracy", policy.trailing), case.trailing("slack_plan", policy.trailing)
    rows: list[dict[str, object]] = []
    for query in case.pipeline.queries:
        if query.promised is None:
            continue
        own = _windows(accuracy, query)
        pair = "promise" if own.num_rows >= policy.least_windows else "warming"
        rows += _judged(query, own, pair, policy, _hours(policy))
        now = own.filter(pc.equal(own["interval"], case.interval.label))
        rows += _judged(query, now, "interval", policy, "this interval")
        rows += _oracle(query, plans, policy)
    return pa.Table.from_pylist(rows, schema=_FRAME)


def _hours(policy: Policy) -> str:
    return f"the past {policy.trailing.total_seconds() / 3600:g} h"


def _windows(accuracy: pa.Table, query: Query) -> pa.Table:
    metric = "relative_error" if query.error is not None else "hit_rate"
    own = pc.and_(pc.equal(accuracy["query"], query.id), pc.equal(accuracy["metric"], metric))
    return accuracy.filter(pc.and_(own, pc.is_valid(accuracy["value"])))


def _judged(query: Query, windows: pa.Table, pair: str, policy: Policy, period: str) -> list[dict[str, object]]:
    if windows.num_rows == 0:
        return []
    if query.error is not None:
        kept = pc.cast(pc.less_equal(pc.round(windows["value"], 12), query.error), pa.float64())
        promised, order = policy.kept_share, "descending"
        promise = f"ERROR {query.error:.4g}, share of windows within it"
    else:
        kept, promised, order = windows["value"], float(query.accuracy or 0), "ascending"
        promise = f"ACCURACY {promised:.4g}, mean hit rate"
    worst = windows.sort_by([("value", order), ("window_end", "ascending")]).slice(0, 1)
    of_worst = f"worst window {worst['value'][0].as_py():.4g}"
    return [
        {
            "table": "accuracy",
            "query": query.id,
            "window_end": instants(worst["window_end"])[0].as_py(),
            "subject": f"{query.id}: {promise}, {windows.num_rows} windows of {period}, {of_worst}",
            # To twelve digits: see accuracy.
            f"{pair}_measured": round(pc.mean(kept).as_py(), 12),
            f"{pair}_promised": promised,
        }
    ]


def _oracle(query: Query, plans: pa.Table, policy: Policy) -> list[dict[str, object]]:
    known = pc.and_(pc.equal(plans["query"], query.id), pc.is_valid(plans["oracle_slack_s"]))
    own = plans.filter(pc.and_(known, pc.is_valid(plans["slack_s"])))
    if own.num_rows == 0:
        return []
    return [
        {
            "table": "slack_plan",
            "query": query.id,
            "subject": f"{query.id}: mean of {own.num_rows} plans of {_hours(policy)}",
            "slack_measured": pc.mean(own["slack_s"]).as_py(),
            "slack_promised": pc.mean(own["oracle_slack_s"]).as_py(),
        }
    ]


def expectations(gxe: Any, pipeline: Pipeline, policy: Policy) -> list[Any]:
    """The expectations on ``frame``."""
    rules = Rules(gxe, policy)
    for rule, pair, says in (
        ("promise_kept", "promise", f"the promise is kept over {_hours(policy)}"),
        (
            "promise_warming_up",
            "warming",
            f"the promise is kept so far (fewer than {policy.least_windows} final windows)",
        ),
        ("promise_this_interval", "interval", "the promise is kept by the windows that became final in this interval"),
        ("slack_covers_oracle", "slack", "the slack K is on average at least the oracle's"),
    ):
        rules.pair(rule, says, f"{pair}_measured", f"{pair}_promised", measured=f"{pair}_measured")
    return rules.made


SUITE = Suite("promises", "ERROR and ACCURACY over the trailing period", frame, expectations)
