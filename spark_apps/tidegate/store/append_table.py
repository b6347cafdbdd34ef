"""Small tables outside of the cut, to which rows are only ever added, by whoever has looked at all that are there."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.store import parquet
from tidegate.store.delta import DeltaLog, flush_logs, live_file
from tidegate.store.durable import flush
from tidegate.store.places import Place

_FEWEST, _SMALL_ROWS = 64, 10_000
_TRIES = 50


@dataclass(eq=False)
class AppendTable:
    """A Delta table without partitions, at ``folder``; a version of it adds one file, or merges all.

    Cost: ``rows`` reads the files that have been added since it was last called.
    """

    folder: Place
    schema: pa.Schema
    _log: DeltaLog = field(init=False, repr=False)
    _files: dict[str, pa.Table] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._log = DeltaLog(self.folder, self.schema, partitioned=False)

    @property
    def version(self) -> int:
        """The version last looked at; −1 if there is no table."""
        return self._log.version

    def rows(self) -> pa.Table:
        """All rows there are now, in the order in which they were added."""
        self._log.refresh()
        live = sorted(self._log.live(), key=lambda file: file.name)
        self._files = {f.name: self._files[f.name] if f.name in self._files else self._read(f.name) for f in live}
        return pa.concat_tables([self.schema.empty_table(), *self._files.values()])

    def append(self, rows: pa.Table) -> bool:
        """Add rows as the version after the one last looked at; False if somebody else has added one meanwhile."""
        self._log.create()
        path = self._write(rows)
        if self._log.append_alone(live_file(path, "", rows.num_rows)):
            self._log.refresh()
            return True
        if path.name in {file.name for file in self._log.live(self._log.refresh())}:
            return True  # it is there: the answer to the attempt was lost on its way
        path.unlink()
        return False

    def add(self, rows: pa.Table) -> None:
        """Add rows, whatever others add at the same time."""
        for _ in range(_TRIES):
            self._log.refresh()
            if self.append(rows):
                return
        raise UserError(f"table {self.folder} is being written by too many at once: run this again")

    def merge(self, fewest: int = _FEWEST) -> None:
        """Put one file in the place of the small ones, if there are many; readers find the same rows and order."""
        self._log.refresh()
        small = sorted(file.name for file in self._log.live() if file.rows <= _SMALL_ROWS)
        large = [file.name for file in self._log.live() if file.rows > _SMALL_ROWS]
        # What is put together must have nothing in between.
        small = [name for name in small if name > max(large, default="")]
        if len(small) < fewest:
            return
        rows = pa.concat_tables([self._files[name] if name in self._files else self._read(name) for name in small])
        # Named after the last one, so that what is added meanwhile comes behind it.
        path = self.folder / f"{small[-1].removesuffix('.parquet')}-merged.parquet"
        parquet.write(rows, path)
        flush([path], self.folder)
        names = frozenset(small)
        self._log.replace([live_file(path, "", rows.num_rows)], lambda file: file.name in names)
        flush_logs([self._log], self.folder)

    def vacuum(self, hours: int) -> int:
        """Remove what merges have left behind, and files of versions that lost."""
        return self._log.vacuum(hours)

    def _write(self, rows: pa.Table) -> Place:
        # Versions come one after the other: by their numbers files are in the order in which they were added.
        path = self.folder / f"{self._log.version + 1:012d}-{time.time_ns():x}{uuid.uuid4().hex[:6]}.parquet"
        parquet.write(rows.select(self.schema.names).cast(self.schema), path)
        flush([path], self.folder)
        return path

    def _read(self, name: str) -> pa.Table:
        table = parquet.opened(self.folder / name).read()
        missing = [f for f in self.schema if f.name not in table.column_names]
        for one in missing:
            table = table.append_column(one, pa.nulls(table.num_rows, one.type))
        return table.select(self.schema.names).cast(self.schema)
