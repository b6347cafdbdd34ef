"""What estimates about the past were worth, by age: the part of the report that sets them against the truth."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tidegate.declarations.interval_labels import label_start
from tidegate.declarations.units import show_percent
from tidegate.report.charts import (
    COLORS,
    chart,
    numbers,
    rows_of,
    shown_number,
    shown_time,
)
from tidegate.report.page import Part, Tone
from tidegate.report.tables import Tables

_DAY = pd.Timedelta(days=1)


def against_truth(tables: Tables) -> tuple[str, Tone, tuple[Part, ...]]:
    """Verdict, tone, and the charts: the newest judgement of every stream, and one line a day for its coverage."""
    judged = tables["history_accuracy"]
    if not len(judged):
        return "", "", ()
    newest = judged[judged["interval"] == judged.groupby("stream")["interval"].transform("max")].copy()
    middle = newest["part_start"] + (newest["part_end"] - newest["part_start"]) / 2
    # The interval ends the day whose pass was judged.
    ends = pd.to_datetime([label_start(label) for label in newest["interval"]], utc=True)
    newest["age"] = ((ends + pd.Timedelta(1, "us")).ceil("D") - pd.DatetimeIndex(middle)) / _DAY
    truth = newest["truth"].abs().where(newest["truth"] != 0)
    newest["error"] = (newest["estimate"] - newest["truth"]).abs() / truth
    newest["reach"] = np.maximum(newest["high"] - newest["estimate"], newest["estimate"] - newest["low"]) / truth
    newest = newest.sort_values(["stream", "age"], kind="stable")
    known = newest[newest["holds"].notna()]
    held = int(known["holds"].astype(bool).sum())
    verdict, tone = _verdict(tables, held, len(known), judged)
    parts = _by_part(newest)
    return verdict, tone, (_questions(newest, parts), _parts(parts))


def _verdict(tables: Tables, held: int, asked: int, judged: pd.DataFrame) -> tuple[str, Tone]:
    text = f"{held} of {asked} intervals (95 %) contain the true value after the newest pass"
    results = tables["quality_results"]
    own = results[results["expectation"] == "history_interval_coverage"] if len(results) else results
    own = own[own["interval"].isin(judged["interval"]) & own["promised"].notna()] if len(own) else own
    if not len(own):
        return f"{text}; check_quality has not checked that yet.", "open"
    newest = own[own["interval"] == own["interval"].max()]
    if newest["success"].astype(bool).all():
        return f"✓ {text}, within what chance allows.", "good"
    return f"✗ {text}, fewer than chance allows.", "bad"


def _questions(newest: pd.DataFrame, parts: pd.DataFrame) -> Part:
    figure = go.Figure()
    for i, (stream, own) in enumerate(newest.groupby("stream")):
        color = COLORS[i % len(COLORS)]
        symbols = ["x" if missed else "circle" for missed in own["holds"].eq(False)]
        figure.add_scatter(
            x=own["age"], y=own["error"] * 100, name=f"{stream}: measured", mode="markers",
            marker={"color": color, "size": 6, "symbol": symbols}, text=own["question"].map(_asked),
        )  # fmt: skip
        reach = parts[parts["stream"] == stream]
        figure.add_scatter(
            x=reach["age"], y=reach["reach"] * 100, name=f"{stream}: expected, median", mode="lines+markers",
            line={"color": color, "dash": "dot"}, marker={"symbol": "line-ew-open", "size": 10},
        )  # fmt: skip
    figure.update_yaxes(title_text="%", rangemode="tozero")
    figure.update_xaxes(title_text="age of the part in days", rangemode="tozero")
    columns = (
        "stream", "age in days", "question", "tuples", "fraction", "truth", "estimate", "from", "to", "error", "holds",
    )  # fmt: skip
    rows = [
        (
            str(r.stream), f"{r.age:.1f}", _asked(r.question), shown_number(r.tuples), shown_number(r.fraction),
            _value(r.truth), _value(r.estimate) or "no estimate", _value(r.low), _value(r.high),
            "" if pd.isna(r.error) else show_percent(r.error),
            "" if pd.isna(r.holds) else "✓ yes" if r.holds else "✗ no",
        )
        for r in rows_of(newest)
    ]  # fmt: skip
    return Part(
        "history-truth",
        "Measured error of estimates against the truth, by age",
        numbers(columns, rows, (*columns[1:2], *columns[3:-1])),
        chart(figure, together=False),
        note="Each dot is one question to the samples about one part of the past, where all of its tuples are still"
        " there; a cross is a truth outside of its 95 % interval. Expected: how far these intervals reach.",
    )


def _by_part(newest: pd.DataFrame) -> pd.DataFrame:
    judged = newest.assign(held=newest["holds"].eq(True), known=newest["holds"].notna())
    found = judged.groupby(["stream", "part_start", "part_end"], as_index=False).agg(
        age=("age", "first"), fraction=("fraction", "first"), error=("error", "median"), reach=("reach", "median"),
        worst=("error", "max"), held=("held", "sum"), known=("known", "sum"),
    )  # fmt: skip
    return found.sort_values(["stream", "age"])


def _parts(found: pd.DataFrame) -> Part:
    columns = (
        "stream", "from", "to", "age in days", "fraction", "median error", "largest", "expected", "intervals that hold",
    )  # fmt: skip
    rows = [
        (
            str(r.stream), shown_time(r.part_start), shown_time(r.part_end), f"{r.age:.1f}", shown_number(r.fraction),
            *("" if pd.isna(share) else show_percent(share) for share in (r.error, r.worst, r.reach)),
            f"{r.held} of {r.known}",
        )
        for r in rows_of(found)
    ]  # fmt: skip
    return Part("history-truth-parts", "The same by part of the past", numbers(columns, rows, columns[3:]))


def _value(value: float) -> str:
    return "" if pd.isna(value) else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _asked(question: str) -> str:
    """The question without what every one of them has."""
    return re.sub(r"^SELECT (.*) AS answer FROM \S+ WHERE", r"\1 where", question).replace("`", "")
