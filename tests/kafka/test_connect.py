"""Landing and ingest by a Spark Connect server that is killed in the middle: nothing half, and all by a retry."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.cluster.server import PATIENCE_S, Server, serving, wait
from tests.kafka.landing import Landing, ids, orders
from tests.kafka.topics import Topics

from tidegate.engine.jars import jars
from tidegate.examples.broker import Broker

RECORDS, BATCH = 1500, 300


def run(mine: Landing, server: Server) -> subprocess.Popen[bytes]:
    words = ["run", mine.pipeline, "--warehouse", mine.warehouse, "--from", "2026-01-05T08", "--to", "2026-01-05T09"]
    command = [sys.executable, "-m", "tidegate.cli", *map(str, words), "--stage", "land", "--stage", "ingest"]
    with (mine.folder / "said").open("w") as said:
        return subprocess.Popen(command, env={**os.environ, "SPARK_REMOTE": server.address}, stdout=said, stderr=said)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("phase", ["landing", "ingest"])
def test_a_server_that_is_killed_costs_a_retry_and_no_record(
    broker: Broker, topics: Topics, topic: Callable[..., str], tmp_path: Path, phase: str
) -> None:
    if not jars("kafka"):
        pytest.skip("the jars of Spark's Kafka connector are not here: `make setup` fetches them")
    mine = Landing(tmp_path, broker.servers, topic(2), {"maxOffsetsPerTrigger": str(BATCH)})
    mine.declare()
    topics.send(mine.topic, [*orders(range(RECORDS)), b"poison"])
    said = mine.folder / "said"
    with serving(tmp_path / "server") as server:
        process = run(mine, server)
        files = mine.warehouse / "orders_of_topic" / "landed_orders"
        middle = "ingest: 2026" if phase == "ingest" else ""
        wait(lambda: middle in said.read_text() and len(list(files.glob("day=*/*.parquet"))) > 2)
        jvm = server.jvm()
        workers = jvm.children(recursive=True)
        jvm.kill()
        status = process.wait(PATIENCE_S)
        _, alive = psutil.wait_procs(workers, 30)
        assert not alive, "its Python processes end with it"
        sentence = "tidegate: error: the Spark Connect server has ended, or is out of reach; nothing"
        if phase == "landing":
            assert status == 1 and said.read_text().splitlines()[-1].startswith(sentence), said.read_text()
            # What has landed is the first of each partition.
            places = [(row["partition"], row["position"]) for row in mine.landed()]
            counts = [sum(partition == one for one, _ in places) for partition in (0, 1)]
            assert 0 < len(places) < RECORDS
            assert places == [(partition, n) for partition in (0, 1) for n in range(counts[partition])]
        else:
            assert status == 0 or said.read_text().splitlines()[-1].startswith(sentence), said.read_text()
        assert status == 0 or mine.events() == []
        server.wait_until_up(2)
        assert run(mine, server).wait(PATIENCE_S) == 0, said.read_text()
    places = {(row["partition"], row["position"]) for row in mine.landed()}
    assert len(places) == len(mine.landed()) == RECORDS + 1
    assert mine.events() == ids(range(RECORDS)) and len(mine.quarantine()) == 1
