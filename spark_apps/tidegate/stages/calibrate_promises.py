"""Calibrate: the one judgement of promises, ``promise_periods``, from the accuracy of the windows that are final.

An interval writes, for every query with a promise, the period that has become final in it, if one has, and the one that
is open at its end. What it writes depends on the intervals up to it alone: the newest row of a period is what is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import from_us, to_us
from tidegate.declarations.promises import Terms, terms_of
from tidegate.declarations.tables import GROUPS_ACCURACY
from tidegate.engine.context import RunContext, StageRun, previous_label
from tidegate.operators.accuracy import OfGroups, Tally, judge
from tidegate.operators.codes import codes
from tidegate.operators.schedule import Int64s, instants_us
from tidegate.store.cut import read_file
from tidegate.store.intervals import Interval, interval_holding

TABLE = "promise_periods"
_COLUMNS = ("query", "window_end", "value")


def judge_promises(context: RunContext, stage: StageRun, intervals: Sequence[Interval], fresh: pa.Table) -> None:
    """Write ``promise_periods`` of the intervals.

    Args:
        fresh: ``accuracy`` of all queries, of the windows that became final in the intervals. ``accuracy_groups`` of
            them stand in the commit already.

    **Cost.** Reads ``accuracy`` of the intervals before, as far back as the longest open period began.

    **Guarantee.** The rows of an interval depend on ``accuracy`` and on the rows of the interval before it, not on how
    many intervals are run at once, nor on what was run later.
    """
    pipeline, warehouse = context.pipeline, context.warehouse
    terms = [found for query in pipeline.queries if (found := terms_of(pipeline, query)) is not None]
    horizon_us = pipeline.horizon_s * 1_000_000
    final_us = {query.id: pipeline.final_after_us(query) for query in pipeline.queries}
    begun_us = [one.periods.begin_us(intervals[0].start_us - final_us[one.query]) for one in terms]
    oldest = interval_holding(pipeline, min(begun_us, default=intervals[0].start_us) + horizon_us).label
    earlier = [label for label in warehouse.labels("accuracy") if oldest <= label < intervals[0].label]
    windows = pa.concat_tables(
        [warehouse.read_arrow("accuracy", earlier, _COLUMNS).select(_COLUMNS), fresh.select(_COLUMNS)]
    ).sort_by("window_end")
    before = [] if context.cold_start else [previous_label(pipeline, intervals[0])]
    # Of each query the row of the open period comes last.
    newest = warehouse.read_arrow(TABLE, before).sort_by("period_start").to_pylist()
    left = {(row["query"], row["promise"]): row for row in newest}
    rows: dict[Interval, list[dict[str, Any]]] = {interval: [] for interval in intervals}
    groups = None
    if any(one.for_each for one in terms):
        known = [label for label in warehouse.labels(GROUPS_ACCURACY) if oldest <= label < intervals[0].label]
        columns = [*_COLUMNS, "group_key"]
        schema = pa.schema([warehouse.schema(GROUPS_ACCURACY).field(name) for name in columns])
        new = stage.commit.files(GROUPS_ACCURACY, [interval.label for interval in intervals])
        parts = [warehouse.read_arrow(GROUPS_ACCURACY, known, columns).select(columns).cast(schema)]
        groups = pa.concat_tables([*parts, *(read_file(file, schema) for file in new)]).sort_by("window_end")
    for one in terms:
        own = windows.filter(pc.equal(windows.column("query"), one.query))
        ends_us, values = instants_us(own.column("window_end")), own.column("value").to_numpy()
        of_groups = _of_groups(one, groups) if one.for_each else None
        before_it = left.get((one.query, one.promise))
        for interval, row in _rows(one, intervals, final_us[one.query], ends_us, values, before_it, of_groups):
            rows[interval].append(row)
    for interval in intervals:
        stage.commit.put_arrow(TABLE, interval, pa.Table.from_pylist(rows[interval], schema=warehouse.schema(TABLE)))


def _of_groups(terms: Terms, groups: pa.Table | None) -> OfGroups:
    """The hit rates of a query's groups."""
    assert groups is not None
    own = groups.filter(pc.equal(groups.column("query"), terms.query))
    return OfGroups(
        instants_us(own.column("window_end")), codes(own.column("group_key"))[0], own.column("value").to_numpy()
    )


def _rows(
    terms: Terms,
    intervals: Sequence[Interval],
    final_after_us: int,
    ends_us: Int64s,
    values: np.ndarray,
    left: Mapping[str, Any] | None,
    of_groups: OfGroups | None,
) -> Iterator[tuple[Interval, dict[str, Any]]]:
    """The rows of one query, after ``left``, the newest before them; under another period that counts for nothing."""
    tally = Tally()
    if left is not None and _is_period(terms, to_us(left["period_start"]), to_us(left["period_end"])):
        tally = Tally(left["periods_judged"], left["periods_kept"])
    for interval in intervals:
        final_us = interval.start_us - final_after_us, interval.end_us - final_after_us
        for found in judge(terms, ends_us, values, *final_us, tally, of_groups):
            tally = found.tally
            yield (
                interval,
                {
                    "query": terms.query,
                    "promise": terms.promise,
                    "period_start": from_us(found.start_us),
                    "period_end": from_us(found.end_us),
                    "windows": found.windows,
                    "promised": found.promised,
                    "measured": found.measured,
                    "kept": found.kept,
                    "periods_judged": found.tally.judged,
                    "periods_kept": found.tally.kept,
                    "met_so_far": found.tally.met,
                    "judged_at": interval.end,
                },
            )


def _is_period(terms: Terms, start_us: int, end_us: int) -> bool:
    return terms.periods.begin_us(start_us) == start_us and terms.periods.next_us(start_us) == end_us
