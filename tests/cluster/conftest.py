"""A shop, answered by one process; drivers and servers as processes of their own."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pyspark
import pytest
from tests.cluster.driver import STAGES
from tests.objects.server import a_bucket, s3_server

from tidegate.cli.init import init
from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline
from tidegate.declarations.tables import CLIENT
from tidegate.engine.context import RunContext
from tidegate.stages.run import run
from tidegate.store.intervals import intervals_between
from tidegate.store.places import ObjectPath, place
from tidegate.store.warehouse import Warehouse

RANGE = "2026-01-05T08:00+00:00", "2026-01-05T12:00+00:00"
SPARK_HOME = Path(pyspark.__file__).parent
PROJECT = Path(__file__).resolve().parents[2]
MEASURED = ("started_at", "seconds", "peak_process_bytes")


def rows_of(pipeline: Pipeline, warehouse: str | Path) -> dict[str, list[dict[str, object]]]:
    """All tables but for what a run measures of itself, and where the landed files were."""
    found = Warehouse(place(str(warehouse)), pipeline)
    rows = {table: found.read_arrow(table).to_pylist() for table in found.tables()}
    # Where slices run is what the others are about.
    rows["run_metrics"] = [row for row in rows["run_metrics"] if row["kind"] == CLIENT]
    for row in rows["run_metrics"]:
        for name in MEASURED:
            row.pop(name)
    for row in rows["source_files"]:
        row["path"], row["modified"] = Path(str(row["path"])).name, None
    for row in rows["quarantine"]:
        row["source"] = Path(str(row["source"])).name
    return rows


def driver(pipeline: Path, warehouse: str | Path, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """Start a driver; what it says is in ``folder``."""
    own = ("PYSPARK_PYTHON", "SPARK_REMOTE", "SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS")
    kept = {key: value for key, value in os.environ.items() if key not in own}
    command = [sys.executable, "-m", "tests.cluster.driver", str(pipeline), str(warehouse), *RANGE]
    with (folder / "driver.log").open("w") as said:
        return subprocess.Popen(command, cwd=PROJECT, env=kept | environment, stdout=said, stderr=said, text=True)


def finish(process: subprocess.Popen[str], folder: Path) -> str:
    """Wait for a driver; what it said."""
    status = process.wait(timeout=500)
    said = (folder / "driver.log").read_text()
    assert status == 0, said[-6000:]
    return said


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def running(command: list[str], log: Path, port: int, folder: Path, **environment: str) -> Iterator[int]:
    """A server in a folder of its own, once it listens at a port of 127.0.0.1; ended with all that it has started."""
    folder.mkdir(exist_ok=True)
    with log.open("w") as said:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=said, stderr=said, text=True, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 120
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield process.pid
    finally:
        os.killpg(process.pid, 9)
        process.wait()


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectPath]:
    """A bucket on a server of its own, and an environment that leads to it."""
    with s3_server(tmp_path_factory.mktemp("moto")) as address, a_bucket(address) as found:
        yield found


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pipeline, dict[str, list[dict[str, object]]]]:
    """A pipeline with its files, and the rows of its tables when one process does all."""
    folder = tmp_path_factory.mktemp("shop") / "shop"
    init(folder, "shop")
    pipeline = load_pipeline(folder)
    with RunContext(pipeline, folder.parent / "here", output=io.StringIO(), here=True) as context:
        run(context, intervals_between(pipeline, *map(datetime.fromisoformat, RANGE)), STAGES)
    rows = rows_of(pipeline, folder.parent / "here")
    assert all(rows[t] for t in ("answers_revenue", "truth_largest_orders", "history_samples_orders", "accuracy"))
    return pipeline, rows
