"""The same questions to DuckDB on all data, to a uniform sample, and to rollups of the store's size."""

from __future__ import annotations

import time
from pathlib import Path

import duckdb
import numpy as np
from infra.benchmarks.history.__main__ import Truth, report
from infra.benchmarks.history.stream import KINDS, TICK_US

_ROLLUP_VALUES = 3
_SAMPLE_VALUES = 4


def ask_rivals(
    full: Path, tuples: int, sampled: int, windows: dict[str, list[tuple[int, int, int]]], truth: Truth
) -> None:
    """Print a line a rival and part of the past.

    The uniform sample has as many rows as the store; rollups by kind have as many values: count, sum and time a row.
    """
    print(f"  {full.stat().st_size / 1e6:,.1f} MB is the full data as Parquet")
    connection = duckdb.connect()
    bucket = max(1, tuples * KINDS * _ROLLUP_VALUES // (sampled * _SAMPLE_VALUES)) * TICK_US
    rows = f"'{full}'"
    connection.execute(f"CREATE TABLE uniform AS SELECT * FROM {rows} WHERE hash(event_us) % {tuples} < {sampled}")
    connection.execute(
        f"CREATE TABLE rollup AS SELECT event_us // {bucket} AS bucket, kind, count(*) AS n, sum(value) AS total "
        f"FROM {rows} GROUP BY ALL"
    )
    questions = {
        "DuckDB, all data": f"SELECT avg(value) FROM {rows} WHERE event_us >= ? AND event_us < ? AND kind = ?",
        "uniform sample": "SELECT avg(value) FROM uniform WHERE event_us >= ? AND event_us < ? AND kind = ?",
        "rollups by kind, buckets touched": (
            f"SELECT sum(total) / sum(n) FROM rollup WHERE bucket >= ? // {bucket} AND bucket <= (? - 1) // {bucket} "
            "AND kind = ?"
        ),
    }
    for name, spans in windows.items():
        for rival, sql in questions.items():
            errors, seconds = [], []
            for start, end, kind in spans:
                begun = time.perf_counter()
                found = connection.execute(sql, [start * TICK_US, end * TICK_US, kind]).fetchone()
                seconds.append(time.perf_counter() - begun)
                exact = truth(start, end, kind)
                value = found[0] if found and found[0] is not None else np.nan
                errors.append(abs(value - exact) / abs(exact))
            report(f"{rival}, {name}", errors, seconds)
