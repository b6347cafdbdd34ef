"""Exact aggregates of history's leaves: count, sum, minimum, maximum and sum of squares of every numeric column.

A leaf is a stretch of event time, [start, start + length), aligned to 1970. Its aggregates are over *all* tuples that
entered history, whatever the sample keeps of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]

# Every finite double is a whole multiple of 2^-1126 (frexp's least exponent, -1073, less the 53 bits of a mantissa).
_SCALE_BITS = 1126
_UNIT = 1 << _SCALE_BITS
_HALF_BITS = 26
_MOST_ROWS = 2**26
LATEST_US = 2**63 - 1

Key = tuple[int, int, str | None, str | None]
"""Part, start of the leaf, and the group's column and value; no column: all tuples."""


def exact_sums(values: Float64s, groups: Int64s, group_count: int) -> list[int]:
    """The exact sum of each group's doubles, in units of 2^-1126; ``to_double`` rounds it, once.

    Idea: a double is mantissa · 2^exponent. The mantissas, cut into two halves, are added per group and exponent as
    whole numbers (no rounding occurs in 53 bits), and those few sums are put together as Python integers. So the result
    depends on neither order nor batches, and partial sums add up exactly.

    Cost: O(n) vectorised, and one Python addition for every (group, exponent) that occurs.

    >>> [to_double(s) for s in exact_sums(np.array([1e16, 1.0, -1e16, 0.1]), np.array([0, 0, 0, 1]), 2)]
    [1.0, 0.1]
    """
    totals = [0] * group_count
    for start in range(0, len(values), _MOST_ROWS):
        rows = slice(start, start + _MOST_ROWS)
        mantissas, exponents = np.frexp(values[rows])
        lowest = int(exponents.min())
        spread = int(exponents.max()) - lowest + 1
        upper = np.trunc(np.ldexp(mantissas, _HALF_BITS))
        lower = np.ldexp(np.ldexp(mantissas, _HALF_BITS) - upper, 53 - _HALF_BITS)
        cells, cell_of_row = np.unique(groups[rows] * spread + (exponents - lowest), return_inverse=True)
        upper_sums = np.bincount(cell_of_row, weights=upper, minlength=len(cells))
        lower_sums = np.bincount(cell_of_row, weights=lower, minlength=len(cells))
        for cell, high, low in zip(cells.tolist(), upper_sums.tolist(), lower_sums.tolist(), strict=True):
            group, step = divmod(cell, spread)
            mantissa = (int(high) << (53 - _HALF_BITS)) + int(low)
            totals[group] += mantissa << (lowest + step - 53 + _SCALE_BITS)
    return totals


def to_double(total: int) -> float:
    """The double nearest to an exact sum; infinite where it lies beyond the doubles."""
    try:
        return total / _UNIT
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@dataclass
class ColumnTotals:
    """Exact aggregates of one column; sums in units of 2^-1126, times of the first least and first greatest value."""

    count: int = 0
    sum: int = 0
    min: float = math.inf
    max: float = -math.inf
    sum_squares: int = 0
    min_time_us: int = LATEST_US
    max_time_us: int = LATEST_US

    def add(self, other: ColumnTotals) -> None:
        """Take in another part of the same column."""
        self.count += other.count
        self.sum += other.sum
        self.min, self.min_time_us = min((self.min, self.min_time_us), (other.min, other.min_time_us))
        highest, self.max_time_us = min((-self.max, self.max_time_us), (-other.max, other.max_time_us))
        self.max = -highest
        self.sum_squares += other.sum_squares


@dataclass
class LeafTotals:
    """Exact aggregates of the tuples of one leaf that entered in one interval."""

    tuples: int = 0
    columns: list[ColumnTotals] = field(default_factory=list)


class LeafAggregator:
    """Adds up leaves, batch by batch, part by part; no order of batches or parts changes a bit of the result.

    A part is a label of the caller's choice (the index of an interval), the first half of the key. For each of the
    declared group columns the tuples of every value are added up apart as well.

    Cost: O(n) a batch and group column; state O(leaves · columns · values of the group columns).
    Guarantee: counts, minima, maxima and sums are exact; each sum is rounded once, at the end. Squares are rounded to
    double one by one, then added exactly.
    Source: papers/03, "Sampling", "Beyond the paper" (aggregates per group, extremes with their time stamps).

    >>> leaves = LeafAggregator(["delay"])
    >>> delays = {"delay": pa.array([1.5, 2, None])}
    >>> leaves.add(np.array([0, 0, 0]), np.array([0, 0, 60]), np.array([3, 5, 61]), delays)
    >>> leaves.to_arrow().select(["leaf_start_us", "tuples", "delay_count", "delay_sum"]).to_pylist()[0]
    {'leaf_start_us': 0, 'tuples': 2, 'delay_count': 2, 'delay_sum': 3.5}
    """

    def __init__(self, columns: Sequence[str], group_by: Sequence[str] = ()):
        self.columns = tuple(columns)
        self.group_by = tuple(group_by)
        self._leaves: dict[Key, LeafTotals] = {}

    def _leaf(self, key: Key) -> LeafTotals:
        return self._leaves.setdefault(key, LeafTotals(columns=[ColumnTotals() for _ in self.columns]))

    def add(
        self, part: Int64s, leaf_start_us: Int64s, event_us: Int64s, columns: Mapping[str, pa.Array | pa.ChunkedArray]
    ) -> None:
        """Add a batch of tuples.

        Args:
            part: int64[n], which part each tuple entered in.
            leaf_start_us: int64[n], start of each tuple's leaf.
            event_us: int64[n], its event time, microseconds since 1970.
            columns: name → numeric[n], NULL where a tuple has no value; and every group column.

        Raises:
            ValueError: a value is NaN or infinite.
        """
        if len(part) == 0:
            return
        starts, start_of_row = np.unique(leaf_start_us, return_inverse=True)
        cell = part * len(starts) + start_of_row
        self._add(cell, starts, event_us, columns, None, [None])
        for name in self.group_by:
            encoded = pc.dictionary_encode(_combined(columns[name]).cast(pa.string()), null_encoding="encode")
            values = encoded.dictionary.to_pylist()
            coded = cell * len(values) + encoded.indices.to_numpy(zero_copy_only=False)
            self._add(coded, starts, event_us, columns, name, values)

    def _add(
        self,
        cell: Int64s,
        starts: Int64s,
        event_us: Int64s,
        columns: Mapping[str, pa.Array | pa.ChunkedArray],
        group_column: str | None,
        values: Sequence[str | None],
    ) -> None:
        cells, group_of_row = np.unique(cell, return_inverse=True)
        leaves = []
        for code in cells.tolist():
            place, value = divmod(code, len(values))
            part, start = divmod(place, len(starts))
            leaves.append(self._leaf((part, int(starts[start]), group_column, values[value])))
        for leaf, count in zip(leaves, np.bincount(group_of_row, minlength=len(cells)).tolist(), strict=True):
            leaf.tuples += count
        for index, name in enumerate(self.columns):
            found = _column_totals(name, columns[name], event_us, group_of_row, len(cells))
            for leaf, totals in zip(leaves, found, strict=True):
                leaf.columns[index].add(totals)

    def partials(self) -> pa.Table:
        """The state as Arrow, to be merged by another aggregator: exact sums as signed little-endian integers."""
        rows: dict[str, list[object]] = {name: [] for name in partial_schema(self.columns).names}
        for key, leaf in self._leaves.items():
            for name, value in zip(_KEY_COLUMNS, key, strict=True):
                rows[name].append(value)
            rows["tuples"].append(leaf.tuples)
            for index, totals in enumerate(leaf.columns):
                rows[f"c{index}_count"].append(totals.count)
                rows[f"c{index}_sum"].append(_to_bytes(totals.sum))
                rows[f"c{index}_min"].append(totals.min)
                rows[f"c{index}_max"].append(totals.max)
                rows[f"c{index}_sum_squares"].append(_to_bytes(totals.sum_squares))
                rows[f"c{index}_min_time_us"].append(totals.min_time_us)
                rows[f"c{index}_max_time_us"].append(totals.max_time_us)
        return pa.table(rows, schema=partial_schema(self.columns))

    def merge(self, partials: pa.Table | pa.RecordBatch) -> None:
        """Add what other aggregators' ``partials`` hold."""
        for row in partials.to_pylist():
            leaf = self._leaf((row["part"], row["leaf_start_us"], row["group_column"], row["group_value"]))
            leaf.tuples += row["tuples"]
            for index, totals in enumerate(leaf.columns):
                totals.add(
                    ColumnTotals(
                        row[f"c{index}_count"],
                        int.from_bytes(row[f"c{index}_sum"], "little", signed=True),
                        row[f"c{index}_min"],
                        row[f"c{index}_max"],
                        int.from_bytes(row[f"c{index}_sum_squares"], "little", signed=True),
                        row[f"c{index}_min_time_us"],
                        row[f"c{index}_max_time_us"],
                    )
                )

    def to_arrow(self, grouped: bool = False) -> pa.Table:
        """One row a part and leaf, ascending: part, leaf_start_us, tuples, then the aggregates a column.

        ``grouped``: one row a part, leaf, group column and value instead, with ``group_column`` and ``group_value``.
        A column without values has count 0 and NULL for the rest.
        """
        schema = leaf_schema(self.columns, grouped)
        rows: dict[str, list[object]] = {name: [] for name in schema.names}
        found = [(key, leaf) for key, leaf in self._leaves.items() if (key[2] is not None) == grouped]
        for key, leaf in sorted(found, key=lambda item: [(value is None, value) for value in item[0]]):
            for name, value in zip(_KEY_COLUMNS, key, strict=True):
                if name in rows:
                    rows[name].append(value)
            rows["tuples"].append(leaf.tuples)
            for name, totals in zip(self.columns, leaf.columns, strict=True):
                some = totals.count > 0
                rows[f"{name}_count"].append(totals.count)
                rows[f"{name}_sum"].append(to_double(totals.sum) if some else None)
                rows[f"{name}_min"].append(totals.min if some else None)
                rows[f"{name}_max"].append(totals.max if some else None)
                rows[f"{name}_sum_squares"].append(to_double(totals.sum_squares) if some else None)
                rows[f"{name}_min_time"].append(totals.min_time_us if some else None)
                rows[f"{name}_max_time"].append(totals.max_time_us if some else None)
        return pa.table(rows, schema=schema)


_KEY_COLUMNS = ("part", "leaf_start_us", "group_column", "group_value")
_TIME = pa.timestamp("us", tz="UTC")


def leaf_schema(columns: Sequence[str], grouped: bool = False) -> pa.Schema:
    """The columns of ``LeafAggregator.to_arrow``."""
    fields = [("part", pa.int64()), ("leaf_start_us", pa.int64())]
    fields += [("group_column", pa.string()), ("group_value", pa.string())] if grouped else []
    fields.append(("tuples", pa.int64()))
    for name in columns:
        fields.append((f"{name}_count", pa.int64()))
        fields.extend((f"{name}_{aggregate}", pa.float64()) for aggregate in ("sum", "min", "max", "sum_squares"))
        fields.extend((f"{name}_{aggregate}", _TIME) for aggregate in ("min_time", "max_time"))
    return pa.schema(fields)


def partial_schema(columns: Sequence[str]) -> pa.Schema:
    """The columns of ``LeafAggregator.partials``; declared columns by number, for their names may be anything."""
    fields = [("part", pa.int64()), ("leaf_start_us", pa.int64()), ("group_column", pa.string())]
    fields += [("group_value", pa.string()), ("tuples", pa.int64())]
    for index in range(len(columns)):
        fields.append((f"c{index}_count", pa.int64()))
        fields.append((f"c{index}_sum", pa.binary()))
        fields.append((f"c{index}_min", pa.float64()))
        fields.append((f"c{index}_max", pa.float64()))
        fields.append((f"c{index}_sum_squares", pa.binary()))
        fields.append((f"c{index}_min_time_us", pa.int64()))
        fields.append((f"c{index}_max_time_us", pa.int64()))
    return pa.schema(fields)


def _combined(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _column_totals(
    name: str, column: pa.Array | pa.ChunkedArray, event_us: Int64s, group_of_row: Int64s, group_count: int
) -> list[ColumnTotals]:
    present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
    groups, times_us = group_of_row[present], event_us[present]
    values = np.asarray(column.drop_null().cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    if not np.isfinite(values).all():
        raise ValueError(f"column {name} holds NaN or infinity: ingest refuses them, so this table was not its own")
    lowest, highest = np.full(group_count, math.inf), np.full(group_count, -math.inf)
    np.minimum.at(lowest, groups, values)
    np.maximum.at(highest, groups, values)
    with np.errstate(over="ignore"):
        squares = np.minimum(values * values, np.finfo(np.float64).max)
    return [
        ColumnTotals(*totals)
        for totals in zip(
            np.bincount(groups, minlength=group_count).tolist(),
            exact_sums(values, groups, group_count),
            # Zero has one sign here, or the order of rows would choose it.
            (lowest + 0.0).tolist(),
            (highest + 0.0).tolist(),
            exact_sums(squares, groups, group_count),
            _first_us(values == lowest[groups], times_us, groups, group_count),
            _first_us(values == highest[groups], times_us, groups, group_count),
            strict=True,
        )
    ]


def _first_us(extreme: npt.NDArray[np.bool_], times_us: Int64s, groups: Int64s, group_count: int) -> list[int]:
    """The earliest time of each group's rows that hold its extreme."""
    first = np.full(group_count, LATEST_US)
    np.minimum.at(first, groups[extreme], times_us[extreme])
    return list(first.tolist())


def _to_bytes(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
