"""Flink SQL in streaming mode: watermarks, Window Top-N. Runs under an interpreter of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.benchmarks.rivals import flink
from infra.benchmarks.rivals.flink import start
from infra.benchmarks.rivals.job import since_1970_us
from infra.benchmarks.top_k.job import STREAM, Job, serve

if TYPE_CHECKING:
    from infra.benchmarks.top_k.workload import Data

SOURCE = """
CREATE TEMPORARY TABLE IF NOT EXISTS tuples (
    event_us BIGINT, event_id BIGINT, `key` BIGINT, score DOUBLE,
    ts AS TO_TIMESTAMP_LTZ(event_us / 1000, 3), WATERMARK FOR ts AS ts - {slack}
) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')
"""

NAIVE = """
SELECT window_end, event_id, score FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end{key} ORDER BY score DESC) AS place
    FROM TABLE(HOP(TABLE {tuples}, DESCRIPTOR({time}), {every}, {range}))
) WHERE place <= {k}
"""
"""Window Top-N: every tuple once for each of its windows."""

PANES = """
CREATE TEMPORARY VIEW IF NOT EXISTS panes AS
SELECT wt, event_id, `key`, score FROM (
    SELECT window_time AS wt, event_id, `key`, score,
        ROW_NUMBER() OVER (PARTITION BY window_start, window_end{key} ORDER BY score DESC) AS place
    FROM TABLE(TUMBLE(TABLE tuples, DESCRIPTOR(ts), {every}))
) WHERE place <= {k}
"""
"""The Window Top-N of every pane, for a second one over these."""


def prepare(data: Data, folder: Path) -> None:
    """The tuples as CSV, in order of arrival."""
    folder.mkdir(parents=True)
    flink.write_csv(data.read(STREAM, ["event_time", "event_id", "key", "score"]), folder / f"{STREAM}.csv")


def run(tables: Any, job: Job) -> None:
    """The form's query; its few thousand rows are collected."""
    clauses = {"every": flink.interval(job.every_s), "range": flink.interval(job.range_s), "k": job.k}
    clauses["key"] = ", `key`" if job.grouped else ""
    path = Path(job.prepared) / f"{STREAM}.csv"
    tables.execute_sql(SOURCE.format(path=path, slack=flink.interval(job.slack_s)))
    source = {"tuples": "tuples", "time": "ts"}
    if job.form == "panes":
        tables.execute_sql(PANES.format(**clauses))
        source = {"tuples": "panes", "time": "wt"}
    found: list[tuple[int, int, float]] = []
    with tables.execute_sql(NAIVE.format(**clauses, **source)).collect() as rows:
        for end, event_id, score in rows:
            end_us = since_1970_us(end)
            if end_us <= job.end_us:
                found.append((end_us, event_id, score))
    job.write(*zip(*found, strict=True))


if __name__ == "__main__":
    serve(start, run)
