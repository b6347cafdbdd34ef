"""Calibrate: the accuracy of each group, of queries whose promise tells groups apart.

A row of ``accuracy_groups`` is a window's group: its error, or with FOR EACH its hit rate, how many tuples it has in
truth and when the last of them happened. So a group that says nothing any more is seen: nothing of it is missing in a
window's truth, but its last event is old.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import Aggregate, Output, Query
from tidegate.declarations.tables import GROUPS_ACCURACY, instants
from tidegate.engine.context import RunContext
from tidegate.operators import best_groups
from tidegate.operators.accuracy import group_errors, hit_rate
from tidegate.operators.codes import codes, group_ids
from tidegate.operators.schedule import Int64s, Schedule, window_ranges_us
from tidegate.queries.questions import Answering, Question, ranking_of
from tidegate.queries.slices import PartFile, question
from tidegate.stages.calibrate_widths import judged_columns, tolerance_of
from tidegate.store.intervals import labels_holding
from tidegate.values.types import TIMESTAMP

_ORDER = [(name, "ascending") for name in ("query", "window_end", "group_key")]


def keys_of(query: Query) -> tuple[str, ...]:
    """The answer's columns by whose values groups are judged."""
    return query.for_each or query.group_outputs


@dataclass(frozen=True, eq=False)
class ByGroup:
    """Windows of a query, of whose groups it is written how accurate they were.

    ``sizes``: of each group how many tuples it has in truth, and when the last one happened. ``labels``: the interval
    in which each window became final. ``files``: where the rows of an interval go, of the schema ``written``.
    """

    query: Query
    sizes: Question
    labels: Mapping[int, str]
    files: Mapping[str, str]
    written: pa.Schema

    @classmethod
    def of(cls, context: RunContext, query: Query, ends_us: Int64s, files: Mapping[str, str]) -> ByGroup:
        """Of the windows that end at these instants, distinct, microseconds."""
        horizon_us = context.pipeline.horizon_s * 1_000_000
        schedule = Schedule.from_ticks(ends_us, horizon_us, window_ranges_us(query, ends_us))
        sizes = question(context, counting(query), schedule, looking_back=True)
        labels = dict(zip(ends_us.tolist(), labels_holding(context.pipeline, ends_us + horizon_us), strict=True))
        return cls(query, sizes, labels, files, context.warehouse.schema(GROUPS_ACCURACY))


def counting(query: Query) -> Query:
    """The query that counts what a query's groups hold: ``tuples``, and ``last_<n>``, the newest event of each alias.

    Of a join it counts the joined tuples.
    """
    keys = keys_of(query)
    groups = tuple(group for group in query.group_by if group.shown_as in keys)
    rows = Aggregate(slot="a0", function="count", alias=None, expression=None, type="integer")
    newest = [
        Aggregate(slot=f"a{n}", function="max", alias=w.alias, expression="event_time", type="timestamp")
        for n, w in enumerate(query.windows, 1)
    ]
    outputs = [Output(name=group.slot, expression=group.slot, type=group.type) for group in groups]
    outputs += [Output(name="tuples", expression="a0", type="integer")]
    outputs += [Output(name=f"last_{n}", expression=a.slot, type="timestamp") for n, a in enumerate(newest)]
    changed: dict[str, Any] = {"group_by": groups, "aggregates": (rows, *newest), "outputs": tuple(outputs)}
    changed |= {"kind": "aggregate" if len(query.windows) == 1 else "join_aggregate", "having": None}
    return query.model_copy(update={**changed, "order_by": (), "limit": None, "within": ()})


def write_groups(part: ByGroup, answers: pa.Table, truth: pa.Table) -> dict[str, int]:
    """Write the accuracies of the groups of the same windows; how many rows of each interval.

    **Memory**: their groups.
    """
    query = part.query
    judged = _hit_rates(query, answers, truth) if query.for_each else _errors(query, answers, truth)
    rows = _with_sizes(part, judged)
    rows = rows.append_column("query", pa.repeat(query.id, rows.num_rows))
    metric = "hit_rate" if query.for_each else "relative_error"
    rows = rows.append_column("metric", pa.repeat(metric, rows.num_rows))
    ends_us = rows.column("window_end").cast(pa.int64()).to_pylist()
    labels = np.array([part.labels[end] for end in ends_us], dtype=object)
    counts = {}
    for label, file in part.files.items():
        of_interval = rows.filter(pa.array(labels == label)).select(part.written.names).cast(part.written)
        written = PartFile(file)
        written.add(of_interval.sort_by(_ORDER))
        counts[label] = written.close()
    return counts


def _errors(query: Query, answers: pa.Table, truth: pa.Table) -> pa.Table:
    """``window_end``, ``group_key``, ``value``: the error of each group, true and answered ones."""
    groups, values = judged_columns(query)
    ends = pa.chunked_array([*answers.column("window_end").chunks, *truth.column("window_end").chunks])
    window = codes(ends.cast(pa.int64()))[0]
    in_answer, in_window = window[: answers.num_rows], window[answers.num_rows :]
    error, of_missing, missing = group_errors(answers, in_answer, truth, in_window, groups, values, tolerance_of(query))
    keys = ["window_end", *groups]
    lacking = truth.select(keys).take(pa.array(missing)).cast(answers.select(keys).schema)
    rows = pa.concat_tables([answers.select(keys), lacking])
    return _keyed(rows, groups, np.concatenate([error, of_missing]))


def _hit_rates(query: Query, answers: pa.Table, truth: pa.Table) -> pa.Table:
    """The same of hit rates, of the groups of FOR EACH with a truth."""
    keys = ["window_end", *query.for_each]
    both = pa.concat_tables([answers.select(keys), truth.select(keys).cast(answers.select(keys).schema)])
    group = group_ids([codes(column)[0] for column in both.columns], both.num_rows)
    named, true = group[: answers.num_rows], group[answers.num_rows :]
    judged, first = np.unique(true, return_index=True)
    if query.kind == "top_k":
        of_answers = answers.select(["event_id"]).append_column("group", pa.array(named))
        of_truth = truth.select(["event_id"]).append_column("group", pa.array(true))
        rates = hit_rate(of_answers, of_truth, pa.array(judged), window="group")
    else:
        known = np.isin(named, judged)
        hits, possible = best_groups.hits(
            ranking_of(query),
            answers.filter(pa.array(known)),
            np.searchsorted(judged, named[known]),
            truth,
            np.searchsorted(judged, true),
            np.arange(len(judged)),
        )
        rates = hits / np.maximum(possible, 1)
    return _keyed(truth.select(keys).take(pa.array(first)), query.for_each, rates)


def _keyed(rows: pa.Table, groups: Sequence[str], values: np.ndarray) -> pa.Table:
    key = group_keys(rows, groups)
    return pa.table({"window_end": rows.column("window_end"), "group_key": key, "value": values})


def _with_sizes(part: ByGroup, judged: pa.Table) -> pa.Table:
    """With how many tuples each group has, and the last event of it; of a group without tuples 0 and NULL."""
    query = part.sizes.query
    sizes = Answering(part.sizes).table()
    ends_us = part.sizes.schedule.window_end_us[sizes.column("_window_index").to_numpy()]
    shown = {group.slot: group.shown_as for group in query.group_by}
    named = sizes.select(list(shown)).rename_columns(list(shown.values()))
    key = group_keys(named, keys_of(part.query))
    newest = [sizes.column(f"last_{n}").cast(pa.int64()) for n in range(len(query.windows))]
    last = pc.max_element_wise(*newest).cast(pa.timestamp("us")).cast(TIMESTAMP)
    both = pa.chunked_array([*_chunks(instants(ends_us)), *judged.column("window_end").chunks])
    keys = pa.chunked_array([*_chunks(key), *judged.column("group_key").chunks])
    group = group_ids([codes(both.cast(pa.int64()))[0], codes(keys)[0]], len(keys))
    place = np.full(int(group.max(initial=-1)) + 1, -1, dtype=np.int64)
    place[group[: len(key)]] = np.arange(len(key))
    row = place[group[len(key) :]]
    known_row = pa.array(row, mask=row < 0)
    judged = judged.append_column("tuples", sizes.column("tuples").take(known_row).fill_null(0))
    return judged.append_column("last_event", last.take(known_row))


def _chunks(column: Any) -> list[pa.Array]:
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]


def group_keys(rows: pa.Table, groups: Sequence[str]) -> pa.Array:
    """The values of some columns of each row as a text: a JSON object, its names in the order of the columns.

    >>> group_keys(pa.table({"country": ["FR", None], "shelf": [3, 4]}), ["country", "shelf"]).to_pylist()
    ['{"country": "FR", "shelf": 3}', '{"country": null, "shelf": 4}']
    """
    if not groups:
        return pa.array(["{}"] * rows.num_rows, pa.string())
    parts = []
    for name in groups:
        code, values = codes(rows.column(name))
        texts = [f"{json.dumps(name, ensure_ascii=False)}: {_shown(value)}" for value in [*values.to_pylist(), None]]
        parts.append(pa.array(texts, pa.string()).take(pa.array(np.where(code < 0, len(values), code))))
    joined = pc.binary_join_element_wise(*parts, ", ")
    return pc.binary_join_element_wise("{", joined, "}", "")


def _shown(value: Any) -> str:
    """A value as JSON has it; what it has no sign for as a text."""
    if isinstance(value, (Decimal, date)) or (isinstance(value, float) and not math.isfinite(value)):
        value = str(value)
    return json.dumps(value, ensure_ascii=False)
