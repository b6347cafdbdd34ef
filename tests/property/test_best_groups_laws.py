"""Best groups, whatever the rows: ranks as a naive sort has them, ties kept in the truth, hits counted by hand."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.operators.best_groups import Ranking, hit_rates, hits, needed_slack_of_hits, ranked

NAMES = st.one_of(st.none(), st.sampled_from(["a", "b", "c", "ü", ""]))
NUMBERS = st.one_of(st.none(), st.sampled_from([0.0, 1.0, 1.0, 2.5, -3.0, math.nan, math.inf]))
ROWS = st.lists(st.tuples(st.integers(0, 3), NAMES, NAMES, NUMBERS, NUMBERS), max_size=40, unique_by=lambda r: r[:3])
Row = tuple[int, str | None, str | None, float | None, float | None]


def table(rows: list[Row]) -> pa.Table:
    return pa.table(
        {"depot": pa.array([r[1] for r in rows], pa.string()), "line": pa.array([r[2] for r in rows], pa.string())}
    )


def key(value: float | None, descending: bool) -> tuple[bool, bool, float]:
    """NULL last; NaN the largest."""
    if value is None:
        return True, False, 0.0
    if math.isnan(value):
        return False, not descending, 0.0
    return False, descending, -value if descending else value


def text_key(value: str | None) -> tuple[bool, bytes]:
    return value is None, (value or "").encode()


def naive(rows: list[Row], ranking: Ranking, with_ties: bool) -> list[tuple[int, int]]:
    """(Number of the row, its rank) in order of window, part and rank."""
    found = []
    parts = {(r[0], r[1] if ranking.within else None) for r in rows}
    for window, depot in parts:
        mine = [i for i, r in enumerate(rows) if r[0] == window and (not ranking.within or r[1] == depot)]
        terms = {i: [key(rows[i][3 + t], d) for t, d in enumerate(ranking.descending)] for i in mine}
        mine.sort(key=lambda i: (terms[i], text_key(rows[i][1]), text_key(rows[i][2])))
        for place, i in enumerate(mine):
            last = mine[min(ranking.limit, len(mine)) - 1]
            if place < ranking.limit or (with_ties and terms[i] == terms[last]):
                found.append((i, place + 1))
    return sorted(found)


@given(ROWS, st.integers(1, 4), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_the_best_are_those_of_a_naive_sort(
    rows: list[Row], limit: int, first: bool, second: bool, within: bool, with_ties: bool
) -> None:
    ranking = Ranking(limit, (first, second), ("depot", "line"), ("depot",) if within else ())
    terms = [pa.array([r[3 + t] for r in rows], pa.float64()) for t in range(2)]
    kept, rank = ranked(ranking, table(rows), np.array([r[0] for r in rows], np.int64), terms, with_ties)
    assert sorted(zip(kept.tolist(), rank.tolist(), strict=True)) == naive(rows, ranking, with_ties)


@given(ROWS, ROWS, st.integers(1, 3), st.booleans())
def test_hits_are_the_named_groups_that_are_true(
    answers: list[Row], truth: list[Row], limit: int, within: bool
) -> None:
    ranking = Ranking(limit, (), ("depot", "line"), ("depot",) if within else ())
    numbers = [np.array([r[0] for r in rows], np.int64) for rows in (answers, truth)]
    found, possible = hits(ranking, table(answers), numbers[0], table(truth), numbers[1], np.arange(4))
    for window in range(4):
        named, true = ({r[1:3] for r in rows if r[0] == window} for rows in (answers, truth))
        sizes = Counter(depot if within else None for depot, _ in true)
        assert found[window] == len(named & true)
        assert possible[window] == sum(min(limit, size) for size in sizes.values())


def test_which_of_equal_groups_is_named_makes_no_difference() -> None:
    truth = pa.table({"window_end": [1, 1, 1], "who": ["a", "b", "c"]})  # b and c share the second place
    ranking = Ranking(2, (True,), ("who",))
    for second in ("b", "c"):
        answers = pa.table({"window_end": [1, 1], "who": ["a", second]})
        assert hit_rates(ranking, answers, truth, pa.array([1, 2])).tolist() == [1.0, 1.0]


@given(st.lists(st.lists(st.integers(0, 4), min_size=4, max_size=4), min_size=1, max_size=6))
def test_a_slack_would_do_for_so_many_as_are_right_from_it_on(hit: list[list[int]]) -> None:
    """The share of a window's rows with a needed slack ≤ K is its least hit rate at any slack from K on."""
    grid_s = np.array([0.0, 60.0, 300.0, 900.0, 3600.0])
    rates = np.array([[*(n / 4 for n in row), 1.0] for row in hit])
    window, slack_s = needed_slack_of_hits(rates, np.full(len(hit), 4), grid_s)
    for number, row in enumerate(rates):
        mine = slack_s[window == number]
        assert len(mine) == 4
        for column, within_s in enumerate(grid_s):
            assert (mine <= within_s).mean() == pytest.approx(row[column:].min())


def test_no_rows_have_no_best() -> None:
    empty: list[Any] = []
    ranking = Ranking(3, (True,), ("depot", "line"), ("depot",))
    kept, rank = ranked(ranking, table(empty), np.zeros(0, np.int64), [pa.array([], pa.float64())], True)
    assert len(kept) == len(rank) == 0
