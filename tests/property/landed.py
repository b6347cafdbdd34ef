"""Landed rows, and the product's reading of them, for the laws of `test_message_laws`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from tests.property.judging import Outcome, rows_in_words

from tidegate.declarations.models import Column, KafkaSource, SparkSource, Stream
from tidegate.sources.files import SourceFile
from tidegate.sources.formats import Batch
from tidegate.sources.formats.messages import message_batches
from tidegate.sources.records import Judged, judge
from tidegate.sources.registry import Schemas

KAFKA = KafkaSource(servers="kafka:9092", topic="orders")
SPARK = SparkSource(format="delta")
TIMESTAMP = pa.timestamp("us", "UTC")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Header = tuple[str, bytes | None]
Landed = dict[str, Sequence[Any]]


def from_kafka(stream: Stream, source: KafkaSource = KAFKA, more: Sequence[Column] = ()) -> Stream:
    """The stream as values of Kafka, with more columns."""
    return stream.model_copy(update={"source": source, "path": "", "columns": (*stream.columns, *more)})


def kafka_rows(values: Sequence[bytes | None], **parts: Sequence[Any]) -> pa.Table:
    """Rows as they land, by parts; those that are not there are as little as can be."""
    count = len(values)
    given: Landed = {
        "batch": [0] * count,
        "landed_at": [0] * count,
        "position": list(range(count)),
        "key": [None] * count,
        "headers": [[] for _ in range(count)],
        "timestamp": [0] * count,
        **parts,
    }
    columns = {
        "batch": pa.array(given["batch"], pa.int64()),
        "landed_at": pa.array(given["landed_at"], TIMESTAMP),
        "arrival": pa.nulls(count, TIMESTAMP),
        "source": pa.array(["kafka"] * count, pa.string()),
        "generation": pa.array([0] * count, pa.int64()),
        "partition": pa.array([3] * count, pa.int32()),
        "position": pa.array(given["position"], pa.int64()),
        "key": pa.array(given["key"], pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array([[{"key": k, "value": v} for k, v in one] for one in given["headers"]], HEADERS),
        "timestamp": pa.array(given["timestamp"], TIMESTAMP),
        "day": pa.array(["2024-03-01"] * count, pa.string()),
    }
    return pa.table(columns)


def judged(
    stream: Stream,
    file: SourceFile,
    rows: pa.Table,
    at_once: bool,
    schemas: Schemas | None = None,
    about: Callable[[Batch], None] = lambda batch: None,
) -> Outcome:
    """What becomes of landed rows. ``about``: says more of each batch."""
    one = Judged()
    read: list[int] = []
    for batch in message_batches(stream, rows, schemas, {}):
        about(batch)
        read += batch.positions.tolist()
        judge(stream, file, batch, one, at_once)
    assert read == rows.column("position").to_pylist()
    tuples = [row for part in one.tuples for row in rows_in_words(part.rows, part.others, 0)]
    refused = [
        (r.position, r.line, r.verdict.reason, r.verdict.column, r.verdict.arrival_us, r.text) for r in one.refused
    ]
    return sorted(tuples, key=lambda row: row[-2:]), sorted(refused, key=lambda row: row[:2])


def arrivals_judged(
    stream: Stream, file: SourceFile, rows: pa.Table, schemas: Schemas | None = None
) -> list[int | None]:
    """Of each row the arrival that the judge reads record by record."""
    tuples, refused = judged(stream, file, rows, False, schemas)
    arrived: dict[int, int | None] = {row[-2]: int(row[2]) for row in tuples}
    arrived |= {row[0]: row[4] for row in refused}
    return [arrived[position] for position in rows.column("position").to_pylist()]


def us(instants: pa.Array) -> list[int | None]:
    """Timestamps as microseconds."""
    found: list[int | None] = instants.cast(pa.int64()).to_pylist()
    return found


def given(arrival_us: np.ndarray, too_early: np.ndarray) -> Callable[[Batch], None]:
    """Says of each record when it arrived; positions count from 0."""

    def say(batch: Batch) -> None:
        batch.arrival_us, batch.too_early = arrival_us[batch.positions], too_early[batch.positions]

    return say
