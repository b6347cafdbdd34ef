"""Which of two tuples is the better one, and which group a tuple is of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.arrivals import int64s
from tidegate.operators.codes import encode
from tidegate.operators.schedule import Int64s
from tidegate.operators.top_k.spec import Spec
from tidegate.values.limbs import as_doubles, is_decimal

Floats = npt.NDArray[np.float64]
_LARGEST_CODE = 2**62


def merits(spec: Spec, table: pa.Table) -> Floats:
    """float64[n] that never put a worse tuple before a better one, though they may not tell two tuples apart.

    They are made of the weightiest term alone, and of doubles, in which large integers and decimals are equal. NULL:
    −inf. NaN is the largest number: like infinity.
    """
    if not spec.order:
        return -int64s(table.column("event_us")).astype(np.float64)
    term = spec.order[0]
    column = table.column(term.slot)
    if term.slot in spec.textual:
        merit = encode(column)[0].astype(np.float64)
        merit[merit < 0] = np.nan
    elif is_decimal(column.type):
        exact = column.combine_chunks()
        merit = np.where(exact.is_valid().to_numpy(zero_copy_only=False), as_doubles(exact), np.nan)
    else:
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
        merit = np.asarray(column.cast(pa.float64(), safe=False).to_numpy())
        nan = _nan(column)
        if nan is not None:
            merit = np.where(nan, np.inf, merit)
    return np.fmax(merit if term.descending else -merit, -np.inf)


def comparable(spec: Spec) -> bool:
    """Whether merits of different tables may be compared: those of texts are ranks within one table."""
    return not spec.order or spec.order[0].slot not in spec.textual


def best_first(spec: Spec, table: pa.Table) -> Int64s:
    """The order that sorts by the terms, event time and event id.

    **Cost.** O(n log n), most of it on doubles: only where merits are equal are the other keys looked at.
    """
    merit = merits(spec, table)
    order = np.argsort(-merit, kind="stable")
    if len(order) > 1:
        same = merit[order[1:]] == merit[order[:-1]]
        if same.any():
            tied = np.append(same, False)
            tied[1:] |= same
            places = np.flatnonzero(tied)
            rows = order[places]
            keys = table.select([name for name, _, _ in spec.sort_keys]).take(pa.array(rows))
            order[places] = rows[_sorted_by_all_keys(spec, keys)]
    return order


def _sorted_by_all_keys(spec: Spec, table: pa.Table) -> Int64s:
    keys, columns = [], {}
    for name, direction, nulls in spec.sort_keys:
        columns[name] = table.column(name)
        nan = _nan(columns[name])
        if nan is not None and direction == "descending":
            # Arrow puts NaN behind all numbers in either direction.
            columns[f"{name} NaN"] = pa.array(nan)
            keys.append((f"{name} NaN", direction, nulls))
        keys.append((name, direction, nulls))
    return int64s(pc.sort_indices(pa.table(columns), sort_keys=keys).cast(pa.int64()))


def _nan(column: pa.ChunkedArray) -> npt.NDArray[np.bool_] | None:
    """Where a column is NaN; None if it is nowhere."""
    if not pa.types.is_floating(column.type):
        return None
    nan = pc.is_nan(column).fill_null(False)
    return np.asarray(nan.to_numpy()) if pc.any(nan).as_py() else None


def group_codes(spec: Spec, *tables: pa.Table) -> tuple[list[Int64s], int]:
    """Of each table the rows' groups as codes that order as the groups' columns do (NULL first), and their number."""
    if not spec.groups:
        return [np.zeros(table.num_rows, dtype=np.int64) for table in tables], 1
    both = pa.concat_tables([table.select(list(spec.groups)) for table in tables])
    code, size = np.zeros(both.num_rows, dtype=np.int64), 1
    for name in spec.groups:
        own, values = encode(both.column(name))
        if size * (len(values) + 1) > _LARGEST_CODE:
            code, size = _dense(code)
        code, size = code * (len(values) + 1) + own + 1, size * (len(values) + 1)
    if size > max(len(code), 1) or len(spec.groups) > 1:
        code, size = _dense(code)
    return np.split(code, np.cumsum([table.num_rows for table in tables])[:-1]), size


def _dense(code: Int64s) -> tuple[Int64s, int]:
    values, dense = np.unique(code, return_inverse=True)
    return dense.astype(np.int64), max(len(values), 1)


def stable_order(ids: Int64s, size: int) -> Int64s:
    """The stable order of ids in 0 … ``size`` − 1; small ones are sorted by their bytes, without comparisons."""
    return np.argsort(ids.astype(np.uint16) if size <= 1 << 16 else ids, kind="stable")


def rank_within(groups: Int64s) -> Int64s:
    """Position of each row within its run of equal values, from 0.

    >>> rank_within(np.array([4, 4, 7, 4])).tolist()
    [0, 1, 0, 0]
    """
    begins = np.ones(len(groups), dtype=bool)
    begins[1:] = groups[1:] != groups[:-1]
    starts = np.flatnonzero(begins)
    return np.arange(len(groups)) - np.repeat(starts, np.diff(np.append(starts, len(groups))))
