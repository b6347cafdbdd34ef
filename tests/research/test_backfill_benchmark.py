"""The backfill benchmark's account: time is not counted twice, work is taken from run_metrics once an application."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from infra.benchmarks.backfill.accounts import Account


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Two runs of two stages that overlap, one task that was skipped and one that never began."""
    path = tmp_path / "airflow.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE task_instance (task_id TEXT, state TEXT, start_date TEXT, end_date TEXT)")
        at = "2026-11-22 10:00:{:02d}.000000"
        connection.executemany(
            "INSERT INTO task_instance VALUES (?, ?, ?, ?)",
            [
                ("ingest", "success", at.format(0), at.format(10)),
                ("ingest", "success", at.format(12), at.format(20)),
                ("publish", "success", at.format(15), at.format(30)),
                ("publish", "success", at.format(40), at.format(45)),
                ("resample_history", "skipped", at.format(30), at.format(31)),
                ("report", "success", None, None),
            ],
        )
        connection.commit()
    return path


def test_an_account_of_two_runs(database: Path, tmp_path: Path) -> None:
    for label, seconds in (("2013-02-08T00", 6.0), ("2013-02-08T01", 4.0)):
        folder = tmp_path / "flights" / "run_metrics" / f"interval={label}"
        folder.mkdir(parents=True)
        # The same application stands beside each of its queries.
        rows = {"app": ["ingest", "ingest", "publish"], "query": ["a", "b", None], "seconds": [seconds, seconds, 5.0]}
        pq.write_table(pa.table(rows), folder / "part.parquet")

    account = Account.read("now", 50.0, 80.0, database, tmp_path / "flights")

    assert account.busy_s == 10 + 18 + 5
    by_name = {stage.name: stage for stage in account.stages}
    assert by_name.keys() == {"ingest", "publish"}
    assert (by_name["ingest"].tasks, by_name["ingest"].task_s, by_name["ingest"].work_s) == (2, 18.0, 10.0)
    assert (by_name["publish"].task_s, by_name["publish"].work_s) == (20.0, 10.0)
    text = account.text()
    assert "2 intervals in 50 s (25.0 s each), CPU 80 s (40.0 s each)" in text
    assert "no task ran for 17 s (34% of the wall time); tasks took 38 s, 47% of it not their own work" in text
