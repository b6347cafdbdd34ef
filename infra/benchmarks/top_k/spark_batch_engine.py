"""Native Spark batch: one-shot, no watermark, no continuity."""

from __future__ import annotations

from infra.benchmarks.rivals.spark_session import start
from infra.benchmarks.top_k.job import STREAM, Job, serve
from infra.benchmarks.top_k.spark_rival import best_of_windows, write
from pyspark.sql import SparkSession


def run(session: SparkSession, job: Job) -> None:
    """The form's query; its few thousand rows are written by the driver."""
    write(best_of_windows(session.read.parquet(job.stream(STREAM)), job).toArrow(), job)


if __name__ == "__main__":
    serve(start, run)
