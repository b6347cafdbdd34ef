"""The controller at length: streams whose delays step every hour."""

from __future__ import annotations

import numpy as np
import pytest
from infra.benchmarks.slack.__main__ import Result, run, summary
from infra.benchmarks.slack.stream import K_BEST, RANGE_S, SLIDE_S, stepping_thetas, stream, winners


def test_winners_are_the_best_of_each_whole_window() -> None:
    of = stream(np.array([5.0]), 1)
    found = winners(of)
    for end_s in (60, 65, 1800, 3600):
        inside = np.flatnonzero((of.event_s >= end_s - RANGE_S) & (of.event_s < end_s))
        best = inside[np.argsort(-of.score[inside])[:K_BEST]]
        needed = np.maximum(of.event_s[best] + of.delay_s[best] - end_s, 0)
        np.testing.assert_allclose(
            np.sort(found.needed_s[found.end_us == end_s * 1_000_000]), np.sort(needed), atol=1e-9
        )
    assert len(found.end_us) == (3600 // SLIDE_S - RANGE_S // SLIDE_S + 1) * K_BEST


def test_mean_delays_step_by_at_most_the_share() -> None:
    theta_s = stepping_thetas(3, 500)
    assert theta_s.min() >= 4 and theta_s.max() <= 20
    assert (np.abs(np.diff(theta_s) / theta_s[:-1]) <= 0.3 + 1e-12).all()


def test_the_factor_is_the_one_with_which_as_many_hours_are_kept() -> None:
    ones = np.ones(4)
    result = Result(ones, np.array([0.96, 0.94, 0.97, 0.99]), 12 * ones, 10 * ones, np.array([1.0, 0.9, 1.5, 1.2]))
    found = summary([result])
    assert found["kept"] == 0.75
    assert found["slack_over_equal"] == pytest.approx(12 / (10 * 1.2))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_on_average_the_controller_does_as_one_who_knows_the_law() -> None:
    """The issue's figures: ≥ target − 0.5 points in ≥ 99 % of the hours, K ≤ 1.06 of the law's."""
    found = summary([run(seed, 72, 0.0, None) for seed in range(3)])
    assert found["expected_within"] >= 0.99 and found["slack_over_known"] <= 1.06


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_promise_for_99_of_100_hours_costs_five_hundredths_more_than_for_one_who_knows_the_law() -> None:
    found = summary([run(seed, 72, 0.0, 0.99) for seed in range(3)])
    assert found["kept"] >= 0.99 - 3 * np.sqrt(0.01 * 0.99 / (3 * 64)) and found["slack_over_equal"] <= 1.05
