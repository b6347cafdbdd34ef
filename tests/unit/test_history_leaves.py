"""Exact aggregates of leaves: the same bits whatever the batches."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from tidegate.operators.history.leaves import LeafAggregator, exact_sums, to_double


def test_sums_are_rounded_once() -> None:
    rng = np.random.default_rng(1)
    values = rng.standard_normal(20_000) * 10.0 ** rng.integers(-300, 300, 20_000)
    groups = rng.integers(0, 40, 20_000)
    sums = [to_double(s) for s in exact_sums(values, groups, 40)]
    assert sums == [math.fsum(values[groups == g]) for g in range(40)]


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([1e16, 1.0, -1e16], 1.0),
        ([5e-324, 5e-324], 1e-323),
        ([-0.0, 0.0], 0.0),
        ([1.7e308, 1.7e308], math.inf),
        ([1.7e308, 1.7e308, -1.7e308], 1.7e308),
        ([-1.7e308, -1.7e308], -math.inf),
        ([], 0.0),
    ],
)
def test_sums_at_the_edges_of_the_doubles(values: list[float], total: float) -> None:
    numbers = np.array(values, dtype=np.float64)
    assert [to_double(s) for s in exact_sums(numbers, np.zeros(len(values), np.int64), 1)] == [total]


def test_batches_parts_and_order_leave_no_trace() -> None:
    rng = np.random.default_rng(2)
    rows = 5_000
    part, leaf = rng.integers(0, 3, rows), rng.integers(-5, 5, rows) * 60
    sampled = rng.random(rows) < 0.5
    x = pa.array(rng.standard_cauchy(rows), mask=rng.random(rows) < 0.1)
    n = pa.array(rng.integers(-9, 9, rows))

    def add(to: LeafAggregator, at: np.ndarray) -> LeafAggregator:
        to.add(part[at], leaf[at], sampled[at], {"x": x.take(pa.array(at)), "n": n.take(pa.array(at))})
        return to

    whole = add(LeafAggregator(["x", "n"]), np.arange(rows)).to_arrow()
    cut = LeafAggregator(["x", "n"])
    for piece in np.array_split(rng.permutation(rows), 17):
        cut.merge(add(LeafAggregator(["x", "n"]), piece).partials())
    assert cut.to_arrow().equals(whole)
    assert sum(whole.column("tuples").to_pylist()) == rows
    assert sum(whole.column("x_count").to_pylist()) == rows - x.null_count


def test_aggregates_are_those_of_the_definition() -> None:
    leaves = LeafAggregator(["x"])
    leaves.add(np.array([0, 0, 0, 1]), np.zeros(4, np.int64), np.array([True, False, True, False]),
               {"x": pa.array([2.0, None, -3.0, None])})  # fmt: skip
    first, second = leaves.to_arrow().to_pylist()
    assert first == {
        "part": 0, "leaf_start_us": 0, "tuples": 3, "sampled": 2,
        "x_count": 2, "x_sum": -1.0, "x_min": -3.0, "x_max": 2.0, "x_sum_squares": 13.0,
    }  # fmt: skip
    assert (second["tuples"], second["x_count"], second["x_sum"], second["x_min"]) == (1, 0, None, None)


def test_nothing_in_nothing_out() -> None:
    leaves = LeafAggregator(["x"])
    leaves.add(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, bool), {"x": pa.array([], pa.float64())})
    assert leaves.to_arrow().num_rows == leaves.partials().num_rows == 0


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_ingest_refuses_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="NaN or infinity"):
        LeafAggregator(["x"]).add(
            np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1, bool), {"x": pa.array([value])}
        )
