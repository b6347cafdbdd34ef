"""Landing and ingest by a Spark Connect server that is killed in the middle: nothing half, and all by a retry."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.cluster.server import Server, serving, wait
from tests.kafka.landing import Landing, ids, order, orders
from tests.kafka.topics import Record, Topics

from tidegate.engine.jars import jars
from tidegate.examples.broker import Broker

RECORDS, BATCH, LONG_S = 1500, 300, 500


@contextmanager
def started(mine: Landing, server: Server) -> Iterator[subprocess.Popen[bytes]]:
    """The stages of an hour, by the server; what they say is in a file."""
    words = ["run", mine.pipeline, "--warehouse", mine.warehouse, "--from", "2026-01-05T08", "--to", "2026-01-05T09"]
    command = [sys.executable, "-m", "tidegate.cli", *map(str, words), "--stage", "land", "--stage", "ingest"]
    environment = {**os.environ, "SPARK_REMOTE": server.address}
    with (mine.folder / "said").open("w") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


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
    topics.send(mine.topic, [*orders(range(RECORDS)), Record(b"poison", timestamp_ms=order(0).timestamp_ms)])
    said = mine.folder / "said"
    with serving(tmp_path / "server") as server:
        with started(mine, server) as process:
            files = mine.warehouse / "orders_of_topic" / "landed_orders"
            middle = "ingest: 2026" if phase == "ingest" else ""
            wait(lambda: middle in said.read_text() and len(list(files.glob("day=*/*.parquet"))) > 2, LONG_S)
            jvm = server.jvm()
            workers = jvm.children(recursive=True)
            jvm.kill()
            status = process.wait(LONG_S)
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
        with started(mine, server) as process:
            assert process.wait(LONG_S) == 0, said.read_text()
    places = {(row["partition"], row["position"]) for row in mine.landed()}
    assert len(places) == len(mine.landed()) == RECORDS + 1
    assert mine.events() == ids(range(RECORDS)) and len(mine.quarantine()) == 1
