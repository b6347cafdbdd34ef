"""The distance of answers from the truth, per window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.accuracy.judge import rounded
from tidegate.operators.codes import codes, encode
from tidegate.operators.schedule import Int64s

Float64s = npt.NDArray[np.float64]
NOWHERE = -1
_SPARSE = 16
"""With up to so many keys a row, rows are found by a table of all keys, and not by sorting."""


def hit_rate(
    answers: pa.Table,
    truth: pa.Table,
    windows: pa.Array,
    *,
    window: str = "window_end",
    event_id: str = "event_id",
) -> Float64s:
    """Share of the true winners that the answer named, per window: |answer ∩ truth| / |truth|.

    Args:
        answers: one row per winner, with the columns ``window`` and ``event_id``; other columns are ignored.
        truth: the same, of the true winners.
        windows: the windows to judge, each once; rows of other windows are ignored.
        window: name of the column that tells the window.
        event_id: name of the column that tells the tuple.

    Returns:
        float64[len(windows)]; 1 where the truth is empty.

    **Cost.** O(n log n) time, O(n) space for n rows. **Guarantee.** Exact.

    >>> truth = pa.table({"window_end": [1, 1, 2], "event_id": ["a", "b", "a"]})
    >>> answers = pa.table({"window_end": [1, 1, 2], "event_id": ["a", "c", "a"]})
    >>> hit_rate(answers, truth, pa.array([1, 2, 3])).tolist()
    [0.5, 1.0, 1.0]

    **Source.** papers/04, "The query".
    """
    answers, in_answer = _judged(answers.select([window, event_id]), window, windows)
    truth, in_truth = _judged(truth.select([window, event_id]), window, windows)
    ids, distinct = encode(pa.concat_tables([answers, truth.cast(answers.schema)]).column(event_id))
    named = in_answer * (len(distinct) + 1) + ids[: len(in_answer)]
    true = np.unique(in_truth * (len(distinct) + 1) + ids[len(in_answer) :])
    true_window = true // (len(distinct) + 1)
    winners = np.bincount(true_window, minlength=len(windows))
    hits = np.bincount(true_window[np.isin(true, named)], minlength=len(windows))
    return np.where(winners == 0, 1.0, hits / np.maximum(winners, 1))


def relative_error(
    answers: pa.Table,
    truth: pa.Table,
    windows: pa.Array,
    groups: Sequence[str],
    values: Sequence[str],
    *,
    window: str = "window_end",
) -> Float64s:
    """The largest relative error of any value of a window.

    Of one value it is |answer − truth| / |truth|; if the truth is 0: 0 if the answer is 0 too, else 1. NULL on both
    sides is 0, on one side 1; NaN likewise. A group that is missing or too many counts 1. Values that are not numbers
    (strings, times, booleans) count 0 if equal, else 1.

    Args:
        answers: one row per window and group.
        truth: the same, true; the columns named must be of the same types.
        windows: the windows to judge, each once; rows of other windows are ignored.
        groups: names of the group columns; NULL is a group.
        values: names of the columns to compare.
        window: name of the column that tells the window.

    Returns:
        float64[len(windows)], rounded as the judge does; 0 where neither side has a row.

    Raises:
        ValueError: a table has two rows of the same window and group.

    **Cost.** O(n log n) time, O(n) space for n rows. **Guarantee.** Exact but for the rounding.

    >>> truth = pa.table({"window_end": [1, 1, 2], "origin": ["JFK", "LGA", "JFK"], "count": [10.0, 4.0, 5.0]})
    >>> answers = pa.table({"window_end": [1, 1], "origin": ["JFK", "LGA"], "count": [9.0, 4.0]})
    >>> relative_error(answers, truth, pa.array([1, 2, 3]), ["origin"], ["count"]).tolist()
    [0.1, 1.0, 0.0]
    """
    names = [window, *groups, *values]
    answers, in_answer = _judged(answers.select(names), window, windows)
    truth, in_truth = _judged(truth.select(names), window, windows)
    return largest_errors(answers, in_answer, truth, in_truth, np.arange(len(windows)), groups, values)


def largest_errors(
    answers: pa.Table,
    in_answer: Int64s,
    truth: pa.Table,
    in_window: Int64s,
    window_of: Int64s,
    groups: Sequence[str],
    values: Sequence[str],
) -> Float64s:
    """The :func:`relative_error` of several answers a window, all at once.

    Args:
        answers: one row per answer and group.
        in_answer: int64[rows of answers], the number of the answer that each row belongs to.
        truth: one row per window and group.
        in_window: int64[rows of truth], the number of the window that each row belongs to.
        window_of: int64[n], of each answer the number of its window; it may have no rows, and the window none.
        groups: names of the group columns; NULL is a group.
        values: names of the columns to compare.

    Returns:
        float64[n], rounded as the judge does.

    Raises:
        ValueError: a table has two rows of the same answer or window, and group.

    **Cost.** O(rows), or O(rows log rows) where few of the groups are in any one window. **Guarantee.** Exact but for
    the rounding.
    """
    windows = int(max(window_of.max(initial=-1), in_window.max(initial=-1))) + 1
    code, count = _group_codes(answers, truth, groups)
    given, true = code[: len(in_answer)], code[len(in_answer) :]
    _require_distinct(in_answer * count + given, len(window_of) * count, "answers")
    known = in_window * count + true
    _require_distinct(known, windows * count, "truth")
    row = _rows_of(window_of[in_answer] * count + given, known, windows * count)

    shared = np.flatnonzero(row != NOWHERE)
    error = np.ones(len(in_answer))
    worst = np.zeros(len(shared))
    for name in values:
        answer = answers.column(name).take(pa.array(shared))
        worst = np.maximum(worst, _value_error(answer, truth.column(name).take(pa.array(row[shared]))))
    error[shared] = worst
    found = np.bincount(in_answer[shared], minlength=len(window_of))
    largest = np.where(found < np.bincount(in_window, minlength=windows)[window_of], 1.0, 0.0)
    np.maximum.at(largest, in_answer, error)
    return rounded(largest)


def _group_codes(answers: pa.Table, truth: pa.Table, groups: Sequence[str]) -> tuple[Int64s, int]:
    """A number per row of both, one behind the other, the same iff their groups are equal; and how many there are."""
    keys = answers.select(groups)
    keys = pa.concat_tables([keys, truth.select(groups).cast(keys.schema)])
    code, count = np.zeros(answers.num_rows + truth.num_rows, dtype=np.int64), 1
    for column in keys.columns:
        own, values = codes(column)
        # NULL is a group like any other.
        code, count = code * (len(values) + 1) + own + 1, count * (len(values) + 1)
        if _sparse(code, count):
            distinct, code = np.unique(code, return_inverse=True)
            count = len(distinct)
    return code, count


def _rows_of(wanted: Int64s, keys: Int64s, bound: int) -> Int64s:
    """The place of each wanted key among the keys, which are distinct and below ``bound``; else ``NOWHERE``."""
    if _sparse(keys, bound):
        if len(keys) == 0:
            return np.full(len(wanted), NOWHERE, dtype=np.int64)
        order = np.argsort(keys)
        row = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
        return np.where(keys[row] == wanted, row, NOWHERE)
    row_of = np.full(bound, NOWHERE, dtype=np.int64)
    row_of[keys] = np.arange(len(keys))
    return row_of[wanted]


def _sparse(keys: Int64s, bound: int) -> bool:
    """Whether a table of all that lies below ``bound`` would be large beside the keys."""
    return bound > _SPARSE * (len(keys) + 1)


def _judged(table: pa.Table, window: str, windows: pa.Array) -> tuple[pa.Table, Int64s]:
    """The rows of the windows to judge, and the position of each row's window among them."""
    position = pc.index_in(table.column(window), value_set=windows.cast(table.schema.field(window).type))
    kept = pc.is_valid(position)
    return table.filter(kept), np.asarray(position.filter(kept).to_numpy(), dtype=np.int64)


def _require_distinct(keys: Int64s, bound: int, name: str) -> None:
    if _sparse(keys, bound):
        distinct = len(np.unique(keys))
    else:
        there = np.zeros(bound, dtype=bool)
        there[keys] = True
        distinct = int(np.count_nonzero(there))
    if distinct < len(keys):
        raise ValueError(f"{name} holds two rows of the same window and group")


def _value_error(answer: pa.ChunkedArray, true: pa.ChunkedArray) -> Float64s:
    answer_known, true_known = answer.is_valid().to_numpy(), true.is_valid().to_numpy()
    kinds = (answer.type, true.type)
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) for kind in kinds):
        # Whole numbers beyond 2^53 are rounded to the nearest double.
        a, t = (np.asarray(c.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy()) for c in (answer, true))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.abs(a - t) / np.abs(t)
        same = (a == t) | (np.isnan(a) & np.isnan(t))
        known = np.where(same, 0.0, np.where((t == 0) | np.isnan(ratio), 1.0, ratio))
    else:
        known = np.where(pc.equal(answer, true.cast(answer.type)).fill_null(False).to_numpy(), 0.0, 1.0)
    return np.where(answer_known & true_known, known, np.where(answer_known == true_known, 0.0, 1.0))
