"""Laws of the judge of promises, against exact fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegate.declarations.promises import Terms
from tidegate.operators.accuracy import Tally, judge, within
from tidegate.operators.accuracy.judge import Judgement, measure, meets

LAWS = settings(max_examples=examples(200), deadline=None)
PERIOD_US = 60_000_000
hits = st.integers(1, 20).flatmap(
    lambda limit: st.tuples(st.just(limit), st.lists(st.integers(0, limit), min_size=1, max_size=60))
)


def accuracy(bound: float) -> Terms:
    return Terms("q", "", "hit_rate", bound, PERIOD_US)


def error(bound: float) -> Terms:
    return Terms("q", "", "relative_error", bound, PERIOD_US)


def judged(terms: Terms, ends_us: np.ndarray, values: np.ndarray, bounds_us: list[int]) -> list[Judgement]:
    """What is said at the ends of successive intervals, each knowing only what the one before left."""
    found: list[Judgement] = []
    tally = Tally()
    for start_us, end_us in pairwise(bounds_us):
        known = ends_us < end_us
        for one in judge(terms, ends_us[known], values[known], start_us, end_us, tally):
            tally = one.tally
            found.append(one)
    return found


@LAWS
@given(hits, st.integers(0, 1000))
def test_accuracy_is_kept_iff_the_exact_mean_reaches_it(hits: tuple[int, list[int]], permille: int) -> None:
    limit, counts = hits
    values = np.array(counts) / limit
    terms = accuracy(permille / 1000)
    exact = Fraction(sum(counts), limit * len(counts)) >= Fraction(permille, 1000)
    assert meets(measure(terms, values), terms.least) == exact


@LAWS
@given(hits)
def test_accuracy_that_equals_the_mean_is_kept(hits: tuple[int, list[int]]) -> None:
    limit, counts = hits
    terms = accuracy(sum(counts) / (limit * len(counts)))
    assert meets(measure(terms, np.array(counts) / limit), terms.least)


@LAWS
@given(st.lists(st.integers(0, 200), min_size=1, max_size=60), st.integers(0, 200))
def test_error_is_kept_iff_95_of_100_windows_lie_within(errors: list[int], bound: int) -> None:
    terms = error(bound / 1000)
    inside = sum(one <= bound for one in errors)
    assert meets(measure(terms, np.array(errors) / 1000), terms.least) == (100 * inside >= 95 * len(errors))
    assert within(terms, np.array(errors) / 1000).sum() == inside


@LAWS
@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_the_order_of_windows_does_not_change_a_measure(values: list[float], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert measure(accuracy(0.5), np.array(values)) == measure(accuracy(0.5), np.array(shuffled))


@LAWS
@given(
    st.lists(st.tuples(st.integers(0, 400), st.floats(0, 1)), max_size=60, unique_by=lambda one: one[0]),
    st.lists(st.integers(1, 399), max_size=12, unique=True),
)
def test_intervals_cut_anyhow_judge_the_same(windows: list[tuple[int, float]], cuts: list[int]) -> None:
    ordered = sorted(windows)
    ends_us = np.array([second * 1_000_000 for second, _ in ordered], dtype=np.int64)
    values = np.array([value for _, value in ordered])
    bounds_us = [second * 1_000_000 for second in (0, *sorted(cuts), 400)]
    whole, parts = (judged(accuracy(0.5), ends_us, values, own) for own in ([0, 400_000_000], bounds_us))
    assert [one for one in parts if one.kept is not None] == [one for one in whole if one.kept is not None]
    assert parts[-1] == whole[-1]
    assert parts[-1].kept is None


@LAWS
@given(st.lists(st.tuples(st.integers(0, 400), st.floats(0, 1)), max_size=60, unique_by=lambda one: one[0]))
def test_every_window_counts_in_one_period(windows: list[tuple[int, float]]) -> None:
    ordered = sorted(windows)
    ends_us = np.array([second * 1_000_000 for second, _ in ordered], dtype=np.int64)
    found = judged(accuracy(0.5), ends_us, np.array([value for _, value in ordered]), [0, 401_000_000])
    assert sum(one.windows for one in found) == len(windows)
    for one in found:
        own = [value for second, value in ordered if one.start_us <= second * 1_000_000 < one.end_us]
        assert one.windows == len(own)
        assert (one.measured is None) == (not own)
    closed = [one for one in found if one.kept is not None]
    assert found[-1].tally == Tally(len(closed), sum(bool(one.kept) for one in closed))
