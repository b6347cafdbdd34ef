"""Laws of the recursive pass: nested samples, whole bands, a bounded store, aligned leaves, no trace of the order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegate.declarations.models import History
from tidegate.operators.history.bands import Bands, initial_levels, plan_levels
from tidegate.operators.history.laws import exponential_targets, inverse_age_targets
from tidegate.operators.history.thinning import Leaves, Pass, add_up, latest_us, merge_leaves, relabel_rows, thin

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
        min_fraction=draw(st.sampled_from([0.0, 1e-9, 0.001, 0.05])),
        merge_leaves=draw(st.sampled_from([1, 2, 3, 6])),
        law=draw(st.sampled_from(["exponential", "inverse_age"])),
        bands=draw(st.sampled_from([1, 2, 4])),
    )
    return spec, draw(counts), np.random.default_rng(draw(st.integers(0, 2**32)))


def band_rows(u: np.ndarray, period: np.ndarray, periods: int, bands: Bands) -> np.ndarray:
    rows, band = np.zeros((periods, bands.count), np.int64), bands.of_priority(u)
    np.add.at(rows, (period[band >= 0], band[band >= 0]), 1)
    return rows


@settings(max_examples=examples(100), deadline=None)
@given(stores())
def test_passes_keep_their_promises(store: tuple[History, np.ndarray, np.random.Generator]) -> None:
    spec, tuples, rng = store
    bands, level = Bands.of(spec), np.zeros(len(tuples), np.int64)
    u = rng.random(int(tuples.sum()))
    for _ in range(4):
        rows = band_rows(u, np.repeat(np.arange(len(tuples)), tuples), len(tuples), bands)
        planned = plan_levels(tuples, rows, level, spec)
        # Levels never fall, what they keep are whole bands, and at most D tuples stay.
        assert (planned >= level).all() and planned.max(initial=0) <= bands.count
        kept = thin(u, np.repeat(bands.fractions[planned], tuples))
        assert kept.sum() <= spec.capacity_tuples
        assert (kept == (bands.of_priority(u) >= np.repeat(planned, tuples)) & (u < spec.max_fraction)).all()
        assert (plan_levels(tuples, rows, planned, spec) == planned).all()
        more = rng.integers(0, 200, 3)
        tuples, level = (
            np.append(tuples, more),
            np.append(planned, initial_levels(more, 100.0, np.full(3, 8), bands)[0]),
        )
        u = np.append(u, rng.random(int(more.sum())))


@given(stores(), st.integers(-20, 20))
def test_leaves_merge_on_the_grid(store: tuple[History, np.ndarray, np.random.Generator], start: int) -> None:
    spec, tuples, _ = store
    at = np.flatnonzero(tuples)
    start_us = (start + at) * SECOND_US
    before = Leaves(start_us, start_us + SECOND_US, tuples[at], np.full(len(at), 0.5))
    for _ in range(3):
        leaves = merge_leaves(before, spec)
        if len(before) == 0:
            return
        # Every old leaf lies in one new leaf, tuples are neither lost nor gained.
        index = np.searchsorted(leaves.start_us, before.start_us, side="right") - 1
        assert (leaves.start_us[index] <= before.start_us).all() and (before.end_us <= leaves.end_us[index]).all()
        assert (np.bincount(index, weights=before.tuples, minlength=len(leaves)) == leaves.tuples).all()
        # Leaves are whole cells of the grid of their own length, which is a power of C.
        length = leaves.end_us - leaves.start_us
        assert (leaves.start_us % length == 0).all()
        assert leaves.start_us[0] == before.start_us[0] and leaves.end_us[-1] == before.end_us[-1]
        if spec.merge_leaves > 1:
            power = np.log(length / SECOND_US) / np.log(spec.merge_leaves)
            assert np.allclose(power, power.round())
        before = leaves


@given(
    st.lists(st.integers(0, 10_000), min_size=1, max_size=30),
    st.floats(0, 1e4),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 48),
)
def test_what_enters_stays_within_the_room(tuples: list[int], room: float, per_halving: int, periods: int) -> None:
    """In expectation; and where there is room for all, all enter at f_max."""
    bands = Bands(0.9, per_halving, 20)
    left = np.maximum(periods - np.arange(len(tuples)), 1)
    levels, after = initial_levels(np.array(tuples), room, left, bands)
    taken = (np.array(tuples) * bands.fractions[levels]).sum()
    assert taken <= room + 1e-6 and after[-1] == pytest.approx(room - taken, abs=1e-6)
    if room >= 0.9 * 8 * sum(tuples):
        assert (levels == 0).all()


@pytest.mark.parametrize("law", ["exponential", "inverse_age"])
def test_the_store_is_full_and_the_recent_past_is_denser(law: str) -> None:
    """The scale is solved for, so rounding to bands leaves no budget unused but a period's worth of the last step."""
    spec = History(leaf_s=1, capacity_tuples=2_000, max_fraction=1.0, min_fraction=1e-4, law=law)  # type: ignore[arg-type]
    rng, bands = np.random.default_rng(5), Bands.of(spec)
    tuples = rng.poisson(40, 1_000)
    u = rng.random(int(tuples.sum()))
    rows = band_rows(u, np.repeat(np.arange(1_000), tuples), 1_000, bands)
    fraction = bands.fractions[plan_levels(tuples, rows, np.zeros(1_000, np.int64), spec)]
    assert 0.97 * 2_000 <= thin(u, np.repeat(fraction, tuples)).sum() <= 2_000
    assert (np.diff(fraction) >= 0).all() and fraction[-1] > 0.7
    # After 20 capacities the exponential has kept nothing; the other law keeps 1 in 200 or so of the oldest.
    assert fraction[0] == 0 if law == "exponential" else 0.002 < fraction[0] < 0.02


def test_bands_agree_with_fractions() -> None:
    """Also at the edges themselves: a priority equal to a fraction is beyond it."""
    bands = Bands(0.9, 2, 12)
    for level, fraction in enumerate(bands.fractions[:-1]):
        assert bands.level_at_most(np.array([fraction]))[0] == level
        edges = np.array([fraction, np.nextafter(fraction, 0)])
        assert (bands.of_priority(edges) == [level - 1, level]).all()


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
        [("a", 0, 1, 2, 0.9, 1.0), ("a", 1, 2, 3, 0.9, -4.0), ("a", 5, 6, 1, 0.9, None), ("b", 1, 2, 7, 0.5, 2.0)]
    )
    leaves = Leaves(np.array([0, 5]), np.array([2, 6]), np.array([12, 1]), np.array([0.25, 0.8]))
    after = relabel_rows(before, Pass(10, leaves)).drop(["stream", "x_count"]).to_pylist()
    values = [[r["interval"], r["tuples"], r["fraction"], r["x_sum"], r["x_min"], r["x_max"]] for r in after]
    assert values == [
        ["a", 5, 0.9, -3.0, -4.0, 1.0],
        ["a", 1, 0.9, None, None, None],
        ["b", 7, 0.5, 2.0, 2.0, 2.0],
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
    start, end = decided.relabel(np.array([0, 5, 6, 0]), np.array([1, 6, 7, 36]))
    assert start.tolist() == [0, 0, 6, 0] and end.tolist() == [6, 6, 7, 36]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-(10**15), 10**15)), min_size=1))
def test_the_latest_of_each_group_is_found_before_1970_too(entries: list[tuple[int, int]]) -> None:
    numbers = sorted({group for group, _ in entries})
    group = np.array([numbers.index(g) for g, _ in entries])
    latest = latest_us(group, np.array([time for _, time in entries]), len(numbers))
    assert latest.tolist() == [max(time for g, time in entries if g == number) for number in numbers]
