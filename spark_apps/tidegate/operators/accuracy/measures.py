"""The distance of answers from the truth, per window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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
_MISSING_AT_ONCE = 1 << 20
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Tolerance:
    """How the errors of a window's groups make that of the window.

    ``groups_within``: the share of them, true and answered ones, that is to be within an error: of n the
    ⌈share · n⌉-th smallest is the window's. ``least``: column → the least number to which its error is relative; in
    such a column no value is a 0, and so is that of a missing group.
    """

    groups_within: float = 1.0
    least: Mapping[str, float] = field(default_factory=dict)


EVERY_GROUP = Tolerance()
"""The window's error is that of its worst group."""


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
    tolerance: Tolerance = EVERY_GROUP,
    *,
    window: str = "window_end",
) -> Float64s:
    """The error of each window: the largest relative error of any value, or what the tolerance makes of all groups'.

    Of one value it is |answer − truth| / |truth|; if the truth is 0: 0 if the answer is 0 too, else 1. NULL on both
    sides is 0, on one side 1; NaN likewise. A group that is missing or too many counts 1. Values that are not numbers
    (strings, times, booleans) count 0 if equal, else 1. Of a column with a least number l to which its error is
    relative it is |answer − truth| / max(|truth|, l), a missing value is 0, and so is that of a missing group.

    Args:
        answers: one row per window and group.
        truth: the same, true; the columns named must be of the same types.
        windows: the windows to judge, each once; rows of other windows are ignored.
        groups: names of the group columns; NULL is a group.
        values: names of the columns to compare.
        tolerance: how the groups' errors make the window's.
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
    >>> half = Tolerance(groups_within=0.5, least={"count": 20.0})
    >>> relative_error(answers, truth, pa.array([1, 2, 3]), ["origin"], ["count"], half).tolist()
    [0.0, 0.25, 0.0]
    """
    names = [window, *groups, *values]
    answers, in_answer = _judged(answers.select(names), window, windows)
    truth, in_truth = _judged(truth.select(names), window, windows)
    return window_errors(answers, in_answer, truth, in_truth, np.arange(len(windows)), groups, values, tolerance)


def window_errors(
    answers: pa.Table,
    in_answer: Int64s,
    truth: pa.Table,
    in_window: Int64s,
    window_of: Int64s,
    groups: Sequence[str],
    values: Sequence[str],
    tolerance: Tolerance = EVERY_GROUP,
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
        tolerance: how the groups' errors make the window's.

    Returns:
        float64[n], rounded as the judge does.

    Raises:
        ValueError: a table has two rows of the same answer or window, and group.

    **Cost.** O(rows), or O(rows log rows) where few of the groups are in any one window; O(answers · groups) time where
    columns have a least number to which their error is relative. **Guarantee.** Exact but for the rounding.
    """
    matched = _matched(answers, in_answer, truth, in_window, window_of, groups, values, tolerance.least)
    windows = int(max(window_of.max(initial=-1), in_window.max(initial=-1))) + 1
    shared = matched.row != NOWHERE
    found = np.bincount(in_answer[shared], minlength=len(window_of))
    true_groups = np.bincount(in_window, minlength=windows)[window_of]
    missing = true_groups - found
    if tolerance.groups_within >= 1 and matched.of_missing is None:
        largest = np.where(missing > 0, 1.0, 0.0)
        np.maximum.at(largest, in_answer, matched.error)
        return rounded(largest)
    order = np.argsort(in_answer, kind="stable")
    bounds = np.searchsorted(in_answer[order], np.arange(len(window_of) + 1))
    chosen = np.zeros(len(window_of))
    to_look_at = missing if matched.of_missing is None else true_groups
    truths = None if matched.of_missing is None else _Truths.of(in_window, windows)
    for first, last in _cut(to_look_at, _MISSING_AT_ONCE):
        own = order[bounds[first] : bounds[last]]
        of = np.repeat(np.arange(first, last), missing[first:last])
        error = np.ones(len(of))
        if truths is not None and matched.of_missing is not None:
            of, rows = _missing_rows(in_answer[own], matched.row[own], truths, window_of, first, last)
            error = matched.of_missing[rows]
        chosen[first:last] = _ranked(
            np.concatenate([in_answer[own], of]) - first,
            np.concatenate([matched.error[own], error]),
            last - first,
            tolerance.groups_within,
        )
    return rounded(chosen)


def group_errors(
    answers: pa.Table,
    in_answer: Int64s,
    truth: pa.Table,
    in_window: Int64s,
    groups: Sequence[str],
    values: Sequence[str],
    tolerance: Tolerance = EVERY_GROUP,
) -> tuple[Float64s, Float64s, Int64s]:
    """The error of each group, of one answer a window.

    Args:
        answers: one row per window and group.
        in_answer: int64[rows of answers], the number of the window that each row belongs to.
        truth, in_window: the same, true.
        groups: names of the group columns; NULL is a group.
        values: names of the columns to compare.
        tolerance: how the groups' errors make the window's.

    Returns:
        Of each row of the answers its group's error, float64, rounded as the judge does; of each row of the truth that
        of its group as far as the answers lack it; and the places of these rows of the truth, int64.
    """
    windows = int(max(in_answer.max(initial=-1), in_window.max(initial=-1))) + 1
    matched = _matched(answers, in_answer, truth, in_window, np.arange(windows), groups, values, tolerance.least)
    lacking = np.ones(truth.num_rows, dtype=bool)
    lacking[matched.row[matched.row != NOWHERE]] = False
    of_missing = np.ones(truth.num_rows) if matched.of_missing is None else matched.of_missing
    return rounded(matched.error), rounded(of_missing[lacking]), np.flatnonzero(lacking)


def row_errors(
    answers: pa.Table, in_answer: Int64s, truth: pa.Table, groups: Sequence[str], values: Sequence[str]
) -> tuple[Int64s, Float64s]:
    """Of each row of several answers to one question the true row of its group, or ``NOWHERE``; and its error.

    Args:
        answers: one row per answer and group.
        in_answer: int64[rows of answers], the number of the answer that each row belongs to.
        truth: one row per group.
        groups: names of the group columns; NULL is a group.
        values: names of the columns to compare.

    Returns:
        int64 and float64, rounded as the judge does; the error of a row that is not true is 1.
    """
    count = int(in_answer.max(initial=-1)) + 1
    nothing = np.zeros(max(count, len(truth)), dtype=np.int64)
    matched = _matched(answers, in_answer, truth, nothing[: len(truth)], nothing[:count], groups, values, {})
    return matched.row, rounded(matched.error)


@dataclass(frozen=True, eq=False)
class _Matched:
    """Answers beside their truth.

    ``row``: int64[rows of answers], the row of the truth of the same group, or ``NOWHERE``. ``error``: float64, of each
    row of the answers. ``of_missing``: float64[rows of truth], the error of an answer that lacks the row's group; None:
    1 each.
    """

    row: Int64s
    error: Float64s
    of_missing: Float64s | None


def _matched(
    answers: pa.Table,
    in_answer: Int64s,
    truth: pa.Table,
    in_window: Int64s,
    window_of: Int64s,
    groups: Sequence[str],
    values: Sequence[str],
    least: Mapping[str, float],
) -> _Matched:
    windows = int(max(window_of.max(initial=-1), in_window.max(initial=-1))) + 1
    code, count = _group_codes(answers, truth, groups)
    given, true = code[: len(in_answer)], code[len(in_answer) :]
    _require_distinct(in_answer * count + given, len(window_of) * count, "answers")
    known = in_window * count + true
    _require_distinct(known, windows * count, "truth")
    row = _rows_of(window_of[in_answer] * count + given, known, windows * count)

    shared = np.flatnonzero(row != NOWHERE)
    error = np.ones(len(in_answer))
    error[shared] = 0.0
    if not values:
        return _Matched(row, error, None)
    both = answers.select(values).take(pa.array(shared)), truth.select(values).take(pa.array(row[shared]))
    error[shared] = _worst(*both, values, least)
    if any(name not in least for name in values):
        return _Matched(row, error, None)
    # Whoever lacks a group says 0 of it, in every column.
    extra = np.flatnonzero(row == NOWHERE)
    alone = answers.select(values).take(pa.array(extra))
    error[extra] = _worst(alone, _nothing_like(alone, values), values, least)
    return _Matched(row, error, _worst(_nothing_like(truth, values), truth, values, least))


def _nothing_like(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """As many rows without a value in any of the columns."""
    return pa.table({name: pa.nulls(rows.num_rows, rows.schema.field(name).type) for name in columns})


def _worst(answers: pa.Table, truth: pa.Table, values: Sequence[str], least: Mapping[str, float]) -> Float64s:
    """The largest error of any value of each row."""
    worst = np.zeros(answers.num_rows)
    for name in values:
        worst = np.maximum(worst, _value_error(answers.column(name), truth.column(name), least.get(name)))
    return worst


@dataclass(frozen=True, eq=False)
class _Truths:
    """The rows of the truth by window.

    ``order``: int64[rows], the rows, those of one window side by side. ``place``: int64[rows], where each row is in it.
    ``bounds``: int64[windows + 1], where each window's rows begin.
    """

    order: Int64s
    place: Int64s
    bounds: Int64s

    @classmethod
    def of(cls, in_window: Int64s, windows: int) -> _Truths:
        """Sort them, once for however many answers."""
        order = np.argsort(in_window, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        return cls(order, place, np.searchsorted(in_window[order], np.arange(windows + 1)))


def _missing_rows(
    in_answer: Int64s, row: Int64s, truths: _Truths, window_of: Int64s, first: int, last: int
) -> tuple[Int64s, Int64s]:
    """Of the answers ``first`` … ``last`` − 1 each with each row of its window's truth that it lacks."""
    windows = window_of[first:last]
    starts = truths.bounds[windows]
    counts = truths.bounds[windows + 1] - starts
    offsets = np.concatenate([[0], np.cumsum(counts)])
    of = np.repeat(np.arange(len(windows)), counts)
    place = np.arange(len(of)) - offsets[of] + starts[of]
    there = np.zeros(len(of), dtype=bool)
    shared = row != NOWHERE
    answer = in_answer[shared] - first
    there[offsets[answer] + truths.place[row[shared]] - starts[answer]] = True
    return of[~there] + first, truths.order[place[~there]]


def _cut(counts: Int64s, most: int) -> Iterator[tuple[int, int]]:
    """Bounds of runs whose counts come to no more than ``most``, or that have one member."""
    total, first = np.concatenate([[0], np.cumsum(counts)]), 0
    while first < len(counts):
        last = max(first + 1, int(np.searchsorted(total, total[first] + most, side="right")) - 1)
        yield first, last
        first = last


def _ranked(of: Int64s, error: Float64s, count: int, share: float) -> Float64s:
    """Of each of ``count`` answers the ⌈share · n⌉-th smallest of its n errors; 0 of none."""
    order = np.lexsort((error, of))
    bounds = np.searchsorted(of[order], np.arange(count + 1))
    there = np.diff(bounds)
    rank = np.ceil(there * share - _ROUNDING).astype(np.int64)
    place = bounds[:-1] + np.clip(rank, 1, None) - 1
    chosen = np.zeros(count)
    chosen[there > 0] = error[order][place[there > 0]]
    return chosen


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


def _value_error(answer: pa.ChunkedArray, true: pa.ChunkedArray, least: float | None = None) -> Float64s:
    if least is not None:
        a, t = (_as_doubles(column) for column in (answer, true))
        with np.errstate(invalid="ignore"):
            ratio = np.abs(a - t) / np.maximum(np.abs(t), least)
        same = (a == t) | (np.isnan(a) & np.isnan(t))
        return np.where(same, 0.0, np.where(np.isnan(ratio), 1.0, ratio))
    answer_known, true_known = answer.is_valid().to_numpy(), true.is_valid().to_numpy()
    kinds = (answer.type, true.type)
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) for kind in kinds):
        a, t = (_as_doubles(column) for column in (answer, true))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.abs(a - t) / np.abs(t)
        same = (a == t) | (np.isnan(a) & np.isnan(t))
        known = np.where(same, 0.0, np.where((t == 0) | np.isnan(ratio), 1.0, ratio))
    else:
        known = np.where(pc.equal(answer, true.cast(answer.type)).fill_null(False).to_numpy(), 0.0, 1.0)
    return np.where(answer_known & true_known, known, np.where(answer_known == true_known, 0.0, 1.0))


def _as_doubles(column: pa.ChunkedArray) -> Float64s:
    """Numbers as doubles, NULL as 0; whole numbers beyond 2^53 are rounded to the nearest."""
    return np.asarray(column.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy())
