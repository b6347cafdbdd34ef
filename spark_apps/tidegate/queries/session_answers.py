"""The sessions that an interval answers, and the tables that the answers go to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.tables import instants
from tidegate.engine import Slice
from tidegate.engine.context import RunContext, StageRun
from tidegate.operators.arrivals import int64s
from tidegate.operators.sessions import Answered
from tidegate.queries.failures import count_failures
from tidegate.queries.plans import PlanHistory
from tidegate.queries.sessions import Asked, SessionTuples, asked_of, lengths, session_cuts, with_times
from tidegate.queries.slacks import SlackHistory
from tidegate.queries.slices import PartFile, Staged, Written, by_interval
from tidegate.store.intervals import Interval, interval_holding, labels_holding


@dataclass(frozen=True, eq=False)
class SessionAnswers:
    """Sessions to answer, and where their answers go.

    ``files``: interval → the file to write its answers to, of the schema ``written``.
    """

    pipeline: Pipeline
    asked: Asked
    slacks: SlackHistory
    files: Mapping[str, str]
    written: pa.Schema


def session_order(query: Query) -> tuple[str, ...]:
    """By which columns a query's answers are sorted within a partition: a total order of the rows."""
    return "emitted_at", "window_end", "window_start", *query.group_outputs


def labels_between(pipeline: Pipeline, from_us: int, until_us: int) -> list[str]:
    """The labels of the intervals with instants in [from, until), ascending."""
    length_us = pipeline.interval_s * 1_000_000
    starts = np.unique(np.append(np.arange(from_us, until_us, length_us), until_us - 1))
    return list(dict.fromkeys(interval_holding(pipeline, int(us)).label for us in starts))


def write_session_answers(
    context: RunContext,
    stage: StageRun,
    queries: Sequence[Query],
    intervals: Sequence[Interval],
    plans: PlanHistory,
    slacks: SlackHistory,
) -> None:
    """Answer the sessions that are emitted in the intervals, and put the answers into the queries' tables."""
    if not queries:
        return
    pipeline, warehouse = context.pipeline, context.warehouse
    staged = {query.id: Staged(stage.commit, f"answers_{query.id}", intervals) for query in queries}
    parts: list[SessionAnswers] = []
    for query in queries:
        bounds = intervals[0].start_us, intervals[-1].end_us
        held = [plans.bounds[stream] for stream in query.streams]
        whole = asked_of(context, query, slacks.waits(query), *bounds, held)
        for number, own in enumerate(session_cuts(whole, context.most_slices(whole.rows()))):
            files = staged[query.id].files(number, labels_between(pipeline, *own))
            asked = whole if own == bounds else asked_of(context, query, whole.waits, *own, whole.held)
            parts.append(SessionAnswers(pipeline, asked, slacks, files, warehouse.schema(f"answers_{query.id}")))
    done = context.run_slices(write_sessions, parts, sum(part.asked.rows() for part in parts))
    failed = count_failures(context, queries, intervals)
    for query in queries:
        wrote = [one for one, part in zip(done, parts, strict=True) if part.asked.query.id == query.id]
        counts = staged[query.id].settle([written.rows for written in wrote])
        peak = max((written.peak_state_bytes for written in wrote), default=0)
        for interval in intervals:
            read = sum(warehouse.rows(f"events_{stream}", interval.label) for stream in query.streams)
            lost = failed.get((query.id, interval), 0) + sum(w.failed.get(interval.label, 0) for w in wrote)
            stage.record(
                interval, query.id, rows_in=read, rows_out=counts[interval], rows_failed=lost, peak_state_bytes=peak
            )
        context.progress(f"{stage.stage}: {query.id}: {sum(counts.values())} sessions")


def write_sessions(part: Slice) -> Written:
    """Answer a slice's sessions, and write the answers, in their order, to the files that it was given.

    **Memory**: the tuples that they can need, and the answers.
    """
    own: SessionAnswers = part.of
    asked = own.asked
    tuples = SessionTuples(asked)
    found = tuples.found()
    rows, lost = tuples.rows_of(found)
    written = Written(peak_state_bytes=tuples.most_bytes(found))
    answers = session_rows(own.pipeline, asked.query, rows, found, own.slacks)
    for label, ordered in by_interval(answers, own.written, session_order(asked.query)):
        file = PartFile(own.files[label])
        file.add(ordered)
        written.rows[label] = file.close()
    failed: dict[str, int] = defaultdict(int)
    where = np.flatnonzero(lost)
    for label, count in zip(labels_holding(own.pipeline, found.emit_us[where]), lost[where].tolist(), strict=True):
        failed[label] += count
    return replace(written, failed=dict(failed))


def session_rows(pipeline: Pipeline, query: Query, rows: pa.Table, found: Answered, slacks: SlackHistory) -> pa.Table:
    """Answers with what is said of their sessions, and the interval that each is answered in."""
    rows = with_times(rows, found)
    number = int64s(rows.column("_number"))
    start_us, end_us, emit_us = (times[number] for times in (found.start_us, found.end_us, found.emit_us))
    (window,) = query.windows
    whole = np.ones(len(number))
    columns = {
        "emitted_at": instants(emit_us),
        "width_s": lengths(window.alias, end_us - start_us),
        "range_s": lengths(window.alias, end_us - start_us),
        "coverage": pa.array(whole),
        "support_level": pa.array(["A"] * len(number), pa.string()),
        "slack_s": pa.array((emit_us - end_us) / 1e6),
        "accuracy_expected": pa.array(slacks.accuracy_expected(query, end_us, whole), from_pandas=True),
        "interval": pa.array(labels_holding(pipeline, emit_us), pa.string()),
    }
    for name, column in columns.items():
        rows = rows.append_column(name, column)
    return rows
