"""Spark reads, streams and names the tables of an object store where they are, by Hadoop's own connector."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from tests.delta.client import Client, client
from tests.live_files import a_pipeline
from tests.objects.server import a_bucket, s3_server
from tests.unit.test_warehouse import TABLE, put, rows

from tidegate.engine.jars import jars
from tidegate.sql.registration import tables
from tidegate.store.intervals import Interval, interval_at
from tidegate.store.places import ObjectPath
from tidegate.store.upkeep import tidy
from tidegate.store.warehouse import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def bucket(delta_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectPath]:
    if not jars("s3"):
        pytest.skip("Hadoop's connector is not here: python infra/spark/jars.py fetch s3")
    with s3_server(tmp_path_factory.mktemp("moto")) as address, a_bucket(address) as found:
        yield found


@pytest.fixture(scope="module")
def delta(bucket: ObjectPath, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with client(tmp_path_factory.mktemp("catalog"), str(bucket)) as found:
        yield found


def s3a(folder: ObjectPath) -> str:
    return str(folder).replace("s3://", "s3a://")


def hour(number: int) -> Interval:
    return interval_at(a_pipeline(), a_pipeline().start + timedelta(hours=number))


def test_spark_reads_and_streams_where_the_tables_are(bucket: ObjectPath, delta: Client, tmp_path: Path):
    warehouse = Warehouse(bucket / "wh", a_pipeline())
    put(warehouse, 1, 3, (0, 1))
    table = s3a(warehouse.folder / TABLE)
    stream = delta.stream(table, tmp_path / "checkpoint", skipChangeCommits="true")
    assert len(delta.load(table)) == len(stream) == 6
    put(warehouse, 2, 2, (1, 2))
    assert [row["interval"] for row in delta.stream(table, tmp_path / "checkpoint", skipChangeCommits="true")] == [
        hour(2).label
    ] * 2
    (commits,) = delta.sql(f"SELECT count(*) AS n FROM delta.`{s3a(warehouse.folder / '_commits')}`")
    assert commits == {"n": 4}
    registered = tables(warehouse)
    assert registered[0].location.startswith("s3a://")
    for one in registered:
        delta.sql("CREATE SCHEMA IF NOT EXISTS p")
        delta.sql(one.statement)
    assert delta.sql(f"SELECT count(*) AS n FROM p.{TABLE}") == [{"n": 7}]


def test_a_dead_run_goes_there_too(bucket: ObjectPath, delta: Client, monkeypatch: pytest.MonkeyPatch):
    warehouse = Warehouse(bucket / "dead", a_pipeline())
    put(warehouse, 1, 3)
    with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
        dying.setattr("tidegate.store.commits.Commits.append", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        put(warehouse, 2, 9, (0, 1))
    table = s3a(warehouse.folder / TABLE)
    assert len(delta.load(table)) == 18
    monkeypatch.setattr("tidegate.store.withdraw._alive", lambda *_: False)
    next_ = Warehouse(bucket / "dead", a_pipeline())
    with next_.commit("next", [hour(5)]) as commit:
        commit.put_state("state", hour(5), pa.table({"a": [1]}))
    assert len(delta.load(table)) == 3
    assert Warehouse(bucket / "dead", a_pipeline()).read_arrow(TABLE).num_rows == 3


def test_spark_s_maintenance_there_changes_no_row(bucket: ObjectPath, delta: Client):
    warehouse = Warehouse(bucket / "kept", a_pipeline())
    put(warehouse, 1, 3)
    with warehouse.commit("slices", [hour(1)]) as commit:
        folder = commit.stage_folder(TABLE, hour(1).label)
        for part in range(3):
            data = rows(2, 2).cast(warehouse.schema(TABLE))
            sink = pa.BufferOutputStream()
            pa.parquet.write_table(data, sink)
            (folder / f"part-{part}-{commit.id}.parquet").write_bytes(sink.getvalue())
    (done,) = delta.sql(f"OPTIMIZE delta.`{s3a(warehouse.folder / TABLE)}`")
    assert done["metrics"]["numFilesRemoved"] == 3
    again = Warehouse(bucket / "kept", a_pipeline())
    assert again.read_arrow(TABLE).num_rows == 9
    tidy(again)
    put(again, 3, 1, (1,))
    assert len(delta.load(s3a(warehouse.folder / TABLE))) == 4
