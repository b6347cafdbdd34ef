"""Rows of many small partitions, gathered in one file beside the pages: each is read once, not every hour."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from expectations.tables import Tables

_FILES = b"tidegate.files"
_FILE = "_label_and_files"


@dataclass(frozen=True)
class Gathered:
    """What is kept of a table in ``path``. ``meaning``: of the rows that ``keep`` chooses; another is begun anew.

    A table's files never change, so those that were read are known by their names. If ``path`` cannot be read, or holds
    other columns, it is made anew: all that is in it can be read from the tables.
    """

    path: Path
    meaning: str
    keep: Callable[[pa.Table], pa.Table]

    def read(self, tables: Tables, table: str, labels: Sequence[str]) -> pa.Table:
        """The rows of these partitions, labels ascending, with a column ``interval``.

        Cost: a file of the table each that is new since the last time, and the one file.
        """
        named = {label: " ".join((label, *map(os.path.basename, tables.files(table, [label])))) for label in labels}
        wanted = set(named.values())
        before = self._before(tables.read_arrow(table, []).schema)
        known = set() if before is None else set(json.loads(before.schema.metadata[_FILES])["read"]) & wanted
        fresh = [label for label in labels if named[label] not in known]
        rows = self.keep(tables.read_arrow(table, fresh))
        of = pa.array([named[label] for label in rows["interval"].to_pylist()], pa.string())
        rows = rows.append_column(_FILE, of).replace_schema_metadata(None)
        if before is not None:
            old = before.filter(pc.is_in(before[_FILE], pa.array(sorted(known), pa.string())))
            rows = pa.concat_tables([old.replace_schema_metadata(None), rows])
        if fresh or before is None:
            self._write(rows, sorted(wanted))
        return rows.drop_columns([_FILE]).sort_by("interval")

    def _before(self, schema: pa.Schema) -> pa.Table | None:
        with suppress(OSError, pa.ArrowInvalid, ValueError, KeyError):
            found = pq.ParquetFile(self.path).read()
            told = json.loads((found.schema.metadata or {})[_FILES])
            if told["meaning"] == self.meaning and found.schema.remove_metadata().equals(
                schema.append(pa.field(_FILE, pa.string())).remove_metadata()
            ):
                return found
        return None

    def _write(self, rows: pa.Table, read: Sequence[str]) -> None:
        told = json.dumps({"meaning": self.meaning, "read": read})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        pq.write_table(rows.replace_schema_metadata({_FILES: told}), partial)
        os.replace(partial, self.path)
