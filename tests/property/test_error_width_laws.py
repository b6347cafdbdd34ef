"""Laws of the error-to-width map, against loops by definition and against theory."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from infra.benchmarks.error_width.panes import autoregressive
from tests.examples import examples

from tidegate.operators.accuracy import choose_share, error_bounds, widths_to_try

LAWS = settings(max_examples=examples(150), deadline=None)
ERRORS = st.sampled_from([0.0, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0, math.inf, math.nan])
TOLERATED = st.sampled_from([0.0, 0.01, 0.03, 0.1, 0.5, 1.0])
MISS_RATES = st.sampled_from([0.05, 0.1, 0.25, 0.5])


@st.composite
def measured(draw: st.DrawFn) -> np.ndarray:
    """Errors of up to 60 windows over up to five shares, most of them small, as they are."""
    shares, kinds = draw(st.integers(1, 5)), draw(st.lists(ERRORS, min_size=1, max_size=4))
    row = st.lists(st.sampled_from([0.0, 0.0, 0.0, *kinds]), min_size=shares, max_size=shares)
    rows = draw(st.lists(row, max_size=60))
    return np.array(rows, dtype=np.float64).reshape(-1, shares)


def shares_of(errors: np.ndarray) -> np.ndarray:
    return np.arange(1, errors.shape[1] + 1) / errors.shape[1]


def enough(column: np.ndarray, tolerated: float, miss_rate: float) -> bool:
    """Whether so many windows are within the error that one more is in all but the miss rate of the cases."""
    return int((column <= tolerated).sum()) >= (1 - miss_rate) * (len(column) + 1) - 1e-9


@LAWS
@given(measured(), TOLERATED, MISS_RATES)
def test_a_share_is_good_if_it_and_all_larger_ones_were_within_the_error_often_enough(
    errors: np.ndarray, tolerated: float, miss_rate: float
) -> None:
    good = [
        all(enough(errors[:, wider], tolerated, miss_rate) for wider in range(share, errors.shape[1]))
        for share in range(errors.shape[1])
    ]
    assert (error_bounds(errors, miss_rate) <= tolerated).tolist() == good
    choice = choose_share(errors, shares_of(errors), tolerated, miss_rate)
    if len(errors) < 1 / miss_rate - 1:
        assert choice.share is None
        return
    chosen = good.index(True) if any(good) else errors.shape[1] - 1
    assert choice.share == shares_of(errors)[chosen]
    assert choice.coverage == np.mean(errors[:, chosen] <= tolerated)
    assert not any(good) or choice.coverage >= 1 - miss_rate - 1e-12


@LAWS
@given(measured(), TOLERATED, TOLERATED, st.randoms(use_true_random=False))
def test_who_tolerates_more_holds_no_more_and_the_order_of_the_windows_does_not_matter(
    errors: np.ndarray, tolerated: float, other: float, chance: object
) -> None:
    shares = shares_of(errors)
    strict, lenient = (choose_share(errors, shares, e).share for e in sorted((tolerated, other)))
    assert strict is None if lenient is None else lenient <= strict  # type: ignore[operator]
    order = list(range(len(errors)))
    chance.shuffle(order)  # type: ignore[attr-defined]
    assert choose_share(errors[order], shares, tolerated) == choose_share(errors, shares, tolerated)


@LAWS
@given(st.integers(1, 5_000))
def test_widths_ascend_to_the_range_in_steps_of_a_24th_of_it_and_of_a_tenth_of_the_width_at_most(ticks: int) -> None:
    widths = widths_to_try(ticks)
    steps = np.diff(widths)
    assert widths[-1] == ticks
    assert widths[0] == math.ceil(ticks / 24)
    assert (steps > 0).all()
    assert (steps <= np.maximum(1, np.minimum(ticks / 24, widths[1:] / 10))).all()
    assert len(widths) <= min(ticks, 46)


def test_of_exchangeable_windows_one_in_twenty_exceeds_the_bound() -> None:
    """Of n + 1 = 40 independent errors from one continuous law the last exceeds the 38th of the others in 2 of 40
    cases, whatever the law. In 4 000 trials the frequency lies within four standard deviations of that."""
    trials, n = 4_000, 39
    errors = np.random.default_rng(1).pareto(1.1, (trials, n + 1))
    bounds = np.array([error_bounds(row[:n, None])[0] for row in errors])
    deviation = math.sqrt(0.05 * 0.95 / trials)
    assert abs((errors[:, n] > bounds).mean() - 0.05) <= 4 * deviation


def test_autocorrelation_breaks_the_formula_and_not_the_learnt_width() -> None:
    """Values of a Gaussian AR(1), one a tick, mean 100, variance 1; AVG over 72 ticks, correlation 24 ticks.

    The formula takes tuples for independent: the mean over w of n = 72 misses that of all by sd √(1/w − 1/n). What it
    really covers is known from the covariances. Windows 72 + 5 · 24 ticks apart are as good as independent, so each
    half of the stream has m of them, and a coverage lies within four times √(0.05 · 0.95 · 2 / m) of 0.95.
    """
    length, n, correlation, tolerated = 400_000, 72, 24, 0.003
    values = 100 + autoregressive(np.random.default_rng(2), length, correlation)
    upto = np.append(0.0, np.cumsum(values))
    widths, ends = widths_to_try(n), np.arange(n, length)
    truth = (upto[ends] - upto[ends - n]) / n
    errors = np.column_stack([np.abs((upto[ends] - upto[ends - w]) / w / truth - 1) for w in widths])
    half = len(ends) // 2
    independent_windows = half / (n + 5 * correlation)

    formula = int(np.argmax(1.96 * np.sqrt(1 / widths - 1 / n) / 100 <= tolerated))
    weights = np.where(np.arange(n) < widths[formula], 1 / widths[formula], 0.0) - 1 / n
    covariances = np.exp(-np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / correlation)
    true_sd = math.sqrt(weights @ covariances @ weights) / 100
    theory = 2 * NormalDist().cdf(tolerated / true_sd) - 1
    formula_coverage = (errors[half:, formula] <= tolerated).mean()
    assert theory < 0.6
    # Half a percent for the truth in the denominator, which is not quite 100.
    assert abs(formula_coverage - theory) <= 4 * math.sqrt(theory * (1 - theory) / independent_windows) + 0.005

    choice = choose_share(errors[:half], widths / n, tolerated)
    chosen = int(np.argmax(widths / n == choice.share))
    coverage = (errors[half:, chosen] <= tolerated).mean()
    assert coverage >= 0.95 - 4 * math.sqrt(0.05 * 0.95 * 2 / independent_windows)
    hindsight = widths[np.argmax((errors[half:] <= tolerated).mean(axis=0) >= 0.95)]
    assert widths[chosen] <= 1.1 * hindsight
