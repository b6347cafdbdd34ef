"""ERROR and ACCURACY: what ``promise_periods`` says of the periods judged in the interval, and of the open one.

The judgement is calibrate's, and the only one; here it is looked at, and compared with its own numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from expectations.policy import Policy
from expectations.suites.suite import Rules, Suite
from expectations.tables import SUBJECT, Cases
from tidegate.declarations.models import Pipeline
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


def frame(cases: Cases, policy: Policy) -> pa.Table:
    """A row for each row of ``promise_periods``; for each query with a promise, K against its oracle."""
    strict = {query.id for query in cases.pipeline.queries if query.on_miss == "fail"}
    rows = [_judged(row, row["query"] in strict) for row in cases.read("promise_periods").to_pylist()]
    return pa.Table.from_pylist([*rows, *_oracle(cases, policy)], schema=_FRAME)


def _judged(row: Row, strict: bool) -> dict[str, object]:
    period = f"{row['query']}: {row['promise']}, {period_length(row)} {show_period(row)}"
    found: dict[str, object] = {
        "interval": row["interval"],
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


def _oracle(cases: Cases, policy: Policy) -> Iterator[dict[str, object]]:
    """K and the oracle's of each query with a promise, on the average of the plans up to each interval's end."""
    hours = f"{policy.trailing.total_seconds() / 3600:g} h"
    promised = [query.id for query in cases.pipeline.queries if query.promised is not None]
    known: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for case in cases:
        labels = case.trailing("slack_plan", policy.trailing) if promised else []
        for label in labels:
            if label not in known:
                known[label] = _slacks(case.cached.part("slack_plan", label))
        for query in promised:
            own = [pair for label in labels for pair in known[label].get(query, ())]
            if own:
                yield {
                    "interval": case.interval.label,
                    "table": "slack_plan",
                    "query": query,
                    "grain": query,
                    "subject": f"{query}: mean of {len(own)} plans of the past {hours}",
                    "slack_measured": math.fsum(slack for slack, _ in own) / len(own),
                    "slack_promised": math.fsum(oracle for _, oracle in own) / len(own),
                }


def _slacks(plans: pa.Table) -> dict[str, list[tuple[float, float]]]:
    """Query → (K, the oracle's), of the plans that have both."""
    found: dict[str, list[tuple[float, float]]] = {}
    columns = (plans[name].to_pylist() for name in ("query", "slack_s", "oracle_slack_s"))
    for query, slack, oracle in zip(*columns, strict=True):
        if slack is not None and oracle is not None:
            found.setdefault(query, []).append((slack, oracle))
    return found


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
