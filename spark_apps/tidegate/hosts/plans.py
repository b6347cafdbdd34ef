"""What every window really holds at any instant, from the effective-dated rows of ``window_plan``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, Query, to_us
from tidegate.hosts.intervals import interval_holding, interval_labelled
from tidegate.hosts.planner import STATE
from tidegate.hosts.warehouse import Warehouse
from tidegate.operators.schedule import Int64s
from tidegate.operators.window_sizing.bounds import EffectiveBounds


@dataclass(frozen=True)
class PlanHistory:
    """Plans and effective bounds of a pipeline's streams from some instant on.

    ``bounds``: stream → effective bounds; ``levels``: instants of plans and the level of support from each on;
    ``first_arrival_us``: stream → start of the tick in which its first tuple arrived, None if none has.
    """

    pipeline: Pipeline
    bounds: Mapping[str, EffectiveBounds]
    levels: tuple[Int64s, np.ndarray]
    first_arrivals_us: Mapping[str, int | None]

    @classmethod
    def load(cls, warehouse: Warehouse, from_us: int) -> PlanHistory:
        """The plans in effect at ``from_us`` and all later ones; UserError if nothing has been ingested."""
        pipeline = warehouse.pipeline
        labels = warehouse.labels("window_plan")
        if not labels:
            raise UserError(f"pipeline {pipeline.name} has no window plans yet: run the stage ingest first")
        first = interval_holding(pipeline, from_us).label
        before = [label for label in labels if label < first]
        known = [*before[-1:], *(label for label in labels if label >= first)]
        # The state at the end of an interval names the width and the bound then: earlier plans need not be read.
        origin = before[-1] if before else None
        saved = None if origin is None else warehouse.read_state(STATE, origin)
        start = {} if saved is None else {row["stream"]: row for row in saved.to_pylist()}
        newest = warehouse.read_state(STATE, labels[-1])
        arrivals = {} if newest is None else {row["stream"]: row["first_arrival_us"] for row in newest.to_pylist()}
        rows = warehouse.read_arrow("window_plan", known if saved is None else known[1:]).to_pylist()
        until_us = interval_labelled(pipeline, labels[-1]).end_us
        bounds, levels = {}, {}
        for stream in pipeline.streams:
            own = [row for row in rows if row["stream"] == stream.name]
            at_us = [to_us(row["effective_from"]) for row in own]
            width_us = [round(row["width_s"] * 1e6) for row in own]
            lower_us = None
            if stream.name in start:
                row = start[stream.name]
                at_us.insert(0, row["tick_us"])
                width_us.insert(0, round(row["width_s"] * 1e6))
                lower_us = row["lower_us"]
                levels[row["tick_us"]] = row["support_level"]
            levels |= {to_us(row["effective_from"]): row["support_level"] for row in own}
            bounds[stream.name] = EffectiveBounds.of(at_us, width_us, lower_us, until_us)
        instants = sorted(levels)
        return cls(
            pipeline,
            bounds,
            (np.array(instants, dtype=np.int64), np.array([levels[i] for i in instants], dtype=object)),
            arrivals,
        )

    def lower_us(self, stream: str, t_us: Int64s) -> Int64s:
        """Least event time that the stream's window holds at each instant."""
        return self.bounds[stream].lower_us(t_us)

    def leave_tick_us(self, stream: str, event_us: Int64s) -> Int64s:
        """First tick at which a tuple has left the stream's window, `NOT_YET_US` within the known plans if none."""
        return self.bounds[stream].leave_tick_us(event_us, self.pipeline.tick_s * 1_000_000)

    def support_level(self, query: Query, t_us: Int64s) -> np.ndarray:
        """Level of support in effect at each instant."""
        at_us, names = self.levels
        return names[np.maximum(np.searchsorted(at_us, t_us, side="right") - 1, 0)]

    def first_tick_us(self, query: Query) -> int | None:
        """The first tick after the first arrival on any stream that the query reads; None if nothing has arrived."""
        arrived = [us for us in (self.first_arrivals_us.get(s) for s in query.streams) if us is not None]
        return min(arrived) + self.pipeline.tick_s * 1_000_000 if arrived else None
