"""A copy of history's small files, so that who asks about a year of hourly intervals opens a dozen files, not 100 000.

Of a table and a stream, the rows of each month's partitions stand together in one file of ``_state/history_index``,
beside the names of the files that they come from. A partition's file names change with every commit, and no file
changes under its name: so whoever reads takes from the copy what has the names that the cut has, and the rest from the
partitions themselves. The copy is brought up to date by whoever finds it stale and may
write; it may be deleted at any time. Partitions of large files are not copied: opening them costs little.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.history.store import Rows
from tidegate.store.cut import read_file
from tidegate.store.parquet import dataset
from tidegate.store.places import Place, each, move, remove_tree
from tidegate.store.warehouse import Warehouse

FOLDER = "history_index"
SMALL_FILE_BYTES = 1 << 16
_FORMAT = "1"
_MONTH = len("2013-02")
_DIGEST_BYTES = 16
_FILES_ONE_BY_ONE = 256
_MONTHS_IN_MEMORY = 12

Names = dict[str, str]
"""Label of a partition → the names of its files, ascending, parted by slashes."""


@dataclass(frozen=True, eq=False)
class Copied:
    """Rows of some partitions, by label and file, with ``interval``; ``large``: those whose files are to be read.

    ``names``: what the rows are of.
    """

    rows: pa.Table
    large: Names
    names: Names


@dataclass(frozen=True)
class HistoryIndex:
    """The copy of one stream's rows of one table: a column ``interval`` and those of ``schema``.

    ``samples``: the table is the stream's own, and only partitions whose files have less than 64 KiB on average are
    copied; otherwise other streams' rows stand beside its own, told apart by the column ``stream``. ``rows``: what this
    process has read of the table.

    Cost: a file a month; each partition that has changed since costs its files, and its month is written anew. The last
    twelve months read stay in memory.
    Guarantee: the rows are those of the partitions as they stand. A copy that is torn, of another format or of other
    columns is made anew; a reader that may not write does without.
    """

    warehouse: Warehouse
    table: str
    stream: str
    schema: pa.Schema
    samples: bool = False
    rows: Rows | None = None
    _recent: dict[str, Copied] = field(default_factory=dict, init=False, repr=False)

    def read(self, labels: Iterable[str]) -> Copied:
        """The rows of the named partitions; those that are not there have none."""
        wanted = sorted(set(labels))
        found = [self._month(month, list(own)) for month, own in groupby(wanted, _month_of)]
        names = {label: own for part in found for label, own in part.names.items()}
        large = {label: own for part in found for label, own in part.large.items()}
        empty = _with_interval(self.schema).empty_table()
        # Dictionaries are of a month: they become one.
        return Copied(pa.concat_tables([empty, *(part.rows for part in found)]).unify_dictionaries(), large, names)

    def renew(self, labels: Iterable[str]) -> None:
        """Bring the copy of the named partitions up to date."""
        for _, own in groupby(sorted(set(labels)), _month_of):
            self.read(own)

    def names(self, labels: Iterable[str]) -> Names:
        """The files of the named partitions that are there."""
        live = ((label, self.warehouse.live(self.table, label)) for label in labels)
        return {label: "/".join(file.name for file in own) for label, own in live if own}

    def _month(self, month: str, labels: Sequence[str]) -> Copied:
        path = self.warehouse.folder / "_state" / FOLDER / f"{self.table}.{self.stream}.{month}.arrow"
        # What is in memory is checked as what is on disk: by the names of the files.
        names, kept = self.names(labels), self._recent.pop(month, None) or self._load(path)
        stale = [label for label, own in names.items() if kept.names.get(label) != own]
        if stale:
            kept = self._renewed(kept, {label: names[label] for label in stale}, names)
            self._save(path, kept)
        self._recent[month] = kept
        while len(self._recent) > _MONTHS_IN_MEMORY:
            del self._recent[next(iter(self._recent))]
        return Copied(
            _only(kept.rows, names), {label: own for label, own in kept.large.items() if label in names}, names
        )

    def _renewed(self, kept: Copied, stale: Names, listed: Names) -> Copied:
        """The copy with the stale partitions read anew, and without those that are gone."""
        names = listed | self.names(label for label in kept.names if label not in listed)
        valid = {label: own for label, own in kept.names.items() if label not in stale and names.get(label) == own}
        large = {label: own for label, own in stale.items() if self.samples and not self._is_small(label, own)}
        rows = self._of_files({label: own for label, own in stale.items() if label not in large})
        kept_rows = _only(kept.rows, valid)
        rows = pa.concat_tables([kept_rows.cast(_with_interval(self.schema, pa.string())), rows])
        # Stable: a partition's rows stay as they are in its files.
        rows = rows.take(np.argsort(rows.column("interval").to_numpy().astype(str), kind="stable"))
        large |= {label: own for label, own in kept.large.items() if label in valid}
        return Copied(rows.cast(_with_interval(self.schema)), large, valid | stale)

    def _is_small(self, label: str, own: str) -> bool:
        paths = self._paths({label: own})
        return sum(file.size for file in self.warehouse.live(self.table, label)) < SMALL_FILE_BYTES * len(paths)

    def _paths(self, names: Names) -> list[tuple[str, str]]:
        folder = self.warehouse.folder / self.table
        return [(label, f"{folder}/interval={label}/{name}") for label, own in names.items() for name in _split(own)]

    def _of_files(self, names: Names) -> pa.Table:
        """The stream's rows of these partitions; of each, in the order of its files."""
        held = _with_interval(self.schema, pa.string()).empty_table()
        if self.rows is not None:
            stand, kept = self.rows.kept({label: _split(own) for label, own in names.items()})
            held = kept.select(held.schema.names).cast(held.schema)
            names = {label: own for label, own in names.items() if label not in stand}
        paths = self._paths(dict(sorted(names.items())))
        if len(paths) > _FILES_ONE_BY_ONE:
            rows = _in_bulk([path for _, path in paths], self.schema)
        else:
            rows = _one_by_one(self.warehouse.folder, paths, self.schema)
        rows = pa.concat_tables([held, rows])
        return rows if self.samples else rows.filter(pc.equal(rows.column("stream"), self.stream))

    def _load(self, path: Place) -> Copied:
        """The copy as it was left; nothing if there is none that can be trusted."""
        nothing = Copied(_with_interval(self.schema).empty_table(), {}, {})
        try:
            digest, body = (content := memoryview(path.read_bytes()))[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        except OSError:
            return nothing
        if _digest(body) != digest:
            return nothing
        rows = pa.ipc.open_stream(body).read_all()
        told = rows.schema.metadata or {}
        if told.get(b"format") != _FORMAT.encode() or not rows.schema.equals(_with_interval(self.schema)):
            return nothing
        return Copied(rows.replace_schema_metadata(None), json.loads(told[b"large"]), json.loads(told[b"names"]))

    def _save(self, path: Place, copied: Copied) -> None:
        """In one step, by way of a folder that daily upkeep empties; not where none may write."""
        told = {"format": _FORMAT, "large": json.dumps(copied.large), "names": json.dumps(copied.names)}
        rows, sink = copied.rows.replace_schema_metadata(told), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(rows)
        body = sink.getvalue()
        aside = self.warehouse.folder / "_staging" / f"{FOLDER}-{uuid.uuid4().hex[:12]}"
        with contextlib.suppress(OSError):
            aside.mkdir(parents=True)
            (aside / path.name).write_bytes(_digest(body) + body)
            path.parent.mkdir(parents=True, exist_ok=True)
            move(aside / path.name, path)
            remove_tree(aside)


def _month_of(label: str) -> str:
    return label[:_MONTH]


def _digest(body: pa.Buffer | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()


def _split(own: str) -> list[str]:
    return own.split("/") if own else []


_LABELS = pa.dictionary(pa.int32(), pa.string())


def _with_interval(schema: pa.Schema, kind: pa.DataType = _LABELS) -> pa.Schema:
    return schema.append(pa.field("interval", kind))


def _codes_of(rows: pa.Table) -> np.ndarray:
    return np.asarray(rows.column("interval").combine_chunks().indices.to_numpy())


def _labels_of(rows: pa.Table) -> np.ndarray:
    return np.array(rows.column("interval").combine_chunks().dictionary.to_pylist(), dtype=str)


def _only(rows: pa.Table, names: Names) -> pa.Table:
    """The rows of these partitions."""
    if not rows.num_rows:
        return rows
    wanted = np.array([label in names for label in _labels_of(rows).tolist()], bool)
    return rows if wanted.all() else rows.filter(pa.array(wanted[_codes_of(rows)]))


def _one_by_one(within: Place, paths: Sequence[tuple[str, str]], schema: pa.Schema) -> pa.Table:
    parts = each(within, lambda item: read_file(item[1], schema), paths)
    labels, counts = [label for label, _ in paths], [len(part) for part in parts]
    rows = pa.concat_tables([schema.empty_table(), *parts])
    return rows.append_column("interval", pa.array(np.repeat(np.array(labels, dtype=object), counts), pa.string()))


def _in_bulk(paths: Sequence[str], schema: pa.Schema) -> pa.Table:
    """The same, twice as fast once pyarrow's datasets are there: their import takes as long as hundreds of files."""
    import pyarrow.dataset as ds

    of_path = ds.partitioning(pa.schema([("interval", pa.string())]), flavor="hive")
    whole = _with_interval(schema, pa.string())
    return dataset(paths, whole, partitioning=of_path).to_table()
