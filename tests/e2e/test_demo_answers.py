"""Every answer, truth, accuracy and leaf of the demo, over half a day of the storm, against DuckDB's brute force."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from infra.oracle.answers import check_accuracy, check_answers, check_truth, read_rows
from infra.oracle.history import check_history, check_samples
from infra.oracle.schedule import connect, expected_windows, final_windows, parquet
from tests.command import ROOT
from tests.e2e.flights import FLIGHTS, NIGHT_END, NIGHT_START
from tests.live_files import live_files

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Output, Pipeline, Query
from tidegate.declarations.tables import schema, tables
from tidegate.history.filled import fill_answers

START, END = NIGHT_START, NIGHT_END
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]
QUERIES = sorted(path.stem for path in (FLIGHTS / "queries").glob("*.sql"))
# No day of New York ends in this night.
DUE = [query for query in QUERIES if query != "snow_by_day"]
STREAMS = ("departures", "landings", "weather")


@pytest.fixture(scope="module")
def warehouse(night: Path) -> Path:
    """The pipeline's folder in the warehouse after ``tidegate run`` over the night."""
    return night / "flights"


def test_the_demo_has_the_queries_that_are_checked_here(pipeline: Pipeline) -> None:
    assert [query.id for query in pipeline.queries] == QUERIES
    kinds = [query.kind for query in pipeline.queries]
    assert {kind: kinds.count(kind) for kind in kinds} == {"aggregate": 5, "join_aggregate": 4, "top_k": 4}


def landed(landing: Path, stream: str) -> int:
    """How many records the files of a stream hold."""
    suffix = {"departures": "jsonl", "landings": "csv", "weather": "parquet"}[stream]
    reader = {"jsonl": "read_json", "csv": "read_csv", "parquet": "read_parquet"}[suffix]
    files = [str(path) for path in sorted((landing / stream).glob(f"*.{suffix}")) if path.stat().st_size]
    return connect().execute(f"SELECT count(*) FROM {reader}({files})").fetchall()[0][0]


@pytest.mark.parametrize("stream", STREAMS)
def test_every_landed_tuple_is_accepted(landing: Path, warehouse: Path, stream: str) -> None:
    records = landed(landing, stream)
    assert records > 30
    assert len(read_rows(warehouse, f"events_{stream}")) == records


def test_nothing_is_refused(warehouse: Path) -> None:
    assert read_rows(warehouse, "quarantine") == []


@pytest.mark.parametrize("query", DUE)
def test_every_answer_equals_brute_force(pipeline: Pipeline, warehouse: Path, query: str) -> None:
    comparison = check_answers(pipeline, pipeline.query(query), warehouse, START, END)
    assert comparison.equal, str(comparison)
    # Half a day has 72 windows; those whose slack reaches beyond its end are not due yet. Some queries answer seldom.
    often = pipeline.query(query).every_s <= 600
    assert comparison.windows > (30 if often else 1)
    assert comparison.rows > (50 if often else 5)


@pytest.mark.parametrize("query", DUE)
def test_every_truth_equals_brute_force(pipeline: Pipeline, warehouse: Path, query: str) -> None:
    comparison = check_truth(pipeline, pipeline.query(query), warehouse, START, END)
    assert comparison.equal, str(comparison)
    assert comparison.windows > (30 if pipeline.query(query).every_s <= 600 else 0)


@pytest.mark.parametrize("query", DUE)
def test_every_accuracy_is_that_of_answer_and_truth(pipeline: Pipeline, warehouse: Path, query: str) -> None:
    comparison = check_accuracy(pipeline, pipeline.query(query), warehouse, START, END)
    assert comparison.equal, str(comparison)


@pytest.mark.parametrize("query", QUERIES)
def test_windows_are_those_of_the_schedule(pipeline: Pipeline, warehouse: Path, query: str) -> None:
    declared = pipeline.query(query)
    due = {w.window_end for w in expected_windows(pipeline, declared, warehouse, START, END)}
    answered = {row["window_end"] for row in read_rows(warehouse, f"answers_{query}")}
    assert answered <= due
    if declared.kind == "aggregate" and not declared.group_by:
        assert answered == due
    final = set(final_windows(pipeline, declared, warehouse, START, END))
    assert {row["window_end"] for row in read_rows(warehouse, f"truth_{query}")} <= final


@pytest.mark.parametrize("stream", ["departures", "landings"])
def test_every_leaf_of_history_is_exact(pipeline: Pipeline, warehouse: Path, stream: str) -> None:
    for check in (check_history, check_samples):
        comparison = check(pipeline, pipeline.stream(stream), warehouse, START, END)
        assert comparison.equal, str(comparison)
        assert comparison.rows > 0


@pytest.mark.parametrize("query", ["ground_speed", "storm_watch"])
def test_narrow_windows_filled_from_history_come_closer_to_the_whole(
    pipeline: Pipeline, warehouse: Path, query: str
) -> None:
    """Filled values against the whole window's at the answer's instant; what was emitted lacks what was let go."""
    declared = pipeline.query(query)
    found = fill_answers(pipeline, warehouse.parent, query, START, END)
    answers = [row for row in read_rows(warehouse, f"answers_{query}") if START <= row["emitted_at"] < END]
    narrow = {row["window_end"] for row in answers if row["coverage"] < 1}
    assert narrow <= {window["window_end"] for window in found["filled"]}
    assert found["answered"] == found["whole"] + len(found["filled"])
    stream = declared.streams[0]
    grouped = [group.column for group in declared.group_by]
    (predicate,) = declared.predicates.values() or ("TRUE",)
    outputs = ", ".join(_whole(declared, output) for output in declared.outputs)
    errors: dict[str, list[float]] = {"emitted": [], "filled": []}
    for window in found["filled"]:
        seen = (
            f"SELECT {outputs} FROM {parquet(warehouse, f'events_{stream}')} WHERE ({predicate}) "
            f"AND event_time >= $end - to_microseconds($range) AND event_time < $end AND arrival_time <= $emitted "
            + (f"GROUP BY {', '.join(grouped)}" if grouped else "")
        )
        given = {
            "end": window["window_end"],
            "range": round(window["range_s"] * 1e6),
            "emitted": window["emitted_at"],
        }
        whole = {_key(row, grouped): row for row in connect().sql(seen, params=given).to_arrow_table().to_pylist()}
        emitted = {_key(row, grouped): row for row in answers if row["window_end"] == window["window_end"]}
        for row in window["rows"]:
            key = _key(row, grouped)
            for name, value in row.items():
                truth = whole[key][name]
                if not isinstance(value, dict) or key not in emitted or not truth:
                    continue
                assert value["low"] is None or value["low"] <= value["estimate"] <= value["high"]
                if value["exact"]:
                    assert value["estimate"] == pytest.approx(truth)
                errors["filled"].append(abs(value["estimate"] / truth - 1))
                errors["emitted"].append(abs(emitted[key][name] / truth - 1))
    if errors["emitted"]:
        assert sum(errors["filled"]) < sum(errors["emitted"])
    assert bool(narrow) == bool(errors["emitted"])


def _whole(query: Query, output: Output) -> str:
    """An output over the whole window, in DuckDB's SQL."""
    text = output.expression
    for group in query.group_by:
        text = re.sub(rf"`?\b{group.slot}\b`?", group.column, text)
    for aggregate in query.aggregates:
        argument, by = aggregate.expression or "*", aggregate.by or ""
        called = aggregate.called.duckdb(argument, by, aggregate.parameters)
        text = re.sub(rf"`?\b{aggregate.slot}\b`?", lambda _, called=called: called, text)
    return f"{text} AS {output.name}"


def _key(row: dict[str, object], names: list[str]) -> tuple[object, ...]:
    return tuple(row[name] for name in names)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("most_delayed", "is a top-k query: a sample does not contain the top tuples"),
        ("bad_weather", "is a join"),
        ("ground_sped", "did you mean 'ground_speed'?"),
    ],
)
def test_what_history_cannot_fill_is_said(pipeline: Pipeline, warehouse: Path, query: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        fill_answers(pipeline, warehouse.parent, query, START, END)


def test_every_table_has_every_partition_and_its_schema(pipeline: Pipeline, warehouse: Path) -> None:
    labels = {f"{START + timedelta(hours=hour):%Y-%m-%dT%H}" for hour in range(12)}
    for table in tables(pipeline):
        if table in ("history_passes", "history_accuracy"):  # written by intervals that end a day
            continue
        partitions = live_files(warehouse / table)
        assert partitions.keys() == labels, table
        for path in (file for own in partitions.values() for file in own):
            assert pq.read_schema(path).names == schema(pipeline, table).names, path


def test_memory_stays_within_the_budgets(warehouse: Path) -> None:
    metrics = read_rows(warehouse, "run_metrics")
    assert {row["app"] for row in metrics} >= {"ingest", "join_aggregate", "top_k", "sample_history", "calibrate"}
    for row in metrics:
        assert row["peak_state_bytes"] <= row["memory_budget_bytes"], row
        assert row["peak_process_bytes"] <= row["process_budget_bytes"], row


def test_records_in_are_rows_out_plus_refused(landing: Path, warehouse: Path) -> None:
    ingested = [row for row in read_rows(warehouse, "run_metrics") if row["app"] == "ingest"]
    assert len(ingested) == 12
    assert sum(row["rows_in"] for row in ingested) == sum(landed(landing, stream) for stream in STREAMS)
    for row in ingested:
        assert row["rows_in"] == row["rows_out"] + row["rows_quarantined"]


def test_the_account_finds_every_answer_equal(landing: Path, warehouse: Path) -> None:
    command = [sys.executable, "-m", "infra.demo.account", str(FLIGHTS), "--warehouse", str(warehouse.parent)]
    span = ["--from", START.isoformat(), "--to", END.isoformat(), "--report", "somewhere/report.html"]
    done = subprocess.run([*command, *span], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Which departures of the last hour are most delayed?" in done.stdout
    assert done.stdout.count("✓") >= len(DUE)
    assert "somewhere/report.html" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 100
    assert len(done.stdout.splitlines()) <= 84


def test_an_answer_that_was_tampered_with_is_found(pipeline: Pipeline, warehouse: Path, tmp_path: Path) -> None:
    """The check above can fail: one delay changed by one minute in a copy."""
    copy = tmp_path / "flights"
    for table in ("answers_most_delayed", "events_departures", "window_plan", "slack_plan"):
        for path in (file for own in live_files(warehouse / table).values() for file in own):
            (copy / table / path.parent.name).mkdir(parents=True, exist_ok=True)
            (copy / table / path.parent.name / path.name).symlink_to(path)
    partitions = live_files(warehouse / "answers_most_delayed").values()
    first = next(own for own in partitions if sum(pq.read_metadata(f).num_rows for f in own))
    files = [str(path) for path in first]
    label = copy / "answers_most_delayed" / first[0].parent.name
    shutil.rmtree(label)
    label.mkdir()
    columns = "* REPLACE (CASE WHEN rank = 1 THEN dep_delay + 1 ELSE dep_delay END AS dep_delay)"
    source = f"SELECT {columns} FROM read_parquet({files}, hive_partitioning = false)"
    connect().execute(f"COPY ({source}) TO '{label}/part.parquet'")
    comparison = check_answers(pipeline, pipeline.query("most_delayed"), copy, START, END)
    assert comparison.differences
    assert all("dep_delay" in difference for difference in comparison.differences)
