"""Rows of many small partitions, gathered in one file of this machine: each is read once, not every hour."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.store.renewed import changed, renewed

_FILES = b"tidegate.files"


class Tables(Protocol):
    """What is read (a Warehouse is one)."""

    def files(self, table: str, labels: Sequence[str]) -> tuple[str, ...]: ...  # noqa: D102  # paths
    def read_arrow(  # noqa: D102
        self, table: str, labels: Sequence[str] | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table: ...


@dataclass(frozen=True)
class Gathered:
    """What is kept of a table in ``path``: the rows that ``keep`` chooses, by default all.

    ``meaning``: of what is kept; another is begun anew.

    A table's files never change, so those that were read are known by their names. If ``path`` cannot be read, or holds
    other columns, it is made anew: all that is in it can be read from the tables.
    """

    path: Path
    meaning: str = ""
    keep: Callable[[pa.Table], pa.Table] = lambda rows: rows

    def read(self, tables: Tables, table: str, labels: Sequence[str]) -> pa.Table:
        """The rows of these partitions, labels ascending, with a column ``interval``.

        Cost: a file of the table each that is new since the last time, and the one file.
        """
        files = {label: [os.path.basename(path) for path in tables.files(table, [label])] for label in labels}
        before, read = self._before(tables.read_arrow(table, []).schema)
        rows = renewed(before, read, files, lambda stale: self._fresh(tables, table, stale))
        if changed(read, files):
            self._write(rows, files)
        return rows

    def _fresh(self, tables: Tables, table: str, labels: Sequence[str]) -> pa.Table:
        return self.keep(tables.read_arrow(table, labels)).replace_schema_metadata(None)

    def _before(self, schema: pa.Schema) -> tuple[pa.Table, dict[str, list[str]]]:
        """What is kept, and of which files of which partitions; nothing if that is of no use."""
        with suppress(OSError, pa.ArrowInvalid, ValueError, KeyError):
            found = pq.ParquetFile(self.path).read()
            told = json.loads((found.schema.metadata or {})[_FILES])
            if told["meaning"] == self.meaning and found.schema.remove_metadata().equals(schema.remove_metadata()):
                return found.replace_schema_metadata(None), told["read"]
        return schema.remove_metadata().empty_table(), {}

    def _write(self, rows: pa.Table, read: Mapping[str, Sequence[str]]) -> None:
        told = json.dumps({"meaning": self.meaning, "read": read})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        pq.write_table(rows.replace_schema_metadata({_FILES: told}), partial)
        os.replace(partial, self.path)
