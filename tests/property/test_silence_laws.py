"""The live controller on streams that fall silent, never begin, bring one tuple a day, or burst after a silence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from tidegate.declarations.models import Column, Output, Pipeline, Query, Stream, Window
from tidegate.operators.window_sizing import (
    UNBOUNDED_US,
    Advanced,
    Arrivals,
    ControllerSpec,
    ControllerState,
    advance_counts,
)

DAY_S, HOUR_S = 86_400, 3_600
START = datetime(2026, 1, 1, tzinfo=UTC)
START_US = int(START.timestamp()) * 1_000_000
TUPLE_BYTES = 60.0


def _stream(name: str, rate: float, max_width_s: int | None = None) -> Stream:
    return Stream(
        name=name,
        format="jsonl",
        path="x.jsonl",
        columns=(Column(name="id", type="string"), Column(name="at", type="timestamp")),
        id=("id",),
        event_time="at",
        arrival_time="at",
        rate=rate,
        max_early_s=0,
        max_late_s=DAY_S,
        max_width_s=max_width_s,
    )


def _query(name: str, ranges_s: dict[str, float], every_s: float, error: float | None, priority: int = 0) -> Query:
    windows = tuple(Window(alias=s, stream=s, range_s=r) for s, r in ranges_s.items())
    output = Output(name="n", expression="a0", type="integer")
    return Query(
        id=name, kind="aggregate", text="", description="", windows=windows, predicates={}, outputs=(output,),
        error=error, every_s=every_s, priority=priority,
    )  # fmt: skip


def _pipeline(streams: list[Stream], queries: list[Query], budget: int, tick_s: int, horizon_s: int) -> Pipeline:
    return Pipeline(
        name="p", folder=Path("p"), owner="o", start=START, interval_s=DAY_S, tick_s=tick_s, horizon_s=horizon_s,
        memory_budget_bytes=budget, process_budget_bytes=1 << 30, streams=tuple(streams), queries=tuple(queries),
    )  # fmt: skip


@dataclass(frozen=True)
class _Done:
    pipeline: Pipeline
    advanced: list[Advanced]

    @property
    def plans(self):
        return [row for one in self.advanced for row in one.plans]


def _run(pipeline: Pipeline, arrival_us: dict[str, np.ndarray], days: int) -> _Done:
    """A call a day, the state saved and loaded between; whatever numpy would only warn of is an error."""
    spec = ControllerSpec.from_pipeline(pipeline)
    state, done = ControllerState.initial(spec), []
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        for day in range(days):
            start, end = START_US + day * DAY_S * 1_000_000, START_US + (day + 1) * DAY_S * 1_000_000
            arrivals = {
                name: Arrivals.of(own, own, TUPLE_BYTES, spec.tick_us)
                for name, at in arrival_us.items()
                if len(own := at[(at >= start) & (at < end)])
            }
            state = ControllerState.from_arrow(state.to_arrow(), spec)
            done.append(advance_counts(spec, state, start, end, arrivals))
            _check_bounds(pipeline, state, done[-1], start, end)
            state = done[-1].state
    return _Done(pipeline, done)


def _check_bounds(pipeline: Pipeline, before: ControllerState, done: Advanced, start_us: int, end_us: int) -> None:
    """What the stages make of the plans: bounds that never fall, and an instant at which every tuple leaves."""
    tick_us = pipeline.tick_s * 1_000_000
    ticks = np.arange(start_us, end_us, tick_us)
    for stream in pipeline.streams:
        bounds = before.bounds(stream.name, done.plans, end_us)
        lower, held = bounds.lower_us(ticks), bounds.held_from_us(ticks, tick_us)
        assert (np.diff(lower) >= 0).all() and (lower <= ticks).all() and (lower >= UNBOUNDED_US).all()
        assert (held >= UNBOUNDED_US).all() and (held <= ticks).all()
        assert (bounds.leave_tick_us(ticks, tick_us) >= start_us).all()


def _check(done: _Done) -> None:
    pipeline = done.pipeline
    for row in done.plans:
        most = max(pipeline.max_width_s(row.stream), row.max_width_s)
        assert 0 <= row.width_s <= most and np.isfinite([row.byte_rate, row.planned_bytes]).all(), row
        assert row.width_s >= row.min_width_s or row.support_level in ("C", "infeasible") or row.trigger == "eviction"
    held: dict[int, int] = {}
    for row in (row for one in done.advanced for row in one.rates):
        held[row.tick_us] = held.get(row.tick_us, 0) + row.held_bytes
    assert max(held.values()) <= pipeline.memory_budget_bytes


@pytest.mark.parametrize("days", [1, 40])
def test_a_stream_that_falls_silent_is_not_planned_wider_than_anyone_can_use(days):
    """A day without a tuple takes 24 half-lives of the rate; the memory that is left would pay for 10^15 s."""
    query = _query("revenue", {"orders": 1800.0}, 60.0, 0.05)
    pipeline = _pipeline([_stream("orders", 5.0)], [query], 2 << 20, 60, 2 * HOUR_S)
    at = START_US + np.arange(0, HOUR_S * 1_000_000, 200_000)
    done = _run(pipeline, {"orders": at}, days)
    _check(done)
    assert pipeline.max_width_s("orders") == 1800 + 2 * HOUR_S
    assert done.plans[-1].width_s == 1800 + 2 * HOUR_S and done.plans[-1].support_level == "A"


def test_a_declared_greatest_width_goes_before_the_default():
    query = _query("revenue", {"orders": 1800.0}, 60.0, None)
    declared = _stream("orders", 5.0, max_width_s=HOUR_S)
    pipeline = _pipeline([declared, _stream("unread", 1.0)], [query], 2 << 20, 60, 2 * HOUR_S)
    assert (pipeline.max_width_s("orders"), pipeline.max_width_s("unread")) == (HOUR_S, 2 * HOUR_S)
    done = _run(pipeline, {"orders": START_US + np.arange(0, HOUR_S * 1_000_000, 200_000)}, 2)
    assert {row.stream: row.width_s for row in done.plans} == {"orders": HOUR_S, "unread": 0.0}


@pytest.mark.parametrize("seed", range(12))
def test_silence_trickles_and_bursts_keep_the_budget_and_finite_widths(seed):
    rng = np.random.default_rng(seed)
    tick_s, days = int(rng.choice([300, 600, 3600])), int(rng.integers(2, 9))
    rates = [float(rng.choice([1e-24, 1 / DAY_S, 0.01, 0.5, 1e9])) for _ in range(int(rng.integers(1, 4)))]
    streams = [
        _stream(f"s{i}", rate, int(rng.choice([1, 100])) * HOUR_S if rng.random() < 0.2 else None)
        for i, rate in enumerate(rates)
    ]
    queries = []
    for i in range(int(rng.integers(1, 6))):
        read = rng.choice(len(streams), size=1 + int(rng.random() < 0.3 and len(streams) > 1), replace=False)
        ranges = {f"s{r}": float(tick_s * rng.integers(1, 300)) for r in read}
        error = [None, 0.05, 0.5][int(rng.integers(0, 3))]
        queries.append(_query(f"q{i}", ranges, float(tick_s * rng.integers(1, 30)), error, int(rng.integers(0, 3))))
    pipeline = _pipeline(streams, queries, int(10 ** rng.uniform(2.5, 7)), tick_s, HOUR_S * int(rng.integers(1, 30)))
    arrival_us = {stream.name: _arrivals(rng, days) for stream in streams}
    _check(_run(pipeline, arrival_us, days))


def _arrivals(rng: np.random.Generator, days: int) -> np.ndarray:
    """Hour by hour nothing, a trickle, or a burst of a hundred times as much; or one tuple a day; or none at all."""
    kind = rng.random()
    if kind < 0.15:
        return np.empty(0, np.int64)
    hours = np.arange(24 * days)
    if kind < 0.35:
        counts = (hours % 24 == int(rng.integers(0, 24))).astype(np.int64)
    else:
        counts = rng.poisson(rng.choice([0.0, 0.0, 0.2, 5.0, 500.0], len(hours) // 8 + 1).repeat(8)[: len(hours)])
    at = START_US + (np.repeat(hours, counts) * HOUR_S * 1_000_000) + rng.integers(0, HOUR_S * 1_000_000, counts.sum())
    return np.sort(at)
