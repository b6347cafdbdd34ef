"""Accuracy and slack on examples small enough to check by eye, and at the edges."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from tidegate.operators.accuracy import (
    SlackChoice,
    accuracy_at,
    choose_slack,
    hit_rate,
    needed_slack,
    needed_slack_on_grid,
    oracle_slack,
    relative_error,
)

NOON = datetime(2013, 2, 8, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOTHING = np.zeros(0)


def test_hit_rate_of_windows_with_timestamps_and_without_winners() -> None:
    ends = pa.array([NOON, NOON + HOUR, NOON + 2 * HOUR], pa.timestamp("us", tz="UTC"))
    truth = pa.table({"window_end": ends.take(pa.array([0, 0, 0, 1])), "event_id": ["a", "b", "c", "a"]})
    answers = pa.table({"window_end": ends.take(pa.array([0, 0, 2])), "event_id": ["c", "x", "a"]})
    assert hit_rate(answers, truth, ends).tolist() == [1 / 3, 0.0, 1.0]


def test_hit_rate_of_empty_tables() -> None:
    empty = pa.table({"window_end": pa.array([], pa.int64()), "event_id": pa.array([], pa.string())})
    assert hit_rate(empty, empty, pa.array([1, 2])).tolist() == [1.0, 1.0]
    assert hit_rate(empty, empty, pa.array([], pa.int64())).tolist() == []


@pytest.mark.parametrize(
    ("answer", "true", "error"),
    [
        (98.0, 100.0, 0.02),
        (-98.0, -100.0, 0.02),
        (0.0, 0.0, 0.0),
        (0.1, 0.0, 1.0),
        (30.0, 10.0, 2.0),
        (None, None, 0.0),
        (None, 5.0, 1.0),
        (5.0, None, 1.0),
        (math.nan, math.nan, 0.0),
        (math.nan, 5.0, 1.0),
        (5.0, math.nan, 1.0),
        (math.inf, math.inf, 0.0),
        (math.inf, -math.inf, 1.0),
        (5.0, math.inf, 1.0),
    ],
)
def test_relative_error_of_one_value(answer: float | None, true: float | None, error: float) -> None:
    tables = [
        pa.table({"window_end": [1, 1], "v": pa.array([v, 1.0]), "g": ["x", None]}).slice(0) for v in (answer, true)
    ]
    assert relative_error(*tables, pa.array([1]), ["g"], ["v"])[0] == pytest.approx(error)


def test_relative_error_of_groups_without_values() -> None:
    groups = pa.table({"window_end": [1, 1, 2], "g": ["a", "b", "a"]})
    assert relative_error(groups, groups.slice(0, 2), pa.array([1, 2, 3]), ["g"], []).tolist() == [0.0, 1.0, 0.0]


def test_relative_error_of_an_ungrouped_query_and_of_values_that_are_no_numbers() -> None:
    truth = pa.table({"window_end": [1, 2, 3], "n": [4, 0, 9], "last": ["a", "b", "c"]})
    answers = pa.table({"window_end": [1, 2, 4], "n": [4, 0, 9], "last": ["a", "x", "c"]})
    assert relative_error(answers, truth, pa.array([1, 2, 3, 4, 5]), [], ["n", "last"]).tolist() == [0, 1, 1, 1, 0]


def test_two_rows_of_one_group_are_refused() -> None:
    twice = pa.table({"window_end": [1, 1], "g": ["x", "x"], "v": [1.0, 2.0]})
    with pytest.raises(ValueError, match="answers holds two rows of the same window and group"):
        relative_error(twice, twice.slice(0, 1), pa.array([1]), ["g"], ["v"])


def test_needed_slack_is_exact_to_the_microsecond() -> None:
    assert needed_slack(np.array([7_000_001, 7_000_000]), np.array([4_000_000, 8_000_000])).tolist() == [3.000001, 0.0]


def test_needed_slack_on_a_grid_is_where_the_error_stays_small() -> None:
    grid = np.array([0.0, 60.0, 120.0])
    errors = np.array([[0.0, 0.01, 0.0], [0.0, 0.5, 0.0], [0.5, 0.5, 0.5], [0.5, 0.0, np.nan]])
    assert needed_slack_on_grid(errors, grid, 0.02).tolist() == [0.0, 120.0, 120.0, 120.0]
    assert needed_slack_on_grid(np.zeros((0, 3)), grid, 0.02).tolist() == []
    with pytest.raises(ValueError, match="ascend"):
        needed_slack_on_grid(errors, grid[::-1], 0.02)


def test_no_winners_are_covered_by_any_slack() -> None:
    assert accuracy_at(NOTHING, 0) == 1
    assert oracle_slack(NOTHING, 0.95) == 0
    assert choose_slack(NOTHING, 0.95, fallback_s=60) == SlackChoice(60.0, None, 0, "fallback")


def test_chosen_slack_is_rounded_up_to_whole_seconds() -> None:
    assert choose_slack(np.full(50, 3.000001), 0.9).slack_s == 4
    assert choose_slack(np.full(50, 3.0), 0.9).slack_s == 3


def test_too_few_winners_make_the_largest_the_choice() -> None:
    needed = np.arange(18.0)
    assert choose_slack(needed, 0.95).method == "largest"  # rank 19 of 18
    assert choose_slack(np.arange(19.0), 0.95) == SlackChoice(18.0, 1.0, 19, "conformal")
    assert choose_slack(needed, 1.0).slack_s == 17


def test_a_confidence_raises_the_rank() -> None:
    needed = np.arange(1, 1001.0)
    assert choose_slack(needed, 0.95).slack_s == 951
    assert choose_slack(needed, 0.95, confidence=0.95).slack_s == 962  # scipy: binom.ppf(0.95, 1000, 0.95) + 1
    assert choose_slack(needed[:58], 0.95, confidence=0.95).method == "largest"
    assert choose_slack(needed[:59], 0.95, confidence=0.95) == SlackChoice(59.0, 1.0, 59, "tolerance")


def test_weights_make_it_the_mean_over_windows() -> None:
    needed, weights = np.array([0.0, 0.0, 0.0, 10.0]), np.array([1 / 3, 1 / 3, 1 / 3, 1.0])
    assert accuracy_at(needed, 0) == 0.75
    assert accuracy_at(needed, 0, weights) == pytest.approx(0.5)
    assert oracle_slack(needed, 0.7) == 0
    assert oracle_slack(needed, 0.7, weights) == 10
    with pytest.raises(ValueError, match="weights must be positive"):
        accuracy_at(needed, 0, np.array([1.0, 0.0, 1.0, 1.0]))


def test_targets_and_confidences_outside_their_range_are_refused() -> None:
    with pytest.raises(ValueError, match="target"):
        choose_slack(np.ones(3), 95)
    with pytest.raises(ValueError, match="target"):
        oracle_slack(np.ones(3), 0)
    with pytest.raises(ValueError, match="confidence"):
        choose_slack(np.ones(3), 0.5, confidence=1.0)
