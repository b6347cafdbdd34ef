"""Calibrate: the truth of sessions, the slack that would have done for each, and which answers were right.

A session is judged by itself: by its key, its start and its end, over those that are true or were answered. It is right
if it is both, and its values are within ERROR. Its truth is what is visible at its own end and the horizon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.promises import terms_of
from tidegate.declarations.tables import instants
from tidegate.engine import Slice
from tidegate.engine.context import RunContext, StageRun
from tidegate.operators.accuracy import NOWHERE, needed_slack_on_grid, row_errors, within
from tidegate.operators.codes import codes, group_ids
from tidegate.operators.schedule import Int64s, instants_us
from tidegate.operators.sessions import Answered
from tidegate.queries.session_answers import labels_between
from tidegate.queries.sessions import Asked, SessionTuples, asked_of, lengths, session_cuts, with_times
from tidegate.queries.slacks import SlackHistory, Waits
from tidegate.queries.slices import PartFile, Staged
from tidegate.stages.calibrate_groups import group_keys
from tidegate.stages.calibrate_widths import judged_columns
from tidegate.store import parquet
from tidegate.store.intervals import Interval, interval_labelled, labels_holding

_BOUNDS = ("window_end", "window_start")


@dataclass(frozen=True, eq=False)
class SessionLearning:
    """Sessions of a query that became final, and where their truth goes.

    ``asked``: the true ones. ``grid_s``: the slacks to try, ascending, the last of which is the horizon. ``files``:
    interval → the file for the truth of those that became final in it.
    """

    pipeline: Pipeline
    asked: Asked
    grid_s: np.ndarray
    files: Mapping[str, str]
    truth: pa.Schema
    needed: pa.Schema


def session_truth_order(query: Query) -> tuple[str, ...]:
    """By what the truth is sorted: a total order of its rows."""
    return *_BOUNDS, *query.group_outputs


def learn_sessions(context: RunContext, stage: StageRun, intervals: Sequence[Interval], grid_s: np.ndarray) -> pa.Table:
    """Write the truth of the sessions that became final; their needed slacks, with the interval that learnt them."""
    pipeline, warehouse = context.pipeline, context.warehouse
    schema = warehouse.schema("needed_slack").append(pa.field("interval", pa.string()))
    queries = [query for query in pipeline.queries if query.sessions is not None]
    staged = {q.id: Staged(stage.commit, f"truth_{q.id}", intervals) for q in queries}
    horizon = Waits.always(pipeline.horizon_s * 1_000_000)
    parts = []
    for query in queries:
        bounds = intervals[0].start_us, intervals[-1].end_us
        whole = asked_of(context, query, horizon, *bounds)
        for number, own in enumerate(session_cuts(whole, context.most_slices(whole.rows()))):
            asked = whole if own == bounds else asked_of(context, query, horizon, *own)
            files = staged[query.id].files(number, labels_between(pipeline, *own))
            truth = warehouse.schema(f"truth_{query.id}")
            parts.append(SessionLearning(pipeline, asked, grid_s, files, truth, schema))
    done = context.run_slices(learnt_sessions, parts, sum(part.asked.rows() for part in parts))
    found = [schema.empty_table()]
    for query in queries:
        learnt = [one for one, part in zip(done, parts, strict=True) if part.asked.query.id == query.id]
        counts = staged[query.id].settle([rows for rows, _ in learnt])
        for interval, written in counts.items():
            stage.record(interval, query.id, rows_out=written, peak_state_bytes=0)
        needed = pa.concat_tables([schema.empty_table(), *(rows for _, rows in learnt)])
        found += [as_many_as_true(needed, interval, count) for interval, count in counts.items()]
        context.progress(f"calibrate: {query.id}: truth known")
    return pa.concat_tables(found)


def learnt_sessions(part: Slice) -> tuple[dict[str, int], pa.Table]:
    """Write the truth of the sessions; how many rows of each interval, and which slacks would have done.

    Of a session that is not true, but answered after some of the slacks, that is the least after which it is not.

    **Memory**: the tuples, and the answers after all slacks.
    """
    own: SessionLearning = part.of
    asked, pipeline, query = own.asked, own.pipeline, own.asked.query
    horizon_us = pipeline.horizon_s * 1_000_000
    tuples = SessionTuples(asked)
    found = tuples.found()
    true = with_times(tuples.rows_of(found)[0], found)
    final = pa.array(labels_holding(pipeline, instants_us(true.column("window_end")) + horizon_us), pa.string())
    counts = {}
    order = [(name, "ascending") for name in session_truth_order(query)]
    for label in pc.unique(final).to_pylist():
        file = PartFile(own.files[label])
        rows = true.filter(pc.equal(final, label)).sort_by(order)
        file.add(rows.select(own.truth.names).cast(own.truth))
        counts[label] = file.close()
    if query.error is None:
        return counts, own.needed.empty_table()
    tried = []
    for wait_us in (own.grid_s * 1e6).astype(np.int64).tolist():
        bounds = (us - horizon_us + wait_us for us in (asked.from_us, asked.until_us))
        tried.append(_candidates(tuples, found, tuples.answered(Waits.always(wait_us), *bounds)))
    candidate = np.repeat(np.arange(len(tried)), [len(rows) for rows in tried])
    answers = pa.concat_tables(tried)
    slack_s, end_us = _needed(query, own.grid_s, true, answers, candidate)
    rows = pa.table(
        {
            "query": pa.repeat(query.id, len(end_us)),
            "window_end": instants(end_us),
            "event_id": pa.nulls(len(end_us), pa.string()),
            "slack_s": slack_s,
            "share": np.ones(len(end_us)),
            "group_key": pa.nulls(len(end_us), pa.string()),
            "has_rows": pa.repeat(True, len(end_us)),
            "interval": labels_holding(pipeline, end_us + horizon_us),
        }
    )
    return counts, rows.cast(own.needed)


def _candidates(tuples: SessionTuples, true: Answered, found: Answered) -> pa.Table:
    """Answers after another wait; of those that are not true only the keys, unless HAVING says which there are.

    A wait that is too short makes many sessions of one: what each of them holds would be many times all tuples.
    """
    if tuples.query.having is not None:
        return with_times(tuples.rows_of(found)[0], found)
    both = [(tuples.keys_of(of), of.start_us, of.end_us) for of in (true, found)]
    session = group_ids([np.concatenate(columns) for columns in zip(*both, strict=True)], len(true) + len(found))
    known = np.isin(session[len(true) :], session[: len(true)])
    valued, others = found.of(known), found.of(~known)
    parts = with_times(tuples.rows_of(valued)[0], valued), with_times(tuples.only_keys(others), others)
    return pa.concat_tables(parts)


def _needed(
    query: Query, grid_s: np.ndarray, true: pa.Table, answers: pa.Table, candidate: Int64s
) -> tuple[np.ndarray, Int64s]:
    """Of each session that is true or was answered after any of the slacks the one it needs, and its end."""
    assert query.error is not None
    keys, values = [*_BOUNDS, *query.group_outputs], judged_columns(query)[1]
    row, error = row_errors(answers, candidate, true, keys, values)
    named = pa.concat_tables([true.select(keys), answers.select(keys)])
    session = group_ids([codes(column)[0] for column in named.columns], len(named))
    errors = np.zeros((int(session.max(initial=-1)) + 1, len(grid_s)))
    errors[session[: len(true)]] = 1.0
    errors[session[len(true) :], candidate] = np.where(row == NOWHERE, 1.0, error)
    end_us = np.zeros(len(errors), dtype=np.int64)
    end_us[session] = instants_us(named.column("window_end"))
    return needed_slack_on_grid(errors, grid_s, query.error), end_us


def as_many_as_true(needed: pa.Table, interval: Interval, true: int) -> pa.Table:
    """The largest needed slacks of the sessions that became final in an interval: as many as are true.

    The share of those that K covers is then what a promise is about: right answers less wrong ones that no true session
    stands for, in all true sessions. A session that is answered by mistake takes the vote of one that needs no wait.

    Args:
        needed: of all sessions, those that are not true among them.
        interval: the interval.
        true: how many are true.
    """
    own = needed.filter(pc.equal(needed.column("interval"), interval.label))
    slack_s, end_us = own.column("slack_s").to_numpy(), instants_us(own.column("window_end"))
    largest = np.lexsort((end_us, -slack_s))[:true]
    kept = largest[np.lexsort((slack_s[largest], end_us[largest]))]
    own = own.take(pa.array(kept))
    number = np.arange(len(kept)) - np.searchsorted(end_us[kept], end_us[kept])
    # Which of the sessions does not matter: one counts as much as another.
    event_id = pa.array((number + 1).astype(str).tolist(), pa.string())
    return own.set_column(own.schema.get_field_index("event_id"), own.schema.field("event_id"), event_id)


@dataclass(frozen=True, eq=False)
class SessionJudging:
    """Sessions of a query that became final in an interval, and the files with their truth and their answers.

    ``answered_from_us``: those that were, or would have been, answered before were not asked for yet.
    """

    pipeline: Pipeline
    query: Query
    interval: Interval
    waits: Waits
    answered_from_us: int
    truth_files: tuple[str, ...]
    answers_files: tuple[str, ...]
    truth: pa.Schema
    written: pa.Schema


def judge_sessions(
    context: RunContext, stage: StageRun, slacks: SlackHistory, intervals: Sequence[Interval]
) -> pa.Table:
    """Rows of ``accuracy`` of the sessions that became final, with the interval in which they did."""
    pipeline, warehouse = context.pipeline, context.warehouse
    horizon_us = pipeline.horizon_s * 1_000_000
    schema = warehouse.schema("accuracy").append(pa.field("interval", pa.string()))
    parts, there = [], 0
    for query in pipeline.queries:
        answers, truth = f"answers_{query.id}", f"truth_{query.id}"
        answered = warehouse.labels(answers)
        if query.sessions is None or not answered:
            continue
        first = min(answered)
        for interval in intervals:
            labels = labels_between(pipeline, interval.start_us - horizon_us, interval.end_us)
            labels = [label for label in labels if label >= first]
            warehouse.require(answers, labels, "join_aggregate")
            files = stage.commit.files(truth, [interval.label]), warehouse.files(answers, labels)
            there += warehouse.rows(truth, interval.label) + sum(warehouse.rows(answers, label) for label in labels)
            from_us = interval_labelled(pipeline, first).start_us
            own = slacks.waits(query), from_us, *files, warehouse.schema(truth), schema
            parts.append(SessionJudging(pipeline, query, interval, *own))
    return pa.concat_tables([schema.empty_table(), *context.run_slices(judged_sessions, parts, there)])


def judged_sessions(part: Slice) -> pa.Table:
    """A row of each session, true or answered. **Memory**: the interval's truth, and the answers up to its end."""
    own: SessionJudging = part.of
    query, pipeline, horizon_us = own.query, own.pipeline, own.pipeline.horizon_s * 1_000_000
    end = pc.field("window_end")
    least, behind = instants(np.array([own.interval.start_us, own.interval.end_us]) - horizon_us)
    within_interval = (end >= least) & (end < behind)
    truth, answers = (
        parquet.dataset(files, own.truth).to_table(filter=within_interval, use_threads=False)
        if files
        else own.truth.empty_table()
        for files in (own.truth_files, own.answers_files)
    )
    keys, values = [*_BOUNDS, *query.group_outputs], judged_columns(query)[1]
    row, error = row_errors(answers, np.zeros(len(answers), np.int64), truth, keys, values)
    lacking = np.ones(len(truth), dtype=bool)
    lacking[row[row != NOWHERE]] = False
    sessions = pa.concat_tables([answers.select(keys), truth.select(keys).filter(pa.array(lacking))])
    value = np.concatenate([error, np.ones(int(lacking.sum()))])
    start_us, end_us = (instants_us(sessions.column(name)) for name in ("window_start", "window_end"))
    wait_us = own.waits.of(end_us)
    terms = terms_of(pipeline, query)
    found = pa.table(
        {
            "query": pa.repeat(query.id, len(value)),
            "window_end": sessions.column("window_end"),
            "metric": pa.repeat("relative_error", len(value)),
            "value": value,
            "promised": pa.repeat(pa.scalar(query.promised, pa.float64()), len(value)),
            "kept": pa.nulls(len(value), pa.bool_()) if terms is None else pa.array(within(terms, value)),
            "slack_s": wait_us / 1e6,
            "width_s": lengths(query.windows[0].alias, end_us - start_us),
            "group_key": session_keys(sessions, query),
            "interval": pa.repeat(own.interval.label, len(value)),
        }
    )
    asked = found.filter(pa.array(end_us + wait_us >= own.answered_from_us))
    return asked.select(own.written.names).cast(own.written)


def session_keys(sessions: pa.Table, query: Query) -> pa.Array:
    """The key and the start of each session, as a JSON object."""
    start = pc.strftime(sessions.column("window_start"), "%Y-%m-%dT%H:%M:%SZ")
    rows = sessions.set_column(sessions.schema.get_field_index("window_start"), "window_start", start)
    return group_keys(rows, ["window_start", *query.group_outputs])
