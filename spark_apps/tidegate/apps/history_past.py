"""One stream's past, opened once and asked often: leaves in memory, samples read as they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tidegate.declarations.models import History, Stream
from tidegate.declarations.tables import LEAF_AGGREGATES
from tidegate.hosts.history_store import BandFile, Samples, Strata, band_files, order_of, samples_in_force
from tidegate.hosts.warehouse import Warehouse
from tidegate.operators.history.laws import Float64s
from tidegate.operators.history.tree import MAX, MAX_TIME, MIN, MIN_TIME, Covered, HdsTree, Leaf, Totals
from tidegate.operators.schedule import instants_us

Bools = npt.NDArray[np.bool_]
FAN_OUT = 6
_NOTHING = {MIN: np.inf, MAX: -np.inf, MIN_TIME: np.inf, MAX_TIME: np.inf}


@dataclass(frozen=True, eq=False)
class View:
    """Exact aggregates of all tuples, or of those of one group: a row an interval and leaf.

    ``values``: float64[rows, columns, 7], as in ``Totals``.
    """

    columns: tuple[str, ...]
    strata: Strata
    values: Float64s

    @classmethod
    def of(cls, rows: pa.Table, columns: Sequence[str]) -> View:
        """Of rows of ``history_leaves``, with ``interval``."""
        rows = rows.take(order_of(rows))
        values = np.zeros((rows.num_rows, len(columns), len(LEAF_AGGREGATES)))
        for c, column in enumerate(columns):
            for a, (name, _) in enumerate(LEAF_AGGREGATES):
                part = rows.column(f"{column}_{name}")
                if a in (MIN_TIME, MAX_TIME):
                    part = part.cast(pa.int64())
                values[:, c, a] = pc.fill_null(part.cast(pa.float64()), _NOTHING.get(a, 0.0)).to_numpy()
        return cls(tuple(columns), Strata.of(rows), values)

    @cached_property
    def tree(self) -> HdsTree:
        """The HDS-Tree over the leaves; periods in which nothing happened are leaves without tuples."""
        return HdsTree.build(FAN_OUT, self.columns, self._leaves())

    def _leaves(self) -> list[Leaf]:
        strata = self.strata
        start_us, leaf = np.unique(strata.start_us, return_inverse=True)
        end_us = np.zeros(len(start_us), np.int64)
        np.maximum.at(end_us, leaf, strata.end_us)
        tuples, sampled = (
            np.bincount(leaf, weights=n, minlength=len(start_us)) for n in (strata.tuples, strata.sampled)
        )
        fraction = np.ones(len(start_us))
        np.minimum.at(fraction, leaf, strata.fraction)
        values = np.tile(Totals.empty(len(self.columns)).values, (len(start_us), 1, 1))
        for row, index in enumerate(leaf.tolist()):
            values[index] = (Totals(0, values[index]) + Totals(0, self.values[row])).values
        leaves: list[Leaf] = []
        for i in range(len(start_us)):
            if leaves and leaves[-1].end_us < start_us[i]:
                leaves.append(Leaf(leaves[-1].end_us, int(start_us[i]), Totals.empty(len(self.columns)), fraction=1.0))
            totals = Totals(int(tuples[i]), values[i])
            leaves.append(Leaf(int(start_us[i]), int(end_us[i]), totals, float(fraction[i]), int(sampled[i])))
        return leaves

    def touched(self, start_us: int, end_us: int) -> Bools:
        """Which rows' leaves share some time with the period."""
        return (self.strata.start_us < end_us) & (start_us < self.strata.end_us)

    def cut(self, start_us: int, end_us: int) -> Bools:
        """Which rows' leaves the period cuts."""
        strata = self.strata
        whole = (start_us <= strata.start_us) & (strata.end_us <= end_us)
        return self.touched(start_us, end_us) & ~whole

    def covered(self, start_us: int, end_us: int) -> Covered:
        """What the period covers, from the tree."""
        return self.tree.query(start_us, end_us)

    def only(self, rows: Bools) -> View:
        """The view of some rows."""
        strata = self.strata
        labels, label = np.unique(strata.label[rows], return_inverse=True)
        return View(
            self.columns,
            Strata(
                tuple(strata.labels[i] for i in labels.tolist()),
                label.astype(np.int64),
                strata.start_us[rows],
                strata.end_us[rows],
                strata.tuples[rows],
                strata.sampled[rows],
                strata.fraction[rows],
            ),
            self.values[rows],
        )

    def at_most(self, fraction: float) -> View:
        """The same with samples thinned to a fraction, as if a pass had lowered them: what sparse bands alone show."""
        return replace(self, strata=replace(self.strata, fraction=np.minimum(self.strata.fraction, fraction)))


@dataclass(frozen=True, eq=False)
class Past:
    """A stream's history: exact leaves, groups, and where the samples are.

    Cost: ``open`` reads the leaves of the named intervals, some 10 000 small files a second; a question to the tree
    then takes a fraction of a millisecond, one to the samples reads the files of the intervals that it touches.
    """

    warehouse: Warehouse
    stream: Stream
    labels: tuple[str, ...]
    view: View

    @classmethod
    def open(cls, warehouse: Warehouse, stream: Stream, labels: Sequence[str] | None = None) -> Past:
        """Read the leaves of the named partitions (None: of all)."""
        labels = warehouse.labels("history_leaves") if labels is None else labels
        rows = _rows(warehouse, "history_leaves", labels, stream, ["tuples", "sampled", "fraction"])
        return cls(warehouse, stream, tuple(labels), View.of(rows, stream.numeric_columns))

    @property
    def spec(self) -> History:
        """The stream's history settings."""
        assert self.stream.history is not None
        return self.stream.history

    @cached_property
    def _groups(self) -> pa.Table:
        """Rows of ``history_groups`` as if they were leaves: with the fraction of their interval."""
        named = ["group_column", "group_value", "tuples"]
        rows = _rows(self.warehouse, "history_groups", self.labels, self.stream, named)
        held = dict(zip(self.view.strata.labels, self.view.strata.fraction_of_label().tolist(), strict=True))
        fraction = [held[label] for label in rows.column("interval").to_pylist()]
        rows = rows.append_column("fraction", pa.array(fraction, pa.float64()))
        return rows.append_column("sampled", pa.array(np.zeros(rows.num_rows, np.int64)))

    def groups(self, column: str, start_us: int, end_us: int) -> list[tuple[str | None, View]]:
        """The values of a declared group column in the period, as text, each with its view."""
        own = self._groups.filter(pc.equal(self._groups.column("group_column"), column))
        starts, ends = (own.column(name).cast(pa.int64()) for name in ("leaf_start", "leaf_end"))
        own = own.filter(pc.and_(pc.less(starts, end_us), pc.greater(ends, start_us)))
        encoded = pc.dictionary_encode(own.column("group_value").combine_chunks(), null_encoding="encode")
        code = encoded.indices.to_numpy(zero_copy_only=False)
        return [
            (value, View.of(own.filter(pa.array(code == index)), self.stream.numeric_columns))
            for index, value in enumerate(encoded.dictionary.to_pylist())
        ]

    @cached_property
    def _files(self) -> dict[str, list[BandFile]]:
        return {}

    def files(self, labels: Sequence[str]) -> list[BandFile]:
        """The files of samples of these partitions; their footers are read once."""
        new = [label for label in labels if label not in self._files]
        for label in new:
            self._files[label] = []
        for file in band_files(self.warehouse, self.stream.name, new):
            self._files[file.label].append(file)
        return [file for label in labels for file in self._files[label]]

    def samples(self, view: View, columns: Sequence[str]) -> Samples:
        """The sampled tuples in the view's leaves that are in force at its fractions."""
        strata = view.strata
        some = np.unique(strata.label[(strata.sampled > 0) & (strata.fraction > 0)])
        labels = [strata.labels[i] for i in some.tolist()]
        limit = dict(zip(strata.labels, strata.fraction_of_label().tolist(), strict=True))
        files = [file for file in self.files(labels) if file.least_u < limit[file.label]]
        return samples_in_force(self.warehouse, self.stream.name, strata, files, columns)


def _rows(warehouse: Warehouse, table: str, labels: Sequence[str], stream: Stream, named: Sequence[str]) -> pa.Table:
    """The stream's rows of a table of leaves, with ``interval``; all files at once."""
    schema = warehouse.schema(table)
    names = ["stream", "leaf_start", "leaf_end", *named]
    names += [f"{c}_{name}" for c in stream.numeric_columns for name, _ in LEAF_AGGREGATES]
    wanted = pa.schema([*(schema.field(name) for name in names), ("interval", pa.string())])
    files = list(warehouse.files(table, labels))
    if not files:
        return wanted.empty_table()
    of_path = ds.partitioning(pa.schema([("interval", pa.string())]), flavor="hive")
    source = ds.dataset(files, schema=wanted, format="parquet", partitioning=of_path)
    return source.to_table(filter=pc.field("stream") == stream.name)


def event_us_in(samples: Samples, start_us: int, end_us: int) -> Bools:
    """bool[m]: which sampled tuples lie in the period; edge leaves are filtered by tuple time."""
    event_us = instants_us(samples.rows.column("event_time"))
    return (event_us >= start_us) & (event_us < end_us)
