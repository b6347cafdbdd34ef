"""Streams from Spark's other sources: files, a Delta table, rates, a source in Python; each record lands once."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, InputPartition, SimpleDataSourceStreamReader
from tests.command import tidegate

from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import UserError
from tidegate.engine.context import RunContext
from tidegate.engine.jars import jars
from tidegate.stages.land import land_all
from tidegate.stages.run import run
from tidegate.store.intervals import intervals_between

START = datetime(2026, 1, 5, 8, tzinfo=UTC)
_PIPELINE = """\
name: readings
owner: tests
start: 2026-01-05T08:00:00Z
interval: 1 hour
tick: 1 minute
horizon: 1 hour
memory_budget: 16 MiB
process_budget: 3 GiB
streams:
  s:
    source: {{spark: {source}}}
    columns: {{number: integer, at: timestamp}}
    id: {identity}
    event_time: at
    arrival_time: {arrival}
    rate: 1 per second
"""


class Readings:
    """A pipeline on a source of Spark, and its warehouse."""

    def __init__(self, folder: Path, arrival: str = "at", identity: str = "number", **source: Any):
        self.pipeline, self.warehouse = folder / "readings", folder / "warehouse"
        (self.pipeline / "queries").mkdir(parents=True)
        text = _PIPELINE.format(source=json.dumps(source), arrival=arrival, identity=identity)
        (self.pipeline / "pipeline.yml").write_text(text)
        (self.pipeline / "queries" / "many.sql").write_text("SELECT COUNT(*) AS n FROM s [1 HOUR] EVERY 1 HOUR\n")

    def land(self, spark: Any) -> int:
        pipeline = load_pipeline(self.pipeline)
        with RunContext(pipeline, self.warehouse, beside=spark, output=StringIO()) as context:
            return land_all(context, pipeline.landed_streams)["s"].records

    def land_at_least(self, spark: Any, records: int) -> None:
        """Land without end until there are so many."""
        for _ in range(60):
            if len(self.landed()) >= records:
                return
            threading.Event().wait(0.5)
            self.land(spark)
        raise AssertionError("they have not come in a minute")

    def ingest(self, spark: Any) -> list[int]:
        """The numbers of the first hour's tuples."""
        pipeline = load_pipeline(self.pipeline)
        with RunContext(pipeline, self.warehouse, beside=spark, output=StringIO()) as context:
            run(context, intervals_between(pipeline, START, START.replace(hour=9)), ("land", "ingest"))
            return sorted(context.warehouse.read_arrow("events_s").column("number").to_pylist())

    def landed(self) -> list[dict[str, Any]]:
        folder = self.warehouse / "readings" / "landed_s"
        if not folder.exists():
            return []
        rows: list[dict[str, Any]] = pa.table(DeltaTable(str(folder)).to_pyarrow_table()).to_pylist()
        return rows

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.warehouse / "readings" / "_checkpoints")


def at(number: int) -> str:
    return f"2026-01-05T08:{number // 60:02d}:{number % 60:02d}Z"


def test_files_with_columns_land_once_though_the_checkpoint_is_lost(spark: Any, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    readings = Readings(tmp_path, format="json", options={"path": str(feed)}, schema="number LONG, at STRING")

    def add(file: str, numbers: range) -> None:
        (feed / file).write_text("".join(json.dumps({"number": n, "at": at(n)}) + "\n" for n in numbers))

    add("a.json", range(10))
    assert readings.land(spark) == 10 and readings.land(spark) == 0
    add("b.json", range(10, 15))
    readings.lose_checkpoint()
    assert readings.land(spark) == 5
    assert readings.ingest(spark) == list(range(15))


def test_a_session_lands_though_another_one_of_its_jvm_is_active(spark: Any, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    (feed / "a.json").write_text("".join(json.dumps({"number": n, "at": at(n)}) + "\n" for n in range(10)))
    readings = Readings(tmp_path, format="json", options={"path": str(feed)}, schema="number LONG, at STRING")
    spark.newSession().createDataFrame([(1,)], "n INT")
    assert readings.land(spark) == 10


def test_micro_batches_of_a_rate_land(spark: Any, tmp_path: Path) -> None:
    options = {"rowsPerBatch": "10", "startTimestamp": "1767600000000", "advanceMillisPerBatch": "1000"}
    readings = Readings(tmp_path, arrival="landed", format="rate-micro-batch", options=options)
    text = (readings.pipeline / "pipeline.yml").read_text()
    text = text.replace(
        "number: integer, at: timestamp", "number: {type: integer, from: value}, at: {type: timestamp, from: timestamp}"
    )
    (readings.pipeline / "pipeline.yml").write_text(text)
    readings.land_at_least(spark, 30)
    values = sorted(row["value"] for row in readings.landed())
    assert values == list(range(len(values)))


class Numbers(DataSource):
    """A source in Python: three numbers a batch."""

    @classmethod
    def name(cls) -> str:
        return "tests_numbers"

    def schema(self) -> str:
        return "number LONG, at STRING"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802
        return _NumbersReader()


class _NumbersReader(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"next": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int, str]], dict[str, int]]:
        end = min(start["next"] + 3, 9)
        return iter([(n, at(n)) for n in range(start["next"], end)]), {"next": end}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int, str]]:  # noqa: N802
        return iter([(n, at(n)) for n in range(start["next"], end["next"])])

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start, end))]

    def commit(self, end: dict[str, int]) -> None:
        pass


def test_a_source_in_python_lands(spark: Any, tmp_path: Path) -> None:
    # Spark's workers cannot import this module.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(Numbers)
    readings = Readings(tmp_path, format="tests_numbers")
    readings.land_at_least(spark, 9)
    assert readings.land(spark) == 0
    assert readings.ingest(spark) == list(range(9))
    readings.lose_checkpoint()
    with pytest.raises(UserError, match="cannot be told where to go on"):
        readings.land(spark)


@pytest.mark.slow
def test_a_delta_table_lands_and_goes_on_where_it_is_told(tmp_path: Path) -> None:
    """By commands as users type them: Spark's Delta is a jar of the session that they start."""
    if not jars("delta"):
        pytest.skip("the jar of delta-spark is not here: make setup fetches it")
    table = tmp_path / "lake"

    def write(*numbers: int) -> None:
        rows = {"number": pa.array(numbers, pa.int64()), "at": [at(n) for n in numbers]}
        write_deltalake(str(table), pa.table(rows), mode="append")

    def land() -> Any:
        return tidegate("land", readings.pipeline, "--warehouse", readings.warehouse)

    write(0, 1, 2)
    readings = Readings(tmp_path, format="delta", options={"path": str(table)})
    done = land()
    assert done.status == 0 and "s: 3 records landed" in done.output, done.errors
    write(3, 4)
    readings.lose_checkpoint()
    refused = land()
    assert refused.status == 2 and "startingVersion" in refused.errors
    text = (readings.pipeline / "pipeline.yml").read_text()
    path = json.dumps(str(table))
    (readings.pipeline / "pipeline.yml").write_text(text.replace(path, f'{path}, "startingVersion": "1"'))
    done = land()
    assert done.status == 0 and "s: 2 records landed" in done.output, done.errors
    assert sorted(row["number"] for row in readings.landed()) == [0, 1, 2, 3, 4]
