"""Calibrate: how much of its range each query with an ERROR can miss, from the pipeline's own past windows.

Windows whose truth is known are answered once more, over every share of their ranges that is worth a try, with the
slack that was in effect at them: so what was late and what was not held are judged together, as the promise is. The
errors go to ``width_errors``; those of the last two weeks give the slack widths in effect from the interval's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.tables import instants
from tidegate.engine import Slice
from tidegate.engine.context import RunContext, StageRun
from tidegate.operators.accuracy import (
    SHARES,
    ShareChoice,
    Tolerance,
    choose_share,
    evidence_s,
    sample_stride,
    widths_to_try,
    window_errors,
)
from tidegate.operators.accuracy.error_width import Float64s
from tidegate.operators.schedule import Int64s, Schedule, window_ranges_us
from tidegate.queries.questions import Answering, Question, pooled
from tidegate.queries.slices import cuts, question
from tidegate.store.gathered import Gathered
from tidegate.store.intervals import Interval, interval_holding, labels_holding

_ORDER = [(name, "ascending") for name in ("query", "window_end", "share")]


def learn_widths(
    context: RunContext,
    stage: StageRun,
    intervals: Sequence[Interval],
    ends_us: Mapping[str, Int64s],
    slack_us: Mapping[str, Int64s],
) -> None:
    """Write ``width_errors`` and ``error_width_plan`` of the intervals.

    Args:
        ends_us: query → ends of all its windows that became final within the intervals, microseconds.
        slack_us: query → K in effect at each of them, microseconds.

    **Cost.** Some 35 answers a sampled window of a query with ERROR; at least every fifth is sampled.

    **Guarantee.** The rows of an interval depend on tuples alone, not on how many intervals are run at once.
    """
    pipeline, warehouse = context.pipeline, context.warehouse
    narrowed = [query for query in pipeline.queries if query.is_narrowed and query.sessions is None]
    promised = [query for query in narrowed if query.error is not None]

    parts: list[Measuring] = []
    for query in promised:
        sampled = sampled_windows(query, ends_us[query.id])
        parts += _to_measure(context, query, ends_us[query.id][sampled], slack_us[query.id][sampled])
    rows_read = sum(part.asked.rows() for part in parts)
    schema = warehouse.schema("width_errors").append(pa.field("interval", pa.string()))
    measured = context.run_slices(_measured, parts, rows_read)
    fresh = pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in measured)])
    oldest_us = min((_evidence_from_us(pipeline, query, intervals[0]) for query in promised), default=0)
    since = interval_holding(pipeline, oldest_us).label
    earlier = [label for label in warehouse.labels("width_errors") if since <= label < intervals[0].label]
    known = Gathered(warehouse.local / "_gathered" / "width_errors.parquet")
    pool = pa.concat_tables([known.read(warehouse, "width_errors", earlier), fresh])
    rows: dict[Interval, list[dict[str, Any]]] = {interval: [] for interval in intervals}
    for query in promised:
        for interval, choice in _choices(pipeline, query, pool, intervals).items():
            rows[interval] += _plan_rows(pipeline, query, interval, choice)
    for interval in intervals:
        own = fresh.filter(pc.equal(fresh.column("interval"), interval.label))
        stage.commit.put_arrow("width_errors", interval, own.sort_by(_ORDER))
        plan = pa.Table.from_pylist(rows[interval], schema=warehouse.schema("error_width_plan"))
        stage.commit.put_arrow("error_width_plan", interval, plan)


def judged_columns(query: Query) -> tuple[list[str], list[str]]:
    """The answer's columns that tell groups apart, and those that are judged."""
    groups = list(query.group_outputs)
    return groups, [o.name for o in query.outputs if o.name not in groups]


def tolerance_of(query: Query) -> Tolerance:
    """How the errors of a window's groups make that of the window."""
    return Tolerance(query.groups_within, query.least_truths)


def sampled_windows(query: Query, ends_us: Int64s) -> np.ndarray:
    """Which of the windows are evidence of widths."""
    stride = sample_stride(_range_s(query), query.every_s)
    every_us, calendar = round(query.every_s * 1e6), query.calendar
    numbers: Int64s = ends_us // every_us if calendar is None else calendar.numbers(ends_us)
    return np.asarray(numbers % stride == 0, dtype=bool)


def coarse_shares(pipeline: Pipeline, query: Query) -> Float64s:
    """The shares of the ranges below all of it at which the map of slack and width is told, in whole ticks."""
    ticks = round(_range_s(query) / pipeline.tick_s)
    held = np.unique(np.ceil(np.array(SHARES[1:]) * ticks - 1e-9).astype(np.int64))
    return held[held < ticks] / ticks


def _range_s(query: Query) -> float:
    """The widest range of the query."""
    return max(window.range_s for window in query.ranged)


def _evidence_from_us(pipeline: Pipeline, query: Query, interval: Interval) -> int:
    """Windows that became final from this instant on are evidence for what is in effect from the interval's end."""
    period_us = round(evidence_s(_range_s(query), query.every_s) * 1e6)
    return interval_holding(pipeline, interval.end_us - period_us).start_us


def _shares(pipeline: Pipeline, query: Query) -> Float64s:
    """The shares of the ranges that are tried: whole ticks of the widest."""
    ticks = round(_range_s(query) / pipeline.tick_s)
    return widths_to_try(ticks) / ticks


def _held_ticks(pipeline: Pipeline, range_s: Float64s | float, share: Float64s | float) -> Int64s:
    """The width that a share of a range comes to, rounded up to whole ticks (but for the rounding of doubles)."""
    ticks: Int64s = np.ceil(np.asarray(range_s) / pipeline.tick_s * np.asarray(share) - 1e-9).astype(np.int64)
    return ticks


@dataclass(frozen=True, eq=False)
class Measuring:
    """Windows of a query with ERROR, asked for over every share of their ranges.

    ``truth``: the whole windows. ``shares``: those that are tried. ``column``: int64[n], of each window of ``asked``,
    which share it is over.
    """

    pipeline: Pipeline
    truth: Question
    asked: Question
    ends_us: Int64s
    shares: Float64s
    column: Int64s


def _to_measure(context: RunContext, query: Query, ends_us: Int64s, slack_us: Int64s) -> list[Measuring]:
    """The windows, cut into slices."""
    if len(ends_us) == 0:
        return []
    shares = _shares(context.pipeline, query)
    whole = over_shares(context, query, ends_us, slack_us, shares)
    bounds = cuts(whole.asked, len(ends_us), context.most_slices(whole.asked.rows()))
    if len(bounds) == 1:
        return [whole]
    return [over_shares(context, query, ends_us[a:b], slack_us[a:b], shares) for a, b in bounds]


def over_shares(context: RunContext, query: Query, ends_us: Int64s, slack_us: Int64s, shares: Float64s) -> Measuring:
    """The windows asked for over every one of these shares of their ranges, ascending, after waiting so long."""
    pipeline = context.pipeline
    horizon_us = pipeline.horizon_s * 1_000_000
    # A schedule answers a window once at an instant, so each share is answered a microsecond after the larger one: a
    # tuple that arrives within those few microseconds may count for it already.
    behind_us = np.arange(len(shares), 0, -1)
    emit_us = (ends_us[:, None] + slack_us[:, None] + behind_us).ravel()
    window, column = np.divmod(np.arange(emit_us.size), len(shares))
    order = np.lexsort((ends_us[window], emit_us))
    window, column = window[order], column[order]
    coverage, lower_us, ranges_us = np.ones(len(window)), {}, window_ranges_us(query, ends_us)
    for alias, range_us in ranges_us.items():
        range_s = range_us[window] / 1e6
        held_us = _held_ticks(pipeline, range_s, shares[column]) * pipeline.tick_s * 1_000_000
        coverage *= held_us / (range_s * 1e6)
        lower_us[alias] = ends_us[window] - held_us
    schedule = Schedule(ends_us[window], emit_us[order], lower_us)
    narrowed = question(context, query, schedule, coverage, looking_back=True)
    whole = question(context, query, Schedule.from_ticks(ends_us, horizon_us, ranges_us), looking_back=True)
    return Measuring(pipeline, whole, narrowed, ends_us, shares, column)


def _measured(part: Slice) -> pa.Table:
    """The error of each window over each share of its ranges, with the interval in which it became final."""
    own: Measuring = part.of
    shares, ends_us = own.shares, own.ends_us
    cells = pooled([own.truth, own.asked])
    truth = whole_windows(Answering(own.truth, cells))
    errors = candidate_errors(Answering(own.asked, cells), own.column, truth, ends_us, len(shares))
    horizon_us = own.pipeline.horizon_s * 1_000_000
    labels = np.array(labels_holding(own.pipeline, ends_us + horizon_us), dtype=object)
    return pa.table(
        {
            "query": pa.repeat(own.asked.query.id, errors.size),
            "window_end": instants(np.repeat(ends_us, len(shares))),
            "share": np.tile(shares, len(ends_us)),
            "error": errors.ravel(),
            "interval": np.repeat(labels, len(shares)),
        }
    )


def whole_windows(answering: Answering) -> pa.Table:
    """A question's answers, with ``window_end`` (µs): by it ascending."""
    rows = answering.table()
    index = rows.column("_window_index").to_numpy()
    return rows.append_column("window_end", pa.array(answering.question.schedule.window_end_us[index]))


def candidate_errors(answering: Answering, column: Int64s, truth: pa.Table, ends_us: Int64s, columns: int) -> Float64s:
    """The errors of candidate answers of the same windows, whose truth is known.

    Args:
        answering: the candidates, several a window.
        column: int64[n], of each window of the schedule: which candidate it is; of a window, each is there once.
        truth: from :func:`whole_windows`.
        ends_us: the windows, ascending.
        columns: how many candidates there are.

    Returns:
        float64[len(ends_us), columns].

    **Memory**: the truth, and a part of the answers, never all candidates of all windows and groups.
    """
    query = answering.question.query
    groups, values = judged_columns(query)
    tolerance = tolerance_of(query)
    errors = np.empty((len(ends_us), columns))
    for answers, near, place, windows_us, given, window_of in candidates(answering, truth):
        index = answers.column("_window_index").to_numpy() - given[0]
        found = window_errors(answers, index, near, place, window_of, groups, values, tolerance)
        errors[np.searchsorted(ends_us, windows_us[window_of]), column[given]] = found
    return errors


def candidates(
    answering: Answering, truth: pa.Table
) -> Iterator[tuple[pa.Table, pa.Table, Int64s, Int64s, Int64s, Int64s]]:
    """Parts of the candidate answers, each with the truth of its windows.

    Yields:
        The answers; the truth near them, and of each of its rows the number of its window among the next; the ends of
        the windows, µs, ascending; the numbers of the candidates in the schedule, and of each of them its window.
    """
    asked, true_us = answering.question, truth.column("window_end").to_numpy()
    for answers in answering:
        given = np.arange(*answering.windows)
        if len(given) == 0:
            continue
        windows_us, window_of = np.unique(asked.schedule.window_end_us[given], return_inverse=True)
        first, last = np.searchsorted(true_us, [windows_us[0], windows_us[-1] + 1])
        place = np.searchsorted(windows_us, true_us[first:last])
        near = truth.slice(first, last - first)
        wanted = windows_us[place] == true_us[first:last]
        if not wanted.all():
            near, place = near.filter(pa.array(wanted)), place[wanted]
        yield answers, near, place, windows_us, given, window_of


def _choices(
    pipeline: Pipeline, query: Query, pool: pa.Table, intervals: Sequence[Interval]
) -> dict[Interval, ShareChoice]:
    """What each interval chooses from the windows that had become final by its end, within the evidence period."""
    assert query.error is not None
    shares = _shares(pipeline, query)
    rows = pool.filter(pc.equal(pool.column("query"), query.id)).sort_by([("window_end", "ascending")])
    ends_us = rows.column("window_end").cast(pa.int64()).to_numpy()
    windows_us, window = np.unique(ends_us, return_inverse=True)
    share = rows.column("share").to_numpy()
    position = np.minimum(np.searchsorted(shares, share - 1e-9), len(shares) - 1)
    known = np.abs(shares[position] - share) <= 1e-9
    errors = np.full((len(windows_us), len(shares)), np.nan)
    errors[window[known], position[known]] = rows.column("error").to_numpy()[known]
    # A window measured under another range is no evidence for this one.
    whole = ~np.isnan(errors).any(axis=1)
    errors, final_us = errors[whole], windows_us[whole] + pipeline.horizon_s * 1_000_000
    choices = {}
    for interval in intervals:
        period_us = [_evidence_from_us(pipeline, query, interval), interval.end_us]
        first, last = np.searchsorted(final_us, period_us, side="left")
        choices[interval] = choose_share(errors[first:last], shares, query.error)
    return choices


def _plan_rows(pipeline: Pipeline, query: Query, interval: Interval, choice: ShareChoice) -> list[dict[str, Any]]:
    """A row a stream. All streams of a query are narrowed by the same share, as they were when it was chosen."""
    assert query.error is not None
    rows = []
    for stream, range_s in query.ranges_s().items():
        # Until there is enough evidence: ERROR × range, rounded down to the tick.
        share = 1 - min(query.error, 1.0) if choice.share is None else choice.share
        held_s = int(_held_ticks(pipeline, range_s, share)) * pipeline.tick_s
        rows.append(
            {
                "query": query.id,
                "stream": stream,
                "effective_from": interval.end,
                "tolerated_error": query.error,
                "slack_width_s": range_s - held_s,
                "coverage": choice.coverage,
            }
        )
    return rows
