"""Flink SQL in streaming mode: watermarks, windows by event time. Runs under an interpreter of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.benchmarks.join_aggregate.job import SIDES, Job, serve
from infra.benchmarks.rivals import flink
from infra.benchmarks.rivals.flink import start
from infra.benchmarks.rivals.job import since_1970_us

if TYPE_CHECKING:
    from infra.benchmarks.join_aggregate.workload import Data

SOURCE = """
CREATE TEMPORARY TABLE IF NOT EXISTS {name} (
    event_us BIGINT, `key` BIGINT, `value` DOUBLE,
    ts AS TO_TIMESTAMP_LTZ(event_us / 1000 + {shift_ms}, 3), WATERMARK FOR ts AS ts - {slack}
) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')
"""

NAIVE = """
SELECT window_end, COUNT(*) AS n, SUM(`value`) AS t FROM (
    SELECT l.window_start, l.window_end, l.`value`
    FROM (SELECT * FROM TABLE(HOP(TABLE left_in, DESCRIPTOR(ts), {every}, {range}))) l
    JOIN (SELECT * FROM TABLE(HOP(TABLE right_in, DESCRIPTOR(ts), {every}, {range}))) r
    ON l.window_start = r.window_start AND l.window_end = r.window_end AND l.`key` = r.`key`
) GROUP BY window_start, window_end
"""
"""Every tuple once for each of its windows; these are joined and counted."""

TUPLES = """
CREATE TEMPORARY VIEW IF NOT EXISTS tuples AS
SELECT ts, `key`, CAST(1 AS DOUBLE) AS l, `value` AS s, CAST(0 AS DOUBLE) AS r FROM left_in
UNION ALL
SELECT ts, `key`, CAST(0 AS DOUBLE), CAST(0 AS DOUBLE), CAST(1 AS DOUBLE) FROM right_in
"""
FACTORED = """
SELECT window_end, SUM(l * r) AS n, SUM(s * r) AS t FROM (
    SELECT window_start, window_end, SUM(l) AS l, SUM(s) AS s, SUM(r) AS r
    FROM TABLE(HOP(TABLE tuples, DESCRIPTOR(ts), {every}, {range})) GROUP BY `key`, window_start, window_end
) GROUP BY window_start, window_end
"""
"""Totals per key and window of both sides at once (Flink shares panes); then their products."""

CHANGES = (
    TUPLES.replace("EXISTS tuples", "EXISTS changes")
    + """
UNION ALL
SELECT ts, `key`, CAST(-1 AS DOUBLE), -`value`, CAST(0 AS DOUBLE) FROM left_out
UNION ALL
SELECT ts, `key`, CAST(0 AS DOUBLE), CAST(0 AS DOUBLE), CAST(-1 AS DOUBLE) FROM right_out
"""
)
TOTALS = """
CREATE TEMPORARY VIEW IF NOT EXISTS totals AS
SELECT wt, l, s, r, SUM(l) OVER so_far AS ls, SUM(s) OVER so_far AS ss, SUM(r) OVER so_far AS rs FROM (
    SELECT `key`, window_time AS wt, SUM(l) AS l, SUM(s) AS s, SUM(r) AS r
    FROM TABLE(TUMBLE(TABLE changes, DESCRIPTOR(ts), {every})) GROUP BY `key`, window_start, window_end, window_time
) WINDOW so_far AS (PARTITION BY `key` ORDER BY wt ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
"""
DELTAS = """
CREATE TEMPORARY VIEW IF NOT EXISTS deltas AS
SELECT window_end, window_time AS wt,
    SUM(ls * rs - (ls - l) * (rs - r)) AS n, SUM(ss * rs - (ss - s) * (rs - r)) AS t
FROM TABLE(TUMBLE(TABLE totals, DESCRIPTOR(wt), {every})) GROUP BY window_start, window_end, window_time
"""
DELTA = """
SELECT window_end, SUM(n) OVER so_far AS n, SUM(t) OVER so_far AS t FROM deltas
WINDOW so_far AS (ORDER BY wt ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
"""
"""Every tuple is read twice, the second time a range later: it enters, it leaves. Then as DuckDB's and Spark's."""


def prepare(data: Data, folder: Path) -> None:
    """The tuples as CSV, in order of arrival, one file a side; values as whole numbers."""
    folder.mkdir(parents=True)
    for side in SIDES:
        tuples = data.read(side, ["event_time", "key", "value"])
        values = tuples["value"].cast("int64")
        flink.write_csv(tuples.set_column(2, "value", values), folder / f"{side}.csv")


def run(tables: Any, job: Job) -> None:
    """The form's query; its few hundred rows are collected."""
    for side in SIDES:
        for name, shift_s in ((f"{side}_in", 0), (f"{side}_out", job.range_s)):
            path = Path(job.prepared) / f"{side}.csv"
            tables.execute_sql(
                SOURCE.format(name=name, path=path, shift_ms=shift_s * 1000, slack=flink.interval(job.slack_s))
            )
    clauses = {"every": flink.interval(job.every_s), "range": flink.interval(job.range_s)}
    views, query = {
        "naive": ((), NAIVE),
        "factored": ((TUPLES,), FACTORED),
        "delta": ((CHANGES, TOTALS, DELTAS), DELTA),
    }[job.form]
    for view in views:
        tables.execute_sql(view.format(**clauses))
    ends_us, counts, totals = [], [], []
    with tables.execute_sql(query.format(**clauses)).collect() as rows:
        for end, count, total in rows:
            end_us = since_1970_us(end)
            if end_us <= job.end_us:
                ends_us.append(end_us)
                counts.append(count)
                totals.append(total)
    (job.write_changes if job.form == "delta" else job.write)(ends_us, counts, totals)


if __name__ == "__main__":
    serve(start, run)
