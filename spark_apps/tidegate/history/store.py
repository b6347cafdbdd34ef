"""How history lies on disk: a partition's samples as one file a band of priority, and what passes have decided.

A file of ``history_samples_<stream>`` is written once, when its tuples enter, and never again. A pass that thins a
partition puts in its place a folder of hard links to the files that stay: bands go, no byte of the others is written.
So ``leaf_start``, ``fraction`` and ``weight`` in the files are those at entry; what is in force is said by
``history_leaves``, whose rows have one fraction an interval. ``samples_in_force`` puts the two together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.history.bands import Bands
from tidegate.operators.history.laws import Float64s, Int64s
from tidegate.operators.schedule import instants_us
from tidegate.store import parquet
from tidegate.store.commit import Commit
from tidegate.store.cut import read_file
from tidegate.store.intervals import Interval
from tidegate.store.places import Place, each, link
from tidegate.store.renewed import Files, changed, renewed
from tidegate.store.warehouse import Warehouse

LEVELS, ROOM = "history_levels", "history_room"
SAMPLE_ORDER = ("leaf_start", "u", "event_id", "arrival_time")


@dataclass(frozen=True)
class BandFile:
    """One file of samples: how many, and the least and greatest priority in it, as its footer says."""

    label: str
    path: Place
    rows: int
    least_u: float
    most_u: float

    @classmethod
    def of(cls, label: str, path: Place) -> BandFile:
        """Read the footer."""
        footer = parquet.footer(path)
        column = footer.schema.names.index("u")
        found = [footer.row_group(g).column(column).statistics for g in range(footer.num_row_groups)]
        known = [s for s in found if s is not None and s.has_min_max]
        least, most = min((s.min for s in known), default=0.0), max((s.max for s in known), default=0.0)
        return cls(label, path, footer.num_rows, least, most)


def samples_table(stream: str) -> str:
    """The table that holds a stream's samples."""
    return f"history_samples_{stream}"


def band_files(
    warehouse: Warehouse, stream: str, labels: Sequence[str], known: Mapping[Place, BandFile] | None = None
) -> list[BandFile]:
    """The files of the named partitions that hold any samples; footers that are ``known`` are not read again."""
    table, known = samples_table(stream), known or {}
    folder = warehouse.folder / table
    paths = [(label, folder / file.path) for label in labels for file in warehouse.live(table, label)]
    found = each(folder, lambda item: known.get(item[1]) or BandFile.of(*item), paths)
    return [file for file in found if file.rows]


@dataclass(eq=False)
class Rows:
    """All rows of a table, kept: whoever asks again has the partitions read that have changed. No file changes."""

    table: str
    _names: dict[str, list[str]] = field(default_factory=dict)
    _rows: pa.Table | None = None

    def read(self, warehouse: Warehouse) -> pa.Table:
        """The rows, as ``warehouse.read_arrow`` gives them, in one piece."""
        names = {label: [f.name for f in warehouse.live(self.table, label)] for label in warehouse.filled(self.table)}
        before = warehouse.read_arrow(self.table, []) if self._rows is None else self._rows
        rows = renewed(before, self._names, names, lambda stale: warehouse.read_arrow(self.table, stale))
        # One piece: whatever is done to thousands of small ones takes as long as making them one.
        self._names, self._rows = names, rows.combine_chunks()
        return self._rows

    def kept(self, files: Files) -> tuple[set[str], pa.Table]:
        """Of some partitions those that are kept with these files, and their rows; nothing is read."""
        stand = files.keys() - changed(self._names, files)
        assert self._rows is not None
        return stand, self._rows.filter(pc.is_in(self._rows.column("interval"), pa.array(sorted(stand), pa.string())))


def put_bands(file: str, samples: pa.Table, bands: Bands) -> None:
    """Write an interval's samples in their order, a file a band.

    ``file``: their path, into which the number of the band is put, before what the run is called.
    """
    ordered = samples.sort_by([(name, "ascending") for name in SAMPLE_ORDER])
    band = bands.of_priority(ordered.column("u").to_numpy())
    place, _, run = file.rpartition("-")
    for number in np.unique(band).tolist():
        parquet.write(ordered.filter(pa.array(band == number)), f"{place}-{number:02d}-{run}")


def keep_below(
    commit: Commit, table: str, interval: Interval, files: Sequence[BandFile], fraction: float
) -> list[BandFile]:
    """Keep those of a partition's files that hold priorities below the fraction, by links; returns them."""
    kept = [file for file in files if file.least_u < fraction]
    if not kept:
        commit.put_arrow(table, interval, commit.warehouse.schema(table).empty_table())
        return []
    target = commit.stage_folder(table, interval.label)
    for file in kept:
        link(file.path, target / f"{file.path.name.rsplit('-', 1)[0]}-{commit.id}.parquet")
    return kept


def recorded_fractions(warehouse: Warehouse, stream: str) -> dict[int, float]:
    """Start of every interval that a pass has thinned → the fraction at which its samples are held since."""
    labels = warehouse.state_labels(LEVELS)
    held: dict[int, float] = {}
    # Fractions only fall, and every pass notes all intervals known by then: the newest note has it all.
    for label in labels[-1:]:
        held |= recorded_at(warehouse, stream, label)
    return held


def recorded_at(warehouse: Warehouse, stream: str, label: str) -> dict[int, float]:
    """The same, as noted by the pass that ended the interval ``label``."""
    noted = warehouse.read_state(LEVELS, label)
    if noted is None:
        return {}
    own = noted.filter(pc.equal(noted.column("stream"), stream))
    return dict(zip(own.column("entered_us").to_pylist(), own.column("fraction").to_pylist(), strict=True))


@dataclass(frozen=True, eq=False)
class Strata:
    """Rows of ``history_leaves`` of one stream, ascending by interval and leaf: what the sample is stratified by.

    ``label`` is the index into ``labels``; leaves of different intervals have the same periods, or none in common.
    """

    labels: tuple[str, ...]
    label: Int64s
    start_us: Int64s
    end_us: Int64s
    tuples: Int64s
    sampled: Int64s
    fraction: Float64s

    @classmethod
    def of(cls, rows: pa.Table) -> Strata:
        """Of rows of the table, with their ``interval``, in any order; ``order_of`` gives the order."""
        rows = rows.take(order_of(rows))
        labels, label = _labels_of(rows)
        return cls(
            labels,
            label,
            instants_us(rows.column("leaf_start")),
            instants_us(rows.column("leaf_end")),
            rows.column("tuples").to_numpy(),
            rows.column("sampled").to_numpy(),
            rows.column("fraction").to_numpy(),
        )

    def fraction_of_label(self) -> Float64s:
        """float64[labels]: the fraction at which each interval's samples are held."""
        held = np.full(len(self.labels), np.inf)
        np.minimum.at(held, self.label, self.fraction)
        return held

    def of_tuples(self, label: Int64s, event_us: Int64s) -> Int64s:
        """The stratum of each sampled tuple, from the interval in which it entered and its event time; −1: none."""
        starts, leaf = np.unique(self.start_us, return_inverse=True)
        keys = self.label * len(starts) + leaf
        at = np.searchsorted(starts, event_us, side="right") - 1
        wanted = label * len(starts) + at
        found = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        if not len(keys):
            return np.full(len(wanted), -1)
        return np.where((at >= 0) & (keys[found] == wanted) & (event_us < self.end_us[found]), found, -1)


def order_of(rows: pa.Table) -> pa.Array:
    """Indices that sort rows of leaves by interval and leaf."""
    _, label = _labels_of(rows)
    return pa.array(np.lexsort((instants_us(rows.column("leaf_start")), label)))


def _labels_of(rows: pa.Table) -> tuple[tuple[str, ...], Int64s]:
    """The labels that occur, ascending, and the index of each row's; the column may be a dictionary already."""
    encoded = pc.dictionary_encode(rows.column("interval")).combine_chunks()
    codes, place = np.unique(encoded.indices.to_numpy(), return_inverse=True)
    found = np.array(encoded.dictionary.to_pylist(), dtype=str)[codes]
    labels, rank = np.unique(found, return_inverse=True)
    return tuple(labels.tolist()), rank[place].astype(np.int64)


@dataclass(frozen=True, eq=False)
class Samples:
    """Sampled tuples in force, each with its stratum and its priority."""

    rows: pa.Table
    stratum: Int64s
    u: Float64s

    def fraction(self, strata: Strata) -> Float64s:
        """The fraction at which each is held."""
        return strata.fraction[self.stratum]

    def plus(self, other: Samples) -> Samples:
        """These and others of the same strata."""
        if not len(other.u):
            return self
        rows = pa.concat_tables([self.rows, other.rows])
        stratum, u = np.append(self.stratum, other.stratum), np.append(self.u, other.u)
        return Samples(rows, stratum, u)


def samples_in_force(wanted: pa.Schema, strata: Strata, files: Sequence[BandFile]) -> Samples:
    """The sampled tuples of these files that lie in the strata, with the wanted columns (``sample_schema``)."""
    number = {label: i for i, label in enumerate(strata.labels)}
    own = [file for file in files if file.label in number]
    parts = each(own[0].path, lambda f: read_file(f.path, wanted), own) if own else []
    rows = pa.concat_tables(parts) if parts else wanted.empty_table()
    label = np.repeat(np.array([number[f.label] for f in own], np.int64), [len(part) for part in parts])
    return in_force(rows, label, strata)


def sample_schema(warehouse: Warehouse, stream: str, columns: Sequence[str]) -> pa.Schema:
    """Priority, event time and the wanted columns of the stream's samples."""
    schema = warehouse.schema(samples_table(stream))
    return pa.schema([schema.field(name) for name in dict.fromkeys(["u", "event_time", *columns])])


def in_force(rows: pa.Table, label: Int64s, strata: Strata) -> Samples:
    """Those of sampled tuples that lie in the strata; ``label``: index of the interval in which each entered.

    Of a thinned partition whose bands are not gone yet, what is beyond the fraction in force is left out.
    """
    u = rows.column("u").to_numpy()
    stratum = strata.of_tuples(label, instants_us(rows.column("event_time")))
    kept = stratum >= 0
    kept[kept] = u[kept] < strata.fraction[stratum[kept]]
    return Samples(rows.filter(pa.array(kept)), stratum[kept], u[kept])
