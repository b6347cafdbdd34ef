"""The query on Spark's own operators, batch or streaming: naive, and by hand on panes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from infra.benchmarks.top_k.job import Job
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def best_of_windows(tuples: DataFrame, job: Job) -> DataFrame:
    """end_us, event_id, score of the answers, from event_time, event_id, key, score."""
    key = ["key"] if job.grouped else []
    best = F.max_by(F.struct("event_id", "score"), "score", job.k).alias("best")
    # Windows of 1970 are aligned as ours, whose start is a whole day.
    window = F.window("event_time", f"{job.range_s} seconds", f"{job.every_s} seconds").alias("w")
    if job.form == "panes":
        pane = F.window("event_time", f"{job.every_s} seconds").alias("pane")
        tuples = tuples.groupBy(pane, *key).agg(best)
        tuples = tuples.select(F.window_time("pane").alias("event_time"), *key, F.explode("best").alias("t"))
        tuples = tuples.select("event_time", *key, "t.event_id", "t.score")
    found = tuples.groupBy(window, *key).agg(best)
    last = F.timestamp_micros(F.lit(job.end_us))
    answers = found.where(F.col("w.end") <= last).select(F.unix_micros("w.end").alias("end_us"), F.inline("best"))
    return answers


def write(table: pa.Table, job: Job) -> None:
    """Write what ``best_of_windows`` found."""
    job.write(*(np.asarray(table[name]) for name in ("end_us", "event_id", "score")))
