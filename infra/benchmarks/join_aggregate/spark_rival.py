"""What Spark batch and streaming read."""

from __future__ import annotations

from infra.benchmarks.join_aggregate.job import SIDES, Job
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def read(session: SparkSession, job: Job) -> dict[str, DataFrame]:
    """Side → its tuples: event_time, key, value."""
    return {side: session.read.parquet(job.stream(side)).select("event_time", "key", "value") for side in SIDES}


def both_sides(lefts: DataFrame, rights: DataFrame) -> DataFrame:
    """Both sides' tuples in one frame: a left is l = 1 and s = value, a right r = 1."""
    zero, one = F.lit(0.0), F.lit(1.0)
    return lefts.select("event_time", "key", one.alias("l"), F.col("value").alias("s"), zero.alias("r")).unionAll(
        rights.select("event_time", "key", zero.alias("l"), zero.alias("s"), one.alias("r"))
    )
