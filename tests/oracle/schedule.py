"""Which windows must have been answered, when, and how much of each was held: plain Python from the plans.

Written to be believed at sight, one instant after the other; it shares no code with the applications.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import duckdb

from tidegate.declarations.models import EPOCH, Pipeline, Query


@dataclass(frozen=True)
class ExpectedWindow:
    """One window that must have been answered."""

    window_end: datetime
    emitted_at: datetime
    slack_s: float
    lower: dict[str, datetime]  # alias → start of what was held, inclusive
    width_s: dict[str, float]  # alias → seconds held
    coverage: float
    support_level: str


def connect() -> duckdb.DuckDBPyConnection:
    """A DuckDB that thinks in UTC."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def parquet(folder: Path, table: str) -> str:
    """The rows of all partitions of a table, as a FROM item; an error if it has none."""
    pattern = f"{folder}/{table}/*/*.parquet"
    return f"read_parquet('{pattern}', hive_partitioning = false)"


def rows(folder: Path, sql: str, table: str) -> list[tuple]:
    """The rows of ``SELECT … FROM {t} …`` over a table's partitions; none if it has no partitions."""
    if not any(folder.glob(f"{table}/*/*.parquet")):
        return []
    return connect().execute(sql.format(t=parquet(folder, table))).fetchall()


def multiples(step_s: float, start: datetime, end: datetime) -> Iterator[datetime]:
    """The multiples of a step since 1970 in [start, end)."""
    step = timedelta(seconds=step_s)
    instant = EPOCH + -((EPOCH - start) // step) * step
    while instant < end:
        yield instant
        instant += step


def in_effect(plan: list[tuple], instant: datetime) -> tuple | None:
    """The newest of the rows (effective_from, …) that took effect at or before an instant."""
    newest = None
    for row in plan:
        if row[0] <= instant:
            newest = row
    return newest


def first_tick(pipeline: Pipeline, query: Query, folder: Path) -> datetime | None:
    """The first tick of EVERY after the first arrival on a stream that the query reads."""
    arrivals = [rows(folder, "SELECT min(arrival_time) FROM {t}", f"events_{name}") for name in query.streams]
    instants = [found[0][0] for found in arrivals if found and found[0][0] is not None]
    if not instants:
        return None
    after = min(instants) + timedelta(microseconds=1)
    return next(multiples(query.every_s, after, after + timedelta(seconds=query.every_s + 1)))


def lower_bounds(pipeline: Pipeline, stream: str, folder: Path, start: datetime, end: datetime) -> dict:
    """Tick → (lower bound of what the stream's window holds, level of support), tick by tick.

    A window never gets back what it let go, so the bound never moves back. When a plan gives way to another, its width
    held until that very instant. Before the first plan its width counts as having been in effect.
    """
    plan = rows(
        folder,
        f"SELECT effective_from, width_s, support_level FROM {{t}} WHERE stream = '{stream}' ORDER BY effective_from",
        "window_plan",
    )
    bounds: dict[datetime, tuple[datetime | None, str]] = {}
    if not plan:
        return {tick: (None, "A") for tick in multiples(pipeline.tick_s, start, end)}
    held_from: datetime | None = None
    before = plan[0]
    for tick in multiples(pipeline.tick_s, min(start, plan[0][0]), end):
        now = in_effect(plan, tick) or plan[0]
        for row in (before, now):
            wanted = tick - timedelta(seconds=row[1])
            held_from = wanted if held_from is None else max(held_from, wanted)
        bounds[tick] = (held_from, now[2])
        before = now
    return bounds


def worst(levels: list[str]) -> str:
    """The worst of several levels of support."""
    return max(levels, key=["A", "B", "C", "infeasible"].index)


def expected_windows(
    pipeline: Pipeline, query: Query, folder: Path, start: datetime, end: datetime
) -> list[ExpectedWindow]:
    """The windows of a query that must have been answered at an instant in [start, end), by window end."""
    first = first_tick(pipeline, query, folder)
    if first is None:
        return []
    slacks = rows(
        folder,
        f"SELECT effective_from, slack_s FROM {{t}} WHERE query = '{query.id}' ORDER BY effective_from",
        "slack_plan",
    )
    bounds = {name: lower_bounds(pipeline, name, folder, first, end) for name in query.streams}
    expected = []
    for tick in multiples(query.every_s, first, end):
        if query.active_from is not None and tick < query.active_from:
            continue
        if query.active_to is not None and tick >= query.active_to:
            continue
        row = in_effect(slacks, tick)
        # A query that promises nothing waits for nothing.
        initial_s = float(pipeline.initial_slack_s) if query.promised is not None else 0.0
        slack_s = row[1] if row is not None else initial_s
        emitted_at = tick + timedelta(seconds=slack_s)
        if not start <= emitted_at < end:
            continue
        lower, width_s, coverage = {}, {}, 1.0
        for window in query.windows:
            whole = tick - timedelta(seconds=window.range_s)
            held_from = bounds[window.stream][tick][0]
            lower[window.alias] = whole if held_from is None else max(whole, held_from)
            width_s[window.alias] = (tick - lower[window.alias]).total_seconds()
            coverage *= width_s[window.alias] / window.range_s
        level = worst([bounds[name][tick][1] for name in query.streams])
        expected.append(ExpectedWindow(tick, emitted_at, slack_s, lower, width_s, coverage, level))
    return expected


def final_windows(pipeline: Pipeline, query: Query, folder: Path, start: datetime, end: datetime) -> list[datetime]:
    """The window ends whose truth must have become known in [start, end)."""
    first = first_tick(pipeline, query, folder)
    if first is None:
        return []
    horizon = timedelta(seconds=pipeline.horizon_s)
    return [
        tick
        for tick in multiples(query.every_s, first, end)
        if start <= tick + horizon < end
        and (query.active_from is None or tick >= query.active_from)
        and (query.active_to is None or tick < query.active_to)
    ]
