"""What is gathered of tables is what the tables hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.unit.test_warehouse import TABLE, a_pipeline, put

from tidegate.store.gathered import Gathered
from tidegate.store.warehouse import Warehouse

LABELS = ["2013-01-01T00", "2013-01-01T01", "2013-01-01T02"]


class Counting(Warehouse):
    """Notes the partitions that are read."""

    asked: list[str]

    def read_arrow(
        self, table: str, labels: Sequence[str] | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        self.asked = list(labels or [])
        return super().read_arrow(table, labels, columns)


@pytest.fixture
def warehouse(tmp_path: Path) -> Counting:
    found = Counting(tmp_path / "warehouse", a_pipeline())
    put(found, 1, 2, (0, 1, 2))
    return found


def everything(rows: pa.Table) -> pa.Table:
    return rows


def test_a_partition_is_read_once_and_again_if_it_was_replaced(warehouse: Counting, tmp_path: Path) -> None:
    gathered = Gathered(tmp_path / "kept" / "rows.parquet", "all", everything)
    told = [LABELS[:2], LABELS, LABELS, LABELS[1:], LABELS]
    asked = [LABELS[:2], LABELS[2:], [], [], []]
    for labels, fresh in zip(told, asked, strict=True):
        found = gathered.read(warehouse, TABLE, labels)
        assert warehouse.asked == fresh
        assert found.equals(Warehouse.read_arrow(warehouse, TABLE, labels))
    put(warehouse, 2, 3, (1,))
    warehouse.refresh()
    found = gathered.read(warehouse, TABLE, LABELS)
    assert warehouse.asked == LABELS[1:2]
    assert found.equals(Warehouse.read_arrow(warehouse, TABLE, LABELS))


def test_no_rows_are_remembered_too(warehouse: Counting, tmp_path: Path) -> None:
    gathered = Gathered(tmp_path / "rows.parquet", "none", lambda rows: rows.slice(0, 0))
    assert gathered.read(warehouse, TABLE, LABELS).num_rows == 0
    assert gathered.read(warehouse, TABLE, LABELS).num_rows == 0
    assert warehouse.asked == []


def test_another_meaning_and_a_damaged_file_begin_anew(warehouse: Counting, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    whole = Warehouse.read_arrow(warehouse, TABLE, LABELS)
    Gathered(path, "first", lambda rows: rows.filter(pc.equal(rows["interval"], LABELS[0]))).read(
        warehouse, TABLE, LABELS
    )
    assert Gathered(path, "second", everything).read(warehouse, TABLE, LABELS).equals(whole)
    content = path.read_bytes()
    for damaged in (content[:-20], b"", content[:40] + bytes(40) + content[80:]):
        path.write_bytes(damaged)
        assert Gathered(path, "second", everything).read(warehouse, TABLE, LABELS).equals(whole)
    pq.write_table(whole, path)
    assert Gathered(path, "second", everything).read(warehouse, TABLE, LABELS).equals(whole)
