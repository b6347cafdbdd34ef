"""A run's files, written where they stay, and what makes them visible together."""

from __future__ import annotations

import contextlib
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.store import parquet
from tidegate.store.cut import SHARED
from tidegate.store.delta import ReplacedBy, flush_logs, live_file
from tidegate.store.durable import flush
from tidegate.store.folders import private_folder
from tidegate.store.intervals import Interval
from tidegate.store.places import Place, remove_tree
from tidegate.store.withdraw import noted, put_back, withdraw

if TYPE_CHECKING:
    from tidegate.store.warehouse import Warehouse

STATE = "_state"


class Commit:
    """What one run of a stage writes. Its files bear its ``id``; nobody sees them before ``publish`` has returned.

    ``labels``: the intervals that the run is for. ``begun``: the runs that were committed when it began.
    """

    def __init__(self, warehouse: Warehouse, stage: str, labels: Sequence[str], begun: Set[str]):
        self.warehouse = warehouse
        self.stage = stage
        self.labels = tuple(labels)
        self.id = uuid.uuid4().hex[:12]
        self._begun = begun
        self._partitions: dict[str, dict[str, Place]] = defaultdict(dict)
        self._files: dict[str, list[tuple[str, Place]]] = defaultdict(list)
        self._others: list[Place] = []
        self._counted: dict[Place, int] = {}
        private_folder(warehouse.folder)

    @property
    def scratch(self) -> Place:
        """A folder for what the run needs while it runs; removed when it ends."""
        folder = self.warehouse.folder / "_staging" / f"{self.stage}-{self.id}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def put_arrow(self, table: str, interval: Interval, data: pa.Table) -> None:
        """Replace one partition by these rows, cast to the table's schema."""
        wanted = self.warehouse.schema(table)
        self.put_rows(table, interval, data.select(wanted.names).cast(wanted))

    def put_rows(self, table: str, interval: Interval, data: pa.Table) -> None:
        """Replace one partition by these rows, which have the table's columns."""
        self._write(data, self.stage_folder(table, interval.label) / f"part-00000-{self.id}.parquet")

    def put_state(self, name: str, interval: Interval, data: pa.Table, **options: Any) -> None:
        """Keep what the next interval's run continues from; ``options`` of writing Parquet."""
        parquet.write(data, self.state_folder(name, interval.label) / f"part-00000-{self.id}.parquet", **options)

    def state_folder(self, name: str, label: str) -> Place:
        """Where to write the files of a state, with names that end in ``-<id>.parquet``."""
        return self.other_folder(f"{STATE}/{name}/interval={label}")

    def other_folder(self, path: str) -> Place:
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
        self._write(data.select(wanted.names).cast(wanted), path)
        self._files[table].append((interval.label, path))

    def _write(self, rows: pa.Table, path: Place) -> None:
        parquet.write(rows, path)
        self._counted[path] = rows.num_rows

    def rows(self, file: Place) -> int:
        """How many rows a file that this commit has written has, by what it says itself; it is asked once."""
        if file not in self._counted:
            self._counted[file] = parquet.footer(file).num_rows
        return self._counted[file]

    def written(self, table: str, label: str) -> list[Place]:
        """The files that this commit has put into a partition so far."""
        folder = self._partitions[table].get(label)
        return [] if folder is None else self._own(folder)

    def files(self, table: str, labels: Sequence[str]) -> tuple[str, ...]:
        """Paths of the named partitions' files once this is published: where nothing is put anew, those that are there.

        In the order of the labels.
        """
        found: list[str] = []
        for label in labels:
            found += [str(file) for file in self.written(table, label)] or self.warehouse.files(table, [label])
        return tuple(found)

    def stage_folder(self, table: str, label: str) -> Place:
        """The folder of a partition that is replaced as a whole; the files' names must end in ``-<id>.parquet``."""
        folder = self.warehouse.folder / table / f"interval={label}"
        folder.mkdir(parents=True, exist_ok=True)
        for file in self.written(table, label):
            file.unlink()
            self._counted.pop(file, None)
        self._partitions[table][label] = folder
        return folder

    def publish(self) -> None:
        """Make all that was written visible at once. UserError if another run of the stage was faster."""
        assert self.labels, "a run without an interval has no row in _commits, and would not be seen"
        home = self.warehouse.folder
        self.warehouse.commits.begin()
        added: dict[str, dict[Place, str]] = {}
        for table in sorted({*self._partitions, *self._files}):
            folders = self._partitions[table].items()
            added[table] = {path: label for label, folder in folders for path in self._own(folder)}
            added[table] |= {path: label for label, path in self._files[table]}
        # All at once, and then all logs: a disk serves many files as fast as a few.
        others = (path for folder in self._others for path in self._own(folder))
        flush([*others, *(path for own in added.values() for path in own)], home)
        # Not those of which it has a file of its own beside other stages' files.
        replaced = frozenset(table for table, folders in self._partitions.items() if folders)
        logs = self.warehouse.logs
        with noted(home, self.id, added):
            try:
                versions = self._publish(added)
                self.warehouse.commits.append(self.stage, self.id, self.labels, versions, replaced, self._begun)
            except UserError:
                # Readers of the newest versions would see it until the next run, and what stands below is gone.
                with contextlib.suppress(UserError, OSError):
                    withdraw(home, logs, self.warehouse.commits, self.id, added)
                raise

    def _publish(self, added: Mapping[str, Mapping[Place, str]]) -> dict[str, int]:
        """Put the files of each table into its log; the tables' versions."""
        versions = {}
        for table, own in added.items():
            log = self.warehouse.log(table)
            files = [live_file(path, label, self._counted.get(path)) for path, label in own.items()]
            gone = ReplacedBy(self._partitions[table], ((f.label, f.writer) for f in files if table in SHARED))
            if table in SHARED and any(file.foreign for label in gone.labels for file in log.listing().get(label, ())):
                # Merged by another program, the files of which this replaces one.
                put_back(self.warehouse.logs, self.warehouse.commits, table, lambda file: file.foreign)
            versions[table] = log.replace(files, gone, gone.labels)
        flush_logs(map(self.warehouse.log, added), self.warehouse.folder)
        return versions

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
            remove_tree(self.warehouse.folder / "_staging" / f"{self.stage}-{self.id}")

    def _own(self, folder: Place) -> list[Place]:
        return sorted(folder.glob(f"*-{self.id}.*"))
