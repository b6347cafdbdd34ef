"""A run's files, written where they stay, and what makes them visible together."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.store.cut import SHARED
from tidegate.store.delta import ReplacedBy, live_file
from tidegate.store.durable import flush
from tidegate.store.folders import private_folder
from tidegate.store.intervals import Interval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidegate.store.warehouse import Warehouse

STATE = "_state"


class Commit:
    """What one run of a stage writes. Its files bear its ``id``; nobody sees them before ``publish`` has returned.

    ``labels``: the intervals that the run is for. ``begun``: the runs that were committed when it began.
    """

    def __init__(self, warehouse: Warehouse, stage: str, labels: Sequence[str], begun: frozenset[str]):
        self.warehouse = warehouse
        self.stage = stage
        self.labels = tuple(labels)
        self.id = uuid.uuid4().hex[:12]
        self._begun = begun
        self._partitions: dict[str, dict[str, Path]] = defaultdict(dict)
        self._files: dict[str, list[tuple[str, Path]]] = defaultdict(list)
        self._others: list[Path] = []
        private_folder(warehouse.folder)

    @property
    def scratch(self) -> Path:
        """A folder for what the run needs while it runs; removed when it ends."""
        folder = self.warehouse.folder / "_staging" / f"{self.stage}-{self.id}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def put_arrow(self, table: str, interval: Interval, data: pa.Table) -> None:
        """Replace one partition by these rows, cast to the table's schema."""
        wanted = self.warehouse.schema(table)
        target = self.stage_folder(table, interval.label)
        pq.write_table(data.select(wanted.names).cast(wanted), target / f"part-00000-{self.id}.parquet")

    def put_spark(
        self,
        table: str,
        frame: DataFrame,
        intervals: Sequence[Interval],
        sort: Sequence[str],
        files_by: str | None = None,
    ) -> dict[Interval, int]:
        """Replace the partitions of ``intervals`` by the rows of ``frame`` (it has a column ``interval``).

        Rows are sorted by ``sort`` within each partition, so equal content gives equal files. Intervals without rows
        get an empty partition. ``files_by``: a whole number by which the rows of a partition fall into files of their
        own, ``<files_by>-<number>-…``, without a leading underscore, by which Spark would take them for hidden.
        Returns the number of rows of each.
        """
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.types import from_arrow_schema

        wanted = from_arrow_schema(self.warehouse.schema(table))
        columns = [F.col(f"`{f.name}`").cast(f.dataType).alias(f.name) for f in wanted.fields]
        aside = self.scratch / "_spark" / table
        parts = ["interval", *([files_by] if files_by else [])]
        shaped = frame.select(*columns, *parts)
        shuffled = shaped.repartition("interval") if len(intervals) > 1 else shaped.coalesce(1)
        shuffled.sortWithinPartitions(*parts, *sort).write.partitionBy(*parts).parquet(str(aside))
        counts: dict[Interval, int] = {}
        for interval in intervals:
            written = sorted((aside / f"interval={interval.label}").rglob("*.parquet"))
            counts[interval] = sum(pq.read_metadata(file).num_rows for file in written)
            if not written:
                self.put_arrow(table, interval, self.warehouse.schema(table).empty_table())
                continue
            target = self.stage_folder(table, interval.label)
            for number, file in enumerate(written):
                name = f"part-{number:05d}"
                if files_by:
                    name = f"{files_by.lstrip('_')}-{int(file.parent.name.rpartition('=')[2]):02d}-{number:05d}"
                os.rename(file, target / f"{name}-{self.id}.parquet")
        shutil.rmtree(aside, ignore_errors=True)
        return counts

    def put_state(self, name: str, interval: Interval, data: pa.Table) -> None:
        """Keep what the next interval's run continues from."""
        pq.write_table(data, self.state_folder(name, interval.label) / f"part-00000-{self.id}.parquet")

    def state_folder(self, name: str, label: str) -> Path:
        """Where to write the files of a state, with names that end in ``-<id>.parquet``."""
        return self.other_folder(f"{STATE}/{name}/interval={label}")

    def other_folder(self, path: str) -> Path:
        """A folder of files that belong to no table and become visible with the commit, by their names."""
        folder = self.warehouse.folder / path
        folder.mkdir(parents=True, exist_ok=True)
        self._others.append(folder)
        return folder

    def put_file(self, table: str, interval: Interval, writer: str, data: pa.Table) -> None:
        """Replace the one file that ``writer`` has in a partition that several stages share."""
        assert table in SHARED, table
        wanted = self.warehouse.schema(table)
        folder = self.warehouse.folder / table / f"interval={interval.label}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{writer}-{self.id}.parquet"
        pq.write_table(data.select(wanted.names).cast(wanted), path)
        self._files[table].append((interval.label, path))

    def written(self, table: str, label: str) -> list[Path]:
        """The files that this commit has put into a partition so far."""
        folder = self._partitions[table].get(label)
        return [] if folder is None else self._own(folder)

    def stage_folder(self, table: str, label: str) -> Path:
        """The folder of a partition that is replaced as a whole; the files' names must end in ``-<id>.parquet``."""
        folder = self.warehouse.folder / table / f"interval={label}"
        folder.mkdir(parents=True, exist_ok=True)
        for file in self.written(table, label):
            file.unlink()
        self._partitions[table][label] = folder
        return folder

    def publish(self) -> None:
        """Make all that was written visible at once. UserError if another run of the stage was faster."""
        assert self.labels, "a run without an interval has no row in _commits, and would not be seen"
        home = self.warehouse.folder
        flush((path for folder in self._others for path in self._own(folder)), home)
        versions = {}
        for table in sorted({*self._partitions, *self._files}):
            folders = self._partitions[table]
            added = {path: label for label, folder in folders.items() for path in self._own(folder)}
            added |= {path: label for label, path in self._files[table]}
            flush(added, home)
            files = [live_file(path, label) for path, label in added.items()]
            gone = ReplacedBy(folders, ((f.label, f.writer) for f in files if table in SHARED))
            versions[table] = self.warehouse.log(table).replace(files, gone)
        replaced = frozenset(self._partitions)
        self.warehouse.commits.append(self.stage, self.id, self.labels, versions, replaced, self._begun)

    def discard(self) -> None:
        """Remove what was written: the run has failed, and nothing names it."""
        folders = [f for own in self._partitions.values() for f in own.values()]
        for folder in [*folders, *self._others]:
            for file in self._own(folder):
                file.unlink(missing_ok=True)
        for _, path in (item for own in self._files.values() for item in own):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the scratch folder."""
        with contextlib.suppress(OSError):
            shutil.rmtree(self.warehouse.folder / "_staging" / f"{self.stage}-{self.id}")

    def _own(self, folder: Path) -> list[Path]:
        return sorted(folder.glob(f"*-{self.id}.*"))
