"""Native Structured Streaming: watermarks, append mode, micro-batches of one file a side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from infra.benchmarks.join_aggregate.job import SIDES, Job, serve
from infra.benchmarks.join_aggregate.spark_rival import both_sides
from infra.benchmarks.rivals import spark_streaming
from infra.benchmarks.rivals.spark_session import start
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from infra.benchmarks.join_aggregate.workload import Data


def prepare(data: Data, folder: Path) -> None:
    """See ``rivals.spark_streaming.prepare``."""
    spark_streaming.prepare(data, folder, SIDES)


def run(session: SparkSession, job: Job) -> None:
    """The form's query, to its end."""
    # Windows of 1970 are aligned as ours, whose start is a whole day.
    window = F.window("event_time", f"{job.range_s} seconds", f"{job.every_s} seconds").alias("w")
    lefts, rights = (_stream(session, job, side) for side in SIDES)
    if job.form == "naive":
        joined = lefts.select(window, "key", "value").join(rights.select(window, "key"), ["w", "key"])
        found = joined.groupBy("w").agg(F.count("*").alias("count"), F.sum("value").alias("sum"))
    else:
        # Totals per key and window of both sides at once; then their products: no join, no tuples in the state.
        totals = both_sides(lefts, rights).groupBy(window, "key").agg(*(F.sum(c).alias(c) for c in ("l", "s", "r")))
        products = totals.where("l > 0 AND r > 0").select(
            "w", (F.col("l") * F.col("r")).alias("n"), F.expr("s * r AS t")
        )
        found = products.groupBy("w").agg(F.sum("n").alias("count"), F.sum("t").alias("sum"))
    last = F.timestamp_micros(F.lit(job.end_us))
    answers = found.where(F.col("w.end") <= last).select(F.unix_micros("w.end").alias("end_us"), "count", "sum")
    table = spark_streaming.answered(answers, job)
    job.write(*(np.asarray(table[name]) for name in ("end_us", "count", "sum")))


def _stream(session: SparkSession, job: Job, side: str) -> DataFrame:
    return spark_streaming.stream(session, job, side).select("event_time", "key", "value")


if __name__ == "__main__":
    serve(start, run)
