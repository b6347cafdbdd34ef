"""Flink SQL in streaming mode: watermarks, windows by event time. Runs under an interpreter of its own.

Flink's PyPI package has no Parquet format, so it reads CSV made beforehand (event_us, key, value; not measured).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.benchmarks.join_aggregate.job import SECOND_US, SIDES, Job, serve

if TYPE_CHECKING:
    from infra.benchmarks.join_aggregate.workload import Data

PACKAGE = "apache-flink==2.3.0"
HEAP = "6g"

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


def interpreter(venv: Path, say: Any = print) -> Path:
    """The Python that has Flink, installed when first asked for; RuntimeError if it cannot be."""
    python = venv / "bin" / "python"
    ready = venv / f".has-{PACKAGE}"
    if not ready.exists():
        say(f"installing {PACKAGE} into {venv} …")
        for command in (
            [sys.executable, "-m", "venv", str(venv)],
            [str(python), "-m", "pip", "install", "--quiet", "--progress-bar", "off", PACKAGE],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                lines = [line for line in (done.stderr or done.stdout).splitlines() if not line.startswith("WARNING")]
                raise RuntimeError(f"{PACKAGE} cannot be installed: {lines[-1] if lines else 'pip said nothing'}")
        ready.touch()
    return python


def prepare(data: Data, folder: Path) -> None:
    """The tuples as CSV, in order of arrival, one file a side."""
    import pyarrow as pa
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    for side in SIDES:
        files = sorted((data.folder / f"events_{side}").glob("*/*.parquet"))
        tuples = pa.concat_tables([pq.ParquetFile(file).read(["event_time", "key", "value"]) for file in files])
        event_us = tuples["event_time"].cast(pa.int64())
        table = pa.table({"event_us": event_us, "key": tuples["key"], "value": tuples["value"].cast(pa.int64())})
        csv.write_csv(table, folder / f"{side}.csv", csv.WriteOptions(include_header=False))


def start(job: Job) -> Any:
    """A table environment with a cluster in the JVM beside it, which the first query starts."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in {
        "parallelism.default": "2",
        "table.local-time-zone": "UTC",
        "pipeline.object-reuse": "true",
        "table.exec.mini-batch.enabled": "false",
        "io.tmp.dirs": job.scratch,
        "taskmanager.memory.managed.size": "512m",
        "taskmanager.memory.network.max": "128m",
        "taskmanager.numberOfTaskSlots": "2",
    }.items():
        tables.get_config().set(name, value)
    return tables


def _seconds(seconds: int) -> str:
    return f"INTERVAL '{seconds}' SECOND({max(2, len(str(seconds)))})"


def run(tables: Any, job: Job) -> None:
    """The form's query; its few hundred rows are collected."""
    for side in SIDES:
        for name, shift_s in ((f"{side}_in", 0), (f"{side}_out", job.range_s)):
            path = Path(job.prepared) / f"{side}.csv"
            tables.execute_sql(
                SOURCE.format(name=name, path=path, shift_ms=shift_s * 1000, slack=_seconds(job.slack_s))
            )
    clauses = {"every": _seconds(job.every_s), "range": _seconds(job.range_s)}
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
            end_us = _since_1970_us(end)
            if end_us <= job.end_us:
                ends_us.append(end_us)
                counts.append(count)
                totals.append(total)
    (job.write_changes if job.form == "delta" else job.write)(ends_us, counts, totals)


def _since_1970_us(end: Any) -> int:
    from datetime import datetime, timedelta

    return (end - datetime(1970, 1, 1)) // timedelta(seconds=1) * SECOND_US


if __name__ == "__main__":
    serve(start, run)
