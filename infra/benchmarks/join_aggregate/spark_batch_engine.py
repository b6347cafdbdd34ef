"""Native Spark batch SQL: one-shot, no watermark, no continuity."""

from __future__ import annotations

from infra.benchmarks.join_aggregate import delta_sql
from infra.benchmarks.join_aggregate.job import SECOND_US, Job, serve
from infra.benchmarks.join_aggregate.spark_rival import both_sides, read
from infra.benchmarks.rivals.spark_session import start
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

PANES = """
WITH panes AS (
    SELECT key, (unix_micros(event_time) - {start_us}) DIV {every_us} AS p, SUM(l) AS l, SUM(s) AS s, SUM(r) AS r
    FROM tuples GROUP BY 1, 2
"""
DELTA = PANES + delta_sql.STEPS


def run(session: SparkSession, job: Job) -> None:
    """The form's query; its few hundred rows are written by the driver."""
    sides = read(session, job)
    if job.form == "naive":
        window = F.window("event_time", f"{job.range_s} seconds", f"{job.every_s} seconds").alias("w")
        lefts, rights = sides["left"].select(window, "key", "value"), sides["right"].select(window, "key")
        found = (
            lefts.join(rights, ["w", "key"]).groupBy("w").agg(F.count("*").alias("count"), F.sum("value").alias("sum"))
        )
        last = F.timestamp_micros(F.lit(job.end_us))
        answers = found.where(F.col("w.end") <= last).select(F.unix_micros("w.end").alias("end_us"), "count", "sum")
    else:
        both_sides(sides["left"], sides["right"]).createOrReplaceTempView("tuples")
        every_us = job.every_s * SECOND_US
        width, windows = job.range_s // job.every_s, len(job.ends_us)
        found = session.sql(DELTA.format(start_us=job.start_us, every_us=every_us, width=width, windows=windows))
        answers = found.withColumn("end_us", F.lit(job.start_us) + F.col("w") * every_us)
    table = answers.toArrow()
    write = job.write if job.form == "naive" else job.write_changes
    write(table["end_us"].to_numpy(), table["count"].to_numpy(), table["sum"].to_numpy())


if __name__ == "__main__":
    serve(start, run)
