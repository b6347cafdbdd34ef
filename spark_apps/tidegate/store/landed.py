"""What has landed through Spark: a table ``landed_<stream>`` outside of the cut, each batch once, and who may land.

All that decides is in the table's log: a landing commit bears the number of its batch as an application transaction,
and the lease is such a transaction, too. Each commit is exactly the version after the one that was looked at. So a
batch that comes again is seen to be there, and whoever has lost the lease lands nothing more.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations import names
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import KafkaSource, Stream, from_us, to_us
from tidegate.store.append_table import AppendTable
from tidegate.store.delta import add_columns, now_ms
from tidegate.store.delta import opened as opened_table
from tidegate.store.durable import flush
from tidegate.store.places import Place, said, storage_options
from tidegate.store.processes import is_running
from tidegate.values.types import TIMESTAMP

if TYPE_CHECKING:
    from deltalake import DeltaTable

LANDINGS = "landings"
LANDINGS_SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("batch", pa.int64()),
        ("landed_at", TIMESTAMP),
        ("generation", pa.int64()),
        ("offsets", pa.string()),
        ("read_to", TIMESTAMP),
        ("source_id", pa.string()),
    ]
)
PLACE_FIELDS: tuple[tuple[str, pa.DataType], ...] = (
    ("batch", pa.int64()),
    ("landed_at", TIMESTAMP),
    ("arrival", TIMESTAMP),
    ("source", pa.string()),
    ("generation", pa.int64()),
    ("partition", pa.int32()),
    ("position", pa.int64()),
)
"""What every landed record has: where it came from, and when."""
KAFKA_FIELDS: tuple[tuple[str, pa.DataType], ...] = (
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ("timestamp", TIMESTAMP),
)
DAY = "day"
PARQUET: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "use_dictionary": ["source"]}
"""How files of landed tables are written."""
LEASE_S = 60.0
_LEASE, _UNTIL, _CHECKPOINT, _GENERATION, _FLOOR = "lease", "lease_until_ms", "checkpoint", "generation", "floor_us"
_MACHINE, _PROCESS, _BEGAN = "lease_machine", "lease_process", "lease_began_ms"
_CONFIGURATION = {"delta.logRetentionDuration": "interval 7 days", "delta.checkpointInterval": "100"}


def landed_name(stream: Stream) -> str:
    """The table that holds what has landed of a stream."""
    return f"landed_{stream.name}"


def landed_schema(stream: Stream, columns: pa.Schema | None = None) -> pa.Schema:
    """The columns of a stream's landed table, but for the partition's; ``columns``: those of a source of Spark."""
    fields = [pa.field(*one) for one in PLACE_FIELDS]
    if isinstance(stream.source, KafkaSource):
        return pa.schema([*fields, *(pa.field(*one) for one in KAFKA_FIELDS)])
    assert columns is not None, "a source of Spark says its columns itself"
    return pa.schema([*fields, *(one.with_name(names.landed_name(one.name)) for one in columns)])


@dataclass(frozen=True)
class LandedFile:
    """A file of a landed table, and what its log says of it: ``batches`` and ``arrivals_us`` are (least, greatest).

    ``arrivals_us``: None if no record has one; ``without``: how many lack one.
    """

    path: str
    day: str
    rows: int
    bytes: int
    batches: tuple[int, int]
    arrivals_us: tuple[int, int] | None
    without: int
    landed_us: tuple[int, int]


@dataclass(frozen=True)
class LandedState:
    """What the log of a landed table says of its landing.

    ``checkpoint``: number of the present one, −1 before the first; ``base``: number of its first batch;
    ``spark_batch``: the last batch of Spark's that has landed under it, −1: none. ``floor_us``: records that arrived
    before have been removed. ``holder``: who has the lease: machine, process, and when that began.
    """

    lease: int
    lease_until_ms: int
    holder: tuple[int, int, int]
    checkpoint: int
    base: int
    spark_batch: int
    generation: int
    floor_us: int | None

    @property
    def is_leased(self) -> bool:
        """Whether somebody has the right to land now."""
        return self.lease_until_ms > now_ms()

    @property
    def last_batch(self) -> int:
        """The newest batch that has landed; −1 before the first."""
        return self.base + self.spark_batch


class LeaseLostError(UserError):
    """Somebody else lands the stream now."""


@dataclass(eq=False)
class LandedTable:
    """The landed table of one stream, in ``folder``. Not to be shared by threads."""

    folder: Place
    _table: DeltaTable | None = field(default=None, init=False, repr=False)

    def refresh(self) -> bool:
        """Look at the newest version; False if there is no table yet."""
        if self._table is not None:
            self._table.update_incremental()
        elif any((self.folder / "_delta_log").glob("*.json")):
            self._table = opened_table(self.folder)
        return self._table is not None

    @property
    def table(self) -> DeltaTable:
        """The table as it was last looked at."""
        assert self._table is not None, "refresh() comes first"
        return self._table

    def create(self, schema: pa.Schema) -> None:
        """Make the table unless it is there; give it the columns that have come since.

        Raises:
            UserError: a column has another type now, or one that no Delta table has.
        """
        from deltalake import Schema
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import create_table_with_add_actions

        try:
            whole = Schema.from_arrow(schema.append(pa.field(DAY, pa.string())))
            if not self.refresh():
                self.folder.mkdir(parents=True, exist_ok=True)
                create_table_with_add_actions(
                    str(self.folder),
                    whole,
                    [],
                    mode="ignore",
                    partition_by=[DAY],
                    configuration=_CONFIGURATION,
                    storage_options=storage_options(self.folder),
                )
                self.refresh()
            if add_columns(self.table, pa.schema(whole.to_arrow()), self.folder):
                self.refresh()
        except (DeltaError, OSError, pa.ArrowException, NotImplementedError) as error:
            raise UserError(f"table {self.folder.name} cannot be made: {said(error)}") from None

    def state(self) -> LandedState:
        """What the version last looked at says."""

        def number(name: str, default: int) -> int:
            version = self.table.transaction_version(name)
            return default if version is None else int(version)

        checkpoint = number(_CHECKPOINT, -1)
        floor_us = self.table.transaction_version(_FLOOR)
        return LandedState(
            lease=number(_LEASE, 0),
            lease_until_ms=number(_UNTIL, 0),
            holder=(number(_MACHINE, 0), number(_PROCESS, 0), number(_BEGAN, 0)),
            checkpoint=checkpoint,
            base=number(f"base-{checkpoint}", 0),
            spark_batch=number(f"batches-{checkpoint}", -1),
            generation=number(_GENERATION, 0),
            floor_us=None if floor_us is None else int(floor_us),
        )

    def files(self) -> list[LandedFile]:
        """The files of the version last looked at, by path. Cost: a microsecond a file."""
        actions = pa.table(self.table.get_add_actions(flatten=True)).sort_by("path").to_pylist()
        files = []
        for one in actions:
            least, greatest = one.get("min.arrival"), one.get("max.arrival")
            bounds = None if least is None else (to_us(least), to_us(greatest))
            batches = one["min.batch"], one["max.batch"]
            files.append(
                LandedFile(
                    one["path"],
                    one[f"partition.{DAY}"],
                    one["num_records"],
                    one["size_bytes"],
                    batches,
                    bounds,
                    one.get("null_count.arrival") or 0,
                    (to_us(one["min.landed_at"]), to_us(one["max.landed_at"])),
                )
            )
        return files

    def take_lease(self, seconds: float = LEASE_S) -> int | None:
        """Take the right to land, until it expires or is renewed: its epoch. None while somebody else has it.

        Of a process of this machine that has ended it is taken at once.
        """
        machine, process, began = _this_process()
        holder = {_MACHINE: machine, _PROCESS: process, _BEGAN: began}
        while True:
            self.refresh()
            state = self.state()
            if state.is_leased and not _has_ended(state.holder):
                return None
            if self.commit((), {_LEASE: state.lease + 1, _UNTIL: _until_ms(seconds), **holder}):
                return state.lease + 1

    def renew_lease(self, epoch: int, seconds: float = LEASE_S) -> None:
        """Keep the right to land for longer; 0 seconds: give it back.

        Raises:
            LeaseLostError: somebody else has taken it.
        """
        while True:
            self.refresh()
            self.require_lease(epoch)
            if self.commit((), {_UNTIL: _until_ms(seconds)}):
                return

    def require_lease(self, epoch: int) -> None:
        """LeaseLostError unless the lease is still of this epoch."""
        if self.state().lease != epoch:
            raise LeaseLostError(
                f"{self.folder.name}: another process lands this stream now; this one has stopped, nothing is lost"
            )

    def begin_checkpoint(self, epoch: int, base: int, generation: int) -> int:
        """Begin a checkpoint whose first batch has the number ``base``: the checkpoint's number."""
        while True:
            self.refresh()
            self.require_lease(epoch)
            number = self.state().checkpoint + 1
            if self.commit((), {_CHECKPOINT: number, f"base-{number}": base, _GENERATION: generation}):
                self.refresh()
                return number

    def land(self, files: Sequence[LandedFile], epoch: int, checkpoint: int, spark_batch: int) -> bool:
        """Land a batch under a checkpoint; False if it had landed already.

        The lease is not renewed: on a Spark Connect server a query may go on landing whose client has died.

        Raises:
            LeaseLostError: somebody else lands the stream now; nothing of this has landed.
        """
        flush((self.folder / one.path for one in files), self.folder.parent)
        while True:
            self.refresh()
            self.require_lease(epoch)
            state = self.state()
            if state.checkpoint != checkpoint:
                raise LeaseLostError(f"{self.folder.name}: this stream has begun another checkpoint")
            if state.spark_batch >= spark_batch:
                return False
            if self.commit(files, {f"batches-{checkpoint}": spark_batch}):
                self.refresh()
                return True

    def replace(self, files: Sequence[LandedFile], gone: Iterable[LandedFile], floor_us: int | None = None) -> bool:
        """Put files in the place of others, all of which must be there; ``floor_us``: what arrived before is no more.

        False if others have written meanwhile: look again.
        """
        return self.commit(files, {} if floor_us is None else {_FLOOR: floor_us}, [one.path for one in gone])

    def commit(self, files: Sequence[LandedFile], transactions: Mapping[str, int], gone: Sequence[str] = ()) -> bool:
        """Commit as exactly the version after the one last looked at; False if there is such a version already."""
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError
        from deltalake.transaction import AddAction, RemoveAction

        written_ms = now_ms()
        # What is put in another place is no change of the data, by which streaming readers pass over it.
        change = not gone
        actions: list[AddAction | RemoveAction] = [
            AddAction(one.path, one.bytes, {DAY: one.day}, written_ms, change, _stats(one)) for one in files
        ]
        actions += [RemoveAction(path, change, written_ms) for path in gone]
        numbers = [Transaction(name, version) for name, version in transactions.items()]
        properties = CommitProperties(max_commit_retries=0, app_transactions=numbers)
        try:
            self.table.create_write_transaction(
                actions, "append", self.table.schema(), [DAY], commit_properties=properties
            )
        except CommitFailedError:
            return False
        except (DeltaError, OSError) as error:
            raise UserError(
                f"the log of table {self.folder.name} cannot be written: {said(error)}; nothing of this landed: mend "
                f"what is wrong with {self.folder}, and run it again"
            ) from None
        version = self.folder / "_delta_log" / f"{self.table.version() + 1:020d}.json"
        flush([version], self.folder.parent)
        return True

    def vacuum(self, hours: int) -> int:
        """Remove files that no version names, of batches that did not land; how many."""
        if not self.refresh():
            return 0
        gone = self.table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        with suppress(Exception):
            self.table.cleanup_metadata()
        return len(gone)


@dataclass(frozen=True)
class Landing:
    """The newest of a stream's landings: ``read_to_us``: all that the source had by then has landed."""

    batch: int
    read_to_us: int | None
    generation: int
    offsets: str
    source_id: str | None


@dataclass(eq=False)
class Landings:
    """The table ``landings`` of one pipeline, in ``folder``: a row a batch, empty ones too, and one for each time that
    a source was read to its end."""

    folder: Place

    def __post_init__(self) -> None:
        self.table = AppendTable(self.folder / LANDINGS, LANDINGS_SCHEMA)

    def newest(self) -> dict[str, Landing]:
        """Stream → its last batch, and up to when it was read."""
        newest: dict[str, Landing] = {}
        rows = self.table.rows()
        ends = rows.column("read_to").cast(pa.int64()).to_pylist()
        columns = (rows.column(name).to_pylist() for name in ("stream", "batch", "generation", "offsets", "source_id"))
        for stream, batch, generation, offsets, source_id, read_to_us in zip(*columns, ends, strict=True):
            before = newest.get(stream, Landing(-1, None, 0, "", None))
            last = batch >= before.batch
            newest[stream] = Landing(
                max(batch, before.batch),
                max((us for us in (before.read_to_us, read_to_us) if us is not None), default=None),
                generation if last else before.generation,
                (offsets if last else before.offsets) or before.offsets,
                (source_id if last else before.source_id) or before.source_id,
            )
        return newest

    def add(
        self,
        stream: str,
        batch: int,
        generation: int,
        offsets: str = "",
        read_to_us: int | None = None,
        source_id: str | None = None,
    ) -> None:
        """Add a row."""
        row: dict[str, Any] = {
            "stream": stream,
            "batch": batch,
            "landed_at": datetime.now(UTC),
            "generation": generation,
            "offsets": offsets,
            "read_to": None if read_to_us is None else from_us(read_to_us),
            "source_id": source_id,
        }
        self.table.add(pa.Table.from_pylist([row], schema=LANDINGS_SCHEMA))

    def has(self, stream: str, batch: int) -> bool:
        """Whether a batch's row is there."""
        rows = self.table.rows()
        pairs = zip(rows.column("stream").to_pylist(), rows.column("batch").to_pylist(), strict=True)
        return (stream, batch) in pairs


def new_path(day: str, batch: int) -> str:
    """What a new file of a landed table is called, within the table's folder; ``batch``: the first that it holds."""
    return f"{DAY}={day}/part-{batch:012d}-{uuid.uuid4().hex}.parquet"


def summarized(path: str, day: str, size: int, parts: Sequence[pa.Table]) -> LandedFile:
    """A file that holds the rows of all of these."""
    count = sum(rows.num_rows for rows in parts)
    without = sum(rows.column("arrival").null_count for rows in parts)
    batches, arrivals, landed = (_bounds(parts, name) for name in ("batch", "arrival", "landed_at"))
    assert batches is not None and landed is not None, "every record has landed in a batch"
    return LandedFile(path, day, count, size, batches, arrivals, without, landed)


def _bounds(parts: Sequence[pa.Table], name: str) -> tuple[int, int] | None:
    ends = [pc.min_max(rows.column(name).cast(pa.int64())) for rows in parts]
    least, greatest = ([one[key].as_py() for one in ends if one[key].is_valid] for key in ("min", "max"))
    return (min(least), max(greatest)) if least else None


def groups(rows: pa.Table) -> Iterator[tuple[tuple[str, int, int], pa.Table]]:
    """The rows of each (source, generation, partition), which stay in their order; groups in order of first rows."""
    keys = ["source", "generation", "partition"]
    table = rows.select(keys).append_column("_place", pa.array(np.arange(rows.num_rows)))
    measures: list[tuple[str, str]] = [("_place", "min"), ("_place", "max"), ("_place", "count")]
    ends = table.group_by(keys, use_threads=False).aggregate(measures)
    for one in ends.to_pylist():
        key = one["source"], one["generation"], one["partition"]
        first, last, count = one["_place_min"], one["_place_max"], one["_place_count"]
        if last - first + 1 == count:
            yield key, rows.slice(first, count)
            continue
        yield key, of_partition(rows, *key)


def of_partition(rows: pa.Table, source: str, generation: int, partition: int) -> pa.Table:
    """The rows of one partition of a source, in their order."""
    wanted = {"source": source, "generation": generation, "partition": partition}
    return rows.filter(reduce(pc.and_, (pc.equal(rows.column(name), value) for name, value in wanted.items())))


def _stats(file: LandedFile) -> str:
    (first, last), (since, until) = file.batches, file.landed_us
    least: dict[str, Any] = {"batch": first, "landed_at": _text(since)}
    greatest: dict[str, Any] = {"batch": last, "landed_at": _text(until)}
    if file.arrivals_us is not None:
        least["arrival"], greatest["arrival"] = map(_text, file.arrivals_us)
    nulls = {"batch": 0, "landed_at": 0, "arrival": file.without}
    return json.dumps({"numRecords": file.rows, "minValues": least, "maxValues": greatest, "nullCount": nulls})


def _text(us: int) -> str:
    return f"{from_us(us):%Y-%m-%dT%H:%M:%S.%fZ}"


def _this_process() -> tuple[int, int, int]:
    """This machine, since it was started; this process, and when it began (ms)."""
    name = f"{socket.gethostname()} {int(psutil.boot_time())}".encode()
    machine = int.from_bytes(hashlib.sha256(name).digest()[:7])
    return machine, os.getpid(), int(psutil.Process().create_time() * 1000)


def _has_ended(holder: tuple[int, int, int]) -> bool:
    """Whether it is known that a process is no more."""
    machine, process, began_ms = holder
    return machine == _this_process()[0] and not is_running(process, began_ms / 1000)


def _until_ms(seconds: float) -> int:
    return now_ms() + int(seconds * 1000)
