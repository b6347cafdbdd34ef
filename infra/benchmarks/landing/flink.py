"""Flink SQL's own ``kafka → filesystem``: JSON in, Parquet out, exactly once by checkpoints; it judges nothing.

Runs under an interpreter of its own, ``python -m infra.benchmarks.landing.flink FOLDER SERVERS JAR…``; prints
``done ROWS``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

from infra.benchmarks.landing.ways import TOPIC
from infra.benchmarks.rivals import flink

HEAP = "2g"
CONNECTORS = (
    "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2",
    f"org.apache.flink:flink-sql-parquet:{flink.PACKAGE.partition('==')[2]}",
)
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
# Flink's Parquet format calls Hadoop's classes, which Spark's wheel has.
_HADOOP = ("hadoop-client-api-*.jar", "hadoop-client-runtime-*.jar")
_CHECKPOINT_EVERY = "10 s"
_COLUMNS = "order_id STRING, placed_at TIMESTAMP_LTZ(6), received_at TIMESTAMP_LTZ(6), customer STRING, amount DOUBLE"
_SOURCE = f"""
CREATE TEMPORARY TABLE orders ({_COLUMNS}) WITH (
    'connector' = 'kafka', 'topic' = '{TOPIC}', 'properties.bootstrap.servers' = '{{servers}}',
    'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
    'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'
)"""
_SINK = f"""
CREATE TEMPORARY TABLE landed ({_COLUMNS}) WITH ('connector' = 'filesystem', 'path' = '{{path}}', 'format' = 'parquet')
"""


def command(folder: Path, servers: str, venv: Path, say: Callable[[str], None]) -> list[str]:
    """What runs it; RuntimeError if Flink or its connectors, which are put beside it, cannot be had."""
    python = flink.interpreter(venv, say)
    connectors = venv / "connectors"
    for coordinate in CONNECTORS:
        _, artifact, version = coordinate.split(":")
        if not (connectors / f"{artifact}-{version}.jar").exists():
            _fetch(coordinate, connectors)
    spark = find_spec("pyspark")
    assert spark is not None and spark.submodule_search_locations is not None
    beside = Path(spark.submodule_search_locations[0]) / "jars"
    jars = [*connectors.glob("*.jar"), *(jar for pattern in _HADOOP for jar in beside.glob(pattern))]
    return [str(python), "-m", "infra.benchmarks.landing.flink", str(folder), servers, *map(str, jars)]


def _fetch(coordinate: str, folder: Path) -> None:
    options = [f"-Dartifact={coordinate}", f"-DoutputDirectory={folder}"]
    try:
        done = subprocess.run(["mvn", "-q", "-B", *options, _PLUGIN], capture_output=True, text=True, check=False)
    except OSError as error:
        raise RuntimeError(f"{coordinate} cannot be fetched: {error}") from None
    if done.returncode:
        raise RuntimeError(f"{coordinate} cannot be fetched by Maven")


def run(folder: Path, servers: str, jars: list[str]) -> int:
    """All that the topic has now, into Parquet files; how many rows they have."""
    import pyarrow.parquet as pq

    home = folder / "flink"
    landed = home / "landed"
    (home / "scratch").mkdir(parents=True)
    tables = flink.start(SimpleNamespace(scratch=str(home / "scratch")))  # type: ignore[arg-type]
    for name, value in {
        "pipeline.jars": ";".join(f"file://{jar}" for jar in jars),
        "execution.checkpointing.interval": _CHECKPOINT_EVERY,
        "execution.checkpointing.dir": f"file://{home}/checkpoints",
    }.items():
        tables.get_config().set(name, value)
    tables.execute_sql(_SOURCE.format(servers=servers))
    tables.execute_sql(_SINK.format(path=f"file://{landed}"))
    tables.execute_sql("INSERT INTO landed SELECT * FROM orders").wait()
    # What is not committed has a name that begins with a dot.
    return sum(pq.read_metadata(file).num_rows for file in landed.rglob("part-*"))


if __name__ == "__main__":
    where, at, *needed = sys.argv[1:]
    print("done", run(Path(where), at, needed), flush=True)
