"""Partitions are replaced as a whole: at any moment a reader finds the old rows or the new, also after kill -9."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
import time
from datetime import UTC, datetime
from pathlib import Path
from subprocess import PIPE

import psutil  # type: ignore[import-untyped, unused-ignore]
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Column, Pipeline, Stream
from tidegate.hosts.context import RunContext
from tidegate.hosts.intervals import Interval, interval_at
from tidegate.hosts.warehouse import Warehouse

TABLE = "needed_slack"


def a_pipeline() -> Pipeline:
    stream = Stream(
        name="s",
        format="jsonl",
        path="x",
        columns=(Column(name="id", type="string"), Column(name="t", type="timestamp")),
        event_time="t",
        arrival_time="t",
        id="id",
        rate=1.0,
        max_early_s=0,
        max_late_s=3600,
    )
    return Pipeline(
        name="p",
        folder=Path("."),
        owner="o",
        start=datetime(2013, 1, 1, tzinfo=UTC),
        interval_s=3600,
        tick_s=300,
        horizon_s=3600,
        memory_budget_bytes=1000,
        process_budget_bytes=1000,
        streams=(stream,),
        queries=(),
    )


def rows(version: int, count: int) -> pa.Table:
    """A partition whose every row says which version it is of, and how many rows that version has."""
    return pa.table(
        {
            "query": [f"v{version}"] * count,
            "window_end": pa.array([datetime(2013, 1, 1, tzinfo=UTC)] * count, pa.timestamp("us", tz="UTC")),
            "event_id": [str(i) for i in range(count)],
            "slack_s": [float(count)] * count,
        }
    )


def interval(hour: int = 0) -> Interval:
    return interval_at(a_pipeline(), datetime(2013, 1, 1, hour, tzinfo=UTC))


def put(warehouse: Warehouse, version: int, count: int, hours: tuple[int, ...] = (0,)) -> None:
    with warehouse.commit("stage") as commit:
        for hour in hours:
            commit.put_arrow(TABLE, interval(hour), rows(version, count))


def test_a_partition_is_replaced_as_a_whole(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    put(warehouse, 1, 5)
    put(warehouse, 2, 3)
    assert warehouse.read_arrow(TABLE).column("query").to_pylist() == ["v2"] * 3
    assert warehouse.labels(TABLE) == ["2013-01-01T00"]
    assert list((warehouse.folder / "_staging").iterdir()) == []


def test_an_empty_result_replaces_old_rows(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    put(warehouse, 1, 5)
    put(warehouse, 2, 0)
    assert warehouse.read_arrow(TABLE).num_rows == 0
    assert warehouse.labels(TABLE) == ["2013-01-01T00"]


def test_an_error_inside_leaves_the_old_rows(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    put(warehouse, 1, 5)
    with pytest.raises(ZeroDivisionError), warehouse.commit("stage") as commit:
        commit.put_arrow(TABLE, interval(), rows(2, 3))
        _ = 1 / 0
    assert warehouse.read_arrow(TABLE).column("query").to_pylist() == ["v1"] * 5
    assert list((warehouse.folder / "_staging").iterdir()) == []


def test_files_of_several_stages_share_a_partition(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    for stage, count in (("one", 2), ("two", 3), ("one", 4)):
        with warehouse.commit(stage) as commit:
            commit.put_file(TABLE, interval(), stage, rows(1, count))
    assert warehouse.read_arrow(TABLE).num_rows == 7


def test_two_writers_of_one_stage_are_refused_with_a_reason(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    with warehouse.commit("stage"), pytest.raises(UserError, match="being written by another run"):
        put(Warehouse(tmp_path, a_pipeline()), 2, 1)


def test_a_missing_partition_is_named_with_what_makes_it(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    put(warehouse, 1, 1)
    with pytest.raises(UserError, match=r"needed_slack .* 2013-01-01T01.*--stage calibrate"):
        warehouse.require(TABLE, ["2013-01-01T00", "2013-01-01T01"], "calibrate")


def test_a_warehouse_that_is_no_folder_is_the_user_s_error(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match="file cannot be written: Not a directory"),
        RunContext(a_pipeline(), tmp_path / "file"),
    ):
        pass


# For every version that it reads it forks a writer, and says the writer's process number: imports cost once.
WRITERS = """
    import os, signal, sys
    sys.path.insert(0, {tests!r})
    from test_warehouse import *
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    warehouse = Warehouse(Path({root!r}), a_pipeline())
    for line in sys.stdin:
        if os.fork() == 0:
            print(os.getpid(), flush=True)
            version = int(line)
            while True:
                version += 1
                put(warehouse, version, 1 + version % 7, (0, 1, 2))
"""


def test_kill_at_random_moments_leaves_old_or_new_and_the_next_run_repairs(tmp_path):
    """Twelve kills of a writer that replaces three partitions as fast as it can; a reader looks on all the time."""
    chance = random.Random(20131)
    warehouse = Warehouse(tmp_path, a_pipeline())
    put(warehouse, 0, 1, (0, 1, 2))
    script = textwrap.dedent(WRITERS).format(tests=str(Path(__file__).parent), root=str(tmp_path))
    command = [sys.executable, "-c", script]
    looked = 0
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True, bufsize=1) as writers:
        assert writers.stdin is not None and writers.stdout is not None
        for round_ in range(12):
            writers.stdin.write(f"{round_ * 10_000}\n")
            writer = psutil.Process(int(writers.stdout.readline()))
            until = time.monotonic() + chance.uniform(0.0, 0.25)
            while time.monotonic() < until:
                looked += check_each(warehouse)
            assert writer.is_running(), "the writer must be killed while it writes"
            writer.kill()
            writer.wait()
            warehouse.recover()
            versions = set(warehouse.read_arrow(TABLE).column("query").to_pylist())
            assert len(versions) == 1, "a commit is carried out wholly or not at all"
            assert list((warehouse.folder / "_staging").iterdir()) == []
            check_each(warehouse)
    assert looked > 100


def check_each(warehouse: Warehouse) -> int:
    """Every partition is there and is wholly of one version; returns how many were read without being replaced."""
    read = 0
    for hour in range(3):
        files = list(warehouse.partition(TABLE, interval(hour).label).glob("*.parquet"))
        try:
            tables = [pq.ParquetFile(file).read() for file in files]
        except FileNotFoundError:
            continue  # replaced between listing and reading: an error, never a mix
        assert len(tables) == 1
        count = tables[0].num_rows
        assert count >= 1
        assert set(tables[0].column("slack_s").to_pylist()) == {float(count)}
        read += 1
    return read
