"""Window sizing against the linear program, brute-force partitions and tick-by-tick simulations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from tests.examples import examples

from tidegate.operators.window_sizing import (
    NOT_YET_US,
    UNBOUNDED_US,
    EffectiveBounds,
    LivePlan,
    Needs,
    QueryNeed,
    WindowNeed,
    live_plan,
    plan,
)
from tidegate.operators.window_sizing.b_support import b_support
from tidegate.operators.window_sizing.c_support import Swings, serial_groups, swings
from tidegate.operators.window_sizing.live_planning import SwingingQuery, in_phase
from tidegate.operators.window_sizing.oracle import greedy_b_widths, least_share_bytes


def _random_needs(rng: np.random.Generator, windows: int, queries: int, *, whole: bool = False) -> Needs:
    """A random instance; ``whole``: small integers, so that ties and equal ranges abound."""

    def draw(low: float, high: float) -> float:
        return float(rng.integers(int(low), int(high))) if whole else float(rng.uniform(low, high))

    def query(i: int) -> QueryNeed:
        read = rng.choice(windows, size=int(rng.integers(1, min(3, windows) + 1)), replace=False)
        ranges = {f"w{w}": draw(1, 12 if whole else 1000) for w in read}
        slack = draw(0, 6 if whole else 300)
        return QueryNeed(f"q{i}", ranges, slack, draw(1, 20 if whole else 500), draw(1, 4), int(rng.integers(0, 3)))

    needs = [WindowNeed(f"w{w}", 0.0 if rng.random() < 0.1 else draw(1, 5 if whole else 50)) for w in range(windows)]
    return Needs.of(needs, [query(i) for i in range(queries)])


def _linear_program_error_s(needs: Needs, budget: float) -> float:
    """Least weighted accumulated error: variables are widths and each entry's missing seconds."""
    d, e = len(needs.window_ids), len(needs.range_s)
    weights = needs.weight[needs.entry_query]
    rows = np.zeros((e + 1, d + e))
    rows[np.arange(e), needs.entry_window] = -1.0
    rows[np.arange(e), d + np.arange(e)] = -1.0
    rows[e, :d] = needs.byte_rate
    limits = np.append(-needs.range_s, budget)
    bounds = [(low, high) for low, high in zip(needs.min_t, needs.max_t, strict=True)] + [(0, None)] * e
    cost = np.append(np.zeros(d), weights)
    solved = linprog(cost, A_ub=rows, b_ub=limits, bounds=bounds, method="highs")
    assert solved.status == 0, solved.message
    return float(solved.fun)


@pytest.mark.parametrize("whole", [False, True], ids=["real", "whole"])
def test_b_support_equals_the_linear_program(whole):
    rng = np.random.default_rng(20040726)
    for _ in range(150):
        needs = _random_needs(rng, int(rng.integers(1, 7)), int(rng.integers(1, 16)), whole=whole)
        low, high = needs.bytes_of(needs.min_t), needs.bytes_of(needs.max_t)
        budget = low + (high - low) * float(rng.choice([0.0, rng.random(), 1.0], p=[0.1, 0.8, 0.1]))
        widths = b_support(needs, budget, needs.min_t)
        best = _linear_program_error_s(needs, budget)
        assert needs.accumulated_error_s(widths) == pytest.approx(best, rel=1e-9, abs=1e-6)
        assert needs.bytes_of(widths) <= budget
        assert (widths >= needs.min_t).all() and (widths <= needs.max_t).all()
        assert widths == pytest.approx(greedy_b_widths(needs, budget), rel=1e-9, abs=1e-6)


@settings(max_examples=examples(200), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.0, 1.6), whole=st.booleans())
def test_every_plan_keeps_the_budget_and_its_level_s_promise(seed, share, whole):
    rng = np.random.default_rng(seed)
    needs = _random_needs(rng, int(rng.integers(1, 6)), int(rng.integers(1, 12)), whole=whole)
    budget = needs.bytes_of(needs.max_t) * share
    planned = plan(needs, budget)
    widths = np.array([window.width_s for window in planned.windows])
    assert planned.planned_bytes <= budget and needs.bytes_of(widths) <= budget
    assert planned.needed.A >= planned.needed.B >= planned.needed.C
    if planned.support_level == "A":
        assert (widths >= needs.max_t).all() and planned.accumulated_error_s == 0.0
    if planned.support_level == "B":
        assert (widths >= needs.min_t).all() and budget < planned.needed.A
    if planned.support_level == "C":
        static = sum(window.static_bytes for window in planned.windows)
        assert static + sum(group.share_bytes for group in planned.groups) <= budget + 1e-6
        grouped = [window for group in planned.groups for window in group.windows]
        assert sorted(grouped) == sorted(w.id for w in planned.windows if w.group is not None)
    if planned.support_level == "infeasible":
        assert budget < planned.needed.C
        for q, query_id in enumerate(needs.query_ids):
            mine = needs.entry_query == q
            if query_id not in planned.unsupported:
                assert (widths[needs.entry_window[mine]] >= needs.tolerable_s[mine]).all()


@settings(max_examples=examples(150), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.0, 1.6), quantum=st.sampled_from([1.0, 7.0, 60.0]))
def test_live_plans_are_whole_quanta_within_the_budget(seed, share, quantum):
    rng = np.random.default_rng(seed)
    needs = _random_needs(rng, int(rng.integers(1, 6)), int(rng.integers(1, 12))).in_quanta(quantum)
    budget = needs.bytes_of(needs.max_t) * share
    planned = live_plan(needs, budget, quantum)
    assert planned.peak_bytes(needs.byte_rate) <= budget
    assert planned.planned_bytes(needs.byte_rate).sum() == pytest.approx(planned.peak_bytes(needs.byte_rate))
    swings = planned.slot_s > 0
    for seconds in (planned.width_s, planned.slot_s, planned.slot_offset_s, planned.period_s[swings]):
        assert seconds / quantum == pytest.approx(np.round(seconds / quantum), abs=1e-6)
    least = {"A": needs.max_t, "B": needs.min_t}.get(planned.support_level)
    assert least is None or (planned.width_s >= least - 1e-6).all()
    assert swings.any() <= (planned.support_level == "C") and planned.support_level != "C" or planned.carries(needs)


@settings(max_examples=examples(100), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_common_shift_serves_more_queries(seed):
    """Slots of one period against every shift in whole seconds."""
    rng = np.random.default_rng(seed)
    d, period = int(rng.integers(1, 5)), 12.0
    slot = rng.integers(1, 6, d).astype(float)
    offset = np.array([rng.integers(1, 13) - own for own in slot], dtype=float)
    planned = LivePlan("C", np.zeros(d), slot, offset, np.full(d, period), np.zeros(d, dtype=np.int64))
    waiting = [
        SwingingQuery(int(rng.integers(0, d)), float(rng.integers(-3, 15)), float(rng.integers(0, 25)))
        for _ in range(5)
    ]

    def in_time(shift: float, own: LivePlan) -> int:
        count = 0
        for query in waiting:
            end = (own.slot_offset_s + own.slot_s)[query.window] + shift
            ends = [end + k * period for k in range(-4, 6) if end + k * period > 0]
            count += min(e for e in ends if e >= query.ready_s) <= query.deadline_s
        return count

    shifted = in_phase(planned, waiting, 1.0)
    assert in_time(0.0, shifted) == max(in_time(float(shift), planned) for shift in range(12))
    ends = shifted.slot_offset_s + shifted.slot_s
    assert (ends > 0).all() and (ends <= period).all()
    assert len(set(np.mod(ends - (offset + slot), period).tolist())) == 1


@pytest.mark.parametrize("windows", [1, 2, 3, 4, 5, 6])
def test_dp_equals_every_partition_and_first_fit_is_no_better(windows):
    rng = np.random.default_rng(windows)
    for trial in range(60):
        if trial % 2:
            needs = _random_needs(rng, windows, 3 * windows, whole=trial % 4 == 1)
            swing = swings(needs)
        else:
            slots = rng.integers(1, 10, windows).astype(float)
            swing = Swings(slots, slots * rng.integers(1, 5, windows), np.zeros(windows), rng.uniform(1, 50, windows))
        movers = np.flatnonzero(swing.exchange_bytes > 0).tolist()
        optimum = least_share_bytes(swing, movers) if movers else 0.0
        exact, first_fit = serial_groups(swing, "dp"), serial_groups(swing, "ap")
        assert exact.share_bytes == pytest.approx(optimum, rel=1e-12)
        assert first_fit.share_bytes >= exact.share_bytes * (1 - 1e-12)
        assert first_fit.share_bound_bytes <= optimum * (1 + 1e-12)
        for found in (exact, first_fit):
            assert all(swing.serial(group) for group in found.groups)
            assert sorted(w for group in found.groups for w in group if w in movers) == movers


_SLOT = st.none() | st.tuples(st.integers(-9, 20), st.integers(1, 10), st.integers(10, 25))
_ROWS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 60), _SLOT), min_size=1, max_size=5, unique_by=lambda row: row[0]
)
_PLANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60)), min_size=1, max_size=5, unique_by=lambda p: p[0])


def _bound(row, t: int, before: bool) -> int:
    """What a plan alone has evicted by t: at a slot's end not yet before, but after."""
    start, width, slot = row
    for k in range(20) if slot else ():
        begin = start + slot[0] + k * slot[2]
        if begin < t <= begin + slot[1] if before else begin <= t < begin + slot[1]:
            return begin - width
    return t - width


@settings(max_examples=examples(300), deadline=None)
@given(rows=_ROWS, initial=st.none() | st.integers(-80, 0), tick=st.sampled_from([1, 5, 7]))
def test_bounds_equal_a_simulation(rows, initial, tick):
    rows = sorted(rows, key=lambda row: row[0])
    start, until = rows[0][0], rows[-1][0] + 90
    bounds = EffectiveBounds.from_rows(
        [u for u, _, _ in rows], [w for _, w, _ in rows], [s for *_, s in rows], initial, until
    )
    lower, lowers, befores = UNBOUNDED_US if initial is None else initial, [], []
    for t in range(start, until):
        old = next(row for row in reversed(rows) if row[0] < t or row is rows[0])
        befores.append(max(lower, _bound(old, t, before=True)))
        if t > start and any(row[0] == t for row in rows):
            lower = befores[-1]
        lower = max(lower, _bound(next(row for row in reversed(rows) if row[0] <= t), t, before=False))
        lowers.append(lower)
    instants = np.arange(start, until)
    assert bounds.lower_us(instants).tolist() == lowers
    assert bounds.lower_before_us(instants[1:]).tolist() == befores[1:]
    assert lowers == sorted(lowers)
    events = np.arange(-120, until + 5)
    ticks = [(t, low) for t, low in zip(range(start, until), lowers, strict=True) if t % tick == 0]
    left = [next((t for t, low in ticks if low > event), NOT_YET_US) for event in events.tolist()]
    assert bounds.leave_tick_us(events, tick).tolist() == left


@settings(max_examples=examples(200), deadline=None)
@given(plans=_PLANS, t=st.integers(0, 100))
def test_plans_older_than_the_widest_width_do_not_matter(plans, t):
    plans = sorted([(0, 30), *(p for p in plans if p[0] > 0)])
    instants = np.arange(t, t + 100)
    in_effect = [p for p in plans if p[0] <= t][-1:]
    later = [*in_effect, *(p for p in plans if p[0] > t)]
    reach = t - max(w for _, w in later)
    kept = [p for i, p in enumerate(plans) if i == len(plans) - 1 or plans[i + 1][0] > reach]
    whole = EffectiveBounds.of([u for u, _ in plans], [w for _, w in plans])
    recent = EffectiveBounds.of([u for u, _ in kept], [w for _, w in kept])
    assert recent.lower_us(instants).tolist() == whole.lower_us(instants).tolist()
