"""The same questions to DuckDB on all data, to a uniform sample, and to rollups of the store's size."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import numpy as np
from infra.benchmarks.history.__main__ import Truth, report
from infra.benchmarks.history.stream import KINDS, TICK_US

_ROLLUP_VALUES = 3
_SAMPLE_VALUES = 4
Windows = dict[str, list[tuple[int, int, int]]]
Answer = Callable[[str, list[int]], float | None]


def ask_rivals(full: Path, tuples: int, sampled: int, windows: Windows, truth: Truth) -> None:
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

    def answer(sql: str, values: list[int]) -> float | None:
        found = connection.execute(sql, values).fetchone()
        return found[0] if found else None

    for name, spans in windows.items():
        for rival, sql in questions.items():
            _ask(f"{rival}, {name}", answer, sql, spans, truth)


def ask_spark(full: Path, scratch: Path, windows: Windows, truth: Truth, most: int) -> None:
    """Spark on all data, the same file: so many questions to each part of the past, after one that is not counted."""
    from infra.benchmarks.rivals.spark_session import session_in

    session = session_in(str(scratch))
    try:
        session.read.parquet(str(full)).createOrReplaceTempView("readings")
        sql = "SELECT avg(value) FROM readings WHERE event_us >= ? AND event_us < ? AND kind = ?"

        def answer(sql: str, values: list[int]) -> float | None:
            return session.sql(sql, values).first()[0]  # type: ignore[index, no-any-return]

        answer(sql, [0, TICK_US, 0])
        for name, spans in windows.items():
            _ask(f"Spark, all data, {name}", answer, sql, spans[:most], truth)
    finally:
        session.stop()


def _ask(name: str, answer: Answer, sql: str, spans: Sequence[tuple[int, int, int]], truth: Truth) -> None:
    errors, seconds = [], []
    for start, end, kind in spans:
        begun = time.perf_counter()
        found = answer(sql, [start * TICK_US, end * TICK_US, kind])
        seconds.append(time.perf_counter() - begun)
        exact = truth(start, end, kind)
        errors.append(abs((np.nan if found is None else found) - exact) / abs(exact))
    report(name, errors, seconds)
