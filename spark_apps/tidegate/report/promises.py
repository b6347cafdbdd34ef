"""What each query promised and what was kept, as ``promise_periods`` has it: the table that opens the report."""

from __future__ import annotations

import math

import pandas as pd
import plotly.graph_objects as go
import pyarrow as pa

from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.promises import (
    HEADINGS,
    Line,
    Row,
    explained,
    lines,
    newest_of_each,
    show_measured,
    show_period,
)
from tidegate.declarations.units import show_percent
from tidegate.readable import duration
from tidegate.report.charts import COLORS, chart, numbers, reference
from tidegate.report.page import Part, Section
from tidegate.report.tables import Tables, nothing_in

_VERDICTS = {True: "✓ kept", False: "✗ missed", None: "… so far"}


def promised_first(pipeline: Pipeline) -> list[Query]:
    """The queries in the page's order: what was promised is looked at first."""
    return sorted(pipeline.queries, key=lambda query: query.promised is None)


def lines_of(pipeline: Pipeline, tables: Tables) -> dict[str, Line]:
    """Query → what is said of its promise."""
    return {line.query: line for line in lines(pipeline, _rows(tables["promise_periods"]))}


def promises_section(pipeline: Pipeline, tables: Tables) -> Section:
    """One line a query: promise, what was kept, the wait now and the least that would have done, levels of support."""
    columns = (*HEADINGS, "K now", "oracle K", "time at level")
    found, rows = lines_of(pipeline, tables), []
    for query in promised_first(pipeline):
        slacks = tables.of("slack_plan", query.id).sort_values("effective_from")
        now = duration(slacks["slack_s"].iloc[-1]) if len(slacks) else ""
        least = slacks["oracle_slack_s"].median() if len(slacks) else math.nan
        oracle = "" if math.isnan(least) else duration(least)
        said = found[query.id].cells if query.id in found else (query.id, "–", "none", "", "", "")
        rows.append((*said, now, oracle, _levels(query, tables)))
    table = numbers(columns, rows, ("K now", "oracle K"))
    note = (
        "K: how long the query waits after a window's end. Oracle K: the shortest wait that would have met the promise"
        ", known once the windows are final; the median over the intervals. Level A: the whole range was held, B: "
        "enough for the promised error, C: in turns."
    )
    return Section(
        "promises",
        "Promises",
        paragraphs=(explained(found.values()),),
        missing=() if len(tables["promise_periods"]) or not found else (nothing_in("promise_periods"),),
        parts=(Part("promises-table", "What was promised, what was kept", table, note=note),),
    )


def periods_part(query: Query, tables: Tables) -> Part | None:
    """What was measured over each period, against what was promised; None if there is none with windows."""
    rows = [row for row in newest_of_each(_rows(tables.of("promise_periods", query.id))) if row["windows"]]
    if not rows:
        return None
    starts = [row["period_start"] for row in rows]
    figure = go.Figure()
    figure.add_scatter(
        x=starts, y=[row["measured"] for row in rows], name="measured", mode="lines+markers",
        line={"color": COLORS[0]}, marker={"size": 5},
    )  # fmt: skip
    reference(figure, starts, rows[-1]["promised"], "promised")
    shown = [(show_period(r), show_percent(r["promised"]), show_measured(r), _VERDICTS[r["kept"]]) for r in rows]
    return Part(
        f"periods-{query.id}",
        "The promise, period by period",
        numbers(("period", "promised", "measured", ""), shown, ("promised", "measured")),
        chart(figure),
    )


def _rows(frame: pd.DataFrame) -> list[Row]:
    rows: list[Row] = pa.Table.from_pandas(frame, preserve_index=False).to_pylist()
    return rows


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
