"""The report's section on history: what the leaves hold, and how the error of an estimate grows with age."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tidegate.declarations.models import Pipeline
from tidegate.declarations.units import show_percent
from tidegate.report.accuracy import against_truth
from tidegate.report.charts import COLORS, chart, numbers, rows_of, shown_number
from tidegate.report.page import Part, Section
from tidegate.report.tables import Tables, nothing_in

_DAY = pd.Timedelta(days=1)


def history_section(pipeline: Pipeline, tables: Tables) -> Section:
    """Leaves and samples of every stream that keeps a history."""
    if not any(stream.history for stream in pipeline.streams):
        return Section("history", "History", paragraphs=("No stream of this pipeline keeps a history.",))
    leaves = tables["history_leaves"]
    if not len(leaves):
        return Section("history", "History", missing=(nothing_in("history_leaves"),))
    by_leaf = leaves.groupby(["stream", "leaf_start"])[["tuples", "sampled"]].sum().reset_index()
    figure, rows = go.Figure(), []
    for i, (stream, own) in enumerate(by_leaf.groupby("stream")):
        color = COLORS[i % len(COLORS)]
        figure.add_scatter(
            x=own["leaf_start"], y=own["tuples"], name=f"{stream}: tuples", mode="lines", line={"color": color}
        )
        figure.add_scatter(
            x=own["leaf_start"],
            y=own["sampled"],
            name=f"{stream}: sampled",
            mode="lines",
            line={"color": color, "dash": "dot"},
        )
        tuples, sampled = int(own["tuples"].sum()), int(own["sampled"].sum())
        share = f"{sampled / tuples:.1%}" if tuples else ""
        rows.append(
            (str(stream), str(len(own)), f"{tuples:,}", f"{sampled:,}", share, *_last_pass(tables, str(stream)))
        )
    figure.update_yaxes(title_text="tuples a leaf", rangemode="tozero")
    columns = (
        "stream",
        "leaves",
        "tuples",
        "sampled on entry",
        "share",
        "passes",
        "leaves after the last",
        "lowest fraction",
    )
    part = Part(
        "history-leaves",
        "Tuples and samples of each leaf, on entry",
        numbers(columns, rows, columns[1:]),
        chart(figure),
    )
    verdict, tone, judged = against_truth(tables)
    return Section("history", "History", verdict, tone, parts=(part, *_error_by_age(tables, by_leaf), *judged))


def _last_pass(tables: Tables, stream: str) -> tuple[str, str, str]:
    passes = tables["history_passes"]
    own = passes[passes["stream"] == stream] if len(passes) else passes
    if not len(own):
        return "0", "", ""
    last = own[own["pass_time"] == own["pass_time"].max()]
    return str(own["pass_time"].nunique()), str(len(last)), shown_number(last["fraction"].min())


def _error_by_age(tables: Tables, by_leaf: pd.DataFrame) -> tuple[Part, ...]:
    """How far off a leaf's sample is expected to be, by the leaf's age.

    Whole leaves are answered from their exact aggregates; a question that cuts leaves, or that the aggregates cannot
    answer, is estimated from the sample. Sampling n tuples with fraction f leaves a count with a relative standard
    error of sqrt((1 − f) / (f n)) (Poisson sampling, Horvitz-Thompson); the page shows that, for each leaf as the last
    pass left it.
    """
    leaves = pd.concat([_now(tables, own) for _, own in by_leaf.groupby("stream")], ignore_index=True)
    leaves = leaves[(leaves["tuples"] > 0) & (leaves["fraction"] > 0)]
    if not len(leaves):
        return ()
    newest = leaves["leaf_start"].max()
    leaves["age"] = (newest - leaves["leaf_start"]) / _DAY
    leaves["error"] = np.sqrt((1 - leaves["fraction"]) / (leaves["fraction"] * leaves["tuples"]))
    figure = go.Figure()
    for i, (stream, own) in enumerate(leaves.sort_values("age").groupby("stream")):
        figure.add_scatter(
            x=own["age"], y=own["error"] * 100, name=str(stream), mode="markers",
            marker={"color": COLORS[i % len(COLORS)], "size": 5},
        )  # fmt: skip
    figure.update_yaxes(title_text="%", rangemode="tozero")
    figure.update_xaxes(title_text="age in days")
    leaves["day"] = np.floor(leaves["age"]).astype(int)
    days = leaves.groupby(["stream", "day"], as_index=False).agg(
        leaves=("tuples", "size"), tuples=("tuples", "sum"), fraction=("fraction", "median"), error=("error", "median")
    )
    columns = ("stream", "age in days", "leaves", "tuples", "median fraction", "median error of a leaf's count")
    rows = [
        (
            str(r.stream), f"{r.day} to {r.day + 1}", shown_number(r.leaves), shown_number(r.tuples),
            shown_number(r.fraction), show_percent(r.error),
        )
        for r in rows_of(days)
    ]  # fmt: skip
    return (
        Part(
            "history-error",
            "Expected error of an estimate from one leaf's sample, by age",
            numbers(columns, rows, columns[2:]),
            chart(figure),
            note="One standard error of an estimated count of a leaf's tuples, relative. Questions about whole leaves"
            " are answered from exact aggregates, without error; longer periods average the error out.",
        ),
    )


def _now(tables: Tables, leaves: pd.DataFrame) -> pd.DataFrame:
    """One stream's leaves as they are now: merged and thinned by the last pass, and those that came after it."""
    leaves = leaves.assign(fraction=leaves["sampled"] / leaves["tuples"].where(leaves["tuples"] > 0))
    passes = tables["history_passes"]
    own = passes[passes["stream"] == leaves["stream"].iloc[0]] if len(passes) else passes
    if not len(own):
        return leaves
    last = own[own["pass_time"] == own["pass_time"].max()].sort_values("leaf_start")
    place = np.searchsorted(last["leaf_start"].to_numpy(), leaves["leaf_start"].to_numpy(), side="right") - 1
    inside = (place >= 0) & (leaves["leaf_start"].to_numpy() < last["leaf_end"].to_numpy()[place])
    merged = leaves[inside].groupby(place[inside])["tuples"].sum()
    thinned = last.iloc[merged.index][["stream", "leaf_start", "fraction"]].assign(tuples=merged.to_numpy())
    now: pd.DataFrame = pd.concat([thinned, leaves[~inside]], ignore_index=True)
    return now
