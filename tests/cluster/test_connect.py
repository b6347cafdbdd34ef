"""Every stage through a Spark Connect server: no context, no JVM of the driver's own, and the same rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.conftest import SPARK_HOME, driver, finish, free_port, rows_of, running

from tidegate.stages import calibrate

pytestmark = pytest.mark.spark


def test_every_stage_runs_on_a_spark_connect_server(shop, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    pipeline, here = shop
    port = free_port()
    command = [
        str(SPARK_HOME / "bin" / "spark-submit"),
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--master", "local[2]",
        "--conf", f"spark.connect.grpc.binding.port={port}",
        "--conf", "spark.connect.grpc.binding.address=127.0.0.1",
        "--conf", "spark.ui.enabled=false",
        "--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark-internal",
    ]  # fmt: skip
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TIDEGATE", "SPARK", "PYSPARK"))}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with running(command, tmp_path / "server.log", port, tmp_path / "server", **environment):
        process = driver(pipeline.folder, tmp_path / "wh", tmp_path, TIDEGATE_SPARK_MASTER=f"sc://127.0.0.1:{port}")
        assert finish(process, tmp_path).endswith(": 2 cores\n")
        # A stage alone, as spark-submit starts it: what a task is given must not be of its `__main__`.
        words = [calibrate.__file__, pipeline.folder, "--warehouse", tmp_path / "wh"]
        words += ["--from", "2026-01-05T10:00Z", "--to", "2026-01-05T11:00Z"]
        alone = {**os.environ, "TIDEGATE_SPARK_MASTER": f"sc://127.0.0.1:{port}"}
        done = subprocess.run([sys.executable, *words], env=alone, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert rows_of(pipeline, tmp_path / "wh") == here
