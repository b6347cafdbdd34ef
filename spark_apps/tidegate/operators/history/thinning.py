"""How dense each leaf of history may stay: target laws, and the recursive pass that merges leaves and thins samples.

Time is counted in tuples: the age of a leaf is the number of tuples newer than the middle tuple of the leaf. That is
the papers' (t_new − t_m)·r, and right under changing rates as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import History

Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]
Law = Literal["exponential", "inverse_age"]


def ages(tuples: Int64s) -> Float64s:
    """Age of each leaf in tuples: all newer ones and half of its own.

    >>> ages(np.array([10, 0, 4])).tolist()
    [9.0, 4.0, 2.0]
    """
    newer = np.cumsum(tuples[::-1])[::-1] - tuples
    return newer + tuples / 2


def exponential_targets(tuples: Int64s, capacity_tuples: float) -> Float64s:
    """The law exp(−age/D).

    Guarantee: Σ tuples · target ≤ D·(1 − exp(−all/D)) < D for any leaves and any rates, since the value at the middle
    of a leaf lies below the mean of a convex function over it. The bound is on the expected size; see ``plan_pass``.
    Source: papers/03, "Sampling", Theorem 1, with the exponent read in tuples ("Time in tuples").

    Args:
        tuples: int64[n], tuples of each leaf, oldest leaf first.
        capacity_tuples: D.
    """
    return np.exp(-ages(tuples) / capacity_tuples)


def inverse_age_targets(tuples: Int64s, capacity_tuples: float) -> Float64s:
    """The law D0/age, which still reaches back when the exponential has kept nothing.

    D0 solves D0·(1 + ln(all/D0)) = D, so that the store holds D in expectation: everything younger than D0, and the
    share D0/age of what is older. Source: papers/03, "A decay for the long run".
    """
    every = float(tuples.sum())
    if every <= capacity_tuples:
        return np.ones(len(tuples))
    low, high = 0.0, float(capacity_tuples)
    for _ in range(80):
        middle = (low + high) / 2
        held = middle * (1 + np.log(every / middle))
        low, high = (middle, high) if held < capacity_tuples else (low, middle)
    return np.minimum(1.0, low / np.maximum(ages(tuples), 0.5))


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


def plan_pass(leaves: Leaves, u: Float64s, leaf_of_row: Int64s, spec: History, law: Law = "exponential") -> Leaves:
    """Decide one recursive pass: which leaves merge and at which fraction each leaf is held from now on.

    Idea: leaves at age a are merged C at a time as soon as the merged leaf's target is at most 1/C of the finest leaf's
    (1/C² for the next level, …): then every leaf holds about as many sampled tuples as a fresh one, and their number
    grows with the logarithm of the past. Only complete runs merge: a run is the C periods of a grid aligned to 1970,
    all of them between the oldest leaf's start and the newest leaf's end, each as long as the level below allows.

    The fraction is min(target, f_max, the fractions of all members), for a sample can only be thinned; a target below
    f_min drops the sample (fraction 0) and keeps the exact aggregates. If chance has kept more than D tuples, all
    fractions are lowered by one common factor until exactly D remain.

    Args:
        leaves: the leaves as they stand.
        u: float64[m], priorities of the tuples that the samples hold.
        leaf_of_row: int64[m], index of each one's leaf in ``leaves``.
        spec: D, C, f_max, f_min, leaf length.
        law: the target law.

    Cost: O(n log n + m).
    Guarantee: at most D of the tuples remain; fractions never rise; leaves stay aligned and disjoint.
    Source: papers/03, "Sampling" (recursive) and "Settled here" (the fraction can only fall; complete subtrees only).
    """
    if len(leaves) == 0:
        return leaves
    merged, member = _merge(leaves, spec, law)
    target = np.minimum(_targets(merged.tuples, spec, law), spec.max_fraction)
    fraction = np.minimum(target, merged.fraction)
    fraction[fraction < spec.min_fraction] = 0.0
    held_at = fraction[member[leaf_of_row]]
    kept = thin(u, held_at)
    if int(kept.sum()) > spec.capacity_tuples:
        # A tuple survives the common factor c iff u < c·f: c between the D-th and the next least u/f keeps exactly D.
        ratio = np.sort(u[kept] / held_at[kept])
        # The last digits are given up, so that rounding of c·f cannot let the next one in.
        fraction = fraction * (ratio[spec.capacity_tuples] * (1 - 1e-12))
        fraction[fraction < spec.min_fraction] = 0.0
    return Leaves(merged.start_us, merged.end_us, merged.tuples, fraction)


def _targets(tuples: Int64s, spec: History, law: Law) -> Float64s:
    laws = {"exponential": exponential_targets, "inverse_age": inverse_age_targets}
    return laws[law](tuples, spec.capacity_tuples)


def _merge(leaves: Leaves, spec: History, law: Law) -> tuple[Leaves, Int64s]:
    """The leaves after merging every complete run that the law allows, and for each old leaf its index there."""
    member = np.arange(len(leaves))
    merge_count = spec.merge_leaves
    length = spec.leaf_s * 1_000_000
    oldest, newest = int(leaves.start_us[0]), int(leaves.end_us[-1])
    finest = min(spec.max_fraction, float(_targets(leaves.tuples, spec, law)[-1]))
    level = 1
    while merge_count > 1 and length * merge_count <= newest - oldest:
        target = _targets(leaves.tuples, spec, law)
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
        leaves, member = Leaves(starts, ends, tuples, fraction), index[member]
        length, level = run_length, level + 1
    return leaves, member


@dataclass(frozen=True, eq=False)
class Pass:
    """What one pass decided for a stream: leaves [start_us, end_us) with the fraction at which they are held since."""

    time_us: int
    leaves: Leaves

    def relabel(self, start_us: Int64s, end_us: Int64s, fraction: Float64s) -> tuple[Int64s, Int64s, Float64s]:
        """Leaves as they stand after the pass: each takes the period of the pass' leaf that contains it.

        The fraction becomes the lesser of the two. Leaves that no leaf of the pass contains stay as they are.
        """
        if len(self.leaves) == 0:
            return start_us, end_us, fraction
        index = np.maximum(np.searchsorted(self.leaves.start_us, start_us, side="right") - 1, 0)
        inside = (self.leaves.start_us[index] <= start_us) & (end_us <= self.leaves.end_us[index])
        return (
            np.where(inside, self.leaves.start_us[index], start_us),
            np.where(inside, self.leaves.end_us[index], end_us),
            np.where(inside, np.minimum(fraction, self.leaves.fraction[index]), fraction),
        )


def relabel_rows(rows: pa.Table, decided: Pass) -> pa.Table:
    """Rows of ``history_leaves`` of one stream, with ``interval``, as they stand after a pass.

    Rows that come to lie in one leaf are added up within their interval, never across intervals: an interval may be
    written anew at any time, and its rows depend on its own tuples alone.
    """
    start, end, fraction = decided.relabel(
        instants_us(rows.column("leaf_start")), instants_us(rows.column("leaf_end")), rows.column("fraction").to_numpy()
    )
    for name, values in (("leaf_start", start), ("leaf_end", end)):
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(index), pa.array(values).cast(rows.schema.field(index).type))
    index = rows.schema.get_field_index("fraction")
    rows = rows.set_column(index, rows.schema.field(index), pa.array(fraction))
    return add_up(rows, ("interval", "stream", "leaf_start"))


def instants_us(column: pa.ChunkedArray | pa.Array) -> Int64s:
    """A timestamp column without NULLs as microseconds since 1970."""
    return np.asarray(column.cast(pa.int64()).to_numpy())


_ADDED = ("tuples", "sampled")


def add_up(rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Leaf rows with equal keys made one: counts and sums added, extremes taken, the least fraction; sorted by keys.

    Sums are rounded once however many rows meet (math.fsum), so that their order does not matter. A column that no row
    has a value for stays NULL.
    """
    if rows.num_rows == 0:
        return rows
    order = pc.sort_indices(rows, sort_keys=[(k, "ascending") for k in keys])
    table = rows.take(order).combine_chunks()
    new = np.zeros(table.num_rows, bool)
    new[0] = True
    for key in keys:
        column = table.column(key).combine_chunks()
        new[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    first = np.flatnonzero(new)
    if len(first) == table.num_rows:
        return table
    bounds = [*first.tolist(), table.num_rows]
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    for name in table.schema.names:
        column = table.column(name)
        if name in keys or not (name in _ADDED or name == "fraction" or _aggregate(name)):
            columns[name] = column.take(pa.array(first))
            continue
        kind = "min" if name == "fraction" else "sum" if name in _ADDED else _aggregate(name)
        values = column.to_pylist()
        merged: list[float | int | None] = []
        for low, high in zip(bounds[:-1], bounds[1:], strict=True):
            part = [v for v in values[low:high] if v is not None]
            if not part:
                merged.append(None)
            elif kind in ("min", "max"):
                merged.append(min(part) if kind == "min" else max(part))
            else:
                merged.append(sum(part) if kind == "count" or name in _ADDED else math.fsum(part))
        columns[name] = pa.array(merged, column.type)
    return pa.table(columns, schema=table.schema)


def _aggregate(name: str) -> str:
    for suffix in ("count", "sum_squares", "sum", "min", "max"):
        if name.endswith(f"_{suffix}"):
            return suffix
    return ""
