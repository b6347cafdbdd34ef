"""`tidegate init --example clicks`, run to answers as its README says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.command import tidegate

from tidegate.cli.init import EXAMPLES
from tidegate.declarations import load_pipeline
from tidegate.engine.jars import jars
from tidegate.examples.broker import Broker
from tidegate.store.warehouse import Warehouse


def test_clicks_are_landed_and_answered_and_what_is_broken_is_where_it_was(broker: Broker, tmp_path: Path) -> None:
    if not jars("kafka"):
        pytest.skip("the jars of Spark's Kafka connector are not here: `make setup` fetches them")
    folder, warehouse = tmp_path / "clicks", tmp_path / "warehouse"
    assert tidegate("init", folder, "--example", "clicks").status == 0
    sends = [sys.executable, folder / "produce.py", "--servers", broker.servers]
    sent = subprocess.run(sends, capture_output=True, text=True, check=True).stdout
    span = EXAMPLES["clicks"].range.split()
    ran = tidegate("run", folder, "--warehouse", warehouse, *span, "--stage", "answers", KAFKA_SERVERS=broker.servers)
    assert ran.status == 0, ran.errors[-3000:]
    tables = Warehouse(warehouse, load_pipeline(folder))
    refused = tables.read_arrow("quarantine").to_pylist()
    told = {reason: int(count) for reason, count in re.findall(r"(\w+) (\d+)", sent.split("refused: ")[1])}
    assert Counter(row["reason"] for row in refused) == told
    records = int(sent.split()[0])
    assert tables.read_arrow("events_clicks").num_rows == records - len(refused)
    # Each has its place in the topic.
    places = {(row["source"], row["position"]) for row in refused}
    assert len(places) == len(refused) and all("clicks" in source for source, _ in places)
    for query in load_pipeline(folder).queries:
        assert tables.read_arrow(f"answers_{query.id}").num_rows > 0
    devices = set(tables.read_arrow("events_clicks")["device"].to_pylist())
    assert devices == {"phone", "tablet", "desktop"}
    shown = tables.read_arrow("answers_slowest_pages").to_pylist()
    assert {row["shard"] for row in shown} == {0, 1, 2} and all(row["place"] >= 0 for row in shown)
