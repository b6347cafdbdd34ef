"""Native Spark batch SQL: one-shot, no watermark, no continuity."""

from __future__ import annotations

from infra.benchmarks.join_aggregate.job import SECOND_US, Job, serve
from infra.benchmarks.join_aggregate.spark_rival import both_sides, read, start
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

DELTA = """
WITH panes AS (
    SELECT key, (unix_micros(event_time) - {start_us}) DIV {every_us} AS p, SUM(l) AS l, SUM(s) AS s, SUM(r) AS r
    FROM tuples GROUP BY 1, 2
), changes AS (
    SELECT key, w, SUM(l) AS l, SUM(s) AS s, SUM(r) AS r FROM (
        SELECT key, p + 1 AS w, l, s, r FROM panes
        UNION ALL
        SELECT key, p + 1 + {width} AS w, -l, -s, -r FROM panes WHERE p + 1 + {width} <= {windows}
    ) GROUP BY key, w
), totals AS (
    SELECT w, l, s, r, SUM(l) OVER so_far AS ls, SUM(s) OVER so_far AS ss, SUM(r) OVER so_far AS rs FROM changes
    WINDOW so_far AS (PARTITION BY key ORDER BY w ROWS UNBOUNDED PRECEDING)
), deltas AS (
    SELECT w, SUM(ls * rs - (ls - l) * (rs - r)) AS count, SUM(ss * rs - (ss - s) * (rs - r)) AS sum
    FROM totals GROUP BY w
)
SELECT {start_us} + w * {every_us} AS end_us, SUM(count) OVER so_far AS count, SUM(sum) OVER so_far AS sum FROM deltas
WINDOW so_far AS (ORDER BY w ROWS UNBOUNDED PRECEDING)
"""
"""Signed changes per key and tick; running totals per key; what each changes in the product; running totals of that."""


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
        answers = session.sql(DELTA.format(start_us=job.start_us, every_us=every_us, width=width, windows=windows))
    table = answers.toArrow()
    write = job.write if job.form == "naive" else job.write_changes
    write(table["end_us"].to_numpy(), table["count"].to_numpy(), table["sum"].to_numpy())


if __name__ == "__main__":
    serve(start, run)
