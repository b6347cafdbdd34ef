"""The connection that DuckDB is measured in."""

from __future__ import annotations

import os

import duckdb
from infra.benchmarks.rivals.job import Job


def start(job: Job) -> duckdb.DuckDBPyConnection:
    """A connection in memory that may spill into the scratch folder."""
    os.makedirs(job.scratch, exist_ok=True)
    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": os.cpu_count() or 1,
        "temp_directory": job.scratch,
        "memory_limit": "8GB",
    }
    return duckdb.connect(config=settings)
