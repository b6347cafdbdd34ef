"""A range in one go, interval by interval, again, or after kill -9: the same rows in every table.

Over eight hours, cut unevenly; TIDEGATE_REPEAT_HOURS=48 makes it two days, hour by hour (ten minutes or so).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.oracle.command import ROOT

from tidegate.apps.run import STAGES, run
from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline
from tidegate.hosts.context import RunContext
from tidegate.hosts.intervals import interval_at, intervals_between
from tidegate.hosts.warehouse import Warehouse

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

FLIGHTS = ROOT / "dags" / "pipelines" / "flights"
LAND_FLIGHTS = "tidegate.examples.land_flights"
# The last hours of a day and the first of the next: the daily pass over history lies between. The horizon is 6 hours.
HOURS = int(os.environ.get("TIDEGATE_REPEAT_HOURS", "8"))
CUTS = [1] * HOURS if "TIDEGATE_REPEAT_HOURS" in os.environ else [1, 2, 1, 3, 1]
START = datetime(2013, 2, 8, 17, tzinfo=UTC)
END = START + timedelta(hours=HOURS)
# dbt and GX have tests of their own (tests/dbt, tests/quality); what they write is made of these tables.
COMPUTING = tuple(stage for stage in STAGES if stage not in ("check_quality", "publish"))
# When and how long something ran is no result.
MEASURED = ("run_metrics",)


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("landing")
    span = ["--from", START.isoformat(), "--to", END.isoformat()]
    subprocess.run([sys.executable, "-m", LAND_FLIGHTS, "--landing", str(folder), *span], check=True)
    return folder


@pytest.fixture(scope="module")
def pipeline(landing: Path) -> Pipeline:
    before = os.environ.get("TIDEGATE_LANDING")
    os.environ["TIDEGATE_LANDING"] = str(landing)
    loaded = load_pipeline(FLIGHTS)
    if before is not None:
        os.environ["TIDEGATE_LANDING"] = before
    return loaded


@pytest.fixture(scope="module")
def in_one_go(pipeline: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("one-go")
    with RunContext(pipeline, root) as context:
        run(context, intervals_between(pipeline, START, END), COMPUTING)
    return root


def contents(pipeline: Pipeline, root: Path) -> dict[tuple[str, str], list[str]]:
    """(table, partition) → its rows in the order in which they are stored, as text that tells every bit apart."""
    warehouse = Warehouse(root, pipeline)
    return {
        (table, label): [repr(row) for row in warehouse.read_arrow(table, [label]).to_pylist()]
        for table in warehouse.tables()
        if table not in MEASURED
        for label in warehouse.labels(table)
    }


def assert_same(pipeline: Pipeline, one: Path, other: Path) -> None:
    mine, theirs = contents(pipeline, one), contents(pipeline, other)
    assert mine.keys() == theirs.keys()
    different = [key for key in mine if mine[key] != theirs[key]]
    shown = [(key, mine[key][:2], theirs[key][:2]) for key in different[:3]]
    assert not different, f"{len(different)} partitions differ: {shown}"


def test_the_range_has_rows_to_compare(pipeline: Pipeline, in_one_go: Path) -> None:
    found = contents(pipeline, in_one_go)
    tables = {table for (table, _), rows in found.items() if rows}
    expected = {f"events_{s.name}" for s in pipeline.streams} | {f"truth_{q.id}" for q in pipeline.queries}
    expected |= {f"answers_{q.id}" for q in pipeline.queries} | {"history_leaves", "history_samples_departures"}
    expected |= {"stream_rates", "window_plan", "query_plan", "accuracy", "history_passes"}
    expected |= {"needed_slack", "slack_plan", "width_errors", "error_width_plan"}
    assert expected <= tables
    assert len({label for _, label in found}) == HOURS


def test_one_go_equals_several_runs_and_again(pipeline: Pipeline, in_one_go: Path, tmp_path: Path) -> None:
    intervals = intervals_between(pipeline, START, END)
    with RunContext(pipeline, tmp_path) as context:
        for count in CUTS:
            run(context, intervals[:count], COMPUTING)
            intervals = intervals[count:]
        assert not intervals
        assert_same(pipeline, in_one_go, tmp_path)
        # Old intervals again, in no order: each replaces exactly its own partitions.
        for hour in (7, 1):
            run(context, [interval_at(pipeline, START + timedelta(hours=hour))], COMPUTING)
    assert_same(pipeline, in_one_go, tmp_path)


@pytest.mark.parametrize("kills", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_kill_at_random_moments_then_a_re_run(
    pipeline: Pipeline, landing: Path, in_one_go: Path, tmp_path: Path, kills: int
) -> None:
    """Runs of the command, each killed (with its JVM) at a random moment; a reader looks on all the time."""
    chance = random.Random(7)
    watching, seen = threading.Event(), []

    def watch() -> None:
        while not watching.wait(0.02):
            seen.append(read_everything(tmp_path))

    reader = threading.Thread(target=watch)
    reader.start()
    stages = [word for stage in COMPUTING for word in ("--stage", stage)]
    span = ["--from", f"{START:%Y-%m-%dT%H}", "--to", f"{END:%Y-%m-%dT%H}"]
    words = [sys.executable, "-m", "tidegate.cli", "run", str(FLIGHTS), "--warehouse", str(tmp_path), *span, *stages]
    environment = {**os.environ, "TIDEGATE_LANDING": str(landing), "PYTHONPATH": str(ROOT / "spark_apps")}
    log = (tmp_path / "log").open("w")
    try:
        for _ in range(kills):
            process = subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True)
            time.sleep(chance.uniform(5.0, 25.0))
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        subprocess.run(words, env=environment, stdout=log, stderr=log, check=True)
    finally:
        watching.set()
        reader.join()
        log.close()
    assert_same(pipeline, in_one_go, tmp_path)
    assert len(seen) > 100
    assert sum(seen) > 100, "the reader met complete partitions while runs were killed"
    assert list((tmp_path / "flights" / "_staging").iterdir()) == []


def read_everything(root: Path) -> int:
    """Read every file of every partition; a file that cannot be read wholly fails the test. Returns how many."""
    read = 0
    for file in (root / "flights").glob("[!_]*/interval=*/*.parquet"):
        try:
            pq.ParquetFile(file).read()
        except FileNotFoundError:
            continue  # replaced since it was listed
        read += 1
    return read
