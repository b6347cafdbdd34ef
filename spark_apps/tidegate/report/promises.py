"""What each query promised and what was kept, as ``promise_periods`` has it: the table that opens the report."""

from __future__ import annotations

from collections.abc import Mapping

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
from tidegate.report.charts import COLORS, chart, numbers, reference
from tidegate.report.hindsight import Hindsight, sentences
from tidegate.report.page import Part, Section
from tidegate.report.tables import Tables, nothing_in

_VERDICTS = {True: "✓ kept", False: "✗ missed", None: "… so far"}


def promised_first(pipeline: Pipeline) -> list[Query]:
    """The queries in the page's order: what was promised is looked at first."""
    return sorted(pipeline.queries, key=lambda query: query.promised is None)


def lines_of(pipeline: Pipeline, tables: Tables) -> dict[str, Line]:
    """Query → what is said of its promise."""
    return {line.query: line for line in lines(pipeline, _rows(tables["promise_periods"]))}


def hindsight_of(pipeline: Pipeline, tables: Tables) -> Hindsight:
    """How long answers waited and what windows held, beside what would have done."""
    periods, frames = (
        _rows(tables["promise_periods"]),
        (tables[n] for n in ("needed_slack", "accuracy", "stream_rates")),
    )
    return Hindsight.of(pipeline, periods, *frames)


def promises_section(pipeline: Pipeline, tables: Tables, found: Mapping[str, Line], known: Hindsight) -> Section:
    """One line a query: promise, what was kept, the waits and the best fixed one in hindsight, time at level A."""
    columns = (*HEADINGS, "waited", "best fixed K", "at level A")
    rows = []
    for query in promised_first(pipeline):
        mean, fixed = known.waits[query.id].shown if query.id in known.waits else ("", "")
        said = found[query.id].cells if query.id in found else (query.id, "–", "none", "", "", "")
        rows.append((*said, mean, fixed, _at_level_a(query, tables)))
    table = numbers(columns, rows, ("waited", "best fixed K", "at level A"))
    note = (
        "Waited: how long after a window's end its answer was given, the mean over the periods that are judged. Best "
        "fixed K: the shortest wait that, the same all the time, would have kept as many of them; known only "
        "afterwards. At level A: the share of the time in which its whole range was to be held."
    )
    return Section(
        "promises",
        "Promises",
        paragraphs=(explained(found.values()), *sentences(pipeline, known)),
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


def _at_level_a(query: Query, tables: Tables) -> str:
    """The share of the time, from its first plan to its last, in which a query's whole range was planned."""
    plans = tables.of("query_plan", query.id).sort_values("effective_from")
    lasted_s = (plans["effective_from"].shift(-1) - plans["effective_from"]).dt.total_seconds()
    whole_s = lasted_s.sum()
    return show_percent(float(lasted_s[plans["support_level"] == "A"].sum() / whole_s)) if whole_s else ""
