"""Laws of the recursive pass: nested samples, a bounded store, aligned leaves, no trace of the order of runs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.declarations.models import History
from tidegate.operators.history.thinning import (
    Leaves,
    Pass,
    add_up,
    exponential_targets,
    inverse_age_targets,
    plan_pass,
    relabel_rows,
    thin,
)

SECOND_US = 1_000_000
counts = st.lists(st.integers(0, 300), min_size=1, max_size=60).map(lambda n: np.array(n, dtype=np.int64))


@given(counts, st.floats(1, 1e4))
def test_theorem_1_holds_for_any_rates(tuples: np.ndarray, capacity: float) -> None:
    held = float((tuples * exponential_targets(tuples, capacity)).sum())
    assert held <= capacity * -np.expm1(-tuples.sum() / capacity) * (1 + 1e-12) + 1e-9


@given(counts, st.integers(1, 5_000))
def test_targets_fall_with_age(tuples: np.ndarray, capacity: int) -> None:
    for law in (exponential_targets, inverse_age_targets):
        target = law(tuples, capacity)
        assert ((target > 0) | (tuples.sum() > 700 * capacity)).all() and (target <= 1).all()
        assert (np.diff(target) >= 0).all()


def test_inverse_age_holds_the_capacity() -> None:
    tuples = np.full(10_000, 100)
    held = (tuples * inverse_age_targets(tuples, 5_000)).sum()
    assert held == pytest.approx(5_000, rel=0.01)


@given(st.lists(st.floats(0, 1, exclude_max=True), max_size=50), st.floats(0, 1), st.floats(0, 1))
def test_samples_are_nested(u: list[float], f: float, g: float) -> None:
    priorities = np.array(u)
    low, high = thin(priorities, min(f, g)), thin(priorities, max(f, g))
    assert not (low & ~high).any()
    assert (thin(priorities[high], min(f, g)) == low[high]).all()


@st.composite
def stores(draw: st.DrawFn) -> tuple[History, np.ndarray, np.random.Generator]:
    spec = History(
        leaf_s=1,
        capacity_tuples=draw(st.integers(1, 300)),
        max_fraction=draw(st.sampled_from([0.3, 0.9, 1.0])),
        min_fraction=draw(st.sampled_from([1e-9, 0.001, 0.05])),
        merge_leaves=draw(st.sampled_from([1, 2, 3, 6])),
    )
    return spec, draw(counts), np.random.default_rng(draw(st.integers(0, 2**32)))


def fresh(tuples: np.ndarray, start: int, spec: History) -> Leaves:
    """Leaves of one second each as the sampler leaves them; seconds without tuples have none."""
    at = np.flatnonzero(tuples)
    start_us = (start + at) * SECOND_US
    return Leaves(start_us, start_us + SECOND_US, tuples[at], np.full(len(at), spec.max_fraction))


@settings(deadline=None)
@given(stores(), st.integers(-20, 20))
def test_passes_keep_their_promises(store: tuple[History, np.ndarray, np.random.Generator], start: int) -> None:
    spec, tuples, rng = store
    leaves, u_of = fresh(tuples, start, spec), rng.random(int(tuples.sum()))
    leaf_of = np.repeat(np.arange(len(leaves)), leaves.tuples)
    kept = thin(u_of, spec.max_fraction)
    u, leaf_of = u_of[kept], leaf_of[kept]
    for _ in range(4):
        before = leaves
        leaves = plan_pass(before, u, leaf_of, spec)
        if len(before) == 0:
            return
        # Every old leaf lies in one new leaf, tuples are neither lost nor gained, fractions never rise.
        at = np.searchsorted(leaves.start_us, before.start_us, side="right") - 1
        assert (leaves.start_us[at] <= before.start_us).all() and (before.end_us <= leaves.end_us[at]).all()
        assert (np.bincount(at, weights=before.tuples, minlength=len(leaves)) == leaves.tuples).all()
        assert (leaves.fraction[at] <= before.fraction).all()
        assert ((leaves.fraction == 0) | (leaves.fraction >= spec.min_fraction * (1 - 1e-9))).all()
        # Leaves are whole cells of the grid of their own length, which is a power of C.
        length = leaves.end_us - leaves.start_us
        assert (leaves.start_us % length == 0).all()
        assert leaves.start_us[0] == before.start_us[0] and leaves.end_us[-1] == before.end_us[-1]
        if spec.merge_leaves > 1:
            power = np.log(length / SECOND_US) / np.log(spec.merge_leaves)
            assert np.allclose(power, power.round())
        kept = thin(u, leaves.fraction[at][leaf_of])
        u, leaf_of = u[kept], at[leaf_of[kept]]
        assert len(u) <= spec.capacity_tuples
        # New tuples come at the right before the next pass.
        more = rng.integers(0, 50, 20)
        young = fresh(more, int(leaves.end_us[-1] // SECOND_US), spec)
        young_u = rng.random(int(young.tuples.sum()))
        young_leaf = np.repeat(np.arange(len(young)), young.tuples) + len(leaves)
        entering = thin(young_u, spec.max_fraction)
        leaves = Leaves(
            np.append(leaves.start_us, young.start_us),
            np.append(leaves.end_us, young.end_us),
            np.append(leaves.tuples, young.tuples),
            np.append(leaves.fraction, young.fraction),
        )
        u, leaf_of = np.append(u, young_u[entering]), np.append(leaf_of, young_leaf[entering])


def test_the_store_has_the_expected_size() -> None:
    """Binomial thinning: within 4·sqrt(D) of D·(1 − e^(−n/D)), and the leaves are few and of growing length."""
    spec = History(leaf_s=1, capacity_tuples=2_000, max_fraction=1.0, min_fraction=1e-12, merge_leaves=6)
    rng = np.random.default_rng(5)
    tuples = rng.poisson(40, 1_000)
    leaves = fresh(tuples, 0, spec)
    u = rng.random(int(tuples.sum()))
    decided = plan_pass(leaves, u, np.repeat(np.arange(1_000), tuples), spec)
    at = np.repeat(np.searchsorted(decided.start_us, leaves.start_us, side="right") - 1, tuples)
    kept = int(thin(u, decided.fraction[at]).sum())
    assert abs(kept - 2_000) <= 4 * np.sqrt(2_000)
    length = (decided.end_us - decided.start_us) // SECOND_US
    assert set(length.tolist()) == {1, 6, 36, 216} and len(decided) < 200
    # Every merged leaf holds about as many sampled tuples as a fresh one.
    assert (decided.tuples * decided.fraction).max() <= 1.5 * tuples.max()


def rows(spec: list[tuple[str, int, int, int, float, float | None]]) -> pa.Table:
    interval, start, end, tuples, fraction, total = zip(*spec, strict=True)
    time = pa.timestamp("us", tz="UTC")
    return pa.table(
        {
            "stream": ["s"] * len(spec),
            "leaf_start": pa.array(start, time),
            "leaf_end": pa.array(end, time),
            "tuples": tuples,
            "sampled": tuples,
            "fraction": fraction,
            "x_count": [0 if t is None else n for n, t in zip(tuples, total, strict=True)],
            "x_sum": pa.array(total, pa.float64()),
            "x_min": pa.array(total, pa.float64()),
            "x_max": pa.array(total, pa.float64()),
            "interval": interval,
        }
    )


def test_a_pass_adds_up_the_rows_of_a_leaf_within_an_interval() -> None:
    before = rows(
        [("a", 0, 1, 2, 0.9, 1.0), ("a", 1, 2, 3, 0.5, -4.0), ("a", 5, 6, 1, 0.9, None), ("b", 1, 2, 7, 0.5, 2.0)]
    )
    leaves = Leaves(np.array([0, 5]), np.array([2, 6]), np.array([12, 1]), np.array([0.25, 0.8]))
    after = relabel_rows(before, Pass(10, leaves)).drop(["stream", "x_count"]).to_pylist()
    values = [[r["interval"], r["tuples"], r["fraction"], r["x_sum"], r["x_min"], r["x_max"]] for r in after]
    assert values == [
        ["a", 5, 0.25, -3.0, -4.0, 1.0],
        ["a", 1, 0.8, None, None, None],
        ["b", 7, 0.25, 2.0, 2.0, 2.0],
    ]
    assert relabel_rows(relabel_rows(before, Pass(10, leaves)), Pass(10, leaves)).equals(
        relabel_rows(before, Pass(10, leaves))
    )


@given(st.permutations(range(8)))
def test_adding_up_does_not_depend_on_the_order_of_rows(order: list[int]) -> None:
    table = rows([("a", i % 2, i % 2 + 1, i, 0.5, [1e16, 1.0, -1e16, 3.0, 0.1, 0.2, 0.3, None][i]) for i in range(8)])
    keys = ("interval", "stream", "leaf_start")
    assert add_up(table.take(pa.array(order)), keys).equals(add_up(table, keys))


def test_leaves_that_a_pass_does_not_know_stay_as_they_are() -> None:
    decided = Pass(10, Leaves(np.array([0]), np.array([6]), np.array([3]), np.array([0.2])))
    start, end, fraction = decided.relabel(np.array([0, 5, 6, 0]), np.array([1, 6, 7, 36]), np.full(4, 0.9))
    assert start.tolist() == [0, 0, 6, 0] and end.tolist() == [6, 6, 7, 36]
    assert fraction.tolist() == [0.2, 0.2, 0.9, 0.9]
