"""Calibrate: the truth after the fact, the slack that would have done, the accuracy that was reached.

Two halves. `learn` needs only the tuples: it writes the truth of the windows that became final, how long each would
have had to wait and how much of its range it could have missed, and the slack and slack width in effect from the
interval's end. `judge` compares the answers with the truth. A run over many intervals learns from all of them before it
plans and answers the first (nothing learnt takes effect before the end of the interval it was learnt in, so no answer
can see what it should not), and judges after.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.promises import terms_of
from tidegate.declarations.tables import GROUPS_ACCURACY, instants, promises_by_group
from tidegate.engine import Slice
from tidegate.engine.context import RunContext, StageRun
from tidegate.operators import best_groups
from tidegate.operators.accuracy import (
    hit_rate,
    needed_slack,
    needed_slack_on_grid,
    relative_error,
    within,
)
from tidegate.operators.codes import codes, encode, group_ids
from tidegate.operators.join_aggregate import Cells
from tidegate.operators.schedule import Int64s, Schedule, instants_us, window_ends_us, window_ranges_us
from tidegate.queries.answers import rows_of_windows, windows_of
from tidegate.queries.keys import answered_by_keys, key_parts
from tidegate.queries.planner import first_arrivals_us
from tidegate.queries.plans import Emissions, PlanHistory, asked
from tidegate.queries.questions import Answering, Question, pooled, ranking_of
from tidegate.queries.slacks import SlackHistory
from tidegate.queries.slices import PartFile, Staged, cuts, question, windows_by_rows
from tidegate.stages.calibrate_groups import ByGroup, group_keys, write_groups
from tidegate.stages.calibrate_misses import put_misses
from tidegate.stages.calibrate_promises import judge_promises
from tidegate.stages.calibrate_sessions import judge_sessions, learn_sessions
from tidegate.stages.calibrate_slacks import NEEDED_ORDER, plan_slacks
from tidegate.stages.calibrate_widths import (
    Measuring,
    candidate_errors,
    candidates,
    coarse_shares,
    judged_columns,
    learn_widths,
    over_shares,
    sampled_windows,
    tolerance_of,
    whole_windows,
)
from tidegate.stages.launcher import launch
from tidegate.store import parquet
from tidegate.store.cut import read_file
from tidegate.store.intervals import Interval, labels_holding

STAGE = "calibrate"


def run(context: RunContext, intervals: Sequence[Interval]) -> None:
    """Learn from the intervals, then judge their answers."""
    learn(context, intervals)
    judge(context, intervals)


def learn(context: RunContext, intervals: Sequence[Interval]) -> None:
    """Write truth, needed slacks, and the slack and error-to-width plans in effect from each interval's end."""
    pipeline, warehouse = context.pipeline, context.warehouse
    warehouse.require("source_files", [i.label for i in intervals], "ingest")
    context.require_predecessor("slack_plan", intervals, STAGE)
    began_us = first_arrivals_us(warehouse, intervals[-1].label)
    with context.stage("calibrate_learn", intervals) as stage:
        learnt_now = [_learn_queries(context, stage, began_us, intervals)]
        learnt_now.append(learn_sessions(context, stage, intervals, slack_grid_s(pipeline)))
        evidence = pa.concat_tables(learnt_now)
        for interval in intervals:
            own = evidence.filter(pc.equal(evidence.column("interval"), interval.label))
            stage.commit.put_arrow("needed_slack", interval, own.sort_by(NEEDED_ORDER))
        plan_slacks(context, stage, intervals, evidence)
    # In a commit of its own: it needs the slacks that have just been planned.
    slacks = SlackHistory.load(warehouse, intervals)
    ends_us = {q.id: final_ends_us(pipeline, q, began_us, intervals) for q in with_windows(pipeline)}
    slack_us = {q.id: slacks.slack_us(q, ends_us[q.id]) for q in with_windows(pipeline)}
    with context.stage("calibrate_widths", intervals) as stage:
        learn_widths(context, stage, intervals, ends_us, slack_us)


def with_windows(pipeline: Pipeline) -> list[Query]:
    """The queries whose windows end at ticks: those of sessions are in ``calibrate_sessions``."""
    return [query for query in pipeline.queries if query.sessions is None]


def final_ends_us(
    pipeline: Pipeline, query: Query, began_us: Mapping[str, int], intervals: Sequence[Interval]
) -> Int64s:
    """The ends of the query's windows that became final (end + a bound's lag + horizon) within the intervals."""
    final_us = pipeline.final_after_us(query)
    start_us, end_us = intervals[0].start_us - final_us, intervals[-1].end_us - final_us
    ends_us = window_ends_us(query, start_us, end_us)
    asked_us: Int64s = ends_us[asked(pipeline, query, ends_us, began_us)]
    return asked_us


def slack_grid_s(pipeline: Pipeline) -> np.ndarray:
    """The slacks tried for a query with ERROR: none, a tick, then whole ticks about a quarter apart, and the horizon.

    A window that waits longer holds more memory, so the steps are not left as coarse as the answers would allow.
    """
    ticks = [1]
    while (ticks[-1] + 1) * pipeline.tick_s < pipeline.horizon_s:
        ticks.append(max(ticks[-1] + 1, round(ticks[-1] * 1.25)))
    below = [t * pipeline.tick_s for t in ticks if t * pipeline.tick_s < pipeline.horizon_s]
    return np.array([0.0, *below, pipeline.horizon_s], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Learning:
    """Windows of a query that became final, and where their truth goes.

    ``true``: the whole windows at the horizon. ``asked``: with ERROR or of best groups, each window at every slack of
    the grid, the last of which is the horizon. ``narrowed``: some of these over shares of their ranges, at the horizon.
    ``files``: interval → the file for the truth of the windows that became final in it. ``partials``: files of the
    partial answers to ``true``, where it is cut by keys.
    """

    pipeline: Pipeline
    true: Question
    asked: Question | None
    narrowed: Measuring | None
    ends_us: Int64s
    grid_s: np.ndarray
    files: Mapping[str, str]
    truth: pa.Schema
    needed: pa.Schema
    partials: tuple[str, ...] = ()


@dataclass
class Learnt:
    """What a slice has learnt: rows of truth written an interval, and the slacks that would have done."""

    rows: dict[str, int]
    needed: pa.Table


def _learn_queries(
    context: RunContext, stage: StageRun, began_us: Mapping[str, int], intervals: Sequence[Interval]
) -> pa.Table:
    """Write the truth of all queries; return the needed slacks, with the interval that learnt them.

    Slices of windows are answered and judged where they are read: what comes here is a number a window, or the winners.
    """
    pipeline, warehouse = context.pipeline, context.warehouse
    schema = warehouse.schema("needed_slack").append(pa.field("interval", pa.string()))
    queries = with_windows(pipeline)
    staged = {q.id: Staged(stage.commit, f"truth_{q.id}", intervals) for q in queries}
    known_s = np.array([float(pipeline.horizon_s)])
    final = {query.id: final_ends_us(pipeline, query, began_us, intervals) for query in queries}
    wholes = [
        question(context, query, _on_grid(query, final[query.id], known_s), looking_back=True, with_ties=True)
        for query in queries
        if len(final[query.id])
    ]
    # Candidates of all slacks are answered from few cells: keys are cut where only the truth is asked for.
    numbers = [
        1 if _tries_slacks(whole.query) else key_parts(whole, len(whole.schedule), context.most_slices(whole.rows()))
        for whole in wholes
    ]
    parts: list[Learning] = []
    by_keys = answered_by_keys(context, stage, list(zip(wholes, numbers, strict=True)))
    for whole, given in zip(wholes, by_keys, strict=True):
        query, table, ends_us = whole.query, staged[whole.query.id], final[whole.query.id]
        grid_s = slack_grid_s(pipeline) if _tries_slacks(query) else known_s
        bounds = [(0, len(ends_us))] if given.files else cuts(whole, len(ends_us), context.most_slices(whole.rows()))
        for number, (first, last) in enumerate(bounds):
            own = ends_us[first:last]
            true = whole
            if last - first < len(ends_us):
                true = question(context, query, _on_grid(query, own, known_s), looking_back=True, with_ties=True)
            asked = question(context, query, _on_grid(query, own, grid_s)) if _tries_slacks(query) else None
            narrowed = _narrowed(context, query, own) if _tries_slacks(query) and query.is_narrowed else None
            where = table.files(number, labels_holding(pipeline, own + pipeline.final_after_us(query)))
            truth = warehouse.schema(table.table)
            learning = Learning(pipeline, true, asked, narrowed, own, grid_s, where, truth, schema, given.files)
            parts.append(learning)
    rows = sum(part.true.rows() for part in parts)
    done = context.run_slices(learnt, parts, rows)
    for query in queries:
        counts = [found.rows for found, part in zip(done, parts, strict=True) if part.true.query.id == query.id]
        for interval, written in staged[query.id].settle(counts).items():
            stage.record(interval, query.id, rows_out=written, peak_state_bytes=0)
        context.progress(f"calibrate: {query.id}: truth known")
    return pa.concat_tables([schema.empty_table(), *(found.needed for found in done)])


def _tries_slacks(query: Query) -> bool:
    """Whether its windows are answered at every slack of a grid, to see which would have done."""
    return query.error is not None or (query.ranks_groups and query.accuracy is not None)


def _narrowed(context: RunContext, query: Query, ends_us: Int64s) -> Measuring | None:
    """The windows that are evidence of widths, over shares of their ranges, when all is known."""
    shares, sampled = coarse_shares(context.pipeline, query), ends_us[sampled_windows(query, ends_us)]
    if len(sampled) == 0 or len(shares) == 0:
        return None
    horizon_us = np.full(len(sampled), context.pipeline.horizon_s * 1_000_000)
    return over_shares(context, query, sampled, horizon_us, shares)


def _on_grid(query: Query, ends_us: Int64s, grid_s: np.ndarray) -> Schedule:
    """Every window at every slack of the grid."""
    slack_us = np.tile((grid_s * 1e6).astype(np.int64), len(ends_us)) + query.lag_us
    every_us = np.repeat(ends_us, len(grid_s))
    return Schedule.from_ticks(every_us, slack_us, window_ranges_us(query, every_us))


def learnt(part: Slice) -> Learnt:
    """Answer the windows, write the truth, and say which slacks would have done.

    **Memory**: the truth of the slice's windows.
    """
    own: Learning = part.of
    pipeline, query = own.pipeline, own.true.query
    cells = pooled([own.true, *([own.asked] if own.asked else []), *([own.narrowed.asked] if own.narrowed else [])])
    known = whole_windows(Answering(own.true, cells, own.partials))
    ends_us, final_us = known.column("window_end").to_numpy(), pipeline.final_after_us(query)
    truth = known.drop_columns("window_end").append_column("window_end", instants(ends_us))
    truth = truth.append_column("interval", pa.array(labels_holding(pipeline, ends_us + final_us), pa.string()))
    truth = truth.sort_by(_truth_order(query))
    rows, counts = truth.select(own.truth.names).cast(own.truth), {}
    # By the end of their windows: those of an interval stand together.
    of_labels, first = pc.run_end_encode(truth.column("interval").combine_chunks()), 0
    for label, last in zip(of_labels.values.to_pylist(), of_labels.run_ends.to_pylist(), strict=True):
        written = PartFile(own.files[label])
        written.add(rows.slice(first, last - first))
        counts[label], first = written.close(), last
    needed = own.needed.empty_table()
    if query.kind == "top_k":
        end_us = instants_us(truth.column("window_end"))
        slack_s = needed_slack(truth.column("_arrival_us").to_numpy(), end_us)
        (range_us,) = window_ranges_us(query, end_us).values()
        needed = pa.table(
            {
                "query": pa.repeat(query.id, truth.num_rows),
                "window_end": truth.column("window_end"),
                "event_id": truth.column("_event_id"),
                "slack_s": slack_s,
                "share": (end_us - truth.column("_event_us").to_numpy()) / range_us,
                "group_key": _group_keys(query, truth),
                "has_rows": pa.repeat(True, truth.num_rows),
                "interval": truth.column("interval"),
            }
        )
    elif own.asked is not None and query.ranks_groups:
        needed = _needed_of_groups(own, known, cells)
    elif own.asked is not None:
        assert query.error is not None
        waited_us = own.asked.schedule.emit_us - own.asked.schedule.window_end_us - query.lag_us
        column = np.searchsorted((own.grid_s * 1e6).astype(np.int64), waited_us)
        errors = candidate_errors(Answering(own.asked, cells), column, known, own.ends_us, len(own.grid_s))
        needed = pa.table(
            {
                "query": pa.repeat(query.id, len(own.ends_us)),
                "window_end": instants(own.ends_us),
                "event_id": pa.nulls(len(own.ends_us), pa.string()),
                "slack_s": needed_slack_on_grid(errors, own.grid_s, query.error),
                "share": _needed_shares(own, known, cells),
                "group_key": pa.nulls(len(own.ends_us), pa.string()),
                "has_rows": pa.array(np.isin(own.ends_us, ends_us)),
                "interval": labels_holding(pipeline, own.ends_us + final_us),
            }
        )
    return Learnt(counts, needed.cast(own.needed))


def _group_keys(query: Query, rows: pa.Table) -> pa.Array:
    """Of each row the group of FOR EACH; NULL without."""
    return group_keys(rows, query.for_each) if query.for_each else pa.nulls(rows.num_rows, pa.string())


def _needed_of_groups(own: Learning, known: pa.Table, cells: Cells | None) -> pa.Table:
    """Of each window a row for each of its best groups: the slack that one needed, and which share of the range.

    The slack is that over the whole range, the share that with all tuples known (NULL where none was tried). Which
    groups they are does not matter: the one that needs the longest slack is taken to need the largest share.
    With FOR EACH each of a window's values of these columns is looked at by itself, like a window.
    """
    assert own.asked is not None
    pipeline, query, schedule = own.pipeline, own.asked.query, own.asked.schedule
    grid_us = (own.grid_s * 1e6).astype(np.int64)
    column = np.searchsorted(grid_us, schedule.emit_us - schedule.window_end_us - query.lag_us)
    key = pa.chunked_array([_group_keys(query, known)])
    known_us = known.column("window_end").to_numpy()
    part = group_ids([known_us, encode(key)[0]], known.num_rows)
    _, first = np.unique(part, return_index=True)
    known = known.append_column("_part", pa.array(part)).append_column("_key", key)
    rates, possible = _rates_of_groups(Answering(own.asked, cells), column, known, len(first), len(own.grid_s))
    needed, slack_s = best_groups.needed_slack_of_hits(rates, possible, own.grid_s)
    ends_us = known_us[first][needed]
    share = np.full(len(needed), np.nan)
    if own.narrowed is not None:
        of = own.narrowed
        # Over the whole range, the last of them, nothing is missing.
        shares = np.append(of.shares, 1.0)
        rates, _ = _rates_of_groups(Answering(of.asked, cells), of.column, known, len(first), len(shares))
        # A row for each of ``possible``, too, and both ascend.
        _, least = best_groups.needed_slack_of_hits(rates, possible, shares)
        place = np.arange(len(needed)) - np.searchsorted(needed, needed)
        share = least[(np.cumsum(possible) - possible)[needed] + place]
        share = np.where(np.isin(ends_us, of.ends_us), share, np.nan)
    number = np.arange(len(needed)) - np.searchsorted(ends_us, ends_us)
    return pa.table(
        {
            "query": pa.repeat(query.id, len(needed)),
            "window_end": instants(ends_us),
            # Which of the groups does not matter: one comes as late as another.
            "event_id": pa.array((number + 1).astype(str).tolist(), pa.string()),
            "slack_s": slack_s,
            "share": pa.array(share, from_pandas=True),
            "group_key": key.take(pa.array(first[needed])),
            "has_rows": pa.repeat(True, len(needed)),
            "interval": labels_holding(pipeline, ends_us + pipeline.final_after_us(query)),
        }
    )


def _rates_of_groups(
    answering: Answering, column: Int64s, known: pa.Table, parts: int, columns: int
) -> tuple[np.ndarray, Int64s]:
    """The hit rates of candidate answers of the parts of windows, and how many groups of each part could be named.

    Args:
        answering: the candidates, several a window.
        column: int64[n], of each window of the schedule which candidate it is.
        known: the truth, with the number of each row's part (``_part``) and its key (``_key``).
        parts, columns: how many there are.

    Returns:
        float64[parts, columns], 1 where there is no candidate, and int64[parts], 0 of windows without candidates.
    """
    query = answering.question.query
    ranking = ranking_of(query)
    rates, possible = np.ones((parts, columns)), np.zeros(parts, np.int64)
    for answers, near, place, _, given, window_of in candidates(answering, known):
        index = answers.column("_window_index").to_numpy() - given[0]
        true = near.column("_part").to_numpy()
        keys = pa.chunked_array([_group_keys(query, answers), *near.column("_key").chunks], pa.string())
        same = group_ids([np.concatenate([window_of[index], place]), codes(keys)[0]], len(keys))
        part_of = np.full(len(keys), -1, dtype=np.int64)
        part_of[same[len(index) :]] = true
        named = part_of[same[: len(index)]]
        candidate, of_part = _each_part(true, place, window_of)
        there = named >= 0
        pair = np.searchsorted(candidate * parts + of_part, index[there] * parts + named[there])
        hits, most = best_groups.hits(ranking, answers.filter(pa.array(there)), pair, near, true, of_part)
        rates[of_part, column[given][candidate]] = np.where(most == 0, 1.0, hits / np.maximum(most, 1))
        possible[of_part] = most
    return rates, possible


def _each_part(part: Int64s, place: Int64s, window_of: Int64s) -> tuple[Int64s, Int64s]:
    """Each candidate with each part of its window, both ascending.

    Args:
        part: int64[n], of the truth's rows; parts ascend with their windows.
        place: int64[n], the window of each row.
        window_of: int64[candidates], the window of each.
    """
    parts, at = np.unique(part, return_index=True)
    starts = np.searchsorted(place[at], window_of, side="left")
    counts = np.searchsorted(place[at], window_of, side="right") - starts
    candidate = np.repeat(np.arange(len(window_of)), counts)
    offset = np.arange(len(candidate)) - np.repeat(np.cumsum(counts) - counts, counts)
    return candidate, parts[starts[candidate] + offset]


def _needed_shares(own: Learning, known: pa.Table, cells: Cells | None) -> pa.Array:
    """Of each window the least share of its ranges from which on it is within its ERROR; NULL if not measured."""
    assert own.true.query.error is not None
    share = np.full(len(own.ends_us), np.nan)
    of = own.narrowed
    if of is not None:
        errors = candidate_errors(Answering(of.asked, cells), of.column, known, of.ends_us, len(of.shares))
        # Over the whole range nothing is missing.
        errors, shares = np.column_stack([errors, np.zeros(len(errors))]), np.append(of.shares, 1.0)
        share[np.searchsorted(own.ends_us, of.ends_us)] = needed_slack_on_grid(errors, shares, own.true.query.error)
    return pa.array(share, from_pandas=True)


def _truth_order(query: Query) -> list[tuple[str, str]]:
    """By what the truth is sorted: a total order of its rows."""
    names = query.row_keys if query.kind == "top_k" else tuple(o.name for o in query.outputs)
    names = (*query.within, "rank") if query.ranks_groups else names
    return [(name, "ascending") for name in ("window_end", *names)]


def judge(context: RunContext, intervals: Sequence[Interval]) -> None:
    """Write the accuracy of the windows that became final, from the answers given then and the truth known now.

    With them the promises are judged, period by period.
    """
    pipeline, warehouse = context.pipeline, context.warehouse
    context.require_predecessor("promise_periods", intervals, STAGE)
    final_us = max((pipeline.final_after_us(query) for query in pipeline.queries), default=0)
    plans = PlanHistory.for_emissions(warehouse, intervals[0].start_us - final_us)
    slacks = SlackHistory.load(warehouse, intervals)
    with context.stage(STAGE, intervals) as stage:
        queries = with_windows(pipeline)
        given = {query.id: _final(context, query, plans, slacks, intervals) for query in queries}
        _put_slots(context, stage, given, intervals)
        values = _judged(context, stage, given, intervals)
        for query in pipeline.queries:
            if not query.is_narrowed:
                own, found = values[query.id]
                found[plans.levels(query, own) == "unsupported"] = 0.0 if query.is_ranked else 1.0
        rows: list[dict[str, Any]] = []
        for query in queries:
            rows += _accuracy_rows(pipeline, query, plans, slacks, *values[query.id])
            context.progress(f"calibrate: {query.id}: {len(values[query.id][1])} windows judged")
        table = pa.Table.from_pylist(
            rows, schema=warehouse.schema("accuracy").append(pa.field("interval", pa.string()))
        )
        table = pa.concat_tables([table, judge_sessions(context, stage, slacks, intervals)])
        for interval in intervals:
            own = table.filter(pc.equal(table.column("interval"), interval.label))
            stage.commit.put_arrow(
                "accuracy", interval, own.sort_by([(key, "ascending") for key in ("query", "window_end", "group_key")])
            )
            stage.record(interval, rows_out=own.num_rows)
        judge_promises(context, stage, intervals, table)
        final = {query_id: (own.window_end_us, own.emit_us, found) for query_id, (own, found) in values.items()}
        put_misses(context, stage, final, intervals)


def _final(
    context: RunContext, query: Query, plans: PlanHistory, slacks: SlackHistory, intervals: Sequence[Interval]
) -> Emissions:
    """The query's answers whose windows became final within the intervals."""
    pipeline = context.pipeline
    final_us = pipeline.final_after_us(query)
    start_us, end_us = intervals[0].start_us - final_us, intervals[-1].end_us - final_us
    # Whatever ended then was answered by the end of these intervals; K in whole ticks may pass the horizon by one.
    given = plans.emissions(query, slacks, start_us, intervals[-1].end_us + pipeline.tick_s * 1_000_000)
    return given.some((given.window_end_us >= start_us) & (given.window_end_us < end_us))


@dataclass(frozen=True, eq=False)
class Judging:
    """Windows of a query to be judged: their ends, the files that hold their truth and their answers, and the columns.

    ``truth``, ``answers``: of the tables, the columns that matter. ``by_group``: what is written of their groups.
    """

    query: Query
    ends_us: Int64s
    truth_files: tuple[str, ...]
    answers_files: tuple[str, ...]
    truth: pa.Schema
    answers: pa.Schema
    by_group: ByGroup | None = None


def _judged(
    context: RunContext, stage: StageRun, given: Mapping[str, Emissions], intervals: Sequence[Interval]
) -> dict[str, tuple[Emissions, np.ndarray]]:
    """Query → its answers that were ever given, and the hit rate or the largest error of each."""
    pipeline, warehouse = context.pipeline, context.warehouse
    asked, rows = {}, 0
    parts: list[Judging] = []
    of_groups = Staged(stage.commit, GROUPS_ACCURACY, intervals) if promises_by_group(pipeline) else None
    for query in with_windows(pipeline):
        truth, answers = f"truth_{query.id}", f"answers_{query.id}"
        # A window whose answer fell before the first interval that was ever answered was never asked.
        first = min(warehouse.labels(answers), default="~")
        emitted = np.array(labels_holding(pipeline, given[query.id].emit_us), dtype=object)
        known = np.array(emitted >= first, dtype=bool)
        asked[query.id] = given[query.id].some(known)
        if not known.any():
            continue
        labels = sorted(set(emitted[known].tolist()))
        warehouse.require(answers, labels, "join_aggregate or top_k")
        columns = [*itertools.chain(*judged_columns(query))]
        if query.is_ranked:
            columns = ["event_id"] if query.kind == "top_k" else list(query.group_outputs)
            columns = list(dict.fromkeys([*columns, *query.for_each]))
        schemas = [
            pa.schema([warehouse.schema(table).field(name) for name in ("window_end", *columns)])
            for table in (truth, answers)
        ]
        files = stage.commit.files(truth, [i.label for i in intervals]), warehouse.files(answers, labels)
        there = sum(warehouse.rows(truth, i.label) for i in intervals)
        there += sum(warehouse.rows(answers, label) for label in labels)
        if query.promises_by_group:
            there += ByGroup.of(context, query, asked[query.id].window_end_us, {}).sizes.rows()
        windows = windows_by_rows(asked[query.id].window_end_us, there)
        for some in windows:
            by_group = None
            if query.promises_by_group and of_groups is not None:
                labels = labels_holding(pipeline, some + pipeline.final_after_us(query))
                by_group = ByGroup.of(context, query, some, of_groups.files(len(parts), labels))
            parts.append(Judging(query, some, files[0], files[1], schemas[0], schemas[1], by_group))
        rows += there
    done = context.run_slices(judged, parts, rows)
    if of_groups is not None:
        of_groups.settle([counts for _, counts in done])
    values = {query.id: [v for (v, _), part in zip(done, parts, strict=True) if part.query.id == query.id]
              for query in with_windows(pipeline)}  # fmt: skip
    return {query_id: (asked[query_id], np.concatenate([np.zeros(0), *own])) for query_id, own in values.items()}


def judged(part: Slice) -> tuple[np.ndarray, dict[str, int]]:
    """The hit rate, or the error, of each window of a :class:`Judging`; how many rows of groups each interval has.

    **Memory**: their rows.
    """
    own: Judging = part.of
    truth = rows_of_windows(own.truth_files, own.truth, own.ends_us)
    answers = rows_of_windows(own.answers_files, own.answers, own.ends_us)
    counts = {} if own.by_group is None else write_groups(own.by_group, answers, truth)
    return _accuracies(own, answers, truth), counts


def _accuracies(own: Judging, answers: pa.Table, truth: pa.Table) -> np.ndarray:
    if own.query.kind == "top_k":
        return hit_rate(answers, truth, instants(own.ends_us))
    if own.query.ranks_groups:
        return best_groups.hit_rates(ranking_of(own.query), answers, truth, instants(own.ends_us))
    return relative_error(answers, truth, instants(own.ends_us), *judged_columns(own.query), tolerance_of(own.query))


def _accuracy_rows(
    pipeline: Pipeline,
    query: Query,
    plans: PlanHistory,
    slacks: SlackHistory,
    given: Emissions,
    values: np.ndarray,
) -> list[dict[str, Any]]:
    if not len(values):
        return []
    ends_us, slack_us = given.window_end_us, given.emit_us - given.window_end_us - query.lag_us
    terms = terms_of(pipeline, query)
    kept = None if terms is None else within(terms, values)
    widths = windows_of(query, plans, slacks, given).widths_s
    learnt_in = labels_holding(pipeline, ends_us + pipeline.final_after_us(query))
    rows = []
    for i, end in enumerate(instants(ends_us).to_pylist()):
        rows.append(
            {
                "query": query.id,
                "window_end": end,
                "metric": "hit_rate" if query.is_ranked else "relative_error",
                "value": float(values[i]),
                "promised": query.promised,
                "kept": None if kept is None else bool(kept[i]),
                "slack_s": float(slack_us[i]) / 1e6,
                "width_s": [(alias, float(width[i])) for alias, width in widths.items()],
                "interval": learnt_in[i],
            }
        )
    return rows


@dataclass(frozen=True, eq=False)
class Slots:
    """Windows of a query that ended at slots (level C), and an interval's truth to which theirs comes.

    ``regular``: the files of the truth. ``file``: where all of it goes.
    """

    asked: Question | None
    regular: tuple[str, ...]
    every_us: int
    file: str
    truth: pa.Schema


def _put_slots(
    context: RunContext, stage: StageRun, given: Mapping[str, Emissions], intervals: Sequence[Interval]
) -> None:
    """Put the truth of queries again some of whose windows ended at slots (level C), with theirs."""
    pipeline, warehouse = context.pipeline, context.warehouse
    horizon_us = pipeline.horizon_s * 1_000_000
    parts, owners, rows = [], [], 0
    staged: dict[str, Staged] = {}
    for query in with_windows(pipeline):
        if query.calendar is not None or not query.is_narrowed:
            continue  # its windows end where EVERY or the calendar says, or nowhere
        every_us, ends_us = round(query.every_s * 1e6), given[query.id].window_end_us
        slots_us = np.unique(ends_us[ends_us % every_us != 0])
        if len(slots_us) == 0:
            continue
        table = f"truth_{query.id}"
        staged[query.id] = Staged(stage.commit, table, intervals)
        homes = np.array(labels_holding(pipeline, slots_us + horizon_us), dtype=object)
        for interval in intervals:
            own_us = slots_us[np.array(homes == interval.label, dtype=bool)]
            schedule = Schedule.from_ticks(own_us, horizon_us, window_ranges_us(query, own_us))
            asked = question(context, query, schedule, with_ties=True) if len(own_us) else None
            (file,) = staged[query.id].files(0, [interval.label]).values()
            regular = warehouse.files(table, [interval.label])
            parts.append(Slots(asked, regular, every_us, file, warehouse.schema(table)))
            owners.append((query.id, interval.label))
            rows += asked.rows() if asked else 0
    counts = context.run_slices(with_slots, parts, rows)
    for query_id, truth in staged.items():
        truth.settle([{label: n} for (owner, label), n in zip(owners, counts, strict=True) if owner == query_id])


def with_slots(part: Slice) -> int:
    """Write the truth of an interval (of :class:`Slots`); how many rows it has. **Memory**: that truth."""
    own: Slots = part.of
    tables = [read_file(path, own.truth) for path in own.regular]
    truth = pa.concat_tables([own.truth.empty_table(), *tables])
    truth = truth.filter(pa.array(instants_us(truth.column("window_end")) % own.every_us == 0))
    if own.asked is None:
        parquet.write(truth, own.file)
        return int(truth.num_rows)
    query = own.asked.query
    rows = Answering(own.asked).table()
    index = np.asarray(rows.column("_window_index").to_numpy(), dtype=np.int64)
    rows = rows.append_column("window_end", instants(own.asked.schedule.window_end_us[index]))
    if query.kind == "top_k" and "event_id" not in rows.schema.names:
        rows = rows.append_column("event_id", rows.column("_event_id"))
    truth = pa.concat_tables([truth, rows.select(own.truth.names).cast(own.truth)]).sort_by(_truth_order(query))
    parquet.write(truth, own.file)
    return int(truth.num_rows)


if __name__ == "__main__":
    launch(STAGE)
