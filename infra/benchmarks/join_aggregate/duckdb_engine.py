"""DuckDB on the same Parquet: one-shot, no watermark, no continuity."""

from __future__ import annotations

import duckdb
import numpy as np
from infra.benchmarks.join_aggregate import delta_sql
from infra.benchmarks.join_aggregate.job import SECOND_US, Job, serve
from infra.benchmarks.rivals.duckdb_session import start

NAIVE = """
WITH lefts AS (
    SELECT key, value, unnest(range(p + 1, p + 1 + {width})) AS w
    FROM (SELECT *, {pane} AS p FROM read_parquet('{left}'))
), rights AS (
    SELECT key, unnest(range(p + 1, p + 1 + {width})) AS w
    FROM (SELECT *, {pane} AS p FROM read_parquet('{right}'))
)
SELECT w, COUNT(*) AS count, SUM(value) AS sum FROM lefts JOIN rights USING (key, w) WHERE w <= {windows} GROUP BY w
"""
"""Every tuple once for each of its windows; these are joined and counted."""

PANES = """
WITH panes AS (
    SELECT key, {pane} AS p, COUNT(*)::DOUBLE AS l, SUM(value) AS s, 0.0::DOUBLE AS r
    FROM read_parquet('{left}') GROUP BY ALL
    UNION ALL
    SELECT key, {pane} AS p, 0.0::DOUBLE AS l, 0.0::DOUBLE AS s, COUNT(*)::DOUBLE AS r
    FROM read_parquet('{right}') GROUP BY ALL
"""
DELTA = PANES + delta_sql.STEPS


def run(connection: duckdb.DuckDBPyConnection, job: Job) -> None:
    """The form's query."""
    sql = (NAIVE if job.form == "naive" else DELTA).format(
        left=f"{job.stream('left')}/*/*.parquet",
        right=f"{job.stream('right')}/*/*.parquet",
        pane=f"(epoch_us(event_time) - {job.start_us}) // {job.every_s * SECOND_US}",
        width=job.range_s // job.every_s,
        windows=len(job.ends_us),
    )
    found = connection.execute(sql).fetchnumpy()
    window, count, total = (np.asarray(column) for column in found.values())
    ends_us = job.start_us + window * job.every_s * SECOND_US
    (job.write if job.form == "naive" else job.write_changes)(ends_us, count, total)


if __name__ == "__main__":
    serve(start, run)
