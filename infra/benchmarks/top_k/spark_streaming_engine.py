"""Native Structured Streaming: watermarks, append mode, micro-batches of one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from infra.benchmarks.rivals import spark_streaming
from infra.benchmarks.rivals.spark_session import start
from infra.benchmarks.top_k.job import STREAM, Job, serve
from infra.benchmarks.top_k.spark_rival import best_of_windows, write
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from infra.benchmarks.top_k.workload import Data


def prepare(data: Data, folder: Path) -> None:
    """See ``rivals.spark_streaming.prepare``."""
    spark_streaming.prepare(data, folder, (STREAM,))


def run(session: SparkSession, job: Job) -> None:
    """The form's query, to its end."""
    tuples = spark_streaming.stream(session, job, STREAM).select("event_time", "event_id", "key", "score")
    write(spark_streaming.answered(best_of_windows(tuples, job), job), job)


if __name__ == "__main__":
    serve(start, run)
