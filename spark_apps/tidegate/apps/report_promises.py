"""What each query promised and what was kept: one judgement a query, and the table that opens the report."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from tidegate.apps.report_charts import numbers, shown_number, shown_seconds
from tidegate.apps.report_page import Part, Section, Tone
from tidegate.apps.report_tables import Tables
from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.units import show_percent

KEPT_SHARE = 0.95
"""An ERROR promise is kept if so large a share of the windows is within it."""

_MARKS = {"good": "✓ kept", "bad": "✗ not kept", "open": "not judged yet", "": "–"}


@dataclass(frozen=True)
class Judgement:
    """A query's promise, what was measured over so many windows, and the sentence that says both."""

    promised: str
    measured: str
    windows: int
    sentence: str
    tone: Tone


def judge(query: Query, accuracy: pd.DataFrame) -> Judgement:
    """Judge one query by its rows of ``accuracy``."""
    values = accuracy["value"].dropna()
    windows = f"{len(values):,} window{'s' if len(values) != 1 else ''}"
    if query.error is not None:
        promised = f"error ≤ {query.error * 100:.3g} % in {KEPT_SHARE * 100:.0f} %"
        promise = f"Promised: relative error at most {query.error:.3g} in {KEPT_SHARE:.0%} of the windows."
        share = float((values <= query.error).mean()) if len(values) else 0.0
        kept, measured = share >= KEPT_SHARE, f"in {show_percent(share)}"
        found = f"within it in {show_percent(share)} of {windows}"
    elif query.accuracy is not None:
        promised = f"{query.accuracy * 100:.3g} % of the top {query.limit}"
        promise = f"Promised: at least {query.accuracy:.3g} of the top {query.limit} right on average."
        mean = float(values.mean())
        kept, measured = mean >= query.accuracy, show_percent(mean) if len(values) else ""
        found = f"{mean:.4f} on average over {windows}"
    else:
        metric = "" if accuracy.empty else str(accuracy["metric"].iloc[0]).replace("_", " ")
        mean = float(values.mean()) if len(values) else 0.0
        known = f" Measured: {metric} {mean:.4f} on average over {windows}." if len(values) else ""
        return Judgement(
            "nothing", f"{metric} {mean:.4f}" if known else "", len(values), f"No promise declared.{known}", ""
        )
    if not len(values):
        return Judgement(promised, "", 0, f"{promise} Not judged yet: no window is final.", "open")
    sentence = f"{promise} {'✓ Kept' if kept else '✗ Not kept'}: {found}."
    return Judgement(promised, measured, len(values), sentence, "good" if kept else "bad")


def promised_first(pipeline: Pipeline) -> list[Query]:
    """The queries in the page's order: what was promised is looked at first."""
    return sorted(pipeline.queries, key=lambda query: query.promised is None)


def promises_section(pipeline: Pipeline, tables: Tables) -> Section:
    """One line a query: promise, what was kept, the wait now and the least that would have done, levels of support."""
    columns = ("query", "", "promised", "measured", "windows", "K now", "oracle K", "time at level")
    rows = []
    for query in promised_first(pipeline):
        own = judge(query, tables.of("accuracy", query.id))
        slacks = tables.of("slack_plan", query.id).sort_values("effective_from")
        now = shown_seconds(slacks["slack_s"].iloc[-1]) if len(slacks) else ""
        oracle = shown_seconds(slacks["oracle_slack_s"].median()) if len(slacks) else ""
        marked = _MARKS[own.tone] if query.promised is not None else "–"
        rows.append(
            (
                query.id,
                marked,
                own.promised,
                own.measured,
                shown_number(own.windows),
                now,
                oracle,
                _levels(query, tables),
            )
        )
    table = numbers(columns, rows, ("windows", "K now", "oracle K"))
    note = (
        "ERROR is promised for a share of the windows, ACCURACY on average over them. K: how long the query waits "
        "after a window's end. Oracle K: the shortest wait that would have met the promise, known once the windows are "
        "final; the median over the intervals. Level A: the whole range was held, B: enough for the promised error, "
        "C: in turns."
    )
    return Section(
        "promises", "Promises", parts=(Part("promises-table", "What was promised, what was kept", table, note=note),)
    )


def _levels(query: Query, tables: Tables) -> str:
    """The share of time that a query spent at each level of support, between its first and last plan."""
    plans = tables.of("query_plan", query.id).sort_values("effective_from")
    if not len(plans):
        return ""
    lasted = plans["effective_from"].shift(-1) - plans["effective_from"]
    by_level = lasted.dt.total_seconds().groupby(plans["support_level"]).sum()
    whole = by_level.sum()
    if not whole:
        return str(plans["support_level"].iloc[-1])
    shares = [(str(level), seconds / whole) for level, seconds in by_level.items() if seconds]
    return ", ".join(f"{level} {show_percent(share)}" for level, share in sorted(shares))
