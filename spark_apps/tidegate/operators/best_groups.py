"""The best groups of each window, and how often an answer names them.

**Idea.** An answer's rows are ranked within their window, and within the values of some of its columns, by terms; of
equal ones the least group is first. What is true is the set of groups that are at least as good as the k-th, ties
included, so that which of several equal groups an answer names makes no difference.

**Cost.** O(n log n) for n rows. **Guarantee.** Exact, whatever the order of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.codes import codes
from tidegate.operators.schedule import Int64s

Float64s = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ranking:
    """How rows are ranked.

    ``limit``: how many there are. ``descending``: of each term. ``groups``: the columns that tell rows apart;
    ``within``: those of them for each of whose values there are so many.
    """

    limit: int
    descending: tuple[bool, ...]
    groups: tuple[str, ...]
    within: tuple[str, ...] = ()


def ranked(
    ranking: Ranking, rows: pa.Table, window: Int64s, terms: Sequence[pa.ChunkedArray], with_ties: bool = False
) -> tuple[Int64s, Int64s]:
    """Which rows are among the best, in order of window, ``within`` and rank; and their ranks, from 1.

    Args:
        rows: with the columns of the groups.
        window: int64[n], of each row.
        terms: of each row the values that it is ranked by, the weightiest first. NULLs are last, NaN is the largest.
        with_ties: also rows beyond the limit that are as good as the last one within it.
    """
    n = rows.num_rows
    part = np.zeros(n, np.int64)
    for name in ranking.within:
        column_codes, values = codes(rows.column(name))
        part = part * (len(values) + 1) + column_codes + 1
        part = np.unique(part, return_inverse=True)[1]
    merits = [_merit(term, down) for term, down in zip(terms, ranking.descending, strict=True)]
    columns = {"window": pa.array(window), "part": pa.array(part)}
    columns |= {f"term {i}": pa.array(merit) for i, merit in enumerate(merits)}
    columns |= {f"group {i}": rows.column(name) for i, name in enumerate(ranking.groups)}
    keys = [(name, "ascending") for name in columns]
    order = np.asarray(pc.sort_indices(pa.table(columns), sort_keys=keys).to_numpy(), np.int64)
    begins = _changes(window[order], part[order])
    rank = _places(begins)
    kept = rank < ranking.limit
    if with_ties and len(order):
        same = ~_changes(window[order], part[order], *(merit[order] for merit in merits))
        # Runs of equal rows: one that begins within the limit is kept to its end.
        starts = np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))
        kept = rank[starts] < ranking.limit
    return order[kept], rank[kept] + 1


def hits(
    ranking: Ranking,
    answers: pa.Table,
    in_answer: Int64s,
    truth: pa.Table,
    in_window: Int64s,
    window_of: Int64s,
) -> tuple[Int64s, Int64s]:
    """Of several answers a window, how many groups of each are among the true best; and how many could be.

    Args:
        answers: one row per answer and group.
        in_answer: int64[rows of answers], the number of the answer that each row belongs to.
        truth: one row per window and group that is true, ties included.
        in_window: int64[rows of truth], the number of the window that each row belongs to.
        window_of: int64[n], of each answer the number of its window; it may have no rows, and the window none.
    """
    windows = int(max(window_of.max(initial=-1), in_window.max(initial=-1))) + 1
    keys = answers.select(list(ranking.groups))
    keys = pa.concat_tables([keys, truth.select(list(ranking.groups)).cast(keys.schema)])
    group = _codes(keys, ranking.groups)
    named, true = group[: len(in_answer)], group[len(in_answer) :]
    count = int(group.max(initial=-1)) + 1
    there = np.isin(window_of[in_answer] * count + named, in_window * count + true)
    found = np.bincount(in_answer[there], minlength=len(window_of))
    part = _codes(truth.select(list(ranking.within)), ranking.within) if ranking.within else np.zeros_like(in_window)
    parts, sizes = np.unique(np.column_stack([in_window, part]), axis=0, return_counts=True)
    possible = np.bincount(parts[:, 0], np.minimum(sizes, ranking.limit), minlength=windows).astype(np.int64)
    return found, possible[window_of]


def hit_rates(ranking: Ranking, answers: pa.Table, truth: pa.Table, windows: pa.Array) -> Float64s:
    """Share of the true best groups that the answer names, per window; 1 where the truth is empty.

    Args:
        answers, truth: rows with ``window_end`` and the groups' columns; those of other windows are ignored.
        windows: the windows to judge, each once.
    """
    (answers, in_answer), (truth, in_window) = (_of_windows(rows, windows) for rows in (answers, truth))
    found, possible = hits(ranking, answers, in_answer, truth, in_window, np.arange(len(windows)))
    return np.where(possible == 0, 1.0, found / np.maximum(possible, 1))


def _of_windows(rows: pa.Table, windows: pa.Array) -> tuple[pa.Table, Int64s]:
    ends = rows.column("window_end")
    place = pc.index_in(ends, value_set=windows.cast(ends.type))
    there = pc.is_valid(place)
    return rows.filter(there), np.asarray(place.filter(there).to_numpy(), np.int64)


def needed_slack_of_hits(rates: Float64s, possible: Int64s, grid_s: Float64s) -> tuple[Int64s, Float64s]:
    """The slacks that would have done: of each window one for each group that could be named.

    How many are right need not grow with the slack: a rival may come late. So a window's rate at K is taken to be the
    least at any slack from K on, and each rise of that by 1/possible is the slack that one of the groups needed.

    Args:
        rates: float64[n, len(grid_s)], the hit rate of each window at each slack; 1 at the last.
        possible: int64[n], how many groups of each window could be named.
        grid_s: the slacks, ascending.

    Returns:
        int64[m], numbers of windows, ascending, and float64[m], seconds: ``possible`` rows a window.
    """
    lasting = np.minimum.accumulate(rates[:, ::-1], axis=1)[:, ::-1]
    reached = np.rint(lasting * possible[:, None]).astype(np.int64)
    rises = np.diff(reached, axis=1, prepend=0)
    window, column = np.nonzero(rises)
    times = rises[window, column]
    return np.repeat(window, times), np.repeat(grid_s[column], times)


def _codes(keys: pa.Table, names: Sequence[str]) -> Int64s:
    """A number per row, the same iff the values of these columns are equal; NULL is a value."""
    code = np.zeros(keys.num_rows, np.int64)
    for name in names:
        column_codes, values = codes(keys.column(name))
        code = np.unique(code * (len(values) + 1) + column_codes + 1, return_inverse=True)[1]
    return code


def _merit(term: pa.ChunkedArray, descending: bool) -> Int64s:
    """int64[n] that ascends from the best value to the worst; NULL is behind all."""
    distinct = pc.unique(term).drop_null()
    nan = pc.is_nan(distinct) if pa.types.is_floating(distinct.type) else None
    numbers = distinct if nan is None else distinct.filter(pc.invert(nan))
    ascending = numbers.take(pc.sort_indices(numbers))
    if nan is not None and len(numbers) < len(distinct):
        ascending = pa.concat_arrays([ascending, distinct.filter(nan).slice(0, 1)])
    place = np.asarray(pc.index_in(term, value_set=ascending).fill_null(-1).to_numpy(), np.int64)
    merit = len(ascending) - 1 - place if descending else place
    return np.where(place < 0, len(ascending), merit)


def _changes(*columns: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Where a row differs from the one before in any column; the first one does."""
    changed = np.zeros(len(columns[0]), dtype=bool)
    changed[:1] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return changed


def _places(begins: npt.NDArray[np.bool_]) -> Int64s:
    """Position of each row within its run, from 0."""
    starts = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))
    return np.asarray(np.arange(len(begins)) - starts, np.int64)
