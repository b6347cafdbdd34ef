"""A pipeline's tables as plain Parquet: one partition per interval, replaced as a whole.

A stage writes aside (``_staging``), notes in a journal what is to be moved, and then moves each partition in by one
atomic exchange of directories. A kill -9 at any moment leaves the old partition, the new one, or a journal that
whatever runs next carries out before it reads. Readers never meet a half-written file, nor a mix of old and new.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline
from tidegate.declarations.tables import schema, tables
from tidegate.hosts.folders import private_folder
from tidegate.hosts.intervals import Interval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_JOURNAL = "journal.json"
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


class Warehouse:
    """The tables of one pipeline under ``<root>/<pipeline name>``."""

    def __init__(self, root: Path, pipeline: Pipeline):
        self.root = Path(root).absolute()
        self.pipeline = pipeline
        self.folder = self.root / pipeline.name

    def tables(self) -> list[str]:
        """Names of all tables that the pipeline declares, written or not."""
        return list(tables(self.pipeline))

    def schema(self, table: str) -> pa.Schema:
        """The table's Arrow schema, without ``interval``."""
        return schema(self.pipeline, table)

    def partition(self, table: str, label: str) -> Path:
        """The folder of one partition, there or not."""
        return self.folder / table / f"interval={label}"

    def labels(self, table: str) -> list[str]:
        """Labels of the partitions that are there, ascending."""
        folder = self.folder / table
        if not folder.is_dir():
            return []
        return sorted(p.name.removeprefix("interval=") for p in folder.iterdir() if p.name.startswith("interval="))

    def rows(self, table: str, label: str) -> int:
        """Number of rows of one partition, from the files' footers."""
        return sum(pq.read_metadata(file).num_rows for file in self.partition(table, label).glob("*.parquet"))

    def files(self, table: str, labels: Sequence[str]) -> tuple[str, ...]:
        """Paths of the named partitions' files, in the order of the labels."""
        return tuple(str(f) for label in labels for f in sorted(self.partition(table, label).glob("*.parquet")))

    def require(self, table: str, labels: Sequence[str], stage: str) -> None:
        """UserError that names the missing partitions of ``table`` and the command that makes them."""
        missing = sorted(set(labels) - set(self.labels(table)))
        if missing:
            shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            raise UserError(
                f"table {table} of pipeline {self.pipeline.name} has no partition for {shown}: "
                f"run the stage {stage} for it first (tidegate run … --stage {stage})"
            )

    def read_arrow(
        self, table: str, labels: Sequence[str] | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows of the named partitions (None: of all) with a column ``interval``; absent partitions have none."""
        wanted = self.schema(table)
        if columns is not None:
            wanted = pa.schema([wanted.field(c) for c in columns])
        parts = [
            _labelled(pq.ParquetFile(file).read(columns=wanted.names).cast(wanted), label)
            for label in (self.labels(table) if labels is None else labels)
            for file in sorted(self.partition(table, label).glob("*.parquet"))
        ]
        if not parts:
            return wanted.append(pa.field("interval", pa.string())).empty_table()
        return pa.concat_tables(parts)

    def read_spark(self, spark: SparkSession, table: str, labels: Sequence[str]) -> DataFrame:
        """The rows of the named partitions (those that are there) as a DataFrame with a column ``interval``."""
        from pyspark.sql.pandas.types import from_arrow_schema

        wanted = from_arrow_schema(self.schema(table)).add("interval", "string")
        paths = [str(p) for p in (self.partition(table, label) for label in labels) if p.is_dir()]
        if not paths:
            return spark.createDataFrame([], wanted)
        return spark.read.schema(wanted).option("basePath", str(self.folder / table)).parquet(*paths)

    def read_state(self, name: str, label: str) -> pa.Table | None:
        """State that a run for the interval ``label`` left for the next, or None if there is none."""
        files = sorted((self.folder / "_state" / name / f"interval={label}").glob("*.parquet"))
        return pq.ParquetFile(files[0]).read() if files else None

    def recover(self) -> None:
        """Carry out what a killed run had decided, and remove what it had not; leaves running stages alone."""
        staging = self.folder / "_staging"
        if not staging.is_dir():
            return
        for stage in sorted({p.name.rsplit("-", 1)[0] for p in staging.iterdir()}):
            lock = _try_lock(self.folder / "_locks" / f"{stage}.lock")
            if lock is not None:
                with lock:
                    self._recover_stage(stage)

    def _recover_stage(self, stage: str) -> None:
        staging = self.folder / "_staging"
        for run in sorted(staging.glob(f"{stage}-*")):
            if (run / _JOURNAL).exists():
                _carry_out(run, self.folder)
            else:
                shutil.rmtree(run, ignore_errors=True)

    @contextmanager
    def alone(self, name: str, message: str) -> Iterator[None]:
        """Hold the lock ``name`` of the pipeline; UserError with the message if another process has it."""
        lock = _try_lock(self.folder / "_locks" / f"{name}.lock")
        if lock is None:
            raise UserError(message)
        with lock:
            yield

    @contextmanager
    def commit(self, stage: str, intervals: Iterable[Interval] = ()) -> Iterator[Commit]:
        """Write partitions aside; on leaving without an error, move them all in. One writer a stage at a time."""
        lock = _try_lock(self.folder / "_locks" / f"{stage}.lock")
        if lock is None:
            raise UserError(
                f"stage {stage} of pipeline {self.pipeline.name} is being written by another run in {self.folder}: "
                "wait for it to end, or stop it"
            )
        with lock:
            self._recover_stage(stage)
            commit = Commit(self, stage)
            try:
                yield commit
            except BaseException:
                shutil.rmtree(commit.folder, ignore_errors=True)
                raise
            commit.publish()


class Commit:
    """Partitions written aside, to be moved in together."""

    def __init__(self, warehouse: Warehouse, stage: str):
        self.warehouse = warehouse
        self.id = uuid.uuid4().hex[:12]
        self.folder = warehouse.folder / "_staging" / f"{stage}-{self.id}"
        private_folder(warehouse.folder)
        self.folder.mkdir(parents=True)
        self._moves: list[str] = []

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
        aside = self.folder / "_spark" / table
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
        target = self.stage_folder(f"_state/{name}", interval.label)
        pq.write_table(data, target / f"part-00000-{self.id}.parquet")

    def put_file(self, table: str, interval: Interval, name: str, data: pa.Table) -> None:
        """Replace one file, ``<name>.parquet``, of a partition that several stages share."""
        wanted = self.warehouse.schema(table)
        path = self.file(f"{table}/interval={interval.label}/{name}.parquet")
        pq.write_table(data.select(wanted.names).cast(wanted), path)

    def file(self, path: str) -> Path:
        """Where to write a file that takes the place of this one, under the pipeline's folder."""
        move = Path("files") / path
        (self.folder / move).parent.mkdir(parents=True, exist_ok=True)
        self._moves.append(str(move))
        return self.folder / move

    def written(self, table: str, interval: Interval) -> list[Path]:
        """The files that this commit has put into a partition so far."""
        return sorted((self.folder / "partitions" / table / f"interval={interval.label}").glob("*.parquet"))

    def stage_folder(self, table: str, label: str) -> Path:
        """An empty folder that becomes the partition's; file names must end in ``<id>.parquet``."""
        path = Path("partitions") / table / f"interval={label}"
        if str(path) in self._moves:
            shutil.rmtree(self.folder / path)
        else:
            self._moves.append(str(path))
        (self.folder / path).mkdir(parents=True)
        return self.folder / path

    def publish(self) -> None:
        """Decide (the journal), then carry out."""
        partial = self.folder / (_JOURNAL + ".partial")
        with open(partial, "w") as file:
            json.dump({"id": self.id, "moves": self._moves}, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(partial, self.folder / _JOURNAL)
        _carry_out(self.folder, self.warehouse.folder)


def _carry_out(run: Path, warehouse: Path) -> None:
    """Move everything that the journal names; may be repeated after a kill at any step."""
    journal = json.loads((run / _JOURNAL).read_text())
    for move in journal["moves"]:
        kind, _, rest = move.partition("/")
        source, target = run / move, warehouse / rest
        target.parent.mkdir(parents=True, exist_ok=True)
        if kind == "files":
            if source.exists():
                os.replace(source, target)
        elif not any(target.glob(f"*{journal['id']}.parquet")):
            _exchange(source, target)
    # The journal goes first: without it the rest is rubbish that anyone may remove.
    (run / _JOURNAL).unlink()
    shutil.rmtree(run, ignore_errors=True)


def _exchange(source: Path, target: Path) -> None:
    """Put ``source`` in the place of ``target`` in one step; where the file system cannot, in two."""
    if not target.exists():
        os.rename(source, target)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):
        args = (_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE)
        if libc.renameat2(*args) == 0:
            return
        if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(target))
    old = source.with_name(source.name + ".old")
    os.rename(target, old)
    os.rename(source, target)


@contextmanager
def _held(handle: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(handle)


def _try_lock(path: Path):  # type: ignore[no-untyped-def]
    """A context manager that holds the lock, or None if another process has it."""
    private_folder(path.parent)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return _held(handle)


def _labelled(rows: pa.Table, label: str) -> pa.Table:
    return rows.append_column("interval", pa.repeat(pa.scalar(label, pa.string()), rows.num_rows))
