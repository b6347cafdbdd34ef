"""One stream's past, opened once and asked often: leaves in memory, samples read as they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import History, Stream
from tidegate.declarations.tables import LEAF_AGGREGATES
from tidegate.history.index import HistoryIndex, Names
from tidegate.history.store import (
    BandFile,
    Rows,
    Samples,
    Strata,
    band_files,
    in_force,
    order_of,
    sample_schema,
    samples_in_force,
    samples_table,
)
from tidegate.operators.history.laws import Float64s
from tidegate.operators.history.thinning import latest_us
from tidegate.operators.history.tree import MAX, MAX_TIME, MIN, MIN_TIME, Covered, HdsTree, Leaf, Totals, added_up
from tidegate.operators.schedule import instants_us
from tidegate.store.warehouse import Warehouse

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
        """Of rows of ``history_leaves``, with ``interval``; ``columns`` in any case, as in SQL."""
        rows = rows.take(order_of(rows))
        place = {name.lower(): index for index, name in enumerate(rows.column_names)}
        values = np.zeros((rows.num_rows, len(columns), len(LEAF_AGGREGATES)))
        for c, column in enumerate(columns):
            for a, (name, _) in enumerate(LEAF_AGGREGATES):
                part = rows.column(place[f"{column}_{name}".lower()])
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
        end_us = latest_us(leaf, strata.end_us, len(start_us))
        tuples, sampled = (
            np.bincount(leaf, weights=n, minlength=len(start_us)) for n in (strata.tuples, strata.sampled)
        )
        fraction = np.ones(len(start_us))
        np.minimum.at(fraction, leaf, strata.fraction)
        values = added_up(self.values, leaf, len(start_us))
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
        if fraction >= self.strata.fraction.max(initial=0.0):
            return self
        return replace(self, strata=replace(self.strata, fraction=np.minimum(self.strata.fraction, fraction)))


@dataclass(frozen=True, eq=False)
class Past:
    """A stream's history: exact leaves, groups, and where the samples are.

    ``labels``: of the partitions of ``history_leaves`` from which the leaves come. ``kept``: an index of the stream's
    samples that is open already.

    Cost: ``open`` reads a file a month (``HistoryIndex``); a question to the tree then takes a fraction of a
    millisecond, one to the samples reads as much of theirs.
    """

    warehouse: Warehouse
    stream: Stream
    labels: Sequence[str]
    view: View
    kept: HistoryIndex | None = None

    @classmethod
    def open(cls, warehouse: Warehouse, stream: Stream, labels: Sequence[str] | None = None) -> Past:
        """Read the leaves of the named partitions (None: of all)."""
        labels = warehouse.labels("history_leaves") if labels is None else labels
        found = _leaves(warehouse, stream).read(labels)
        return cls(warehouse, stream, tuple(found.names), View.of(found.rows, stream.numeric_columns))

    @cached_property
    def index(self) -> HistoryIndex:
        """What gives the samples of small files."""
        return self.kept or samples_index(self.warehouse, self.stream)

    @property
    def spec(self) -> History:
        """The stream's history settings."""
        assert self.stream.history is not None
        return self.stream.history

    @cached_property
    def _groups(self) -> pa.Table:
        """Rows of ``history_groups`` as if they were leaves: with the fraction of their interval."""
        rows = _groups(self.warehouse, self.stream).read(self.labels).rows
        held = dict(zip(self.view.strata.labels, self.view.strata.fraction_of_label().tolist(), strict=True))
        label = rows.column("interval").combine_chunks()
        fraction = np.array([held.get(name, 0.0) for name in label.dictionary.to_pylist()])[label.indices.to_numpy()]
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
    def _large(self) -> dict[tuple[str, str], list[BandFile]]:
        return {}

    def _band_files(self, large: Names) -> list[BandFile]:
        """The files of these partitions of samples; their footers are read once."""
        new = [label for label, names in large.items() if (label, names) not in self._large]
        found = band_files(self.warehouse, self.stream.name, new)
        self._large.update({(label, large[label]): [f for f in found if f.label == label] for label in new})
        return [file for label, names in large.items() for file in self._large[label, names]]

    def samples(self, view: View, columns: Sequence[str]) -> Samples:
        """The sampled tuples in the view's leaves that are in force at its fractions."""
        strata = view.strata
        some = np.unique(strata.label[(strata.sampled > 0) & (strata.fraction > 0)])
        labels = [strata.labels[i] for i in some.tolist()]
        copied = self.index.read(labels)
        limit = dict(zip(strata.labels, strata.fraction_of_label().tolist(), strict=True))
        files = [file for file in self._band_files(copied.large) if file.least_u < limit[file.label]]
        wanted = sample_schema(self.warehouse, self.stream.name, columns)
        read = samples_in_force(wanted, strata, files)
        rows = copied.rows.select(wanted.names)
        interval = copied.rows.column("interval").combine_chunks()
        number = {label: i for i, label in enumerate(strata.labels)}
        code = np.array([number.get(label, -1) for label in interval.dictionary.to_pylist()], np.int64)
        return in_force(rows, code[interval.indices.to_numpy()], strata).plus(read)


def renew(warehouse: Warehouse, stream: Stream, leaves: Rows, groups: Rows, samples: HistoryIndex) -> None:
    """Bring up to date what makes a large past quick to open, lest the next reader has to.

    ``leaves``, ``groups``, ``samples``: what this process has read of the tables.
    """
    assert stream.history is not None
    indices = [_leaves(warehouse, stream, leaves), samples]
    # Without group_by there are no groups, and the table need not have the stream's columns.
    if stream.history.group_by:
        indices.append(_groups(warehouse, stream, groups))
    for index in indices:
        index.renew(warehouse.labels(index.table))


def _leaves(warehouse: Warehouse, stream: Stream, rows: Rows | None = None) -> HistoryIndex:
    return _index(warehouse, stream, rows, "history_leaves", ["tuples", "sampled", "fraction"])


def _groups(warehouse: Warehouse, stream: Stream, rows: Rows | None = None) -> HistoryIndex:
    return _index(warehouse, stream, rows, "history_groups", ["group_column", "group_value", "tuples"])


def samples_index(warehouse: Warehouse, stream: Stream) -> HistoryIndex:
    """Of a stream's samples."""
    table = samples_table(stream.name)
    return HistoryIndex(warehouse, table, stream.name, warehouse.schema(table), samples=True)


def _index(warehouse: Warehouse, stream: Stream, rows: Rows | None, table: str, named: Sequence[str]) -> HistoryIndex:
    names = ["stream", "leaf_start", "leaf_end", *named]
    names += [f"{c}_{name}" for c in stream.numeric_columns for name, _ in LEAF_AGGREGATES]
    fields = {field.name.lower(): field for field in warehouse.schema(table)}
    return HistoryIndex(warehouse, table, stream.name, pa.schema([fields[name.lower()] for name in names]), rows=rows)


def event_us_in(samples: Samples, start_us: int, end_us: int) -> Bools:
    """bool[m]: which sampled tuples lie in the period; edge leaves are filtered by tuple time."""
    event_us = instants_us(samples.rows.column("event_time"))
    return (event_us >= start_us) & (event_us < end_us)
