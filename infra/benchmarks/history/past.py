"""A pipeline with a year of intervals in its history, made by the stages themselves; no Spark is started."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidegate.declarations.models import Column, History, Pipeline, Stream, to_us
from tidegate.engine.context import RunContext
from tidegate.operators.window_sizing import ControllerSpec, ControllerState
from tidegate.queries.planner import STATE
from tidegate.stages import resample_history, sample_history
from tidegate.store.intervals import Interval, intervals_between

START, WIDTH_S = datetime(2013, 1, 1, tzinfo=UTC), 3600
SITES = ("north", "east", "south", "west", "centre")
_DAYS_AT_ONCE = 30


def pipeline_of(interval_s: int, tuples_per_hour: int, capacity: int) -> Pipeline:
    """One stream, two numeric columns, five sites, leaves of an hour."""
    types = {"site": "string", "level": "double", "units": "integer"}
    readings = Stream(
        name="readings",
        format="jsonl",
        path="readings.jsonl",
        columns=tuple(Column(name=n, type=t) for n, t in types.items()),  # type: ignore[arg-type]
        id="event_id",
        event_time="event_time",
        arrival_time="arrival_time",
        rate=tuples_per_hour / 3600,
        max_early_s=0,
        max_late_s=6 * 3600,
        history=History(leaf_s=3600, capacity_tuples=capacity, law="inverse_age", seed=3, group_by=("site",)),
    )
    return Pipeline(
        name="year",
        folder=Path("year"),
        owner="o",
        start=START,
        interval_s=interval_s,
        tick_s=300,
        horizon_s=interval_s,
        memory_budget_bytes=1 << 20,
        process_budget_bytes=1 << 30,
        streams=(readings,),
        queries=(),
    )


def fill(pipeline: Pipeline, root: Path, days: int, tuples_per_hour: int, seed: int) -> RunContext:
    """Ingest, sample and resample so many days; a month at a time, which gives the rows of single runs."""
    context = RunContext(pipeline, root, output=io.StringIO())
    context.warehouse.folder.mkdir(parents=True, exist_ok=True)
    rng, carried, unseen = np.random.default_rng(seed), None, 0
    with contextlib.redirect_stdout(io.StringIO()):
        for first in range(0, days, _DAYS_AT_ONCE):
            start = START + timedelta(days=first)
            part = intervals_between(pipeline, start, start + timedelta(days=min(_DAYS_AT_ONCE, days - first)))
            new = _readings(start, len(part) * pipeline.interval_s, tuples_per_hour, rng, unseen)
            unseen += new.num_rows
            carried = _ingest(context, part, new if carried is None else pa.concat_tables([carried, new]))
            sample_history.run(context, part)
            resample_history.run(context, part)
    return context


def _readings(start: datetime, length_s: int, tuples_per_hour: int, rng: np.random.Generator, first: int) -> pa.Table:
    """Readings of a stretch of event time: a daily rhythm, a tenth late by an hour in the mean."""
    count = length_s * tuples_per_hour // 3600
    event_us = np.sort(rng.integers(0, length_s * 1_000_000, count)) + to_us(start)
    late_us = np.where(rng.random(count) < 0.1, rng.exponential(3600e6, count), rng.exponential(5e6, count))
    late_us = np.minimum(late_us, 6 * 3600e6).astype(np.int64)
    hour = event_us / 3600e6
    kind = pa.timestamp("us", tz="UTC")
    return pa.table(
        {
            "event_id": [f"reading-{i}" for i in range(first, first + count)],
            "event_time": pa.array(event_us).cast(kind),
            "arrival_time": pa.array(event_us + late_us).cast(kind),
            "site": pa.array(rng.choice(SITES, count, p=[0.4, 0.3, 0.15, 0.1, 0.05])),
            "level": pa.array(20 + 5 * np.sin(hour / 24 * 2 * np.pi) + rng.gamma(2, 3, count)),
            "units": pa.array(rng.integers(1, 9, count)),
        }
    )


def _ingest(context: RunContext, intervals: tuple[Interval, ...], readings: pa.Table) -> pa.Table:
    """Write what ingestion would have, by arrival; returns the readings that arrive later."""
    pipeline, warehouse = context.pipeline, context.warehouse
    arrival_us = readings.column("arrival_time").cast(pa.int64()).to_numpy()
    order = np.argsort(arrival_us, kind="stable")
    readings, arrival_us = readings.take(pa.array(order)), arrival_us[order]
    edges = np.searchsorted(arrival_us, [intervals[0].start_us, *(i.end_us for i in intervals)])
    with warehouse.commit("ingest", intervals) as commit:
        for interval, low, high in zip(intervals, edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            commit.put_arrow("events_readings", interval, readings.slice(low, high - low))
            plan = {"stream": "readings", "effective_from": interval.start, "support_level": "A", "width_s": 3600.0}
            rows = [plan] if interval.start == START else []
            schema = warehouse.schema("window_plan")
            commit.put_arrow("window_plan", interval, pa.Table.from_pylist(rows, schema=schema))
            tick_us = interval.end_us - pipeline.tick_s * 1_000_000
            state = ControllerState.initial(ControllerSpec.from_pipeline(pipeline))
            stream = replace(
                state.streams[0],
                first_arrival_us=to_us(START),
                plan_from_us=to_us(START),
                width_s=float(WIDTH_S),
                lower_us=tick_us - WIDTH_S * 1_000_000,
            )
            commit.put_state(STATE, interval, ControllerState((stream,), tick_us, "A").to_arrow())
    return readings.slice(int(edges[-1]))
