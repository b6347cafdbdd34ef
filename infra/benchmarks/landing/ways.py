"""The ways, each a process: ``python -m infra.benchmarks.landing.ways WAY FOLDER SERVERS``; prints ``done ROWS``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

TOPIC = "orders"
_AT_ONCE = "1000000"
_PIPELINE = """\
name: shop
owner: nobody
start: 2026-01-05T08:00:00Z
interval: 1 hour
tick: 1 minute
horizon: 1 hour
memory_budget: 1 GiB
process_budget: 4 GiB
streams:
  orders:
    source:
      kafka: {{servers: "{servers}", topic: {topic}}}
    format: jsonl
    columns: {{order_id: string, placed_at: timestamp, received_at: timestamp, customer: string, amount: double}}
    id: order_id
    event_time: placed_at
    arrival_time: received_at
    rate: 100 per second
    max_late: 1 hour
"""
_QUERY = "SELECT COUNT(*) AS orders FROM orders [10 MINUTES] EVERY 10 MINUTES\n"


def pipeline_folder(folder: Path, servers: str) -> Path:
    """The pipeline's folder."""
    pipeline = folder / "shop"
    (pipeline / "queries").mkdir(parents=True, exist_ok=True)
    (pipeline / "pipeline.yml").write_text(_PIPELINE.format(servers=servers, topic=TOPIC))
    (pipeline / "queries" / "orders_placed.sql").write_text(_QUERY)
    return pipeline


def tidegate(folder: Path, servers: str) -> int:
    """Landing and ingest, as ``tidegate run`` does them."""
    from tidegate.declarations import load_pipeline
    from tidegate.engine.context import RunContext
    from tidegate.stages.run import run
    from tidegate.store.intervals import intervals_between

    pipeline = load_pipeline(folder / "shop")
    span = datetime(2026, 1, 5, 8, tzinfo=UTC), datetime(2026, 1, 5, 11, tzinfo=UTC)
    with RunContext(pipeline, folder / "warehouse") as context:
        intervals = intervals_between(pipeline, *span)
        run(context, intervals, ["land", "ingest"])
        context.warehouse.refresh()
        tables = ("events_orders", "quarantine")
        return sum(context.warehouse.rows(table, i.label) for table in tables for i in intervals)


def spark(folder: Path, servers: str) -> int:
    """Spark's own: parsed by ``from_json``, appended to a Delta table."""
    return _spark(folder, servers, parsed=True)


def spark_raw(folder: Path, servers: str) -> int:
    """Spark's own: the records as they came, appended to a Delta table."""
    return _spark(folder, servers, parsed=False)


def _spark(folder: Path, servers: str, parsed: bool) -> int:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    from tidegate.engine.jars import jars_settings

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "2g")
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    session = builder.config(map=jars_settings(["kafka", "delta"])).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    home = folder / f"spark-{parsed}"
    source = session.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    source = source.option("subscribe", TOPIC).option("startingOffsets", "earliest")
    records = source.option("maxOffsetsPerTrigger", _AT_ONCE).load()
    if parsed:
        columns = "order_id STRING, placed_at TIMESTAMP, received_at TIMESTAMP, customer STRING, amount DOUBLE"
        records = records.select(f.from_json(f.col("value").cast("string"), columns).alias("o")).select("o.*")
    query = records.writeStream.format("delta").option("checkpointLocation", str(home / "checkpoint"))
    query.trigger(availableNow=True).start(str(home / "table")).awaitTermination()
    rows = int(session.read.format("delta").load(str(home / "table")).count())
    session.stop()
    return rows


WAYS: dict[str, Callable[[Path, str], int]] = {
    "tidegate": tidegate,
    "spark": spark,
    "spark_raw": spark_raw,
}

if __name__ == "__main__":
    way, where, at = sys.argv[1:]
    print("done", WAYS[way](Path(where), at), flush=True)
