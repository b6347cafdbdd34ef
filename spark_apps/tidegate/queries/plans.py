"""What every window really holds at any instant, and when every query answers, from the effective-dated plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, Query, Window, to_us
from tidegate.operators.schedule import Int64s, window_ends_us, window_ranges_us
from tidegate.operators.window_sizing import (
    NOT_YET_US,
    ControllerSpec,
    ControllerState,
    EffectiveBounds,
    PlanRow,
    QueryPlanRow,
)
from tidegate.queries.planner import QUERY_PLANS, STATE, first_arrivals_us
from tidegate.queries.slacks import SlackHistory
from tidegate.store.intervals import interval_holding, interval_labelled
from tidegate.store.warehouse import Warehouse


@dataclass(frozen=True)
class Emissions:
    """When a query answers: ``window_end_us`` and ``emit_us`` int64[n], sorted by (emit_us, window_end_us).

    ``row`` int64[n]: which of the query's plan rows each answer is given under.
    """

    window_end_us: Int64s
    emit_us: Int64s
    row: Int64s

    def some(self, which: np.ndarray) -> Emissions:
        """Those that are chosen."""
        return Emissions(self.window_end_us[which], self.emit_us[which], self.row[which])


@dataclass(frozen=True)
class PlanHistory:
    """Plans and effective bounds of a pipeline's streams and queries from some instant on.

    ``bounds``: stream → effective bounds. ``query_rows``: query → its plan rows, oldest first.
    ``began_us``: stream → start of the tick in which its first tuple arrived.
    """

    pipeline: Pipeline
    bounds: Mapping[str, EffectiveBounds]
    query_rows: Mapping[str, Sequence[QueryPlanRow]]
    began_us: Mapping[str, int]

    @classmethod
    def load(cls, warehouse: Warehouse, from_us: int) -> PlanHistory:
        """The plans in effect at ``from_us`` and all later ones; UserError if nothing has been ingested."""
        pipeline = warehouse.pipeline
        labels = warehouse.labels("window_plan")
        if not labels:
            raise UserError(f"pipeline {pipeline.name} has no window plans yet: run the stage ingest first")
        first = interval_holding(pipeline, from_us).label
        before = [label for label in labels if label < first]
        # The state at the end of an interval names what is in effect then: earlier plans need not be read.
        origin = before[-1] if before else ""
        spec = ControllerSpec.from_pipeline(pipeline)
        saved, queries = warehouse.read_state(STATE, origin), warehouse.read_state(QUERY_PLANS, origin)
        known = [label for label in labels if label > origin]
        state = ControllerState.initial(spec) if saved is None else ControllerState.from_arrow(saved, spec)
        plans = [_plan_row(row) for row in warehouse.read_arrow("window_plan", known).to_pylist()]
        rows = [] if queries is None else queries.to_pylist()
        rows += warehouse.read_arrow("query_plan", known).to_pylist()
        until_us = interval_labelled(pipeline, labels[-1]).end_us
        query_rows = {
            q.id: sorted((_query_row(r) for r in rows if r["query"] == q.id), key=lambda r: r.effective_from_us)
            for q in pipeline.queries
        }
        bounds = {s.name: state.bounds(s.name, plans, until_us) for s in pipeline.streams}
        return cls(pipeline, bounds, query_rows, first_arrivals_us(warehouse, labels[-1]))

    @classmethod
    def for_emissions(cls, warehouse: Warehouse, start_us: int) -> PlanHistory:
        """The plans that ``emissions`` from an instant on depend on."""
        return cls.load(warehouse, start_us - _longest_wait_us(warehouse.pipeline))

    def emissions(self, query: Query, slacks: SlackHistory, start_us: int, end_us: int) -> Emissions:
        """The query's answers with an instant of emission in [start, end).

        Under a regular row windows end at multiples of EVERY, or at the calendar's begins, and are answered K later;
        under a row of level C they are answered at the ends of the query's slots, and end K (whole ticks) before. A
        window is answered once.
        """
        # Whether a window was answered before the range began has to be known too.
        given = self._offered(query, slacks, start_us - _longest_wait_us(self.pipeline), end_us)
        earliest = np.lexsort((given.emit_us, given.window_end_us))
        ends_us = given.window_end_us[earliest]
        first = np.append(True, ends_us[1:] != ends_us[:-1])[: len(ends_us)]
        kept = earliest[first & (given.emit_us[earliest] >= start_us)]
        kept = kept[np.lexsort((given.window_end_us[kept], given.emit_us[kept]))]
        return Emissions(given.window_end_us[kept], given.emit_us[kept], given.row[kept])

    def early_ends_us(self, query: Query, slacks: SlackHistory, start_us: int, end_us: int) -> Int64s:
        """The ends in [start, end) of the windows that have an early answer: of those that are to be answered later.

        By the plan and the K in effect at the end. At level C nobody knows then which windows will be answered.
        """
        ends_us = window_ends_us(query, start_us, end_us)
        rows = self.query_rows[query.id]
        starts_us = np.array([row.effective_from_us for row in rows], dtype=np.int64)
        reign = np.maximum(np.searchsorted(starts_us, ends_us, side="left") - 1, 0)
        regular = np.array([row.period_s is None for row in rows] or [True])[reign]
        kept: Int64s = ends_us[regular & (slacks.slack_us(query, ends_us) > 0) & self._asked(query, ends_us)]
        return kept

    def _offered(self, query: Query, slacks: SlackHistory, start_us: int, end_us: int) -> Emissions:
        """Every instant in [start, end) at which a window is answered, or would be had it not been before."""
        rows = self.query_rows[query.id]
        longest_us = self.pipeline.final_after_us(query)
        starts_us = np.array([row.effective_from_us for row in rows], dtype=np.int64)
        # Answers of an instant come before its changes of plan, so a row reigns over (its instant, the next one's].
        until_us = np.append(starts_us[1:], NOT_YET_US)
        ends_us = window_ends_us(query, start_us - longest_us, end_us)
        emit_us = ends_us + query.lag_us + slacks.slack_us(query, ends_us)
        reign = np.maximum(np.searchsorted(starts_us, emit_us, side="left") - 1, 0)
        regular = np.array([row.period_s is None for row in rows] or [True])[reign]
        found = [(ends_us[regular], emit_us[regular], reign[regular])]
        for index, row in enumerate(rows):
            slots_us = []
            if row.period_s is not None and row.slot_end_us is not None:
                slots_us += _every(row.slot_end_us, round(row.period_s * 1e6), max(start_us, row.effective_from_us + 1),
                                   min(end_us, int(until_us[index]) + 1))  # fmt: skip
            extra_us = row.extra_answer_us
            if extra_us is not None and start_us <= extra_us < end_us and extra_us <= until_us[index]:
                slots_us.append(extra_us)
            at_us = np.array(slots_us, dtype=np.int64)
            # The K of just before: one that takes effect at the instant itself is not in the plan yet.
            waited_us = self._whole_ticks(slacks.slack_us(query, at_us - 1))
            found.append((at_us - waited_us, at_us, np.full(len(at_us), index)))
        ends, emits, reigns = (np.concatenate(columns) for columns in zip(*found, strict=True))
        kept = self._asked(query, ends) & (emits >= start_us) & (emits < end_us)
        return Emissions(ends[kept], emits[kept], reigns[kept])

    def active(self, query: Query, ends_us: Int64s) -> Int64s:
        """Those window ends at which the query is asked: within its DURATION, and after its streams began."""
        active_us: Int64s = ends_us[self._asked(query, ends_us)]
        return active_us

    def _asked(self, query: Query, ends_us: Int64s) -> np.ndarray:
        return asked(self.pipeline, query, ends_us, self.began_us)

    def held_from_us(self, stream: str, t_us: Int64s) -> Int64s:
        """Least event time that the stream's window holds for an answer at each instant.

        Windows let go at ticks, after the answers of the tick: an answer finds what the last tick before it left.
        """
        return self.bounds[stream].held_from_us(t_us, self.pipeline.tick_s * 1_000_000)

    def window_from_us(self, window: Window, t_us: Int64s) -> Int64s:
        """Least event time that a query's window holds at each instant: of a union what all its streams hold."""
        latest: Int64s = np.max([self.held_from_us(stream, t_us) for stream in window.streams], axis=0)
        return latest

    def lower_us(self, stream: str, t_us: Int64s) -> Int64s:
        """Least event time that the stream's window holds once the evictions of each instant are done."""
        return self.bounds[stream].lower_us(t_us)

    def support_level(self, query: Query, given: Emissions, held_from_us: Mapping[str, Int64s]) -> np.ndarray:
        """Level of each answer, by what was held: A whole ranges, B or C within the tolerated width, else unsupported.

        ``held_from_us``: stream → int64[n].
        """
        rows = self.query_rows[query.id]
        whole = np.ones(len(given.emit_us), dtype=bool)
        tolerable = whole.copy()
        ranges_s, ranges_us = query.ranges_s(), window_ranges_us(query, given.window_end_us)
        for window, stream in [(one, stream) for one in query.windows for stream in one.streams]:
            if not query.is_narrowed:
                reach_us = begins_before_us(window, ranges_us)
                whole &= held_from_us[stream] <= given.window_end_us - reach_us
                continue
            # What lets go beyond a window's end holds nothing of it, not less.
            held_s = np.maximum(given.window_end_us - held_from_us[stream], 0) / 1e6
            missing = [ranges_s[stream] - row.tolerable_s.get(stream, 0.0) for row in rows]
            range_s = ranges_us[window.alias] / 1e6
            # Of a calendar's ranges a plan knows the longest.
            slack_width_s = np.array(missing or [0.0])[given.row] * (range_s / window.range_s)
            whole &= held_s >= range_s - 1e-6
            tolerable &= held_s >= range_s - slack_width_s - 1e-6
        in_slots = np.array([row.period_s is not None for row in rows] or [False])[given.row]
        if not query.is_narrowed:
            return np.where(whole, "A", "unsupported").astype(object)
        below = np.where(tolerable, np.where(in_slots, "C", "B"), "unsupported")
        return np.where(whole, "A", below).astype(object)

    def levels(self, query: Query, given: Emissions) -> np.ndarray:
        """Level of each answer."""
        held_from_us = {stream: self.held_from_us(stream, given.emit_us) for stream in query.streams}
        return self.support_level(query, given, held_from_us)

    def _whole_ticks(self, us: Int64s) -> Int64s:
        tick_us = self.pipeline.tick_s * 1_000_000
        return -(-us // tick_us) * tick_us


def begins_before_us(window: Window, ranges_us: Mapping[str, Int64s]) -> Int64s:
    """How long before the ends of a query's windows one of them begins.

    ``ranges_us``: of those with a RANGE.
    """
    if window.bound is None:
        return ranges_us[window.alias]
    back_us: Int64s = ranges_us[window.bound.to] - round(window.bound.low_s * 1e6)
    return back_us


def _longest_wait_us(pipeline: Pipeline) -> int:
    """No window is answered later after its end: K is at most the horizon, in whole ticks one tick more."""
    lag_us = max((query.lag_us for query in pipeline.queries), default=0)
    return (pipeline.horizon_s + pipeline.tick_s) * 1_000_000 + lag_us


def asked(pipeline: Pipeline, query: Query, ends_us: Int64s, began_us: Mapping[str, int]) -> np.ndarray:
    """Whether the query is asked at each window end: within its DURATION, and after its streams began."""
    arrived = [began_us[s] for s in query.streams if s in began_us]
    if not arrived:
        return np.zeros(len(ends_us), dtype=bool)
    keep: np.ndarray = ends_us >= min(arrived) + pipeline.tick_s * 1_000_000
    if query.active_from is not None:
        keep &= ends_us >= to_us(query.active_from)
    if query.active_to is not None:
        keep &= ends_us < to_us(query.active_to)
    return keep


def _every(first_us: int, period_us: int, start_us: int, end_us: int) -> list[int]:
    """The instants first, first + period … in [start, end)."""
    begin = first_us + max(0, -(-(start_us - first_us) // period_us)) * period_us
    return list(range(begin, end_us, period_us))


def _plan_row(row: dict[str, Any]) -> PlanRow:
    own = {f.name: row[f.name] for f in fields(PlanRow) if f.name != "effective_from_us"}
    return PlanRow(effective_from_us=to_us(row["effective_from"]), **own)


def _query_row(row: dict[str, Any]) -> QueryPlanRow:
    return QueryPlanRow(
        query=row["query"],
        effective_from_us=to_us(row["effective_from"]),
        support_level=row["support_level"],
        tolerable_s=dict(row["tolerable_s"]),
        slot_end_us=None if row["slot_end"] is None else to_us(row["slot_end"]),
        period_s=row["period_s"],
        extra_answer_us=None if row["extra_answer"] is None else to_us(row["extra_answer"]),
    )
