"""f_q on Spark: the errors and the plan that a tiny pipeline writes are those of plain loops over its tuples."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline, Query, to_us
from tidegate.engine.context import RunContext
from tidegate.operators.accuracy import oracle
from tidegate.operators.schedule import ticks_between
from tidegate.stages.calibrate_widths import learn_widths
from tidegate.store.intervals import Interval, intervals_between

START, END = datetime(2024, 3, 1, tzinfo=UTC), datetime(2024, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
K = 10 * MINUTE
HORIZON = timedelta(hours=1)
# Range and tick in minutes; 12 widths are tried, one a tick.
TICKS, TICK = 12, 5 * MINUTE
PIPELINE = """\
name: phones
owner: operations
start: 2024-03-01T00:00:00Z
interval: 1 hour
tick: 5 minutes
horizon: 1 hour
memory_budget: 1 MiB
process_budget: 2 GiB
streams:
""" + "".join(
    f"""\
  {name}:
    format: jsonl
    path: {name}.jsonl
    columns: {{id: string, at: timestamp, came: timestamp, kind: string, cost: double}}
    id: id
    event_time: at
    arrival_time: came
    rate: 1 per minute
"""
    for name in ("calls", "alarms")
)
QUERIES = {
    "by_kind": "SELECT kind, COUNT(*) AS n, AVG(cost) AS mean FROM calls [60 MINUTES] GROUP BY kind "
    "ERROR 80% EVERY 5 MINUTES",
    "alarming": "SELECT COUNT(*) AS pairs, MAX(c.cost) AS top FROM calls [30 MINUTES] AS c, alarms [60 MINUTES] AS a "
    "WHERE c.kind = a.kind HAVING COUNT(*) > 3 ERROR 45% EVERY 10 MINUTES",
    "unpromised": "SELECT COUNT(*) AS n FROM alarms [60 MINUTES] EVERY 10 MINUTES",
}
Tuple = tuple[datetime, datetime, str, float]


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    folder = tmp_path_factory.mktemp("declared") / "phones"
    (folder / "queries").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(PIPELINE)
    for name, text in QUERIES.items():
        (folder / "queries" / f"{name}.sql").write_text(text)
    return load_pipeline(folder)


@pytest.fixture(scope="module")
def tuples() -> dict[str, list[Tuple]]:
    """Twelve hours of calls and alarms, at whole minutes; one in five is up to forty minutes late."""
    rng = np.random.default_rng(5)
    streams = {}
    for name, count in (("calls", 900), ("alarms", 150)):
        event = rng.integers(0, 720, count)
        late = np.where(rng.random(count) < 0.2, rng.integers(1, 40, count), 0)
        kinds, costs = rng.choice(["home", "away"], count, p=[0.8, 0.2]), rng.gamma(2, 10, count).round(2)
        streams[name] = [
            (START + int(e) * MINUTE, START + int(e + lag) * MINUTE, str(kind), float(cost))
            for e, lag, kind, cost in zip(event, late, kinds, costs, strict=True)
            if e + lag < 720
        ]
    return streams


def write_events(context: RunContext, intervals: Sequence[Interval], streams: dict[str, list[Tuple]]) -> None:
    with context.warehouse.commit("ingest", intervals) as commit:
        for name, rows in streams.items():
            schema = context.warehouse.schema(f"events_{name}")
            for interval in intervals:
                own = [
                    {"event_id": f"{name}{i}", "event_time": at, "arrival_time": came, "kind": kind, "cost": cost}
                    | {"id": f"{name}{i}", "at": at, "came": came}
                    for i, (at, came, kind, cost) in enumerate(rows)
                    if interval.start <= came < interval.end
                ]
                commit.put_arrow(f"events_{name}", interval, pa.Table.from_pylist(own, schema=schema))


def calibrate(context: RunContext, intervals: Sequence[Interval]) -> None:
    """Give the stage what it is given by `calibrate`: the windows that became final, and their slacks."""
    ends_us, slack_us = {}, {}
    for query in context.pipeline.queries:
        since, until = (to_us(at - HORIZON) for at in (intervals[0].start, intervals[-1].end))
        ends = ticks_between(since, until, round(query.every_s * 1e6))
        ends_us[query.id] = ends[ends > to_us(START)]
        slack_us[query.id] = np.full(len(ends_us[query.id]), K // timedelta(microseconds=1))
    with context.stage("calibrate_learn", intervals) as stage:
        learn_widths(context, stage, intervals, ends_us, slack_us)


@pytest.fixture(scope="module")
def run(pipeline: Pipeline, tuples: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Writes the tables in passes over so many intervals each."""

    def in_passes(*lengths: int) -> RunContext:
        context = RunContext(pipeline, tmp_path_factory.mktemp("warehouse"), output=io.StringIO())
        context.warehouse.folder.mkdir(parents=True, exist_ok=True)
        intervals = intervals_between(pipeline, START, END)
        assert sum(lengths) == len(intervals)
        write_events(context, intervals, tuples)
        for length in lengths:
            calibrate(context, intervals[:length])
            intervals = intervals[length:]
        return context

    return in_passes


@pytest.fixture(scope="module")
def at_once(run: Any) -> RunContext:
    return run(12)


def rows_of(context: RunContext, table: str) -> list[dict[str, Any]]:
    return context.warehouse.read_arrow(table).to_pylist()


def held(rows: list[Tuple], end: datetime, width: timedelta, emitted: datetime) -> list[Tuple]:
    return [t for t in rows if end - width <= t[0] < end and t[1] <= emitted]


def whole(estimate: float) -> int:
    """An estimate of a count as it is emitted."""
    return math.floor(estimate + 0.5)


def answer(query: str, streams: dict[str, list[Tuple]], end: datetime, ticks: int, emitted: datetime) -> list[dict]:
    """The answer for the window that ends at ``end`` over ticks/12 of the ranges, by definition."""
    if query == "by_kind":
        calls = held(streams["calls"], end, ticks * TICK, emitted)
        return [
            {
                "window_end": end,
                "kind": kind,
                "n": whole(sum(t[2] == kind for t in calls) / (ticks / TICKS)),
                "mean": float(np.mean([t[3] for t in calls if t[2] == kind])),
            }
            for kind in {t[2] for t in calls}
        ]
    half = math.ceil(ticks / 2)  # of the shorter range, rounded up to the tick
    calls, alarms = (
        held(streams["calls"], end, half * TICK, emitted),
        held(streams["alarms"], end, ticks * TICK, emitted),
    )
    costs = [c[3] for c in calls for a in alarms if c[2] == a[2]]
    pairs = whole(len(costs) / (half / (TICKS / 2) * ticks / TICKS))
    return [{"window_end": end, "pairs": pairs, "top": max(costs)}] if pairs > 3 else []


def expected_errors(query: Query, streams: dict[str, list[Tuple]]) -> dict[tuple[datetime, float], float]:
    # Windows share at most half their range: one in five of by_kind's is sampled, one in three of alarming's.
    step, end, errors = 25 * MINUTE if query.id == "by_kind" else 30 * MINUTE, START, {}
    groups, values = (["kind"], ["n", "mean"]) if query.id == "by_kind" else ([], ["pairs", "top"])
    while end < END - HORIZON:
        if end > START and (end - datetime(1970, 1, 1, tzinfo=UTC)) % step == timedelta(0):
            truth = answer(query.id, streams, end, TICKS, end + HORIZON)
            for ticks in range(1, TICKS + 1):
                narrow = answer(query.id, streams, end, ticks, end + K)
                errors[end, ticks / TICKS] = oracle.relative_error(narrow, truth, [end], groups, values)[0]
        end += MINUTE
    return errors


def test_errors_are_those_of_plain_loops_over_the_tuples(at_once: RunContext, tuples: Any) -> None:
    for name in ("by_kind", "alarming"):
        written = {
            (row["window_end"], row["share"]): row["error"]
            for row in rows_of(at_once, "width_errors")
            if row["query"] == name
        }
        expected = expected_errors(at_once.pipeline.query(name), tuples)
        assert written.keys() == expected.keys()
        assert len({end for end, _ in written}) >= 20
        np.testing.assert_allclose([written[key] for key in expected], list(expected.values()), rtol=1e-9, atol=1e-12)


def test_the_plan_is_the_narrowest_width_whose_19_windows_in_20_keep_the_error(at_once: RunContext) -> None:
    pipeline = at_once.pipeline
    evidence, plans = rows_of(at_once, "width_errors"), rows_of(at_once, "error_width_plan")
    assert {row["query"] for row in plans} == {"by_kind", "alarming"}
    learnt = 0
    for plan in plans:
        query = pipeline.query(plan["query"])
        own = [r for r in evidence if r["query"] == query.id and r["window_end"] + HORIZON < plan["effective_from"]]
        by_share = {ticks: [r["error"] for r in own if r["share"] == ticks / TICKS] for ticks in range(1, TICKS + 1)}
        windows = len(by_share[TICKS])
        if windows < 19:
            tolerated = query.ranges_s()[plan["stream"]] * query.error
            assert plan["slack_width_s"] == tolerated // 300 * 300
            assert plan["coverage"] is None
            continue
        within = {ticks: sum(error <= query.error for error in errors) for ticks, errors in by_share.items()}
        ticks, enough = TICKS, math.ceil(0.95 * (windows + 1))
        while ticks > 1 and within[ticks] >= enough and within[ticks - 1] >= enough:
            ticks -= 1
        widths_s = {
            "calls": ticks * 300 if query.id == "by_kind" else math.ceil(ticks / 2) * 300,
            "alarms": ticks * 300,
        }
        assert plan["slack_width_s"] == query.ranges_s()[plan["stream"]] - widths_s[plan["stream"]]
        assert plan["coverage"] == pytest.approx(within[ticks] / windows)
        learnt += plan["slack_width_s"] > 0
    assert learnt > 0


def test_one_pass_over_all_intervals_writes_what_many_passes_write(at_once: RunContext, run: Any) -> None:
    cut = run(1, 9, 2)
    for table in ("width_errors", "error_width_plan"):
        assert cut.warehouse.labels(table) == at_once.warehouse.labels(table)
        assert rows_of(cut, table) == rows_of(at_once, table)
