"""Exact aggregates of leaves: the same bits whatever the batches."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from tidegate.declarations.models import from_us
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
    event = leaf + rng.integers(0, 60, rows)
    x = pa.array(rng.standard_cauchy(rows).round(1), mask=rng.random(rows) < 0.1)
    kind = pa.array(rng.choice(["a", "b", None], rows))
    n = pa.array(rng.integers(-9, 9, rows))

    def add(to: LeafAggregator, at: np.ndarray) -> LeafAggregator:
        rows_of = {"x": x.take(pa.array(at)), "n": n.take(pa.array(at)), "kind": kind.take(pa.array(at))}
        to.add(part[at], leaf[at], event[at], rows_of)
        return to

    once = add(LeafAggregator(["x", "n"], ["kind"]), np.arange(rows))
    whole = once.to_arrow()
    cut = LeafAggregator(["x", "n"], ["kind"])
    for piece in np.array_split(rng.permutation(rows), 17):
        cut.merge(add(LeafAggregator(["x", "n"], ["kind"]), piece).partials())
    assert cut.to_arrow().equals(whole)
    groups = cut.to_arrow(grouped=True)
    assert groups.equals(once.to_arrow(grouped=True))
    # Groups of a leaf add up to it, the missing one included, and one of them has its extreme.
    added = groups.group_by(["part", "leaf_start_us"]).aggregate([("tuples", "sum"), ("x_min", "min")])
    by_leaf = {(r["part"], r["leaf_start_us"]): (r["tuples_sum"], r["x_min_min"]) for r in added.to_pylist()}
    assert by_leaf == {(r["part"], r["leaf_start_us"]): (r["tuples"], r["x_min"]) for r in whole.to_pylist()}
    assert set(groups.column("group_value").to_pylist()) == {"a", "b", None}
    assert sum(whole.column("tuples").to_pylist()) == rows
    assert sum(whole.column("x_count").to_pylist()) == rows - x.null_count


def test_aggregates_are_those_of_the_definition() -> None:
    leaves = LeafAggregator(["x"])
    event_us = np.array([7, 1, 9, 2, 5, 6])
    leaves.add(np.array([0, 0, 0, 1, 0, 0]), np.zeros(6, np.int64), event_us,
               {"x": pa.array([2.0, None, -3.0, None, 2.0, -3.0])})  # fmt: skip
    first, second = leaves.to_arrow().to_pylist()
    # An extreme that occurs twice has the earlier time.
    times = {f"x_{name}_time": from_us(at) for name, at in (("min", 6), ("max", 5))}
    assert first == {
        "part": 0, "leaf_start_us": 0, "tuples": 5,
        "x_count": 4, "x_sum": -2.0, "x_min": -3.0, "x_max": 2.0, "x_sum_squares": 26.0, **times,
    }  # fmt: skip
    assert (second["tuples"], second["x_count"], second["x_sum"], second["x_min"]) == (1, 0, None, None)


def test_nothing_in_nothing_out() -> None:
    leaves = LeafAggregator(["x"])
    leaves.add(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), {"x": pa.array([], pa.float64())})
    assert leaves.to_arrow().num_rows == leaves.partials().num_rows == 0


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_ingest_refuses_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="NaN or infinity"):
        LeafAggregator(["x"]).add(
            np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64), {"x": pa.array([value])}
        )
