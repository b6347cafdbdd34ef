"""Answers of windows that reached back less far than their range, filled from history: what they let go is estimated.

A plan that gives a window less than its range (or has not yet widened it again) leaves its answers narrow: ``coverage``
below 1. The tuples that such an answer lacks had left the window, so history has samples of them. What is filled is
what the whole window would have said at the answer's instant: later arrivals do not enter.

Not a part of the answers themselves, but asked afterwards: samples are thinned as they age, so a stored filled answer
would change with the day on which an interval is run again. See infra/decisions/0011.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, Query, Stream, from_us
from tidegate.declarations.positions import nearest_name
from tidegate.history.answers import (
    columns_of_groups,
    columns_read,
    groups_of,
    leaf_sample,
    sampled_of,
    values_of,
)
from tidegate.history.past import Past, View
from tidegate.history.questions import cell, json_row, require_confidence, table_of
from tidegate.history.store import Samples
from tidegate.operators.expressions import evaluate, truth
from tidegate.operators.history.estimators import Bools, Estimate, Float64s, LeafSample
from tidegate.operators.history.filling import FilledAggregate, filled_expression
from tidegate.operators.history.query import HistoryQuery, parse_history_query
from tidegate.operators.schedule import instants_us, window_ranges_us
from tidegate.queries.answers import Windows, emitted_windows
from tidegate.queries.plans import PlanHistory
from tidegate.queries.scan import EventFiles
from tidegate.queries.slacks import SlackHistory
from tidegate.store.intervals import interval_holding, intervals_between
from tidegate.store.places import Place
from tidegate.store.warehouse import Warehouse


@dataclass(frozen=True)
class Narrow:
    """One answer whose window held [held_from, end) of [start, end); microseconds."""

    start_us: int
    held_from_us: int
    end_us: int
    emit_us: int

    @property
    def filled_share(self) -> float:
        """The share of the range that comes from history."""
        return (self.held_from_us - self.start_us) / (self.end_us - self.start_us)


@dataclass(frozen=True)
class Filled:
    """A filled answer. ``rows``: one a group, the query's columns; those of aggregates are ``Estimate``."""

    window: Narrow
    sampled_rows: int
    rows: list[dict[str, Any]]


def fill_answers(
    pipeline: Pipeline,
    root: str | Place,
    query_id: str,
    start: datetime,
    end: datetime,
    confidence: float = 0.95,
    as_of: str | datetime | None = None,
) -> dict[str, Any]:
    """Fill the answers of a query that were given in [start, end), where their windows were narrow.

    ``as_of``: with what had been committed by that instant, or with that run.

    Returns:
        ``{"query", "confidence", "answered", "whole", "filled": [{"window_end", "emitted_at", "range_s", "held_s",
        "filled_share", "sampled_rows", "rows": [{group columns…, "<column>": {"estimate", "low", "high",
        "exact"}}]}]}``. ``answered``: windows answered in the range, ``whole``: those among them that held their
        range. A None estimate or bound: none is known.

    Cost: reads the tuples that each narrow window held, and the samples of what it did not.
    Raises: UserError: an unknown query, one that history cannot fill, or intervals that have not been run.
    """
    require_confidence(confidence)
    query, warehouse = _fillable(pipeline, query_id), Warehouse(root, pipeline, as_of)
    intervals = intervals_between(pipeline, start, end)
    labels = [interval.label for interval in intervals]
    warehouse.require("window_plan", labels, "ingest")
    warehouse.require("history_leaves", labels, "sample_history")
    plans = PlanHistory.for_emissions(warehouse, intervals[0].start_us)
    windows = emitted_windows(query, plans, SlackHistory.load(warehouse, intervals), intervals)
    answered = 0 if windows is None else len(windows.schedule)
    narrow = [] if windows is None else list(_narrow(query, windows))
    filled = Filling.of(warehouse, query, confidence).fill(narrow)
    return {
        "query": query.id,
        "confidence": confidence,
        "answered": answered,
        "whole": answered - len(narrow),
        "filled": [_json(one) for one in filled],
    }


def _fillable(pipeline: Pipeline, query_id: str) -> Query:
    query = next((q for q in pipeline.queries if q.id == query_id), None)
    if query is None:
        near = nearest_name(query_id, [q.id for q in pipeline.queries])
        raise UserError(f"there is no query '{query_id}'" + (f"; did you mean '{near}'?" if near else ""))
    if query.kind == "top_k":
        raise UserError(
            f"{query_id} is a top-k query: a sample does not contain the top tuples, so it cannot be filled"
        )
    if query.sessions is not None:
        raise UserError(f"{query_id} is over sessions: they are held whole or not answered, so none is to be filled")
    if query.ranks_groups:
        raise UserError(f"{query_id} asks for the best groups: a sample ranks them otherwise, so it cannot be filled")
    if len(query.windows) > 1:
        raise UserError(f"{query_id} is a join: history samples each stream by itself, so it cannot be filled")
    if query.windows[0].branches:
        raise UserError(
            f"{query_id} reads the union {query.windows[0].stream}: history samples each stream by itself, so it "
            "cannot be filled"
        )
    if pipeline.stream(query.streams[0]).history is None:
        raise UserError(f"stream '{query.streams[0]}' keeps no history: declare 'history' for it in pipeline.yml")
    return query


def _narrow(query: Query, windows: Windows) -> Iterator[Narrow]:
    (window,) = query.windows
    schedule = windows.schedule
    held_us = schedule.width_us(window.alias)
    range_us = window_ranges_us(query, schedule.window_end_us)[window.alias]
    for i in np.flatnonzero(held_us < range_us).tolist():
        end_us = int(schedule.window_end_us[i])
        yield Narrow(end_us - int(range_us[i]), end_us - int(held_us[i]), end_us, int(schedule.emit_us[i]))


@dataclass(frozen=True, eq=False)
class Filling:
    """One query, ready to have its narrow windows filled."""

    warehouse: Warehouse
    query: Query
    stream: Stream
    asked: HistoryQuery
    confidence: float

    @classmethod
    def of(cls, warehouse: Warehouse, query: Query, confidence: float) -> Filling:
        """UserError if history cannot compute what the query asks of its tuples."""
        stream = warehouse.pipeline.stream(query.streams[0])
        lookup = next((lookup for window in query.windows for lookup in window.lookups), None)
        if lookup is not None:
            raise UserError(
                f"query {query.id} looks up {lookup.table}: history fills windows from the stream's own columns"
            )
        # The query's own slots, as a query over history: parsed and checked by the same code.
        groups = [group.column if group.computed else f"`{group.column}`" for group in query.group_by]
        shown = [f"{sql} AS {group.slot}" for sql, group in zip(groups, query.group_by, strict=True)]
        shown += [f"{a.words(a.expression or '*')} AS {a.slot}" for a in query.aggregates]
        sql = f"SELECT {', '.join(shown)} FROM `{stream.name}`"
        predicate = next(iter(query.predicates.values()), None)
        sql += f" WHERE {predicate}" if predicate else ""
        sql += f" GROUP BY {', '.join(groups)}" if groups else ""
        asked = parse_history_query(sql, [stream], only_estimated=True)
        return cls(warehouse, query, stream, asked, confidence)

    def fill(self, windows: Sequence[Narrow]) -> list[Filled]:
        """The answers over their whole ranges."""
        if not windows:
            return []
        spans = [self._entered(window) for window in windows]
        oldest, newest = min(first for first, _ in spans), max(last for _, last in spans)
        every = self.warehouse.labels("history_leaves")
        labels = [label for label in every if oldest <= label <= newest]
        ingested = self.warehouse.labels(f"events_{self.stream.name}")
        past = Past.open(self.warehouse, self.stream, labels)
        return [self._filled(window, past, ingested) for window in windows]

    def _entered(self, window: Narrow) -> tuple[str, str]:
        """The first and last interval in which what the window lacks can have entered history."""
        pipeline = self.warehouse.pipeline
        oldest = interval_holding(pipeline, window.start_us - pipeline.interval_s * 1_000_000)
        return oldest.label, interval_holding(pipeline, window.emit_us).label

    def _filled(self, window: Narrow, past: Past, ingested: Sequence[str]) -> Filled:
        asked = self.asked
        columns = list(dict.fromkeys(["event_time", "arrival_time", *columns_read(asked)]))
        held = self._held(window, ingested, columns)
        strata, (oldest, newest) = past.view.strata, self._entered(window)
        entered = np.array([oldest <= label <= newest for label in strata.labels], bool)[strata.label]
        view = past.view.only(entered & past.view.touched(window.start_us, window.held_from_us))
        samples = past.samples(view, columns)
        missing = _within(samples.rows, window.start_us, window.held_from_us, window.emit_us)
        if asked.predicate is not None:
            missing = missing & truth(asked.predicate, samples.rows)
        sample = leaf_sample(view, samples, self.confidence)
        rows = []
        # One table of both, so that a group that only one of them has is found as well.
        both = pa.concat_tables([held.select(columns), samples.rows.select(columns)])
        selected = np.concatenate([np.ones(held.num_rows, bool), missing])
        for keys, members in groups_of(columns_of_groups(asked.group_by, both), selected):
            mine, theirs = members[: held.num_rows], members[held.num_rows :]
            parts = self._parts(held.filter(pa.array(mine)), view, samples, theirs, sample)
            key_of = dict(zip((group.name for group in asked.group_by), keys, strict=True))
            row = self._row({slot: key_of[name] for slot, name in asked.groups}, parts)
            if row is not None:
                rows.append(row)
        return Filled(window, samples.rows.num_rows, rows)

    def _held(self, window: Narrow, ingested: Sequence[str], columns: Sequence[str]) -> pa.Table:
        """The tuples that the window held when it was answered, and that qualify."""
        files = EventFiles.between(self.warehouse, self.stream, ingested, window.held_from_us, window.emit_us)
        rows = files.table((window.held_from_us, window.end_us, window.emit_us), columns)
        return rows if self.asked.predicate is None else rows.filter(pa.array(truth(self.asked.predicate, rows)))

    def _parts(
        self, held: pa.Table, view: View, samples: Samples, members: Bools, sample: LeafSample
    ) -> list[FilledAggregate]:
        parts = []
        for aggregate in self.asked.aggregates:
            values, present = values_of(aggregate, held)
            rest = sampled_of(aggregate, sample, samples, members, view)
            parts.append(FilledAggregate(aggregate.function, values[present], rest))
        return parts

    def _row(self, groups: dict[str, Any], parts: Sequence[FilledAggregate]) -> dict[str, Any] | None:
        """The query's columns; None if HAVING refuses the group by its estimates. ``groups``: slot → value."""
        slots = {aggregate.slot: i for i, aggregate in enumerate(self.query.aggregates)}
        estimates = [part.estimate() for part in parts]
        if self.query.having is not None and not self._having(estimates, groups):
            return None
        row: dict[str, Any] = {}
        for output in self.query.outputs:
            name = output.expression.strip("`")
            if name in groups:
                row[output.name] = groups[name]
            elif name in slots:
                row[output.name] = estimates[slots[name]]
            else:
                row[output.name] = filled_expression(self._expression(output.expression, groups), parts)
        return row

    def _expression(self, text: str, groups: dict[str, Any]):  # type: ignore[no-untyped-def]
        node = sqlglot.parse_one(text, dialect="spark")
        if isinstance(node, exp.Cast) and node.to.is_type("bigint"):  # of estimates an integer has an interval, too
            node = node.this

        def compute(values: Float64s) -> Float64s:
            columns = {
                a.slot: pa.array(values[:, i] > 0.5 if a.type == "boolean" else values[:, i])
                for i, a in enumerate(self.query.aggregates)
            }
            columns |= {slot: pa.array([key] * len(values)) for slot, key in groups.items()}
            found = pc.fill_null(evaluate(node, pa.table(columns), pa.float64()), np.nan)
            return np.asarray(found.to_numpy(), dtype=np.float64)

        return compute

    def _having(self, estimates: Sequence[Estimate], groups: dict[str, Any]) -> bool:
        assert self.query.having is not None
        columns = {
            aggregate.slot: pa.array([found.estimate], pa.bool_() if aggregate.type == "boolean" else pa.float64())
            for aggregate, found in zip(self.query.aggregates, estimates, strict=True)
        }
        columns |= {slot: pa.array([key]) for slot, key in groups.items()}
        return bool(truth(sqlglot.parse_one(self.query.having, dialect="spark"), pa.table(columns))[0])


def _within(rows: pa.Table, start_us: int, end_us: int, seen_by_us: int) -> Bools:
    """bool[n]: which tuples lie in the period and had arrived by an instant."""
    event_us, arrival_us = instants_us(rows.column("event_time")), instants_us(rows.column("arrival_time"))
    return np.asarray((event_us >= start_us) & (event_us < end_us) & (arrival_us <= seen_by_us), dtype=bool)


def _json(filled: Filled) -> dict[str, Any]:
    window = filled.window
    return {
        "window_end": from_us(window.end_us),
        "emitted_at": from_us(window.emit_us),
        "range_s": (window.end_us - window.start_us) / 1e6,
        "held_s": (window.end_us - window.held_from_us) / 1e6,
        "filled_share": window.filled_share,
        "sampled_rows": filled.sampled_rows,
        "rows": [json_row(row) for row in filled.rows],
    }


def render_filled(result: dict[str, Any]) -> str:
    """The filled answers as a table for a terminal."""
    answered, filled = result["answered"], result["filled"]
    head = f"{result['query']}: {answered} windows answered, {result['whole']} of them held their whole range"
    if not filled:
        return head
    names = list(next((row for window in filled for row in window["rows"]), {}))
    rows = [
        [f"{window['window_end']:%Y-%m-%d %H:%M}", f"{window['filled_share']:.0%}", *(cell(row[n]) for n in names)]
        for window in filled
        for row in window["rows"]
    ]
    empty = sum(not window["rows"] for window in filled)
    foot = f"filled: share of the range that comes from history; in brackets: the {result['confidence']:.0%} interval"
    without = [f"{empty} narrow windows have no rows"] if empty else []
    return "\n".join([head, "", *table_of(["window_end", "filled", *names], rows), "", *without, foot])
