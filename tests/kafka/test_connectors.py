"""The fetched jars are what Spark's connectors need: Kafka's, Delta's and S3's, in one session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kafka.topics import Topics
from tests.objects.server import a_bucket, s3_server

from tidegate.engine.jars import jars
from tidegate.examples.broker import Broker

PROGRAM = Path(__file__).with_name("connectors_program.py")


@pytest.mark.slow
def test_a_topic_goes_into_a_delta_table_in_an_object_store_without_what_was_aborted(
    broker: Broker, topics: Topics, topic: Callable[..., str], tmp_path: Path
) -> None:
    if not all(map(jars, ("kafka", "delta", "s3"))):
        pytest.skip("the jars of Spark's connectors are not here: `make setup` fetches them")
    name = topic()
    topics.transaction(name, [b"a", b"b"], commit=True, by="connectors")
    topics.transaction(name, [b"ghost"] * 3, commit=False, by="connectors")
    topics.send(name, [b"c"])
    with s3_server(tmp_path) as endpoint, a_bucket(endpoint) as bucket:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), broker.servers, name, endpoint, str(bucket).removeprefix("s3://")],
            capture_output=True,
            text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            timeout=240,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == ["a", "b", "c"]
