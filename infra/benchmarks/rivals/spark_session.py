"""The session that native Spark is measured in: two cores, Spark's own settings otherwise."""

from __future__ import annotations

import os
import sys

from infra.benchmarks.rivals.job import Job
from pyspark.sql import SparkSession

HEAP = "6g"


def start(job: Job) -> SparkSession:
    """The session of an engine's process."""
    return session_in(job.scratch)


def session_in(scratch: str) -> SparkSession:
    """A session with both compilers and the collector that Java picks; adaptive execution as Spark has it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", HEAP)
        .config("spark.driver.host", "localhost")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .config("spark.local.dir", scratch)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", f"{scratch}/warehouse")
        .config("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session
