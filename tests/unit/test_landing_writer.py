"""What a task of landing writes of records of Kafka."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.declarations.models import Column, KafkaSource, Stream
from tidegate.landing.writer import LandingPlan, TaskFiles
from tidegate.store.landed import landed_name, landed_schema

STREAM = Stream(
    name="orders",
    format="jsonl",
    columns=(Column(name="id", type="string"), Column(name="at", type="timestamp")),
    id=("id",),
    event_time="at",
    arrival_time=None,
    rate=1.0,
    max_early_s=60,
    max_late_s=3600,
    source=KafkaSource(servers="kafka:9092", topic="orders"),
)


def test_headers_land_as_spark_gives_them_with_topic_partition_and_batch(tmp_path: Path) -> None:
    some = [("h", b"\x00"), ("h", None)]
    headers = pa.chunked_array([[some, None], [None, some]], landed_schema(STREAM).field("headers").type)
    count = len(headers)
    block = pa.table(
        {
            "partition": pa.array([3] * count, pa.int32()),
            "position": pa.array(range(count), pa.int64()),
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array([b'{"id": "a", "at": "2026-01-05T08:00:00Z"}'] * count),
            "headers": headers,
            "timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
        }
    )
    plan = LandingPlan(STREAM, str(tmp_path), str(tmp_path / "checkpoint"), 3_600_000_000, 1, 0, 0, 0)
    files = TaskFiles(plan, batch_id=7, partition=0)
    files.add(block)
    [file] = files.close()
    rows = pq.ParquetFile(tmp_path / landed_name(STREAM) / file.path).read().to_pylist()
    shown = [{"key": key, "value": value} for key, value in some]
    assert [row["headers"] for row in rows] == [shown, None, None, shown]
    assert {(row["source"], row["partition"], row["batch"]) for row in rows} == {("orders", 3, 7)}
