"""The sections of the report, each from the tables of the warehouse."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from tidegate.declarations.interval_labels import label_start
from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.promises import Line
from tidegate.declarations.tables import JVM
from tidegate.declarations.units import show_percent
from tidegate.report.charts import (
    COLORS,
    byte_unit,
    chart,
    numbers,
    reference,
    rows_of,
    shown_bytes,
    shown_number,
    shown_seconds,
    shown_text,
    shown_time,
)
from tidegate.report.page import Part, Section, Tone
from tidegate.report.promises import periods_part
from tidegate.report.swings import swings_sentence
from tidegate.report.tables import Tables, nothing_in

HOURLY_UP_TO = pd.Timedelta(days=14)

_LEVEL_SYMBOLS = {"A": "circle", "B": "diamond", "C": "triangle-up", "infeasible": "x"}

# ----------------------------------------------------------------------------------------------------------- queries


def query_section(query: Query, line: Line | None, tables: Tables) -> Section:
    """What one query promised and kept: accuracy and slack over time."""
    accuracy, slacks = tables.of("accuracy", query.id), tables.of("slack_plan", query.id)
    periods = periods_part(query, tables)
    parts = [] if periods is None else [periods]
    if len(accuracy):
        parts.append(_accuracy_part(query, accuracy))
    if len(slacks):
        parts.append(_slack_part(query, slacks.sort_values("effective_from")))
    missing = [
        nothing_in(table, "for this query")
        for table, frame in (("accuracy", accuracy), ("slack_plan", slacks))
        if not len(frame) and not (table == "slack_plan" and query.promised is None)
    ]
    if query.promised is None:
        missing.append("A query without a promise does not wait: its slack is 0.")
    return Section(
        id=f"query-{query.id}",
        title=f"Query {query.id}",
        verdict="No promise declared." if line is None else line.sentence,
        tone="" if line is None else line.tone,
        paragraphs=tuple(p.strip() for p in query.description.split("\n\n") if p.strip()),
        code=query.text.strip(),
        missing=tuple(missing),
        parts=tuple(parts),
    )


def _accuracy_part(query: Query, accuracy: pd.DataFrame) -> Part:
    metric = str(accuracy["metric"].iloc[0])
    span = accuracy["window_end"].max() - accuracy["window_end"].min()
    unit, word = ("h", "hour") if span <= HOURLY_UP_TO else ("D", "day")
    # A window ending at 10:00 holds the hour before.
    bucket = (accuracy["window_end"] - pd.Timedelta(microseconds=1)).dt.floor(unit)
    groups = accuracy.groupby(bucket)["value"]
    is_error = metric == "relative_error"
    summary = pd.DataFrame(
        {
            "windows": groups.size(),
            "mean": groups.mean(),
            "shown": groups.quantile(0.95) if is_error else groups.mean(),
            "worst": groups.max() if is_error else groups.min(),
        }
    )
    summary["kept"] = accuracy.groupby(bucket)["kept"].agg(lambda kept: kept.dropna().astype(float).mean())
    name = "95th percentile of relative error" if is_error else "mean hit rate"
    figure = go.Figure()
    figure.add_scatter(
        x=summary.index,
        y=summary["shown"],
        name=name,
        mode="lines+markers",
        line={"color": COLORS[0]},
        marker={"size": 5},
    )
    if query.promised is not None:
        reference(figure, summary.index, query.promised, "promised")
    columns = (
        "from",
        "windows",
        "mean",
        "95th percentile" if is_error else "mean hit rate",
        "worst",
        "windows within the promise",
    )
    rows = [
        (
            shown_time(at),
            str(int(r.windows)),
            shown_number(r.mean_),
            shown_number(r.shown),
            shown_number(r.worst),
            "" if pd.isna(r.kept) else show_percent(r.kept),
        )
        for at, r in zip(summary.index, rows_of(summary.rename(columns={"mean": "mean_"})), strict=True)
    ]
    return Part(
        id=f"accuracy-{query.id}",
        title=f"{'Relative error' if is_error else 'Hit rate'} by {word}",
        figure=chart(figure),
        table=numbers(columns, rows, columns[1:]),
    )


def _slack_part(query: Query, slacks: pd.DataFrame) -> Part:
    minutes = slacks[["slack_s", "oracle_slack_s"]] / 60
    figure = go.Figure()
    figure.add_scatter(
        x=slacks["effective_from"],
        y=minutes["slack_s"],
        name="K in effect",
        mode="lines",
        line={"color": COLORS[0], "shape": "hv"},
    )
    figure.add_scatter(
        x=slacks["effective_from"],
        y=minutes["oracle_slack_s"],
        name="oracle K",
        mode="markers",
        marker={"color": COLORS[1], "size": 6},
    )
    figure.update_yaxes(title_text="minutes", rangemode="tozero")
    columns = ("in effect from", "K", "oracle K", "target", "expected", "windows", "method")
    rows = [
        (
            shown_time(r.effective_from), shown_seconds(r.slack_s), shown_seconds(r.oracle_slack_s),
            shown_number(r.accuracy_target), shown_number(r.accuracy_expected), shown_number(r.windows),
            shown_text(r.method),
        )
        for r in rows_of(slacks)
    ]  # fmt: skip
    return Part(
        id=f"slack-{query.id}",
        title="Slack K over time",
        note="How long the query waits for late tuples. Oracle K: the least slack that would have met the target over"
        f" the windows that became final then. {swings_sentence(slacks)}".rstrip(),
        figure=chart(figure),
        table=numbers(columns, rows, columns[1:6]),
    )


# ------------------------------------------------------------------------------------------------- windows and memory


def windows_section(tables: Tables) -> Section:
    """Widths and levels of support over time."""
    plans = tables["window_plan"].sort_values(["effective_from", "stream"])
    if not len(plans):
        return Section("windows", "Windows", missing=(nothing_in("window_plan"),))
    figure = go.Figure()
    for i, (stream, own) in enumerate(plans.groupby("stream")):
        figure.add_scatter(
            x=own["effective_from"], y=own["width_s"] / 3600, name=str(stream), mode="lines+markers",
            text=own["support_level"], hovertemplate="%{y:.3g} h, level %{text}",
            line={"color": COLORS[i % len(COLORS)], "shape": "hv"},
            marker={"size": 7, "symbol": [_LEVEL_SYMBOLS.get(level, "circle") for level in own["support_level"]]},
        )  # fmt: skip
    figure.update_yaxes(title_text="hours", rangemode="tozero")
    columns = ("from", "stream", "level", "width", "least", "exact", "bytes/s", "planned bytes", "trigger")
    rows = [
        (
            shown_time(r.effective_from), r.stream, r.support_level, shown_seconds(r.width_s),
            shown_seconds(r.min_width_s), shown_seconds(r.max_width_s), shown_number(r.byte_rate),
            shown_bytes(r.planned_bytes), r.trigger,
        )
        for r in rows_of(plans)
    ]  # fmt: skip
    at = plans.drop_duplicates("effective_from")
    levels = at["support_level"].value_counts()
    counted = ", ".join(f"{levels[level]} at level {level}" for level in ("A", "B", "C") if level in levels)
    below = f"{levels['infeasible']} below level B" if "infeasible" in levels else ""
    return Section(
        "windows",
        "Windows",
        paragraphs=(
            f"{len(at)} plans, by what the rates let expect: {', '.join(filter(None, (counted, below)))}. Windows hold"
            " what queries need until memory is really full; what each query got is told with its answers.",
        ),
        parts=(
            Part(
                id="widths",
                title="Planned width of each stream's window",
                note="What a window holds at all times: ranges and slack. Markers: ● level A (exact), ◆ level B (within"
                " the error), ▲ level C (taking turns: it widens to the least width and back), ✕ below.",
                figure=chart(figure),
                table=numbers(columns, rows, ("width", "least", "exact", "bytes/s", "planned bytes")),
            ),
        ),
    )


def memory_section(pipeline: Pipeline, tables: Tables) -> Section:
    """Planned and measured bytes against the budgets."""
    plans, metrics = tables["window_plan"], tables["run_metrics"]
    parts, missing = [], []
    if len(plans):
        parts.append(_planned_part(pipeline, plans, tables["stream_rates"]))
    else:
        missing.append(nothing_in("window_plan"))
    if not len(metrics):
        return Section("memory", "Memory", missing=(*missing, nothing_in("run_metrics")), parts=tuple(parts))
    verdicts = []
    # A JVM that several pipelines share has a budget of its own: check_quality looks at that.
    charged = metrics[metrics["kind"] != JVM]
    for measure, budget, declared, name in (
        ("peak_state_bytes", "memory_budget_bytes", pipeline.memory_budget_bytes, "window state"),
        ("peak_process_bytes", "process_budget_bytes", pipeline.process_budget_bytes, "processes"),
    ):
        measured = charged.dropna(subset=[measure])
        if len(measured):
            limits = measured[budget].astype("float64").fillna(float(declared))
            over = int((measured[measure].astype("float64") > limits).sum())
            parts.append(_measured_part(measured, measure, declared, name))
            verdicts.append((name, over, len(measured)))
        else:
            missing.append(f"No run has measured the peak of its {name} yet.")
    sentences = [
        f"{name.capitalize()} exceeded the budget in {over} of {runs} measurements."
        if over
        else f"{name.capitalize()} never exceeded the budget ({runs} measurements)."
        for name, over, runs in verdicts
    ]
    tone: Tone = "" if not verdicts else "bad" if any(over for _, over, _ in verdicts) else "good"
    return Section(
        "memory", "Memory", verdict=" ".join(sentences), tone=tone, missing=tuple(missing), parts=tuple(parts)
    )


def _planned_part(pipeline: Pipeline, plans: pd.DataFrame, rates: pd.DataFrame) -> Part:
    # An early eviction narrows some streams between two plans: the others keep what they were given.
    by_stream = plans.pivot_table(index="effective_from", columns="stream", values="planned_bytes").ffill()
    planned = by_stream.sum(axis=1)
    held = rates.dropna(subset=["held_bytes"]).groupby("tick")["held_bytes"].sum()
    early = rates.groupby("tick")["evicted_early"].sum()
    budget = pipeline.memory_budget_bytes
    unit, size = byte_unit(max(float(planned.max()), budget))
    figure = go.Figure()
    figure.add_scatter(
        x=planned.index, y=planned / size, name="planned", mode="lines", line={"color": COLORS[0], "shape": "hv"}
    )
    columns = ("from", "planned", "of the budget")
    rows = [(shown_time(at), shown_bytes(value), f"{value / budget:.1%}") for at, value in planned.items()]
    note = ""
    if len(held):
        line = {"color": COLORS[2], "width": 1}
        figure.add_scatter(x=held.index, y=held / size, name="held", mode="lines", fill="tozeroy", line=line)
        note = (
            "Held: most bytes in the tick before. "
            f"At most {shown_bytes(held.max())} were held, {held.max() / budget:.1%} of M; "
            f"in {int((early > 0).sum())} of {len(early)} ticks tuples were evicted early to keep within it."
        )
    reference(figure, planned.index, budget / size, "budget M")
    figure.update_yaxes(title_text=unit, rangemode="tozero")
    title = "Planned and held bytes of all windows against M"
    return Part("planned", title, numbers(columns, rows, columns[1:]), chart(figure), note=note)


def _measured_part(metrics: pd.DataFrame, measure: str, budget: int, name: str) -> Part:
    unit, size = byte_unit(max(float(metrics[measure].max()), budget))
    at = metrics["interval"].map(label_start)
    figure = go.Figure()
    for i, app in enumerate(sorted(metrics["app"].unique())):
        own = (metrics["app"] == app).to_numpy()
        peaks = (metrics[measure][own].astype("float64") / size).groupby(at[own]).max()
        figure.add_scatter(
            x=peaks.index,
            y=peaks,
            name=app,
            mode="lines+markers",
            line={"color": COLORS[i % len(COLORS)]},
            marker={"size": 4},
        )
    reference(figure, at, budget / size, "budget")
    figure.update_yaxes(title_text=unit, rangemode="tozero")
    groups = metrics.groupby("app")[measure]
    columns = ("application", "runs measured", "highest peak", "of the budget")
    rows = [
        (str(app), str(len(own)), shown_bytes(own.max()), f"{own.max() / budget:.1%}" if budget else "")
        for app, own in groups
    ]
    return Part(
        f"measured-{measure}",
        f"Measured peak of {name} against the budget",
        numbers(columns, rows, columns[1:]),
        chart(figure),
    )


# ------------------------------------------------------------------------------------------------------ runs, quality


def runs_section(tables: Tables) -> Section:
    """How long the applications took."""
    metrics = tables["run_metrics"]
    if not len(metrics):
        return Section("runs", "Run times", missing=(nothing_in("run_metrics"),))
    # Rows of one application run, one a query, share its start: a run is counted once.
    runs = metrics.groupby(["app", "interval"], as_index=False).agg(
        seconds=("seconds", "max"), rows_in=("rows_in", "max"), rows_late=("rows_late", "sum")
    )
    figure = go.Figure()
    for i, (app, own) in enumerate(runs.groupby("app")):
        figure.add_scatter(
            x=own["interval"].map(label_start), y=own["seconds"], name=str(app), mode="lines+markers",
            line={"color": COLORS[i % len(COLORS)]}, marker={"size": 4},
        )  # fmt: skip
    figure.update_yaxes(title_text="seconds", rangemode="tozero")
    columns = ("application", "intervals", "median", "longest", "total", "rows in", "rows late")
    rows = [
        (
            str(app), str(len(own)), shown_seconds(own["seconds"].median()), shown_seconds(own["seconds"].max()),
            shown_seconds(own["seconds"].sum()), f"{own['rows_in'].sum():,.0f}", f"{own['rows_late'].sum():,.0f}",
        )
        for app, own in runs.groupby("app")
    ]  # fmt: skip
    part = Part("run-times", "Seconds a run took, by interval", numbers(columns, rows, columns[1:]), chart(figure))
    return Section("runs", "Run times", parts=(part,))


def quality_section(tables: Tables) -> Section:
    """Failed expectations, records in quarantine, and fields of records that no column is read from."""
    results, quarantine = tables["quality_results"], tables["quarantine"]
    parts, missing = [], []
    verdict = ""
    tone: Tone = ""
    if len(results):
        failed = failures(results)
        critical = int((failed["severity"] == "critical").sum())
        tone = quality_tone(len(results), len(failed), critical)
        count = f"{critical or 'no'} critical failure{'s' if critical != 1 else ''}"
        judged = int((results["severity"] != "info").sum())
        verdict = f"{judged - len(failed):,} of {judged:,} expectations met, {count}."
        if len(failed):
            columns = ("interval", "severity", "table", "expectation", "query", "promised", "measured", "detail")
            rows = [
                (
                    r.interval, r.severity, r.table, r.expectation, shown_text(r.query), shown_number(r.promised),
                    shown_number(r.measured), shown_text(r.detail),
                )
                for r in rows_of(failed.sort_values(["interval", "severity", "table"]))
            ]  # fmt: skip
            parts.append(Part("failed", "Failed expectations", numbers(columns, rows, ("promised", "measured"))))
    else:
        missing.append(nothing_in("quality_results"))
    if len(quarantine):
        counts = quarantine.groupby(["stream", "reason"], as_index=False).size()
        records = [(r.stream, r.reason, f"{r.records:,}") for r in rows_of(counts.rename(columns={"size": "records"}))]
        parts.append(
            Part("quarantine", "Records in quarantine", numbers(("stream", "reason", "records"), records, ("records",)))
        )
    else:
        missing.append("No record is in quarantine.")
    parts += _unknown_columns(tables)
    return Section("quality", "Data quality", verdict=verdict, tone=tone, missing=tuple(missing), parts=tuple(parts))


def _unknown_columns(tables: Tables) -> list[Part]:
    """Fields that the streams' declarations do not mention: what ingest ignored, over all intervals."""
    rows = tables["unknown_columns"]
    if not len(rows):
        return []
    groups = rows.groupby(["stream", "column"], as_index=False)
    fields = groups.agg(records=("records", "sum"), since=("first_seen", "min"), last=("interval", "max"))
    shown = [
        (r.stream, r.column, f"{r.records:,}", f"{r.since:%Y-%m-%d %H:%M}", r.last)
        for r in rows_of(fields.sort_values(["stream", "records", "column"], ascending=[True, False, True]))
    ]
    columns = ("stream", "field", "records", "first seen", "last interval")
    return [
        Part("unknown-columns", "Fields ignored: no column is read from them", numbers(columns, shown, ("records",)))
    ]


def failures(results: pd.DataFrame) -> pd.DataFrame:
    """The findings that stop a run or warn; a single window that misses breaks no promise, and is none of them."""
    return results[~results["success"].astype(bool) & (results["severity"] != "info")]


def quality_tone(checked: int, failed: int, critical: int) -> Tone:
    """How the outcome of the checks looks: only a critical failure is bad."""
    if not checked:
        return "open"
    return "bad" if critical else "open" if failed else "good"
