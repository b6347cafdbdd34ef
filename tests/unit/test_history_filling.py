"""Windows filled from history: exact where everything is known, covered where it is sampled, never 0 ± 0."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.operators.history.estimating import Sampled
from tidegate.operators.history.estimators import Bounds, Estimate, LeafSample
from tidegate.operators.history.filling import FilledAggregate, filled_expression

TRIALS, LEAVES, LEAF_TUPLES = 1_500, 12, 150


def part(
    function: str,
    held: list[float],
    missing: list[float],
    fraction: float = 1.0,
    unseen: int = 0,
    bounds: Bounds = None,
) -> FilledAggregate:
    """One leaf whose sample is ``missing``; ``unseen`` tuples of it were not sampled."""
    rows = len(missing)
    sample = LeafSample(np.array([rows + unseen]), np.array([fraction]), np.full(rows, fraction), 0.95)
    values = np.array(missing, dtype=np.float64)
    return FilledAggregate(function, np.array(held), Sampled(sample, np.ones(rows, bool), values, bounds))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "expected"), [("count", 5.0), ("sum", 21.0), ("avg", 4.2), ("min", 1.0), ("max", 9.0)]
)
def test_what_is_wholly_sampled_is_exact(function: str, expected: float) -> None:
    assert part(function, [4.0, 5.0], [9.0, 1.0, 2.0]).estimate() == Estimate.exactly(expected)


@pytest.mark.parametrize("function", ["sum", "avg", "min", "max"])
def test_nothing_at_all_is_null(function: str) -> None:
    assert part(function, [], []).estimate() == Estimate.exactly(None)


def test_what_was_held_and_seen_is_certain() -> None:
    found = part("count", [1.0] * 10, [1.0] * 5, fraction=0.1, unseen=45).estimate()
    assert found.low is not None
    assert found.low >= 15
    assert not found.exact


def test_an_empty_sample_of_something_is_no_estimate_of_a_count() -> None:
    found = part("count", [1.0] * 10, [], fraction=0.1, unseen=40).estimate()
    assert found.estimate is None
    assert found.low == 10
    assert found.high is not None
    assert 10 < found.high <= 50


@pytest.mark.parametrize(("function", "low", "high"), [("min", -3.0, 1.0), ("max", 6.0, 8.0)])
def test_an_extreme_may_lie_among_the_unseen(function: str, low: float, high: float) -> None:
    found = part(function, [1.0, 6.0], [2.0], fraction=0.5, unseen=3, bounds=(-3.0, 8.0)).estimate()
    assert (found.low, found.high) == (low, high)
    assert not found.exact
    # The held tuples reach as far as the leaf's tuples can.
    assert part(function, [-3.0, 8.0], [2.0], fraction=0.5, unseen=3, bounds=(-3.0, 8.0)).estimate().exact
    assert part(function, [], [], fraction=0.5, unseen=3, bounds=(-3.0, 8.0)).estimate().estimate is None


def test_a_null_expression_is_null() -> None:
    parts = [part("sum", [1.0], [1.0]), part("sum", [0.0], [0.0])]
    assert filled_expression(lambda v: np.where(v[:, 1] == 0, np.nan, v[:, 0]), parts) == Estimate.exactly(None)
    sampled = [part("sum", [1.0], [1.0, 2.0], 0.5, 2), part("sum", [0.0], [0.0, 0.0], 0.5, 2)]
    found = filled_expression(lambda v: np.full(len(v), np.nan), sampled)
    assert (found.estimate, found.low, found.high) == (None, None, None)


def test_an_expression_with_an_open_extreme_has_no_interval() -> None:
    parts = [
        part("max", [1.0, 6.0], [2.0], 0.5, 3, (-3.0, 8.0)),
        part("count", [1.0, 1.0], [1.0], 0.5, 3),
    ]
    found = filled_expression(lambda v: v[:, 0] / v[:, 1], parts)
    assert found.estimate is not None
    assert (found.low, found.high) == (None, None)


@pytest.mark.long
@pytest.mark.parametrize("fraction", [0.2, 0.6])
def test_intervals_cover_the_whole_window(fraction: float) -> None:
    """Nominal 95 %, 1 500 windows a statistic: the standard error is 0.56 points; three of them are 1.7.

    A third of the range is held, four tuples in ten qualify; 140 qualifying tuples or more are sampled.
    """
    rng = np.random.default_rng(20130208)
    tuples, hits = LEAVES * LEAF_TUPLES, {"count": 0, "sum": 0, "avg": 0, "ratio": 0}
    leaf = np.repeat(np.arange(LEAVES), LEAF_TUPLES)
    for _ in range(TRIALS):
        miles = rng.gamma(4.0, 200.0, tuples + tuples // 2)
        minutes = miles / 7 + rng.normal(25, 8, len(miles)).clip(1)
        chosen = rng.random(len(miles)) < 0.4
        kept = rng.random(tuples) < fraction
        sample = LeafSample(
            np.full(LEAVES, LEAF_TUPLES),
            np.full(LEAVES, fraction),
            np.full(int(kept.sum()), fraction),
            0.95,
            leaf[kept],
        )
        qualifies = chosen[:tuples][kept]

        def aggregate(
            function: str,
            values: np.ndarray,
            sample: LeafSample = sample,
            qualifies: np.ndarray = qualifies,
            kept: np.ndarray = kept,
            chosen: np.ndarray = chosen,
        ) -> FilledAggregate:
            held = values[tuples:][chosen[tuples:]]
            return FilledAggregate(function, held, Sampled(sample, qualifies, values[:tuples][kept]))  # type: ignore[arg-type]

        found = {name: aggregate(name, miles).estimate() for name in ("count", "sum", "avg")}
        found["ratio"] = filled_expression(
            lambda v: v[:, 0] / v[:, 1] * 60, [aggregate("avg", miles), aggregate("avg", minutes)]
        )
        own = miles[chosen]
        truth = {
            "count": len(own),
            "sum": own.sum(),
            "avg": own.mean(),
            "ratio": own.mean() / minutes[chosen].mean() * 60,
        }
        for name, value in truth.items():
            low, high = found[name].low, found[name].high
            assert low is not None
            assert high is not None
            assert low < high
            hits[name] += bool(low <= value <= high)
    for name, count in hits.items():
        assert abs(count / TRIALS - 0.95) <= 3 * np.sqrt(0.95 * 0.05 / TRIALS), name
