"""DuckDB on the same Parquet: one-shot, no watermark, no continuity."""

from __future__ import annotations

import duckdb
import numpy as np
from infra.benchmarks.rivals.duckdb_session import start
from infra.benchmarks.top_k.job import SECOND_US, STREAM, Job, serve

TUPLES = """
WITH tuples AS (
    SELECT {pane} AS p, key, {{'id': event_id, 'score': score}} AS t FROM read_parquet('{files}')
)"""
NAIVE = (
    TUPLES
    + """
SELECT w, unnest(best, recursive := true) FROM (
    SELECT w, max_by(t, t.score, {k}) AS best
    FROM (SELECT key, t, unnest(range(p + 1, p + 1 + {width})) AS w FROM tuples)
    WHERE w <= {windows} GROUP BY w{key}
)
"""
)
"""Every tuple once for each of its windows."""

PANES = (
    TUPLES
    + """
, panes AS (
    SELECT p, key, unnest(best) AS t FROM (
        SELECT p, {any_key} AS key, max_by(t, t.score, {k}) AS best FROM tuples GROUP BY p{key}
    )
)
SELECT w, unnest(best, recursive := true) FROM (
    SELECT w, max_by(t, t.score, {k}) AS best
    FROM (SELECT key, t, unnest(range(p + 1, p + 1 + {width})) AS w FROM panes)
    WHERE w <= {windows} GROUP BY w{key}
)
"""
)
"""The best of every pane; each of these once for each of its windows."""


def run(connection: duckdb.DuckDBPyConnection, job: Job) -> None:
    """The form's query."""
    sql = (NAIVE if job.form == "naive" else PANES).format(
        files=f"{job.stream(STREAM)}/*/*.parquet",
        pane=f"(epoch_us(event_time) - {job.start_us}) // {job.every_s * SECOND_US}",
        k=job.k,
        key=", key" if job.grouped else "",
        any_key="key" if job.grouped else "0",
        width=job.panes,
        windows=len(job.ends_us),
    )
    found = connection.execute(sql).fetchnumpy()
    window, event_id, score = (np.asarray(column) for column in found.values())
    job.write(job.start_us + window * job.every_s * SECOND_US, event_id, score)


if __name__ == "__main__":
    serve(start, run)
