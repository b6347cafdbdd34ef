"""A stream lands in an object store, its checkpoint there, too: each record once, though who lands is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tidegate.declarations import load_pipeline
from tidegate.engine.jars import jars
from tidegate.store.places import ObjectPath
from tidegate.store.warehouse import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.slow]
if not jars("s3"):
    pytest.skip("the jars of Hadoop's S3 connector are not here: make setup fetches them", allow_module_level=True)

_PIPELINE = """\
name: orders
owner: tests
start: 2026-01-05T08:00:00Z
interval: 1 hour
tick: 1 minute
horizon: 1 hour
memory_budget: 16 MiB
process_budget: 3 GiB
streams:
  orders:
    source: {spark: {format: text, options: {path: feed, maxFilesPerTrigger: "1"}}}
    format: jsonl
    columns: {id: string, at: timestamp}
    id: id
    event_time: at
    arrival_time: at
    rate: 1 per second
"""
_FILES, _RECORDS = 12, 50


def test_each_record_lands_once_under_kills(bucket: ObjectPath, tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    (folder / "queries").mkdir(parents=True)
    (folder / "feed").mkdir()
    (folder / "pipeline.yml").write_text(_PIPELINE)
    (folder / "queries" / "orders_placed.sql").write_text("SELECT COUNT(*) AS n FROM orders [1 HOUR] EVERY 1 HOUR\n")
    for file in range(_FILES):
        at = f"2026-01-05T08:{file:02d}:00Z"
        lines = [json.dumps({"id": f"{file}-{n}", "at": at}) + "\n" for n in range(_RECORDS)]
        (folder / "feed" / f"{file}.jsonl").write_text("".join(lines))
    warehouse = bucket / "warehouse"
    command = [sys.executable, "-m", "tidegate.cli", "run", str(folder), "--warehouse", str(warehouse)]
    command += ["--from", "2026-01-05T08", "--to", "2026-01-05T09", "--stage", "land", "--stage", "ingest"]
    log = warehouse / "orders" / "landed_orders" / "_delta_log"
    for landings in (2, 6):
        with (tmp_path / "said").open("w") as said:
            process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
        while process.poll() is None and len(list(log.glob("*.json"))) < 3 + landings:
            time.sleep(0.1)
        assert process.poll() is None, (tmp_path / "said").read_text()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = Warehouse(warehouse, load_pipeline(folder))
    ids = found.read_arrow("events_orders", ["2026-01-05T08"]).column("event_id").to_pylist()
    assert sorted(ids) == sorted(f"{file}-{n}" for file in range(_FILES) for n in range(_RECORDS))
    assert found.rows("quarantine", "2026-01-05T08") == 0
    assert list((warehouse / "orders" / "_checkpoints" / "orders" / "0").glob("offsets/*"))
