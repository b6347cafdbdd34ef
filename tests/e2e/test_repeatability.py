"""A range in one go, interval by interval, again, or after kill -9: the same rows in every table."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.command import run_stages
from tests.e2e.flights import FLIGHTS, NIGHT_END, NIGHT_START, declared, land
from tests.live_files import contents

from tidegate.declarations.models import Pipeline
from tidegate.stages.run import STAGES
from tidegate.store.warehouse import Warehouse

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

HOUR = timedelta(hours=1)
# dbt and GX have tests of their own (tests/dbt, tests/quality); what they write is made of these tables.
COMPUTING = tuple(stage for stage in STAGES if stage not in ("check_quality", "publish"))
# When and how long something ran is no result; what was judged has tests of its own.
NOT_COMPARED = ("run_metrics", "quality_results")
# The day ends where the second part does. The horizon is 6 hours.
CUTS = (3, 7, 2)


def assert_same(pipeline: Pipeline, one: Path, other: Path) -> None:
    mine, theirs = contents(pipeline, one, NOT_COMPARED), contents(pipeline, other, NOT_COMPARED)
    assert mine.keys() == theirs.keys()
    different = [key for key in mine if mine[key] != theirs[key]]
    shown = [(key, mine[key][:2], theirs[key][:2]) for key in different[:3]]
    assert not different, f"{len(different)} partitions differ: {shown}"


def test_the_range_has_rows_to_compare(pipeline: Pipeline, night: Path) -> None:
    found = contents(pipeline, night, NOT_COMPARED)
    tables = {table for (table, _), rows in found.items() if rows}
    # No day of New York ends in this night.
    due = [q.id for q in pipeline.queries if q.calendar is None]
    expected = {f"events_{s.name}" for s in pipeline.streams} | {f"truth_{query}" for query in due}
    expected |= {f"answers_{query}" for query in due} | {"history_leaves", "history_samples_departures"}
    expected |= {"stream_rates", "window_plan", "query_plan", "accuracy", "promise_periods", "history_passes"}
    expected |= {"needed_slack", "slack_plan", "width_errors", "error_width_plan"}
    assert expected <= tables
    assert len({label for _, label in found}) == (NIGHT_END - NIGHT_START) / HOUR


def test_one_go_equals_several_runs_and_again(pipeline: Pipeline, night: Path, tmp_path: Path) -> None:
    start = NIGHT_START
    for hours in CUTS:
        run_stages(pipeline, tmp_path, start, start + hours * HOUR, COMPUTING)
        start += hours * HOUR
    assert start == NIGHT_END
    assert_same(pipeline, night, tmp_path)
    # Old intervals again, the last hours of the day: they replace exactly their own partitions.
    run_stages(pipeline, tmp_path, NIGHT_START + 8 * HOUR, NIGHT_START + 10 * HOUR, COMPUTING)
    assert_same(pipeline, night, tmp_path)


def test_passes_beside_each_other_give_the_rows_of_one(
    pipeline: Pipeline, night: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.stages.run._INTERVALS_AT_ONCE", 4)
    run_stages(pipeline, tmp_path, NIGHT_START, NIGHT_END, COMPUTING)
    assert_same(pipeline, night, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_days_in_one_go_equal_two_days_hour_by_hour(tmp_path_factory: pytest.TempPathFactory) -> None:
    end = NIGHT_START + 48 * HOUR
    pipeline = declared(land(tmp_path_factory.mktemp("landing"), NIGHT_START, end))
    whole, hourly = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("hourly")
    run_stages(pipeline, whole, NIGHT_START, end, COMPUTING)
    for hour in range(48):
        run_stages(pipeline, hourly, NIGHT_START + hour * HOUR, NIGHT_START + (hour + 1) * HOUR, COMPUTING)
    assert_same(pipeline, whole, hourly)


# Runs the command, and kills itself and its JVM at the n-th transaction of a table's log or of _commits, or after the
# n-th line that tells how far it is.
DIES = """\
import os, signal, sys
kind, left = sys.argv.pop(1), int(sys.argv.pop(1))
def dying(function):
    def call(*arguments, **options):
        global left
        left -= 1
        if left == 0:
            os.killpg(0, signal.SIGKILL)
        return function(*arguments, **options)
    return call
from tidegate.cli import main
from tidegate.engine.context import RunContext
from tidegate.store.delta import DeltaLog
if kind == "transaction":
    DeltaLog._transact = dying(DeltaLog._transact)
else:
    RunContext.progress = dying(RunContext.progress)
sys.exit(main(sys.argv[1:]))
"""
CHANCE = random.Random(7)
TEN = [("transaction", CHANCE.randrange(1, 60)) for _ in range(5)] + [
    ("line", CHANCE.randrange(3, 40)) for _ in range(5)
]


@pytest.mark.parametrize(
    "deaths",
    [[("transaction", 30), ("line", 25)], pytest.param(TEN, marks=pytest.mark.slow)],
    ids=["twice", "ten times"],
)
def test_killed_again_and_again_then_a_re_run(
    pipeline: Pipeline,
    landing: Path,
    night: Path,
    tmp_path: Path,
    deaths: list[tuple[str, int]],
) -> None:
    """Runs of the command, each killed with its JVM at some point of its work; a reader looks on all the time."""
    stages = [word for stage in COMPUTING for word in ("--stage", stage)]
    span = ["--from", f"{NIGHT_START:%Y-%m-%dT%H}", "--to", f"{NIGHT_END:%Y-%m-%dT%H}"]
    words = ["run", str(FLIGHTS), "--warehouse", str(tmp_path), *span, *stages]
    environment = {**os.environ, "TIDEGATE_LANDING": str(landing)}
    log = tmp_path / "log"
    with watched(pipeline, tmp_path) as seen:
        for kind, count in deaths:
            command = [sys.executable, "-c", DIES, kind, str(count), *words]
            with log.open("w") as out:
                killed = subprocess.run(command, env=environment, stdout=out, stderr=out, start_new_session=True)
            assert killed.returncode == -signal.SIGKILL, log.read_text()[-3000:]
        run_stages(pipeline, tmp_path, NIGHT_START, NIGHT_END, COMPUTING)
    assert_same(pipeline, night, tmp_path)
    assert sum(seen) > 100, "the reader met complete partitions while runs were killed"


@contextmanager
def watched(pipeline: Pipeline, root: Path) -> Iterator[list[int]]:
    """Read every table in one cut again and again meanwhile; how many files each cut had."""
    stop, seen, failures = threading.Event(), [], []

    def watch() -> None:
        while not stop.wait(0.25):
            try:
                seen.append(read_everything(Warehouse(root, pipeline)))
            except Exception as failure:
                failures.append(failure)
                return

    reader = threading.Thread(target=watch)
    reader.start()
    try:
        yield seen
    finally:
        stop.set()
        reader.join()
    assert not failures, failures


def read_everything(warehouse: Warehouse) -> int:
    """Read every file of a cut, in which runs are whole: each of ingest's two has written all of its tables."""
    for together in (("source_files", "quarantine", "events_departures"), ("stream_rates", "window_plan")):
        labels = {table: warehouse.labels(table) for table in together}
        assert len({tuple(own) for own in labels.values()}) == 1, labels
    files = [file for table in warehouse.tables() for file in warehouse.files(table, warehouse.labels(table))]
    for file in files:
        pq.ParquetFile(file).read()
    return len(files)
