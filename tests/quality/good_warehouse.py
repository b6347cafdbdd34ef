"""A small warehouse in perfect order: eight hours of two streams and three queries, made without any stage.

Every number follows from the contract alone, so the suites can be tested before, and without, the applications.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.declarations.models import (
    Aggregate,
    Column,
    GroupColumn,
    History,
    Order,
    Output,
    Pipeline,
    Query,
    Stream,
    Window,
)
from tidegate.declarations.tables import common_schema
from tidegate.store.intervals import Interval, intervals_between
from tidegate.store.warehouse import Warehouse

START = datetime(2013, 2, 8, tzinfo=UTC)
HOURS = 8
HORIZON = timedelta(hours=2)
EVERY = timedelta(minutes=10)
RANGE_S = 3600.0
FIRST_TICK = START + timedelta(minutes=10)
LEARNT = START + timedelta(hours=4)
"""From here on the slack is half an hour; before, the declared hour."""

Row = dict[str, Any]


def _stream(name: str, missing_file: Any, history: bool) -> Stream:
    return Stream(
        name=name,
        format="jsonl",
        path=f"/landing/{name}/%Y-%m-%dT%H.jsonl",
        columns=(
            Column(name="id", type="string", nullable=False),
            Column(name="at", type="timestamp", nullable=False),
            Column(name="seen", type="timestamp", nullable=False),
            Column(name="origin", type="string"),
            Column(name="delay", type="double"),
        ),
        event_time="at",
        arrival_time="seen",
        id=("id",),
        rate=1 / 600,
        max_early_s=0,
        max_late_s=7200,
        max_width_s=7200,
        missing_file=missing_file,
        history=History(leaf_s=3600, capacity_tuples=100) if history else None,
    )


def _query(query_id: str, kind: Any, **more: Any) -> Query:
    return Query(
        id=query_id,
        kind=kind,
        text="SELECT …",
        description="",
        windows=(Window(alias="d", stream="departures", range_s=RANGE_S),),
        predicates={},
        every_s=EVERY.total_seconds(),
        **more,
    )


def good_pipeline() -> Pipeline:
    """Two streams, three queries: a count with ERROR, a count by origin without a promise, a top 2 with ACCURACY."""
    count = Aggregate(slot="a0", function="count", alias=None, expression=None, type="integer")
    origin = GroupColumn(slot="g0", alias="d", column="origin", type="string", shown_as="origin")
    return Pipeline(
        name="harbour",
        folder=Path("harbour"),
        description="A pipeline for tests",
        owner="tests",
        start=START,
        interval_s=3600,
        tick_s=300,
        horizon_s=int(HORIZON.total_seconds()),
        memory_budget_bytes=4096,
        process_budget_bytes=2**30,
        initial_slack_s=3600,
        promise_period_s=3600,
        streams=(_stream("departures", "error", True), _stream("weather", "warn", False)),
        queries=(
            _query(
                "total",
                "aggregate",
                aggregates=(count,),
                outputs=(Output(name="count", expression="a0", type="double"),),
                error=0.1,
            ),
            _query(
                "by_origin",
                "aggregate",
                aggregates=(count,),
                group_by=(origin,),
                outputs=(
                    Output(name="origin", expression="g0", type="string"),
                    Output(name="count", expression="a0", type="double"),
                ),
            ),
            _query(
                "worst",
                "top_k",
                outputs=(Output(name="delay", expression="delay", type="double"),),
                order_by=(Order(slot="o0", expression="delay", descending=True, type="double"),),
                limit=2,
                accuracy=0.9,
                on_miss="fail",
            ),
        ),
    )


def intervals(pipeline: Pipeline) -> tuple[Interval, ...]:
    """The eight hours."""
    return intervals_between(pipeline, START, START + timedelta(hours=HOURS))


def write_good(root: Path) -> Warehouse:
    """Write every table of every hour."""
    pipeline = good_pipeline()
    warehouse = Warehouse(root, pipeline)
    rows = _tables(pipeline)
    hours = intervals(pipeline)
    with warehouse.commit("test", hours) as commit:
        for table in warehouse.tables():
            if table in ("quality_results", "history_passes"):
                continue
            for hour in hours:
                own = [row for row in rows[table] if row["interval"] == hour.label]
                if table == "history_accuracy" and not own:
                    continue  # written by intervals that end a day
                put = commit.put_file if table == "run_metrics" else None
                data = to_table(warehouse, table, own)
                if put is None:
                    commit.put_arrow(table, hour, data)
                    continue
                for app in sorted({row["app"] for row in own}):
                    part = to_table(warehouse, table, [row for row in own if row["app"] == app])
                    put(table, hour, app, part)
    return warehouse


def replace_rows(warehouse: Warehouse, table: str, label: str, rows: list[Row]) -> None:
    """Write one partition anew."""
    hour = next(hour for hour in intervals(warehouse.pipeline) if hour.label == label)
    with warehouse.commit("test", [hour]) as commit:
        commit.put_arrow(table, hour, to_table(warehouse, table, rows))


def to_table(warehouse: Warehouse, table: str, rows: list[Row]) -> pa.Table:
    """Rows as the table's Arrow; columns that a row leaves out are null."""
    schema = warehouse.schema(table)
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema=schema)


def _label(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H}"


def _slack(query: Query, end: datetime) -> timedelta:
    if query.promised is None:
        return timedelta(0)
    return timedelta(hours=1) if end < LEARNT else timedelta(minutes=30)


def _tables(pipeline: Pipeline) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = defaultdict(list)
    for hour in intervals(pipeline):
        _arrivals(rows, pipeline, hour)
        _plans(rows, pipeline, hour)
        _metrics(rows, pipeline, hour)
        _judgements(rows, pipeline, hour)
    tick = FIRST_TICK
    while tick < START + timedelta(hours=HOURS):
        for query in pipeline.queries:
            _window(rows, query, tick)
        tick += EVERY
    last = START + timedelta(hours=HOURS - 1)
    part = {"stream": "departures", "part_start": START, "part_end": last, "tuples": 30, "fraction": 0.5}
    for number in range(40):
        answer = {"question": f"q{number}", "truth": 1.0, "estimate": 1.1, "low": 0.9, "high": 1.3, "exact": False}
        row = {"interval": _label(last), **part, **answer, "holds": number >= 2}
        rows["history_accuracy"].append(row)
    return rows


def _arrivals(rows: dict[str, list[Row]], pipeline: Pipeline, hour: Interval) -> None:
    for stream in pipeline.streams:
        path = f"/landing/{stream.name}/{hour.label}.jsonl"
        file = {"stream": stream.name, "path": path, "status": "ok", "bytes": 600, "modified": hour.end, "rows": 6}
        rows["source_files"].append({"interval": hour.label, **file})
        for minute in range(2, 60, 10):
            at = hour.start + timedelta(minutes=minute)
            key = f"{stream.name}-{at:%H%M}"
            tuple_ = {"event_id": key, "event_time": at, "arrival_time": at + timedelta(minutes=1)}
            declared = {"id": key, "at": at, "seen": at + timedelta(minutes=1), "origin": "JFK", "delay": 3.0}
            rows[f"events_{stream.name}"].append({"interval": hour.label, **tuple_, **declared})
            if stream.history is not None and minute < 30:
                sample = {"leaf_start": hour.start, "u": minute / 100, "fraction": 0.5, "weight": 2.0}
                rows[f"history_samples_{stream.name}"].append({"interval": hour.label, **sample, **tuple_, **declared})
    leaf = {"stream": "departures", "leaf_start": hour.start, "leaf_end": hour.end, "tuples": 6, "sampled": 3}
    sums = {"delay_count": 6, "delay_sum": 18.0, "delay_min": 3.0, "delay_max": 3.0, "delay_sum_squares": 54.0}
    rows["history_leaves"].append({"interval": hour.label, **leaf, "fraction": 0.5, **sums})


def _plans(rows: dict[str, list[Row]], pipeline: Pipeline, hour: Interval) -> None:
    for stream in pipeline.streams:
        widths = {"width_s": RANGE_S, "min_width_s": 1800.0, "max_width_s": RANGE_S}
        plan = {"stream": stream.name, "effective_from": hour.start, "support_level": "A", "trigger": "rate"}
        sizes = {"byte_rate": 0.5, "planned_bytes": 1800.0}
        measured = {"tuples": 1, "rate": 0.002, "tuple_bytes": 50.0, "held_tuples": 6, "held_bytes": 300}
        for minute in range(0, 60, 10):
            tick = {"stream": stream.name, "tick": hour.start + timedelta(minutes=minute), "evicted_early": 0}
            rows["stream_rates"].append({"interval": hour.label, **tick, **measured})
        rows["window_plan"].append({"interval": hour.label, **plan, **widths, **sizes})
    for query in pipeline.queries:
        plan = {"query": query.id, "effective_from": hour.start, "support_level": "A", "tolerable_s": []}
        rows["query_plan"].append({"interval": hour.label, **plan})
        if query.promised is None:
            continue
        slack_s = _slack(query, hour.end).total_seconds()
        expected = {"accuracy_target": 0.95, "accuracy_expected": 0.99, "oracle_slack_s": 600.0}
        plan = {"query": query.id, "effective_from": hour.end, "slack_s": slack_s, "windows": 6, "method": "quantile"}
        rows["slack_plan"].append({"interval": hour.label, **plan, **expected})
    width = {"query": "total", "stream": "departures", "effective_from": hour.end, "tolerated_error": 0.1}
    rows["error_width_plan"].append({"interval": hour.label, **width, "slack_width_s": 360.0, "coverage": 0.9})


def _metrics(rows: dict[str, list[Row]], pipeline: Pipeline, hour: Interval) -> None:
    budgets = {"memory_budget_bytes": 4096, "peak_process_bytes": 2**29, "process_budget_bytes": 2**30}
    common = {"interval": hour.label, "started_at": hour.end, "seconds": 1.0, **budgets}
    none = {"rows_in": 0, "rows_out": 0, "rows_late": 0, "rows_quarantined": 0, "rows_failed": 0, "peak_state_bytes": 0}
    rows["run_metrics"].append({**common, **none, "app": "ingest", "rows_in": 12, "rows_out": 12})
    for query in pipeline.queries:
        app = "top_k" if query.kind == "top_k" else "join_aggregate"
        rows["run_metrics"].append({**common, **none, "app": app, "query": query.id, "peak_state_bytes": 3000})
    for app in ("sample_history", "calibrate"):
        rows["run_metrics"].append({**common, **none, "app": app, "kind": "client"})
    memory_alone = {name: common[name] for name in ("interval", "started_at", "seconds")} | {"app": "calibrate"}
    if "kind" not in common_schema("run_metrics").names:
        return  # an older version has no such rows
    # More than a stage may take: a JVM that several share has a budget of its own.
    for kind, taken, budget in (("worker", 2**28, 2**30), ("jvm", 2**31, 2**32)):
        row = {"kind": kind, "peak_process_bytes": taken, "process_budget_bytes": budget}
        rows["run_metrics"].append({**memory_alone, **row})


def _judgements(rows: dict[str, list[Row]], pipeline: Pipeline, hour: Interval) -> None:
    """The hour of windows that became final, after twenty that were kept, and the next, of which none is final."""
    open_since = hour.end - HORIZON
    for query in pipeline.queries:
        if query.promised is None:
            continue
        name = f"ERROR {query.error}" if query.error is not None else f"ACCURACY {query.accuracy}"
        judged = 20 + max((open_since - START) // timedelta(hours=1), 0)
        tally = {"periods_judged": judged, "periods_kept": judged, "met_so_far": 1.0, "judged_at": hour.end}
        common = {
            "interval": hour.label,
            "query": query.id,
            "promise": name,
            "promised": query.accuracy or 0.95,
            **tally,
        }
        if open_since > START:
            period = {"period_start": open_since - timedelta(hours=1), "period_end": open_since, "measured": 1.0}
            windows = 6 if open_since - START > timedelta(hours=1) else 5
            rows["promise_periods"].append({**common, **period, "windows": windows, "kept": True})
        period = {"period_start": open_since, "period_end": open_since + timedelta(hours=1), "windows": 0}
        rows["promise_periods"].append({**common, **period})


def _window(rows: dict[str, list[Row]], query: Query, end: datetime) -> None:
    emitted, final = end + _slack(query, end), end + HORIZON
    about = {
        "width_s": [("d", RANGE_S)],
        "range_s": [("d", RANGE_S)],
        "coverage": 1.0,
        "support_level": "A",
        "slack_s": _slack(query, end).total_seconds(),
    }
    by_query: dict[str, list[Row]] = {
        "total": [{"count": 6.0}],
        "by_origin": [{"origin": "EWR", "count": 2.0}, {"origin": "JFK", "count": 4.0}],
        "worst": [{"rank": 1, "event_id": "a", "delay": 9.0}, {"rank": 2, "event_id": "b", "delay": 8.0}],
    }
    for body in by_query[query.id]:
        answer = {"interval": _label(emitted), "window_end": end, "emitted_at": emitted, **body, **about}
        rows[f"answers_{query.id}"].append(answer)
        rows[f"truth_{query.id}"].append({"interval": _label(final), "window_end": end, **body})
    metric, value = ("hit_rate", 1.0) if query.kind == "top_k" else ("relative_error", 0.05)
    judged = {"query": query.id, "window_end": end, "metric": metric, "value": value, "promised": query.promised}
    kept = None if query.promised is None else True
    about = {"slack_s": about["slack_s"], "width_s": about["width_s"]}
    rows["accuracy"].append({"interval": _label(final), **judged, "kept": kept, **about})
