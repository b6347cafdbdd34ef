"""Tables that version 7d4dd38 wrote: without unknown_columns, and without the newer columns of two others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from expectations.checkpoint import Checkpoint
from expectations.results import sentence

from tidegate.declarations import tables
from tidegate.report import report
from tidegate.sql.relations import duckdb_script, files_of, relations
from tidegate.store.warehouse import Warehouse

from .good_warehouse import HOURS, good_pipeline, intervals, replace_rows, write_good
from .test_suites import HOUR, read

LATER = {
    "quarantine": ("source", "position"),
    "source_files": ("since", "since_bytes", "first_arrival", "last_arrival"),
    "run_metrics": ("kind", "rows_landed_late"),
    "needed_slack": ("group_key", "has_rows"),
    "accuracy": ("group_key",),
    "slack_plan": ("accuracy_by_wait",),
}


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    """Eight hours of an older version, one with a file that it called unplaced and a record that it refused."""
    columns = dict(tables._COMMON)
    del columns["unknown_columns"]
    for table, names in LATER.items():
        columns[table] = [(name, kind) for name, kind in columns[table] if name not in names]
    with monkeypatch.context() as then:
        then.setattr(tables, "_COMMON", columns)
        warehouse = write_good(tmp_path)
        rows = read(warehouse, "source_files")
        rows[0]["status"] = "unplaced"
        replace_rows(warehouse, "source_files", HOUR, rows)
        refused = {"stream": "weather", "reason": "wrong_type", "column": "delay", "record": "{}"}
        replace_rows(warehouse, "quarantine", "2013-02-08T00", [refused])
    assert not (warehouse.folder / "unknown_columns").exists()
    return Warehouse(tmp_path, good_pipeline())


def failed(warehouse: Warehouse) -> list[str]:
    """What data quality says of all hours."""
    results = Checkpoint(warehouse.pipeline, warehouse).run(intervals(warehouse.pipeline))
    return [sentence(row) for result in results for row in result.rows if not row["success"]]


def test_older_tables_are_read_with_nulls_where_nothing_is_known(older: Warehouse) -> None:
    assert {row["status"] for row in read(older, "source_files")} == {"ok", "unplaced"}
    assert {row["since"] for row in read(older, "source_files")} == {None}
    (refused,) = read(older, "quarantine", "2013-02-08T00")
    assert (refused["record"], refused["source"], refused["position"]) == ("{}", None, None)
    assert read(older, "unknown_columns") == []


def test_older_hours_are_in_order_without_the_new_table(older: Warehouse) -> None:
    # What is wrong with them is the one refused record, which no metrics count.
    said = failed(older)
    assert len(said) == 3
    assert all("refused" in text or "no record is lost" in text for text in said)
    assert not any("unknown_columns" in text for text in said)


def test_newer_hours_owe_the_new_table(older: Warehouse) -> None:
    replace_rows(older, "source_files", HOUR, [{**row, "status": "ok"} for row in read(older, "source_files")])
    assert [text for text in failed(older) if "unknown_columns" in text] == [
        "unknown_columns: every table has its partition (unknown_columns): measured 0, promised exactly 1"
    ]
    unknown = {"stream": "weather", "column": "colour", "records": 6}
    replace_rows(older, "unknown_columns", HOUR, [unknown])
    (said,) = (text for text in failed(older) if "unknown_columns" in text)
    assert "weather colour" in said


def test_report_and_sql_show_older_tables(older: Warehouse) -> None:
    page = report.run(older.pipeline, older.root).read_text(encoding="utf-8")
    assert "Fields ignored" not in page and "unknown_columns" not in page
    assert "wrong_type" in page
    by_table = {relation.table: relation for relation in relations(older)}
    assert files_of(older, by_table["unknown_columns"]) == ()
    assert len(files_of(older, by_table["quarantine"])) == HOURS
    assert "unknown_columns" in duckdb_script(older)


def test_a_table_that_was_lost_in_a_newer_warehouse_is_named(spoilt: Warehouse) -> None:
    shutil.rmtree(spoilt.folder / "unknown_columns")
    assert sum("unknown_columns: every table has its partition" in text for text in failed(spoilt)) == HOURS
