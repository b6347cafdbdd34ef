"""However answers are cut into slices, and whoever runs them: the same rows, byte for byte."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.live_files import put_rows

from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, Query
from tidegate.engine import Slice, run, run_as_tasks
from tidegate.engine.context import RunContext
from tidegate.operators.schedule import Schedule
from tidegate.queries.answers import Windows, sort_columns
from tidegate.queries.keys import Given, answered_by_keys, key_parts
from tidegate.queries.slices import Answers, Staged, cuts, in_order, question, write
from tidegate.stages.calibrate import Learning, _narrowed, _on_grid, learnt
from tidegate.stages.calibrate_widths import _measured, _shares, over_shares
from tidegate.store.intervals import Interval, intervals_between, labels_holding

START_US, HOUR_US, MINUTE_US = 1_767_225_600_000_000, 3_600_000_000, 60_000_000
STREAM = """
    format: jsonl
    path: /nowhere/%Y-%m-%dT%H.jsonl
    columns: {id: string, happened: timestamp, came: timestamp, k: string, n: integer, v: double}
    id: id
    event_time: happened
    arrival_time: came
    rate: 1 per second
    max_late: 30 minutes
"""
PIPELINE = f"""
name: cut
owner: tests
start: 2026-01-01T00:00:00Z
interval: 1 hour
tick: 1 minute
horizon: 1 hour
memory_budget: 64 MiB
process_budget: 2 GiB
streams:
  a:{STREAM}
  b:{STREAM}
"""
QUERIES = {
    "plain": "SELECT COUNT(*) AS c, SUM(v) AS s, MAX(k) AS m FROM a [10 MINUTES] WHERE UPPER(k) <> 'C' EVERY 1 MINUTE",
    "grouped": "SELECT k, AVG(v) / 3 AS third, SUM(n * n) AS squares FROM a [10 MINUTES] GROUP BY k"
    " HAVING COUNT(*) > 2 ERROR 20% EVERY 1 MINUTE",
    "joined": "SELECT x.k, COUNT(*) AS c, SUM(y.v) AS s FROM a [5 MINUTES] AS x, b [8 MINUTES] AS y"
    " WHERE x.k = y.k GROUP BY x.k EVERY 2 MINUTES",
    "by_number": "SELECT COUNT(*) AS c, MIN(x.v) AS least, MAX(y.v) AS most, AVG(y.n) AS mean FROM a [5 MINUTES] AS x,"
    " a [8 MINUTES] AS y WHERE x.n = y.n EVERY 2 MINUTES",
    "best": "SELECT k, v, ROUND(v, 1) AS near FROM a [10 MINUTES] ORDER BY v DESC LIMIT 3 ACCURACY 90% EVERY 1 MINUTE",
}


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    """A pipeline whose three hours of tuples are in its warehouse."""
    folder = tmp_path / "cut"
    (folder / "queries").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(PIPELINE)
    for name, sql in QUERIES.items():
        (folder / "queries" / f"{name}.sql").write_text(sql)
    context = RunContext(load_pipeline(folder), tmp_path / "warehouse", here=True)
    for seed, stream in enumerate(context.pipeline.streams):
        tuples = events(context, stream.name, seed)
        labels = np.array(labels_holding(context.pipeline, tuples.column("arrival_time").cast(pa.int64()).to_numpy()))
        for label in np.unique(labels).tolist():
            own = {label: tuples.filter(pa.array(labels == label))}
            put_rows(context.warehouse_root, context.pipeline, f"events_{stream.name}", own, stage=stream.name)
    return context


def events(context: RunContext, stream: str, seed: int) -> pa.Table:
    random, number = np.random.default_rng(seed), 4000
    event_us = START_US + random.integers(0, 3 * HOUR_US, number)
    arrival_us = event_us + random.exponential(2 * MINUTE_US, number).astype(np.int64)
    order = np.argsort(arrival_us, kind="stable")
    at = {"event_time": event_us[order], "arrival_time": arrival_us[order]}
    columns = {name: pa.array(us).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")) for name, us in at.items()}
    values = np.where(random.random(number) < 0.05, np.nan, random.normal(0, 100, number))
    columns |= {
        "event_id": pa.array([f"{stream}{i}" for i in range(number)]),
        "k": pa.array(random.choice(["a", "b", "c", "ä"], number)),
        "n": pa.array(random.integers(0, 2**40, number)),
        "v": pa.array(np.where(np.isnan(values), 0.0, values), mask=np.isnan(values)),
    }
    columns |= {"id": columns["event_id"], "happened": columns["event_time"], "came": columns["arrival_time"]}
    wanted = context.warehouse.schema(f"events_{stream}")
    return pa.table([columns[name] for name in wanted.names], schema=wanted)


def intervals(context: RunContext) -> list[Interval]:
    return intervals_between(context.pipeline, context.pipeline.start, datetime(2026, 1, 1, 3, tzinfo=UTC))


def windows_of_query(query: Query) -> Windows:
    ends = np.arange(START_US + 12 * MINUTE_US, START_US + 170 * MINUTE_US, round(query.every_s * 1e6))
    ranges = {w.alias: round(w.range_s * 1e6) for w in query.windows}
    schedule = Schedule.from_ticks(ends, 3 * MINUTE_US, ranges)
    levels = np.full(len(ends), "A", dtype=object)
    widths = {alias: np.full(len(ends), us / 1e6) for alias, us in ranges.items()}
    waits = np.full(len(ends), 3 * MINUTE_US)
    expected = np.full(len(ends), 0.9)
    starts = ends - max(ranges.values())
    return Windows(schedule, np.full(len(ends), 0.5), widths, widths, levels, waits, expected, starts)


def answered(
    context: RunContext, query: Query, slices: int, spark: SparkSession | None = None, keys: int = 1
) -> list[pa.Table]:
    """The answers' rows of each interval, as they would be committed."""
    windows = windows_of_query(query)
    about, table = windows.as_arrow(context.pipeline), f"answers_{query.id}"
    whole = question(context, query, windows.schedule, windows.coverage)
    every = Answers(whole, about, {}, context.warehouse.schema(table), sort_columns(query))
    with context.stage("tests", intervals(context)) as stage:
        commit = stage.commit
        staged, parts = Staged(commit, table, intervals(context)), []
        (given,) = answered_by_keys(context, stage, [(whole, keys)])
        assert len(given.files) == (keys if keys > 1 else 0)
        every = replace(every, partials=given.files)
        for number, rows in enumerate(np.array_split(np.arange(len(windows.schedule)), slices)):
            labels = about.column("interval").slice(rows[0], len(rows)).to_pylist()
            parts.append(Slice(number, every.windows(rows[0], rows[-1] + 1, staged.files(number, labels))))
        written = run(parts, write) if spark is None else run_as_tasks(parts, write, spark).results
        staged.settle([one.rows for one in written])
        tables = [
            pa.concat_tables([pq.read_table(file, partitioning=None) for file in commit.written(table, label)])
            for label in staged.folders
        ]
    assert all(one.peak_state_bytes > 0 for one in written) or given.peak_state_bytes > 0
    return tables


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("slices", [2, 7])
def test_answers_are_the_same_in_any_number_of_slices(context, name, slices):
    query = context.pipeline.query(name)
    one = answered(context, query, 1)
    assert sum(table.num_rows for table in one) > 50
    assert [a.equals(b) for a, b in zip(one, answered(context, query, slices), strict=True)] == [True] * 3


@pytest.mark.parametrize("name", ["plain", "grouped", "joined", "by_number"])
@pytest.mark.parametrize("parts", [2, 7])
def test_answers_are_the_same_in_any_number_of_parts_by_keys(context, name, parts, monkeypatch):
    query = context.pipeline.query(name)
    monkeypatch.setattr("tidegate.queries.questions._ROWS_AT_ONCE", 10)
    one, cut = answered(context, query, 1), answered(context, query, 1, keys=parts)
    assert sum(table.num_rows for table in one) > 50
    assert [a.equals(b) for a, b in zip(one, cut, strict=True)] == [True] * 3


def test_truth_is_the_same_in_any_number_of_parts_by_keys(context, tmp_path):
    query, ends = context.pipeline.query("joined"), np.arange(START_US + 12 * MINUTE_US, START_US + HOUR_US, MINUTE_US)
    grid_s = np.array([3600.0])
    true = question(context, query, _on_grid(query, ends, grid_s), looking_back=True)
    needed = context.warehouse.schema("needed_slack").append(pa.field("interval", pa.string()))
    shape, found = context.warehouse.schema("truth_joined"), []
    with context.stage("tests", intervals(context)) as stage:
        assert true.waited_us == HOUR_US
        for number, (given,) in enumerate(([Given()], answered_by_keys(context, stage, [(true, 3)]))):
            files = {
                label: str(tmp_path / f"{number}-{label}")
                for label in set(labels_holding(context.pipeline, ends + HOUR_US))
            }
            part = Learning(context.pipeline, true, None, None, ends, grid_s, files, shape, needed, given.files)
            counts = learnt(Slice(0, part)).rows
            found.append([pq.read_table(files[label], partitioning=None) for label in sorted(counts)])
    assert found[0] == found[1] and sum(table.num_rows for table in found[0]) > 50


def test_keys_are_cut_where_windows_reach_back_too_far_to_cut_time(context, monkeypatch):
    monkeypatch.setattr("tidegate.queries.slices.ROWS_OF_A_SLICE", 10)
    found = {}
    for name in ("joined", "best"):
        query, windows = context.pipeline.query(name), windows_of_query(context.pipeline.query(name))
        for late in (False, True):
            schedule = windows.schedule
            if late:  # they wait as long as the windows' ends are apart
                schedule = replace(schedule, emit_us=schedule.emit_us + 150 * MINUTE_US)
            found[name, late] = key_parts(question(context, query, schedule), len(schedule), 7)
    assert found == {("joined", False): 1, ("joined", True): 7, ("best", False): 1, ("best", True): 1}


@pytest.mark.spark
def test_answers_are_the_same_from_tasks_of_spark(spark, context):
    for query in context.pipeline.queries:
        here = answered(context, query, 1)
        assert [a.equals(b) for a, b in zip(here, answered(context, query, 7, spark), strict=True)] == [True] * 3


@pytest.mark.parametrize("slices", [2, 7])
def test_what_is_learnt_is_the_same_in_any_number_of_slices(context, slices, tmp_path):
    pipeline: Pipeline = context.pipeline
    ends = np.arange(START_US + 12 * MINUTE_US, START_US + 130 * MINUTE_US, MINUTE_US)
    for name, grid_s in (("best", [3600.0]), ("grouped", [0.0, 60.0, 300.0, 3600.0])):
        query, found = pipeline.query(name), {}
        for number in (1, slices):
            needed, truth = [], []
            for index, own in enumerate(np.array_split(ends, number)):
                final = sorted(set(labels_holding(pipeline, own + HOUR_US)))
                files = {label: str(tmp_path / f"{name}-{number}-{label}-{index}.parquet") for label in final}
                grid = np.array(grid_s)
                true = question(context, query, _on_grid(query, own, grid[-1:]))
                asked = question(context, query, _on_grid(query, own, grid)) if query.error is not None else None
                schema = context.warehouse.schema("needed_slack").append(pa.field("interval", pa.string()))
                shape = context.warehouse.schema(f"truth_{name}")
                part = Learning(pipeline, true, asked, _narrowed(context, query, own), own, grid, files, shape, schema)
                result = learnt(Slice(index, part))
                needed.append(result.needed)
                truth += [pq.read_table(files[label], partitioning=None) for label in result.rows]
            found[number] = pa.concat_tables(needed), pa.concat_tables(truth).sort_by("window_end")
        assert all(a.equals(b) for a, b in zip(found[1], found[slices], strict=True))
        assert len(found[1][1]) > 100


@pytest.mark.parametrize("slices", [2, 7])
def test_measured_widths_are_the_same_in_any_number_of_slices(context, slices):
    query = context.pipeline.query("grouped")
    ends = np.arange(START_US + 12 * MINUTE_US, START_US + 130 * MINUTE_US, 5 * MINUTE_US)

    def measured(number: int) -> pa.Table:
        parts = np.array_split(ends, number)
        waits = [np.full(len(own), 2 * MINUTE_US) for own in parts]
        return pa.concat_tables(
            [
                _measured(Slice(i, over_shares(context, query, own, wait, _shares(context.pipeline, query))))
                for i, (own, wait) in enumerate(zip(parts, waits, strict=True))
            ]
        )

    assert measured(1).equals(measured(slices))


def test_a_worker_that_does_not_see_the_warehouse_is_no_success(context):
    missing = pytest.raises(UserError, match="5 rows of table answers_plain were written for .*, but 0 are in")
    with missing, context.warehouse.commit("tests", intervals(context)) as commit:
        Staged(commit, "answers_plain", intervals(context)).settle([{intervals(context)[0].label: 5}])
    assert context.warehouse.labels("answers_plain") == []


def test_slices_answer_for_longer_than_they_reach_back(context, monkeypatch):
    query = context.pipeline.query("plain")
    whole = question(context, query, windows_of_query(query).schedule)
    count = len(whole.schedule)
    assert cuts(whole, count, 7) == [(0, count)]  # little to read
    monkeypatch.setattr("tidegate.queries.slices.ROWS_OF_A_SLICE", 10)
    bounds = cuts(whole, count, 1000)
    assert bounds[0][0] == 0 and bounds[-1][1] == count
    assert [last for _, last in bounds[:-1]] == [first for first, _ in bounds[1:]]
    # Windows of 10 minutes that wait for 3, over 157 minutes: at most 12 slices.
    assert len(bounds) == 157 // 13
    assert len(cuts(whole, count, 4)) == 4
    # A wait that is taken off is no reach.
    back = question(context, query, windows_of_query(query).schedule, looking_back=True)
    assert len(cuts(back, count, 1000)) == 157 // 10


def test_rows_are_ordered_with_null_first_and_nan_last():
    rows = pa.table({"x": [1.0, float("nan"), None, -1.0], "k": ["b", None, "a", "a"], "n": [1, 2, 3, 4]})
    assert in_order(rows, ["x"]).column("n").to_pylist() == [3, 4, 1, 2]
    assert in_order(rows, ["k", "x"]).column("n").to_pylist() == [2, 3, 4, 1]


def test_a_session_that_was_there_before_goes_on_after_a_run(spark: SparkSession, context: RunContext) -> None:
    with RunContext(context.pipeline, context.warehouse_root) as later:
        assert later.spark.range(3).count() == 3
    assert spark.range(4).count() == 4
