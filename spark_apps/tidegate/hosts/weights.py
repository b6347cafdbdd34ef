"""What tuples take in their windows where only Spark computes the expressions that it depends on."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tidegate.declarations.models import Stream
from tidegate.declarations.tables import event_schema
from tidegate.hosts import planner
from tidegate.hosts.context import RunContext


def with_weights(context: RunContext, stream: Stream, file: str, counts: pa.Table) -> pa.Table:
    """The counts (slot_us, pane_us → tuples, bytes) of a file of tuples, with the bytes as Spark computes them."""
    if not counts.num_rows:
        return counts
    tick_us = context.pipeline.tick_s * 1_000_000
    frame = context.spark.read.schema(from_arrow_schema(event_schema(stream))).parquet(file)
    weighed = frame.select(
        *((F.floor(F.unix_micros(t) / tick_us) * tick_us).cast("bigint").alias(n) for n, t in _TIMES),
        planner.tuple_bytes(context.pipeline, stream).alias("bytes"),
    )
    sums = weighed.groupBy(*(n for n, _ in _TIMES)).agg(F.sum("bytes").cast("double").alias("bytes")).toArrow()
    joined = counts.drop_columns("bytes").join(sums, [n for n, _ in _TIMES])
    return joined.select(counts.column_names)


_TIMES = (("slot_us", "arrival_time"), ("pane_us", "event_time"))


def spark_weights(context: RunContext, stream: Stream, rows: pa.Table) -> pa.Array:
    """What each tuple takes, int64, as Spark computes it."""
    if not rows.num_rows:
        return pa.array([], pa.int64())
    numbered = rows.append_column("_row", pa.array(range(rows.num_rows), pa.int64()))
    frame: DataFrame = context.spark.createDataFrame(numbered)
    found = frame.select("_row", planner.tuple_bytes(context.pipeline, stream).alias("bytes")).toArrow()
    return found.sort_by("_row").column("bytes").combine_chunks()
