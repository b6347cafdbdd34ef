"""Which windows an interval answers, and the tables that the answers go to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.tables import TIMESTAMP, WIDTHS
from tidegate.hosts import queries
from tidegate.hosts.context import RunContext, StageRun
from tidegate.hosts.intervals import Interval, labels_holding
from tidegate.hosts.plans import Emissions, PlanHistory
from tidegate.hosts.scan import EventFiles
from tidegate.hosts.session import suit_to_size
from tidegate.hosts.slacks import SlackHistory, require_calibrated
from tidegate.operators.schedule import Int64s, Schedule

# Jobs are short next to the time Spark takes to start one, so a few at once fill the cores.
QUERIES_AT_ONCE = 3
# Up to so many tuples an interval one task a query reads and answers, at some millions a second.
ROWS_OF_ONE_TASK = 100_000_000
KEPT = "_sifted"
"""Folder of the warehouse in which top-k queries keep what they need of large files."""


@dataclass(frozen=True)
class Windows:
    """The windows that a query answers in some intervals: the schedule, and what each answer says of itself."""

    schedule: Schedule
    coverage: np.ndarray
    widths_s: Mapping[str, np.ndarray]
    ranges_s: Mapping[str, float]
    support_level: np.ndarray
    slack_us: Int64s

    def as_arrow(self, pipeline: Pipeline) -> pa.Table:
        """A row a window: window_index, interval (of the emission) and the answer's own columns."""
        schedule = self.schedule
        aliases = list(self.widths_s)
        widths = [[(alias, float(self.widths_s[alias][i])) for alias in aliases] for i in range(len(schedule))]
        return pa.table(
            {
                "window_index": pa.array(np.arange(len(schedule)), pa.int64()),
                "interval": labels_holding(pipeline, schedule.emit_us),
                "window_end": pa.array(schedule.window_end_us, pa.int64()).cast(pa.timestamp("us")).cast(TIMESTAMP),
                "emitted_at": pa.array(schedule.emit_us, pa.int64()).cast(pa.timestamp("us")).cast(TIMESTAMP),
                "width_s": pa.array(widths, WIDTHS),
                "range_s": pa.array([list(self.ranges_s.items())] * len(schedule), WIDTHS),
                "coverage": self.coverage,
                "support_level": pa.array(self.support_level.tolist(), pa.string()),
                "slack_s": self.slack_us / 1e6,
            }
        )


def emitted_windows(
    query: Query, plans: PlanHistory, slacks: SlackHistory, intervals: Sequence[Interval]
) -> Windows | None:
    """The windows whose instant of emission lies in the intervals; None if there are none."""
    given = plans.emissions(query, slacks, intervals[0].start_us, intervals[-1].end_us)
    if len(given.emit_us) == 0:
        return None
    return windows_of(query, plans, given)


def windows_of(query: Query, plans: PlanHistory, given: Emissions) -> Windows:
    """What each of the answers holds, and what it says of itself."""
    held_from_us = {stream: plans.held_from_us(stream, given.emit_us) for stream in query.streams}
    ranges_us = {w.alias: round(w.range_s * 1e6) for w in query.windows}
    lower_us = {w.alias: held_from_us[w.stream] for w in query.windows}
    slack_us = given.emit_us - given.window_end_us
    schedule = Schedule.from_ticks(given.window_end_us, slack_us, ranges_us, lower_us)
    widths_us = {alias: schedule.width_us(alias) for alias in ranges_us}
    coverage = np.ones(len(schedule))
    for alias, range_us in ranges_us.items():
        coverage = coverage * (widths_us[alias] / range_us)
    return Windows(
        schedule,
        coverage,
        {alias: width / 1e6 for alias, width in widths_us.items()},
        {w.alias: float(w.range_s) for w in query.windows},
        plans.support_level(query, given, held_from_us),
        slack_us,
    )


def fits_one_task(pipeline: Pipeline, query: Query) -> bool:
    """Whether one task keeps up with the query's streams, at the declared rates."""
    return declared_rows(pipeline, query) <= ROWS_OF_ONE_TASK


def declared_rows(pipeline: Pipeline, query: Query) -> float:
    """Tuples an interval on the query's streams, at the declared rates."""
    return sum(pipeline.stream(name).rate for name in query.streams) * pipeline.interval_s


def read_events(context: RunContext, query: Query, schedule: Schedule) -> dict[str, DataFrame | EventFiles]:
    """Stream → the tuples that the schedule's windows can need, of the intervals that were ingested."""
    pipeline, warehouse = context.pipeline, context.warehouse
    newest_us = int(schedule.emit_us.max())
    events: dict[str, DataFrame | EventFiles] = {}
    for window in query.windows:
        stream = pipeline.stream(window.stream)
        lower_us = min(int(schedule.lower_us[w.alias].min()) for w in query.windows if w.stream == stream.name)
        labels = warehouse.labels(f"events_{stream.name}")
        files = EventFiles.between(warehouse, stream, labels, lower_us, newest_us, str(warehouse.folder / KEPT))
        events[stream.name] = files if fits_one_task(pipeline, query) else files.frame(context.spark)
    return events


def answer_windows(
    context: RunContext, query: Query, schedule: Schedule, coverage: np.ndarray, about: pa.Table | None = None
) -> queries.Answered:
    """The answers of a schedule's windows, from the warehouse's tuples; see ``queries.answer``."""
    pipeline = context.pipeline
    events = read_events(context, query, schedule)
    tick_us = pipeline.tick_s * 1_000_000
    return queries.answer(context.spark, query, schedule, coverage, events, pipeline.partitions, tick_us, about)


def answer_rows(context: RunContext, query: Query, schedule: Schedule) -> pa.Table:
    """The answers of whole windows, for the driver: by this process where that is less work than a job of Spark's."""
    if query.kind == "top_k":
        events = read_events(context, query, schedule)
        rows = queries.top_k_here(query, schedule, events, context.pipeline.tick_s * 1_000_000)
        if rows is not None:
            return rows
    return answer_windows(context, query, schedule, np.ones(len(schedule))).frame.toArrow()


def write_answers(context: RunContext, stage: StageRun, asked: Sequence[Query], intervals: Sequence[Interval]) -> None:
    """Answer the asked queries' windows that are emitted in the intervals, and put the answers into their tables."""
    pipeline, warehouse = context.pipeline, context.warehouse
    labels = [interval.label for interval in intervals]
    warehouse.require("window_plan", labels, "ingest")
    plans = PlanHistory.for_emissions(warehouse, intervals[0].start_us)
    if any(query.promised is not None for query in asked):
        require_calibrated(context, intervals)
    slacks = SlackHistory.load(warehouse, intervals)
    rows_in = {
        (s, interval): warehouse.rows(f"events_{s}", interval.label)
        for s in {s for q in asked for s in q.streams}
        for interval in intervals
    }

    by_spark = [q for q in asked if not fits_one_task(pipeline, q)]
    through_spark = {stream for query in by_spark for stream in query.streams}
    suit_to_size(context.spark, sum(rows for (stream, _), rows in rows_in.items() if stream in through_spark))

    def one(query: Query) -> str:
        table = f"answers_{query.id}"
        windows = emitted_windows(query, plans, slacks, intervals)
        peak = 0
        if windows is None:
            counts = dict.fromkeys(intervals, 0)
            for interval in intervals:
                stage.commit.put_arrow(table, interval, warehouse.schema(table).empty_table())
        else:
            about = windows.as_arrow(pipeline)
            answered = answer_windows(context, query, windows.schedule, windows.coverage, about)
            counts = stage.commit.put_spark(table, answered.frame, intervals, sort_columns(query))
            peak = answered.peak_state_bytes
        for interval in intervals:
            read = sum(rows_in[s, interval] for s in query.streams)
            stage.record(interval, query.id, rows_in=read, rows_out=counts[interval], peak_state_bytes=peak)
        return f"{query.id}: {0 if windows is None else len(windows.schedule)} windows, {sum(counts.values())} rows"

    with ThreadPoolExecutor(max_workers=QUERIES_AT_ONCE) as threads:
        for done in threads.map(one, asked):
            context.progress(f"{stage.stage}: {done}")


def sort_columns(query: Query) -> tuple[str, ...]:
    """By which columns a query's answers are sorted within a partition: a total order of the rows."""
    if query.kind == "top_k":
        return "emitted_at", "window_end", *query.row_keys
    return "emitted_at", "window_end", *(o.name for o in query.outputs)
