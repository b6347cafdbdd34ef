"""Which windows an interval answers, and the tables that the answers go to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.tables import WIDTHS, instants
from tidegate.engine.context import RunContext, StageRun
from tidegate.operators.schedule import Int64s, Schedule, window_ranges_us
from tidegate.queries.failures import count_failures
from tidegate.queries.keys import answered_by_keys, key_parts
from tidegate.queries.plans import Emissions, PlanHistory
from tidegate.queries.session_answers import write_session_answers
from tidegate.queries.slacks import SlackHistory, require_calibrated
from tidegate.queries.slices import Answers, Staged, cuts, question, write
from tidegate.store import parquet
from tidegate.store.intervals import Interval, labels_holding


@dataclass(frozen=True)
class Windows:
    """The windows that a query answers in some intervals: the schedule, and what each answer says of itself."""

    schedule: Schedule
    coverage: np.ndarray
    widths_s: Mapping[str, np.ndarray]
    ranges_s: Mapping[str, np.ndarray]
    support_level: np.ndarray
    slack_us: Int64s
    accuracy_expected: np.ndarray
    start_us: Int64s

    def as_arrow(self, pipeline: Pipeline) -> pa.Table:
        """A row a window: window_index, interval (of the emission) and the answer's own columns."""
        schedule = self.schedule
        aliases = list(self.widths_s)
        widths = [[(alias, float(self.widths_s[alias][i])) for alias in aliases] for i in range(len(schedule))]
        ranges = [[(alias, float(self.ranges_s[alias][i])) for alias in aliases] for i in range(len(schedule))]
        return pa.table(
            {
                "window_index": pa.array(np.arange(len(schedule)), pa.int64()),
                "interval": labels_holding(pipeline, schedule.emit_us),
                "window_start": instants(self.start_us),
                "window_end": instants(schedule.window_end_us),
                "emitted_at": instants(schedule.emit_us),
                "width_s": pa.array(widths, WIDTHS),
                "range_s": pa.array(ranges, WIDTHS),
                "coverage": self.coverage,
                "support_level": pa.array(self.support_level.tolist(), pa.string()),
                "slack_s": self.slack_us / 1e6,
                "accuracy_expected": pa.array(self.accuracy_expected, from_pandas=True),
            }
        )


def emitted_windows(
    query: Query, plans: PlanHistory, slacks: SlackHistory, intervals: Sequence[Interval]
) -> Windows | None:
    """The windows whose instant of emission lies in the intervals; None if there are none."""
    given = plans.emissions(query, slacks, intervals[0].start_us, intervals[-1].end_us)
    return answered_windows(query, plans, slacks, given)


def answered_windows(query: Query, plans: PlanHistory, slacks: SlackHistory, given: Emissions) -> Windows | None:
    """What is answered at these emissions; None if there is nothing.

    With a bound windows that are not held whole have no answer.
    """
    if not query.is_narrowed and len(given.emit_us):
        given = given.some(plans.levels(query, given) != "unsupported")
    return windows_of(query, plans, slacks, given) if len(given.emit_us) else None


def windows_of(query: Query, plans: PlanHistory, slacks: SlackHistory, given: Emissions) -> Windows:
    """What each of the answers holds, and what it says of itself."""
    ranges_us = window_ranges_us(query, given.window_end_us)
    ranged = query.ranged if query.is_narrowed else ()
    lower_us = {window.alias: plans.window_from_us(window, given.emit_us) for window in ranged}
    waited_us = given.emit_us - given.window_end_us
    # Emissions are in the order of a schedule: its rows are theirs.
    schedule = Schedule.from_ticks(given.window_end_us, waited_us, ranges_us, lower_us)
    starts_us = schedule.window_end_us - np.max(list(ranges_us.values()), axis=0)
    widths_us = {alias: schedule.width_us(alias) for alias in ranges_us}
    coverage = np.ones(len(schedule))
    # All windows of a query are taken to be narrowed alike, as they were when the map was learnt.
    share = np.min([widths_us[alias] / range_us for alias, range_us in ranges_us.items()], axis=0)
    for alias, range_us in ranges_us.items():
        coverage = coverage * (widths_us[alias] / range_us)
    levels = plans.levels(query, given)
    bounded = query.bounded
    if bounded is not None and bounded.bound is not None:
        low_us, high_us = (round(s * 1e6) for s in (bounded.bound.low_s, bounded.bound.high_s))
        own_us = ranges_us[bounded.bound.to] - low_us + high_us
        ranges_us = {**ranges_us, bounded.alias: own_us}
        widths_us = {alias: np.where(levels == "unsupported", 0, range_us) for alias, range_us in ranges_us.items()}
    return Windows(
        schedule,
        coverage,
        {alias: width / 1e6 for alias, width in widths_us.items()},
        {alias: range_us / 1e6 for alias, range_us in ranges_us.items()},
        levels,
        waited_us - query.lag_us,
        slacks.accuracy_expected(query, given.window_end_us, share),
        starts_us,
    )


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
    sessions = [query for query in asked if query.sessions is not None]
    asked = [query for query in asked if query.sessions is None]
    staged = {query.id: Staged(stage.commit, f"answers_{query.id}", intervals) for query in asked}
    answered = dict.fromkeys((query.id for query in asked), 0)
    wholes: list[Answers] = []
    for query in asked:
        windows = emitted_windows(query, plans, slacks, intervals)
        if windows is None:
            continue
        answered[query.id] = len(windows.schedule)
        whole = question(context, query, windows.schedule, windows.coverage)
        schema = warehouse.schema(f"answers_{query.id}")
        wholes.append(Answers(whole, windows.as_arrow(pipeline), {}, schema, sort_columns(query)))
    numbers = [key_parts(own.asked, len(own.asked.schedule), context.most_slices(own.asked.rows())) for own in wholes]
    by_keys = answered_by_keys(context, stage, [(own.asked, n) for own, n in zip(wholes, numbers, strict=True)])
    parts: list[Answers] = []
    owners: list[str] = []
    held: dict[str, int] = {}
    rows = 0
    for every, given in zip(wholes, by_keys, strict=True):
        query, about, whole = every.asked.query, every.about, every.asked
        table, count = staged[query.id], len(whole.schedule)
        if given.files:
            where = table.files(0, about.column("interval").to_pylist())
            parts.append(replace(every, files=where, partials=given.files))
            owners.append(query.id)
            held[query.id] = given.peak_state_bytes
            continue
        for number, (first, last) in enumerate(cuts(whole, count, context.most_slices(whole.rows()))):
            where = table.files(number, about.column("interval").slice(first, last - first).to_pylist())
            part = every.windows(first, last, where)
            if last - first < count:
                part = replace(part, asked=question(context, query, part.asked.schedule, part.asked.coverage))
            rows += part.asked.rows()
            parts.append(part)
            owners.append(query.id)
    done = context.run_slices(write, parts, rows)
    failed = count_failures(context, asked, intervals)
    for query in asked:
        own = [written for written, owner in zip(done, owners, strict=True) if owner == query.id]
        counts = staged[query.id].settle([written.rows for written in own])
        peak = max((written.peak_state_bytes for written in own), default=0) or held.get(query.id, 0)
        for interval in intervals:
            read = sum(rows_in[s, interval] for s in query.streams)
            lost = failed.get((query.id, interval), 0) + sum(w.failed.get(interval.label, 0) for w in own)
            stage.record(
                interval, query.id, rows_in=read, rows_out=counts[interval], rows_failed=lost, peak_state_bytes=peak
            )
        context.progress(f"{stage.stage}: {query.id}: {answered[query.id]} windows, {sum(counts.values())} rows")
    write_session_answers(context, stage, sessions, intervals, plans, slacks)


def sort_columns(query: Query) -> tuple[str, ...]:
    """By which columns a query's answers are sorted within a partition: a total order of the rows."""
    if query.kind == "top_k":
        return "emitted_at", "window_end", *query.row_keys
    if query.ranks_groups:
        return "emitted_at", "window_end", *query.within, "rank"
    return "emitted_at", "window_end", *(o.name for o in query.outputs)


def rows_of_windows(files: Sequence[str], schema: pa.Schema, ends_us: Int64s) -> pa.Table:
    """The rows of some windows, at least one, from files of answers or truth, in their order.

    Args:
        schema: the columns that are asked for, with ``window_end``.
        ends_us: the windows' ends, microseconds.

    **Memory**: the rows of the first to the last of these windows.
    """
    if not files:
        return schema.empty_table()
    ends = instants(ends_us)
    least, most = pc.min_max(ends).values()
    end = pc.field("window_end")
    source = parquet.dataset(files, schema)
    rows = source.to_table(filter=(end >= least) & (end <= most), use_threads=False)
    return rows.filter(pc.is_in(rows.column("window_end"), value_set=ends))
