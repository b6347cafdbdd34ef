"""The sink of a landing query: executors write Parquet, the driver commits the batch once.

Spark calls it: :class:`LandingSink` is a Python data source, which runs where Spark runs. There this package has to be
installed, as for slices.
"""

from __future__ import annotations

import base64
import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from tidegate.declarations.models import KafkaSource, Stream, from_us
from tidegate.sources.formats.messages import arrivals
from tidegate.sources.registry import schemas_of
from tidegate.store import parquet
from tidegate.store.landed import (
    PARQUET,
    PLACE_FIELDS,
    LandedFile,
    LandedTable,
    Landings,
    landed_name,
    landed_schema,
    new_path,
    summarized,
)
from tidegate.store.places import Place, place
from tidegate.values.types import TIMESTAMP

NAME = "tidegate_landing"
_BATCH = "streaming.sql.batchId"
SOURCE_FILE = "_tidegate_file"
"""Of a source of files: the column that says which one a row is from."""
_ROWS_AT_ONCE = 1 << 16
_GROUP_ROWS, _WAITING_ROWS = 1 << 17, 1 << 19
_OPEN_FILES = 64


@dataclass(frozen=True)
class LandingPlan:
    """What the sink is told. ``folder``: the pipeline's in the warehouse; ``checkpoint``: where Spark keeps its own.

    ``epoch``: of the lease; ``number``, ``base``: of the checkpoint; ``columns``: of a source of Spark.
    ``known``: file of the source → rows of it that have landed, where a source is read anew.
    """

    stream: Stream
    folder: str
    checkpoint: str
    interval_us: int
    epoch: int
    number: int
    base: int
    generation: int
    columns: pa.Schema | None = None
    known: dict[str, int] | None = None

    def packed(self) -> str:
        """As text, for an option of the sink."""
        return base64.b64encode(pickle.dumps(self)).decode()


@dataclass
class Written(WriterCommitMessage):
    """What a task has written of a batch of Spark's."""

    batch: int
    files: list[LandedFile]


class LandingSink(DataSource):
    """Spark's door to the writer."""

    @classmethod
    def name(cls) -> str:
        """What queries call it."""
        return NAME

    def streamWriter(self, schema: Any, overwrite: bool) -> LandingWriter:  # noqa: N802
        """The writer of a query."""
        return LandingWriter(pickle.loads(base64.b64decode(self.options["plan"])))


class LandingWriter(DataSourceStreamArrowWriter):
    """Writes what Spark's tasks hand over, and commits what all of a batch have written."""

    def __init__(self, plan: LandingPlan):
        self.plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write a task's records, a file an interval of arrival. **Memory**: a block of records, and a row group of
        each file that is open.
        """
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None, "Spark calls this in a task"
        batch_id = int(str(task.getLocalProperty(_BATCH)))
        files = TaskFiles(self.plan, batch_id, task.partitionId())
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in iterator:
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= _ROWS_AT_ONCE:
                files.add(pa.Table.from_batches(waiting))
                waiting, rows = [], 0
        if rows:
            files.add(pa.Table.from_batches(waiting))
        return Written(batch_id, files.close())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Land a batch, once: one that comes again after a kill is seen to be there."""
        plan = self.plan
        folder = place(plan.folder)
        parts = [one for one in messages if isinstance(one, Written)]
        assert all(one.batch == batchId for one in parts), "tasks knew another number of this batch"
        files = [file for one in parts for file in one.files]
        batch = plan.base + batchId
        table = LandedTable(folder / landed_name(plan.stream))
        landings = Landings(folder)
        if table.land(files, plan.epoch, plan.number, batchId) or not landings.has(plan.stream.name, batch):
            landings.add(plan.stream.name, batch, plan.generation, offsets_of(place(plan.checkpoint), batchId))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: no version names what was written, and upkeep removes it."""


def offsets_of(checkpoint: Place, batch: int) -> str:
    """Where a batch of Spark's ends, as Spark has written it into its checkpoint; empty if that cannot be read."""
    try:
        lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    except OSError:
        return ""
    return lines[2] if len(lines) > 2 else ""


@dataclass
class _OpenFile:
    path: str
    writer: Any
    parts: list[pa.Table] = field(default_factory=list)


class TaskFiles:
    """The files that a task writes: one for each interval of arrival, and one for records that name none."""

    def __init__(self, plan: LandingPlan, batch_id: int, partition: int, landed_us: int | None = None):
        self.plan, self.batch, self.partition = plan, plan.base + batch_id, partition
        self.landed_us = time.time_ns() // 1000 if landed_us is None else landed_us
        self.day = f"{from_us(self.landed_us):%Y-%m-%d}"
        self.folder = place(plan.folder) / landed_name(plan.stream)
        self.schema = landed_schema(plan.stream, plan.columns)
        self.schemas = schemas_of(plan.stream, place(plan.folder))
        self._positions: dict[str, int] = {}
        self._waiting: dict[int | None, list[pa.Table]] = {}
        self._waiting_rows = 0
        self._open: dict[int | None, _OpenFile] = {}
        self._done: list[LandedFile] = []

    def add(self, block: pa.Table) -> None:
        """Take records in."""
        rows = self._landed(block)
        if not rows.num_rows:
            return
        arrival = arrivals(self.plan.stream, rows, self.schemas)
        rows = rows.set_column(rows.schema.get_field_index("arrival"), self.schema.field("arrival"), arrival)
        us = arrival.cast(pa.int64()).fill_null(_NEVER)
        numbers = np.asarray(us) // self.plan.interval_us
        latest_us = self.landed_us + self.plan.stream.max_early_s * 1_000_000
        # What arrives later than can be is put where its arrival will count for nothing: other files stay narrow.
        numbers[(np.asarray(us) == _NEVER) | (np.asarray(us) > latest_us)] = _NEVER
        for number in np.unique(numbers).tolist():
            mask = numbers == number
            part = rows if mask.all() else rows.filter(pa.array(mask))
            self._keep(None if number == _NEVER else number, part)

    def close(self) -> list[LandedFile]:
        """Write what is left; all files."""
        for number in list(self._waiting):
            self._write(number)
        for number in list(self._open):
            self._close(number)
        return self._done

    def _keep(self, number: int | None, rows: pa.Table) -> None:
        parts = self._waiting.setdefault(number, [])
        parts.append(rows)
        self._waiting_rows += rows.num_rows
        if sum(part.num_rows for part in parts) >= _GROUP_ROWS:
            self._write(number)
        if self._waiting_rows >= _WAITING_ROWS:
            for other in list(self._waiting):
                self._write(other)

    def _write(self, number: int | None) -> None:
        rows = pa.concat_tables(self._waiting.pop(number))
        self._waiting_rows -= rows.num_rows
        if number not in self._open:
            while len(self._open) >= _OPEN_FILES:
                self._close(next(iter(self._open)))
            path = new_path(self.day, self.batch)
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            self._open[number] = _OpenFile(path, parquet.writer(self.folder / path, self.schema, **PARQUET))
        one = self._open[number]
        one.writer.write_table(rows)
        one.parts.append(rows.select(["batch", "arrival", "landed_at"]))

    def _close(self, number: int | None) -> None:
        one = self._open.pop(number)
        one.writer.close()
        size = (self.folder / one.path).stat().st_size
        self._done.append(summarized(one.path, self.day, size, one.parts))

    def _landed(self, block: pa.Table) -> pa.Table:
        """Records as their table has them, without their arrivals."""
        count = block.num_rows
        source = self.plan.stream.source
        if isinstance(source, KafkaSource):
            topic = pa.repeat(pa.scalar(source.topic, pa.string()), count)
            places = {"source": topic, "partition": block.column("partition"), "position": block.column("position")}
            values = {f.name: block.column(f.name) for f in self.schema if f.name not in _PLACES}
        else:
            if SOURCE_FILE in block.column_names:
                block, places = self._of_files(block)
            else:
                places = self._numbered(count)
            names = [name for name in block.column_names if name != SOURCE_FILE]
            fields = [f for f in self.schema if f.name not in _PLACES]
            values = {f.name: block.column(name) for f, name in zip(fields, names, strict=True)}
        count = block.num_rows
        columns = {
            **values,
            **places,
            "batch": pa.repeat(pa.scalar(self.batch, pa.int64()), count),
            "landed_at": pa.repeat(pa.scalar(self.landed_us, pa.int64()), count).cast(TIMESTAMP),
            "arrival": pa.nulls(count, TIMESTAMP),
            "generation": pa.repeat(pa.scalar(self.plan.generation, pa.int64()), count),
        }
        return pa.table({f.name: _as(columns[f.name], f.type) for f in self.schema}, schema=self.schema)

    def _of_files(self, block: pa.Table) -> tuple[pa.Table, dict[str, Any]]:
        """The rows that have not landed before, numbered by their places in their files."""
        files = block.column(SOURCE_FILE).combine_chunks()
        names = files.dictionary_encode()
        positions = np.zeros(len(files), np.int64)
        fresh = np.ones(len(files), dtype=bool)
        codes = np.asarray(names.indices)
        for code, name in enumerate(names.dictionary.to_pylist()):
            rows = np.flatnonzero(codes == code)
            first = self._positions.get(name, 0)
            positions[rows] = np.arange(first, first + len(rows))
            self._positions[name] = first + len(rows)
            fresh[rows] = positions[rows] >= (self.plan.known or {}).get(name, 0)
        if not fresh.all():
            block, files, positions = block.filter(pa.array(fresh)), files.filter(pa.array(fresh)), positions[fresh]
        partitions = pa.repeat(pa.scalar(0, pa.int32()), len(files))
        return block, {"source": files, "partition": partitions, "position": pa.array(positions)}

    def _numbered(self, count: int) -> dict[str, Any]:
        first = self._positions.get("", 0)
        self._positions[""] = first + count
        source = self.plan.stream.source
        assert source is not None and not isinstance(source, KafkaSource)
        return {
            "source": pa.repeat(pa.scalar(source.format, pa.string()), count),
            "partition": pa.repeat(pa.scalar(self.partition, pa.int32()), count),
            # By the batch, as a task begins anew in each.
            "position": pa.array(np.arange(first, first + count) + (self.batch << 32)),
        }


_PLACES = {name for name, _ in PLACE_FIELDS}
_NEVER = -(2**62)


def _as(column: Any, kind: pa.DataType) -> Any:
    return column if column.type == kind else pc.cast(column, kind)
