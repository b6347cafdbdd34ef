"""The recursive pass over leaves: old ones merge, so that their number grows with the logarithm of the past.

How dense the samples stay is another matter: ``laws`` and ``bands``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import History
from tidegate.operators.history.laws import Float64s, Int64s, targets
from tidegate.operators.history.leaves import exact_sums, to_double
from tidegate.operators.schedule import instants_us


def thin(u: Float64s, fraction: Float64s | float) -> npt.NDArray[np.bool_]:
    """Which tuples stay at a fraction: those with u < fraction. Thinning again at the same fraction changes nothing."""
    return u < fraction


@dataclass(frozen=True, eq=False)
class Leaves:
    """The leaves of one stream, ascending, disjoint: what a pass decides on, and what it leaves behind.

    Args:
        start_us: int64[n], start of the leaf (inclusive).
        end_us: int64[n], end of the leaf (exclusive).
        tuples: int64[n], exact number of tuples.
        fraction: float64[n], the fraction at which its sample is held; 0 where the sample is dropped.
    """

    start_us: Int64s
    end_us: Int64s
    tuples: Int64s
    fraction: Float64s

    def __post_init__(self) -> None:
        if (self.start_us >= self.end_us).any() or (self.end_us[:-1] > self.start_us[1:]).any():
            raise ValueError("leaves must ascend and not overlap")

    def __len__(self) -> int:
        return len(self.start_us)


def merge_leaves(leaves: Leaves, spec: History) -> Leaves:
    """The leaves after merging every complete run that the law allows.

    Idea: leaves at age a are merged C at a time as soon as the merged leaf's target is at most 1/C of the finest leaf's
    (1/C² for the next level, …): then every leaf holds about as many sampled tuples as a fresh one. Only complete runs
    merge: a run is the C periods of a grid aligned to 1970, all of them between the oldest leaf's start and the newest
    leaf's end, each as long as the level below allows.

    Args:
        leaves: the leaves as they stand.
        spec: D, law, C, leaf length.

    Cost: O(n log n).
    Guarantee: leaves stay aligned and disjoint; a merged leaf's fraction is the least of its members'.
    Source: papers/03, "Sampling" (recursive) and "Settled here" (complete subtrees only).
    """
    if len(leaves) == 0:
        return leaves
    merge_count = spec.merge_leaves
    length = spec.leaf_s * 1_000_000
    oldest, newest = int(leaves.start_us[0]), int(leaves.end_us[-1])
    finest = min(spec.max_fraction, float(targets(leaves.tuples, spec.capacity_tuples, spec.law)[-1]))
    level = 1
    while merge_count > 1 and length * merge_count <= newest - oldest:
        target = targets(leaves.tuples, spec.capacity_tuples, spec.law)
        run_length = length * merge_count
        run = leaves.start_us // run_length
        complete = (run * run_length >= oldest) & ((run + 1) * run_length <= newest)
        # The newest leaf of a run has the highest target; it stands last in the run.
        last = np.append(run[1:] != run[:-1], True)
        run_target = target[last][np.cumsum(last) - last]
        same_level = leaves.end_us - leaves.start_us == length
        lower = np.isin(run, run[~same_level & (leaves.end_us - leaves.start_us < length)])
        merges = complete & (run_target <= finest / float(merge_count) ** level) & same_level & ~lower
        first = np.append(True, run[1:] != run[:-1]) | ~merges
        index = np.cumsum(first) - 1
        starts = np.where(merges, run * run_length, leaves.start_us)[first]
        ends = np.where(merges, (run + 1) * run_length, leaves.end_us)[first]
        tuples = np.bincount(index, weights=leaves.tuples).astype(np.int64)
        fraction = np.full(len(starts), np.inf)
        np.minimum.at(fraction, index, leaves.fraction)
        leaves = Leaves(starts, ends, tuples, fraction)
        length, level = run_length, level + 1
    return leaves


def latest_us(group: Int64s, times_us: Int64s, groups: int) -> Int64s:
    """The latest of each group's times, before 1970 too; every group has one."""
    latest = np.full(groups, np.iinfo(np.int64).min)
    np.maximum.at(latest, group, times_us)
    return latest


@dataclass(frozen=True, eq=False)
class Pass:
    """What one pass decided for a stream's leaves: the periods [start_us, end_us) in which they lie since."""

    time_us: int
    leaves: Leaves

    def relabel(self, start_us: Int64s, end_us: Int64s) -> tuple[Int64s, Int64s]:
        """Leaves as they stand after the pass: each takes the period of the pass' leaf that contains it.

        Leaves that no leaf of the pass contains stay as they are.
        """
        if len(self.leaves) == 0:
            return start_us, end_us
        index = np.maximum(np.searchsorted(self.leaves.start_us, start_us, side="right") - 1, 0)
        inside = (self.leaves.start_us[index] <= start_us) & (end_us <= self.leaves.end_us[index])
        return (
            np.where(inside, self.leaves.start_us[index], start_us),
            np.where(inside, self.leaves.end_us[index], end_us),
        )


LEAF_KEYS = ("interval", "stream", "leaf_start")
GROUP_KEYS = (*LEAF_KEYS, "group_column", "group_value")


def relabel_rows(rows: pa.Table, decided: Pass, keys: tuple[str, ...] = LEAF_KEYS) -> pa.Table:
    """Rows of ``history_leaves`` (or ``history_groups``) of one stream, with ``interval``, after a pass.

    Rows that come to lie in one leaf are added up within their interval, never across intervals: an interval may be
    written anew at any time, and its rows depend on its own tuples alone.
    """
    before_start, before_end = instants_us(rows.column("leaf_start")), instants_us(rows.column("leaf_end"))
    start, end = decided.relabel(before_start, before_end)
    for name, values in (("leaf_start", start), ("leaf_end", end)):
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(index), pa.array(values).cast(rows.schema.field(index).type))
    # Most leaves stay as they are: only those that others have joined are added up.
    grown = np.isin(start, start[(start != before_start) | (end != before_end)])
    if not grown.any():
        return rows.sort_by([(key, "ascending") for key in keys])
    parts = [rows.filter(pa.array(~grown)), add_up(rows.filter(pa.array(grown)), keys)]
    return pa.concat_tables(parts).sort_by([(key, "ascending") for key in keys])


_ADDED = ("tuples", "sampled")


def add_up(rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Leaf rows with equal keys made one: counts and sums added, extremes taken, the least fraction; sorted by keys.

    Sums are rounded once however many rows meet (math.fsum), so that their order does not matter. An extreme brings the
    earliest time at which it occurs. A column that no row has a value for stays NULL.
    """
    if rows.num_rows == 0:
        return rows
    table = rows.take(pc.sort_indices(rows, sort_keys=[(k, "ascending") for k in keys])).combine_chunks()
    new = np.zeros(table.num_rows, bool)
    new[0] = True
    for key in keys:
        # NULL is a value like any other here: a group of its own.
        codes = pc.dictionary_encode(table.column(key).combine_chunks(), null_encoding="encode").indices.to_numpy()
        new[1:] |= codes[1:] != codes[:-1]
    first = np.flatnonzero(new)
    if len(first) == table.num_rows:
        return table
    parts = list(zip(first.tolist(), [*first[1:].tolist(), table.num_rows], strict=True))
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    for name in table.schema.names:
        column = table.column(name)
        kind = "keep" if name in keys else _kind(name)
        if kind == "keep":
            columns[name] = column.take(pa.array(first))
        elif kind in ("min_time", "max_time"):
            extremes = table.column(name.removesuffix("_time")).to_pylist()
            columns[name] = pa.array(_times(column.to_pylist(), extremes, parts, kind == "min_time"), column.type)
        else:
            columns[name] = pa.array([_added(kind, part) for part in _present(column.to_pylist(), parts)], column.type)
    return pa.table(columns, schema=table.schema)


Parts = list[tuple[int, int]]


def _present(values: list[float | int | None], parts: Parts) -> list[list[float | int]]:
    return [[v for v in values[low:high] if v is not None] for low, high in parts]


def _added(kind: str, values: list[float | int]) -> float | int | None:
    if not values:
        return None
    if kind in ("min", "max"):
        return min(values) if kind == "min" else max(values)
    return sum(values) if kind == "count" else _sum(values)


def _sum(values: list[float | int]) -> float:
    """The sum, rounded once; infinite where it lies beyond the doubles."""
    if not all(map(math.isfinite, values)):
        return float(sum(values))
    try:
        return math.fsum(values)
    except OverflowError:  # on the way to the sum, which may be finite still
        (exact,) = exact_sums(np.array(values, np.float64), np.zeros(len(values), np.int64), 1)
        return to_double(exact)


def _times(times: list[object], extremes: list[float | None], parts: Parts, least: bool) -> list[object]:
    """When each part's extreme occurs first."""
    found: list[object] = []
    for low, high in parts:
        known = [(v if least else -v, times[i]) for i, v in enumerate(extremes[low:high], low) if v is not None]
        found.append(min(known)[1] if known else None)
    return found


def _kind(name: str) -> str:
    """How a column of leaf rows adds up; ``keep`` if its rows agree."""
    if name in _ADDED:
        return "count"
    if name == "fraction":
        return "min"
    for suffix in ("min_time", "max_time", "count", "sum_squares", "sum", "min", "max"):
        if name.endswith(f"_{suffix}"):
            return suffix
    return "keep"
