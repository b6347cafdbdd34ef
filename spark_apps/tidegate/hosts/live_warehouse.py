"""The warehouse as it stands at the live clock: past intervals as they are, the present one as far as it has come."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.hosts.intervals import Interval
from tidegate.hosts.warehouse import Commit, Warehouse

FOLDER = "_live"
_POSITION = f"{FOLDER}/position.json"


@dataclass(frozen=True)
class Position:
    """Where a live run stands; written with each step, so that the next run goes on from there.

    ``taken_us``: what arrived before is in; ``answered_us``: what was to be answered before is answered.
    ``last_batch``: batches of files up to this one have been seen. ``declared``: a fingerprint of the declaration.
    ``cold_start``: whether the present interval begins anew. ``behind``: tuples of the present interval that came when
    the clock had passed them.
    """

    interval: str
    taken_us: int
    answered_us: int
    last_batch: int
    declared: str
    cold_start: bool
    behind: int = 0


class LiveWarehouse(Warehouse):
    """Reads as a warehouse whose newest interval is the present one, with what is known of it by now.

    The present interval's tuples and plans are kept under ``_live``, files that are only ever added; what other
    intervals' partitions say is read where it stands. Partitions of the present interval that an earlier run may have
    left, and later ones, are not there.
    """

    def __init__(self, warehouse: Warehouse, interval: Interval):
        super().__init__(warehouse.root, warehouse.pipeline)
        self.interval = interval

    def partition(self, table: str, label: str) -> Path:
        """The folder of one partition, there or not."""
        if label == self.interval.label:
            return self.folder / FOLDER / table / f"interval={label}"
        return super().partition(table, label)

    def labels(self, table: str) -> list[str]:
        """Labels of the partitions that are there, ascending; the present one's always is."""
        return [*(label for label in super().labels(table) if label < self.interval.label), self.interval.label]

    def read_spark(self, spark: SparkSession, table: str, labels: list[str]) -> DataFrame:  # type: ignore[override]
        """The rows of the named partitions (those that are there) as a DataFrame with a column ``interval``."""
        past = super().read_spark(spark, table, [label for label in labels if label != self.interval.label])
        here = self.partition(table, self.interval.label)
        if self.interval.label not in labels or not here.is_dir():
            return past
        present = spark.read.schema(past.drop("interval").schema).parquet(str(here))
        return past.unionByName(present.withColumn("interval", F.lit(self.interval.label)))

    def read_state(self, name: str, label: str) -> pa.Table | None:
        """State as of the clock, or as the run for an earlier interval left it."""
        if label != self.interval.label:
            return super().read_state(name, label)
        file = self.folder / self._state(name)
        return pq.ParquetFile(file).read() if file.exists() else None

    def put_part(self, commit: Commit, table: str, from_us: int, data: pa.Table) -> None:
        """Add rows to the present interval's part of a table, behind those that are there."""
        name = f"part-{from_us:020d}.parquet"
        pq.write_table(data.cast(self.schema(table)), commit.file(f"{self._part(table)}/{name}"))

    def put_state(self, commit: Commit, name: str, data: pa.Table) -> None:
        """Keep state as of the clock."""
        pq.write_table(data, commit.file(self._state(name)))

    def _part(self, table: str) -> str:
        return f"{FOLDER}/{table}/interval={self.interval.label}"

    def _state(self, name: str) -> str:
        return f"{FOLDER}/_state/{name}/interval={self.interval.label}/state.parquet"

    def forget_others(self) -> None:
        """Remove what is kept of intervals that are over."""
        for folder in (self.folder / FOLDER).glob("**/interval=*"):
            if folder.name != f"interval={self.interval.label}":
                shutil.rmtree(folder, ignore_errors=True)


def read_position(warehouse: Warehouse) -> Position | None:
    """Where the last live run stood, None if there was none."""
    file = warehouse.folder / _POSITION
    return Position(**json.loads(file.read_text())) if file.exists() else None


def put_position(commit: Commit, position: Position) -> None:
    """Keep the position together with what the commit holds."""
    commit.file(_POSITION).write_text(json.dumps(asdict(position)))


def begin_anew(warehouse: Warehouse) -> None:
    """Remove all that a live run has kept; the tables stay."""
    folder = warehouse.folder / FOLDER
    if folder.exists():
        # In one step, so that a kill leaves nothing that looks whole.
        aside = folder.with_name(f"{FOLDER}.old")
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(folder, aside)
        shutil.rmtree(aside, ignore_errors=True)
