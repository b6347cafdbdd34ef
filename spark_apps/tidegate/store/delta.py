"""One table as Delta Lake: which files are live, and how some are put in the place of others.

Data files are written by whoever has the rows (a slice in a worker, a stage in its process); the log is written here,
by delta-rs, from the driver alone. A file's name ends in ``-<run>.parquet``: readers tell by it whose it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.store import parquet
from tidegate.store.durable import flush
from tidegate.store.places import ObjectPath, Place, said, storage_options

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

RETENTION_HOURS = 7 * 24
"""How long superseded files stay: longer than any reader reads, and as far back as ``--as-of`` reaches."""
_TRIES = 50
_LOOKS, _LOOK_AGAIN_S = 5, 0.02
_CONFIGURATION: dict[str, str | None] = {"delta.logRetentionDuration": "interval 30 days"}
# There each file of the log that a reader has to open costs a request.
_IN_A_STORE: dict[str, str | None] = {"delta.checkpointInterval": "10"}


@dataclass(frozen=True, order=True)
class LiveFile:
    """One file of a version: ``label`` of its partition (empty in a table without), name, rows, bytes."""

    label: str
    name: str
    rows: int
    size: int

    @property
    def run(self) -> str:
        """The run that wrote it."""
        return run_of(self.name)

    @property
    def writer(self) -> str:
        """What its name begins with, before the run."""
        return self.name.rpartition("-")[0]

    @property
    def path(self) -> str:
        """Where it is, relative to the table."""
        return f"interval={self.label}/{self.name}" if self.label else self.name


class Listing(Mapping[str, tuple[LiveFile, ...]]):
    """The files of a version: label → the partition's files, by name. Labels ascend.

    ``runs``: whose the files are.

    Cost: a microsecond a file when it is made; what is not asked for is never more than text.
    """

    def __init__(self, table: DeltaTable | None, partitioned: bool):
        self.runs: frozenset[str] = frozenset()
        self._paths: list[str] = []
        # Label → where its files begin and end.
        self._span: dict[str, tuple[int, int]] = {}
        if table is None:
            return
        self._actions = pa.table(table.get_add_actions(flatten=True)).select(["path", "num_records", "size_bytes"])
        self._actions = self._actions.sort_by("path").combine_chunks()
        self._paths = self._actions.column("path").to_pylist()
        self.runs = frozenset(map(run_of, self._paths))
        folders = [path.rpartition("/")[0] for path in self._paths] if partitioned else [""] * len(self._paths)
        begin = 0
        for folder, own in groupby(folders):
            end = begin + sum(1 for _ in own)
            self._span[folder.removeprefix("interval=")] = begin, end
            begin = end

    def __getitem__(self, label: str) -> tuple[LiveFile, ...]:
        begin, end = self._span[label]
        names = [path.rpartition("/")[2] for path in self._paths[begin:end]]
        own = self._actions.slice(begin, end - begin)
        rows, sizes = (own.column(name).to_pylist() for name in ("num_records", "size_bytes"))
        return tuple(
            LiveFile(label, name, count or 0, size) for name, count, size in zip(names, rows, sizes, strict=True)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._span)

    def __len__(self) -> int:
        return len(self._span)


@dataclass(eq=False)
class DeltaLog:
    """The versions of one table at ``folder``; ``schema`` as declared, without ``interval``.

    Cost: opening reads the newest checkpoint and the log after it (8 000 partitions: 50 ms); ``refresh`` only what has
    been added since; ``replace`` one file of the log (5 ms).
    """

    folder: Place
    schema: pa.Schema
    partitioned: bool = True
    _table: DeltaTable | None = field(default=None, init=False, repr=False)
    _listings: dict[int, Listing] = field(default_factory=dict, init=False, repr=False)
    _fits: bool = field(default=False, init=False, repr=False)

    def refresh(self) -> int:
        """Look for newer versions; the newest one's number, −1 if there is no table yet."""
        from deltalake.exceptions import DeltaError

        if self._table is not None:
            try:
                self._table.update_incremental()
            except (DeltaError, OSError):
                self._table = _opened(self.folder)
        elif any((self.folder / "_delta_log").glob("*.json")):  # a killed writer may have left an empty folder
            self._table = _opened(self.folder)
        return self.version

    @property
    def version(self) -> int:
        """The version last looked at; −1 if there is none."""
        return -1 if self._table is None else self._table.version()

    def listing(self, version: int | None = None) -> Listing:
        """The files of a version (None: the one last looked at), by partition; none before the first."""
        number = self.version if version is None else version
        if number < 0:
            return Listing(None, self.partitioned)
        if number not in self._listings:
            table = self._table if number == self.version else _opened(self.folder, number)
            # Versions are asked for one after the other: two suffice.
            while len(self._listings) > 1:
                del self._listings[next(iter(self._listings))]
            self._listings[number] = Listing(table, self.partitioned)
        return self._listings[number]

    def live(self, version: int | None = None) -> tuple[LiveFile, ...]:
        """All files of a version (None: the one last looked at); none before the first."""
        return tuple(file for own in self.listing(version).values() for file in own)

    def create(self) -> None:
        """Make the table unless it is there."""
        if self.refresh() >= 0:
            return
        from deltalake import Schema
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import create_table_with_add_actions

        self.folder.mkdir(parents=True, exist_ok=True)
        wanted = Schema.from_arrow(self._whole_schema())
        try:
            create_table_with_add_actions(
                str(self.folder),
                wanted,
                [],
                mode="ignore",
                partition_by=self._by,
                configuration=_CONFIGURATION | (_IN_A_STORE if isinstance(self.folder, ObjectPath) else {}),
                storage_options=storage_options(self.folder),
            )
        except (DeltaError, OSError) as error:
            # Another writer was first.
            if self.refresh() < 0:
                raise self._unwritable(error) from None
        self._flush(0)
        self.refresh()

    def replace(
        self, added: Iterable[LiveFile], replaces: Callable[[LiveFile], bool], labels: Collection[str] | None = None
    ) -> int:
        """Put files in the place of others, in one version, and return its number.

        ``replaces``: which of the live files go, asked anew whenever another writer was faster. ``labels``: all of
        them, and all that are added, are in these partitions (None: anywhere).
        """
        from deltalake.transaction import RemoveAction

        self.create()
        self._fit()
        files = {file.path: file for file in added}
        for _ in range(_TRIES):
            # A path that is added may not be removed: its rows are in place already.
            listing, now_ms = self.listing(), _now_ms()
            live = [file for label in (listing if labels is None else labels) for file in listing.get(label, ())]
            here = {file.path for file in live}
            fresh = [self._add(file, now_ms) for path, file in files.items() if path not in here]
            gone = sorted(file.path for file in live if replaces(file) and file.path not in files)
            actions: list[AddAction | RemoveAction] = [*fresh, *(RemoveAction(path, True, now_ms) for path in gone)]
            if not actions or self._transact(actions):
                return self.refresh()
            self.refresh()
        raise UserError(f"table {self.folder} is being written by too many at once: run this again")

    def append_alone(self, file: LiveFile) -> bool:
        """Add a file as the version after the one last looked at; False if there is such a version already."""
        added = self._transact([self._add(file, _now_ms())])
        if added:
            self.refresh()
        return added

    def _flush(self, version: int) -> None:
        # A mart's folder is below that of the marts.
        flush([self.folder / "_delta_log" / f"{version:020d}.json"], self.folder.parent.parent)

    def _add(self, file: LiveFile, now_ms: int) -> AddAction:
        from deltalake.transaction import AddAction

        values = {"interval": file.label} if self.partitioned else {}
        return AddAction(file.path, file.size, values, now_ms, True, json.dumps({"numRecords": file.rows}))

    def _transact(self, actions: Sequence[AddAction | RemoveAction]) -> bool:
        from deltalake import CommitProperties, Schema
        from deltalake.exceptions import CommitFailedError, DeltaError

        assert self._table is not None, "create() comes first"
        schema, once = Schema.from_arrow(self._whole_schema()), CommitProperties(max_commit_retries=0)
        try:
            self._table.create_write_transaction(list(actions), "append", schema, self._by, commit_properties=once)
        except CommitFailedError:
            return False
        except (DeltaError, OSError) as error:
            raise self._unwritable(error) from None
        self._flush(self.version + 1)
        return True

    def _unwritable(self, error: Exception) -> UserError:
        return UserError(
            f"the log of table {self.folder.name} cannot be written: {said(error)}; nothing "
            f"of this run is visible: mend what is wrong with {self.folder}, and run it again"
        )

    def vacuum(self, hours: int = RETENTION_HOURS) -> int:
        """Remove the files that no version of the last ``hours`` names, those of killed runs too; how many."""
        if self.refresh() < 0:
            return 0
        assert self._table is not None
        gone = self._table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        self.refresh()
        return len(gone)

    @property
    def _by(self) -> list[str]:
        return ["interval"] if self.partitioned else []

    def _whole_schema(self) -> pa.Schema:
        return self.schema.append(pa.field("interval", pa.string())) if self.partitioned else self.schema

    def _fit(self) -> None:
        """Give the table the columns that have been declared since; UserError if one has another type."""
        if self._fits:
            return
        assert self._table is not None
        there = {f.name: f for f in pa.schema(self._table.schema().to_arrow())}
        from deltalake import Field, Schema

        wanted = pa.schema(Schema.from_arrow(self.schema).to_arrow())
        for field_ in wanted:
            if field_.name in there and there[field_.name].type != field_.type:
                raise UserError(
                    f"column {field_.name} of table {self.folder.name} is {there[field_.name].type} in "
                    f"{self.folder} and {field_.type} as declared now: a column keeps its type; "
                    "give the column another name, or run into another warehouse"
                )
        new = [f for f in wanted if f.name not in there]
        if new:
            self._table.alter.add_columns([Field.from_arrow(f.with_nullable(True)) for f in new])
            self.refresh()
        self._fits = True


def run_of(name: str) -> str:
    """The run that a file's name ends in, before its suffix."""
    return name.partition(".")[0].rpartition("-")[2]


class ReplacedBy:
    """Says of a live file whether a commit replaces it: those of its partitions, or of its writer there.

    ``partitions``: labels replaced as a whole. ``writers``: (label, writer) of the files that are replaced alone.
    ``labels``: of all partitions concerned.
    """

    def __init__(self, partitions: Iterable[str] = (), writers: Iterable[tuple[str, str]] = ()):
        self._partitions, self._writers = frozenset(partitions), frozenset(writers)
        self.labels = sorted({*self._partitions, *(label for label, _ in self._writers)})

    def __call__(self, file: LiveFile) -> bool:
        """Whether the file goes."""
        return file.label in self._partitions or (file.label, file.writer) in self._writers


def live_file(path: Place, label: str) -> LiveFile:
    """A file as it has been written, from its footer."""
    return LiveFile(label, path.name, parquet.footer(path).num_rows, path.stat().st_size)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _opened(folder: Place, version: int | None = None) -> DeltaTable:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    failed: Exception = OSError()
    for _ in range(_LOOKS):
        try:
            return DeltaTable(str(folder), version=version, storage_options=storage_options(folder))
        except (DeltaError, OSError) as error:
            # A listing that is made while others write may have a version and lack the one before it.
            failed = error
            time.sleep(_LOOK_AGAIN_S)
    raise UserError(
        f"the log of table {folder.name} cannot be read: {said(failed)}; "
        f"restore {folder / '_delta_log'} from a backup, or move {folder} away and run its intervals again"
    )
