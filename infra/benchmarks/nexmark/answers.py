"""Final answers of NEXMark's questions: Tidegate's truths, and DuckDB's rows from the same files."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
from infra.benchmarks.nexmark.feed import START
from infra.benchmarks.nexmark.questions import Question

from tidegate.store.warehouse import Warehouse

Row = tuple[Any, ...]


def ends(question: Question, span_s: float) -> list[datetime]:
    """The ends of all windows that hold any of the events of so many seconds."""
    last_s = round(span_s) + question.range_s - question.every_s
    return [START + timedelta(seconds=at_s) for at_s in range(question.every_s, last_s + 1, question.every_s)]


def truths(warehouse: Warehouse, name: str, question: Question) -> dict[datetime, list[Row]]:
    """The final rows of each window, sorted."""
    return _by_window(warehouse.read_arrow(f"truth_{name}").select(["window_end", *question.columns]).to_pylist())


def expected(feed: Path, question: Question, at: list[datetime]) -> dict[datetime, list[Row]]:
    """What DuckDB finds in windows that end then, sorted; of records with one id the first to arrive counts."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for stream in ("persons", "auctions", "bids"):
            database.execute(f"""CREATE TABLE {stream} AS SELECT * REPLACE (date_time::TIMESTAMPTZ AS date_time) FROM (
                SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY arrived) AS number
                FROM read_json('{feed}/{stream}.jsonl')) WHERE number = 1""")
        starts = [(end - timedelta(seconds=question.range_s), end) for end in at]
        database.execute("CREATE TABLE windows (window_start TIMESTAMPTZ, window_end TIMESTAMPTZ)")
        database.executemany("INSERT INTO windows VALUES (?, ?)", starts)
        found = database.execute(question.sql)
        names = [column[0] for column in found.description]
        return _by_window([dict(zip(names, row, strict=True)) for row in found.fetchall()])


def _by_window(rows: list[dict[str, Any]]) -> dict[datetime, list[Row]]:
    windows: dict[datetime, list[Row]] = {}
    for row in rows:
        windows.setdefault(row.pop("window_end"), []).append(tuple(row.values()))
    return {end: sorted(found, key=repr) for end, found in windows.items()}
