"""Window sizing against the linear program, brute-force partitions and tick-by-tick simulations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from tidegate.operators.window_sizing import (
    NOT_YET_US,
    UNBOUNDED_US,
    ControllerSpec,
    ControllerState,
    EffectiveBounds,
    Needs,
    QueryNeed,
    SizedQuery,
    SizedStream,
    WindowNeed,
    advance,
    live_widths,
    plan,
    step,
)
from tidegate.operators.window_sizing.b_support import b_support
from tidegate.operators.window_sizing.c_support import Swings, serial_groups, swings
from tidegate.operators.window_sizing.oracle import greedy_b_widths, least_share_bytes, simulated_lower_us


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


@settings(max_examples=200, deadline=None)
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


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.0, 1.6), quantum=st.sampled_from([1.0, 7.0, 60.0]))
def test_live_widths_are_whole_quanta_within_the_budget(seed, share, quantum):
    rng = np.random.default_rng(seed)
    needs = _random_needs(rng, int(rng.integers(1, 6)), int(rng.integers(1, 12)))
    budget = needs.bytes_of(needs.max_t) * share
    level, widths = live_widths(needs, budget, quantum)
    assert needs.bytes_of(widths) <= budget
    assert widths / quantum == pytest.approx(np.round(widths / quantum), abs=1e-6)
    if level == "A":
        assert (widths >= needs.max_t - 1e-6).all()
    if level == "B":
        assert (widths >= needs.min_t - 1e-6).all()


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


_PLANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60)), min_size=1, max_size=5, unique_by=lambda p: p[0])


@settings(max_examples=300, deadline=None)
@given(plans=_PLANS, initial=st.none() | st.integers(-80, 0), tick=st.sampled_from([1, 5, 7]))
def test_bounds_equal_a_simulation(plans, initial, tick):
    plans = sorted(plans)
    start, until = plans[0][0], plans[-1][0] + 80
    bounds = EffectiveBounds.of([u for u, _ in plans], [w for _, w in plans], initial, until)

    def width_at(t: int) -> int:
        return [w for u, w in plans if u <= t][-1]

    instants = np.arange(start, until)
    lower = simulated_lower_us(plans, UNBOUNDED_US if initial is None else initial, width_at, start, until)
    assert bounds.lower_us(instants).tolist() == lower
    assert bounds.width_s(instants).tolist() == [
        (t - low) / 1e6 for t, low in zip(range(start, until), lower, strict=True)
    ]
    events = np.arange(-120, until + 5)
    ticks = [(t, low) for t, low in zip(range(start, until), lower, strict=True) if t % tick == 0]
    left = [next((t for t, low in ticks if low > event), NOT_YET_US) for event in events.tolist()]
    assert bounds.leave_tick_us(events, tick).tolist() == left


@settings(max_examples=200, deadline=None)
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


_TICK = 60_000_000


def _two_stream_spec(budget: float) -> ControllerSpec:
    return ControllerSpec(
        streams=(SizedStream("a", 0.2, 50.0, max_width_s=5400.0), SizedStream("b", 0.1, 80.0)),
        queries=(
            SizedQuery("always", {"a": 1800.0, "b": 600.0}, {"a": 900.0, "b": 300.0}, 60.0),
            SizedQuery("guest", {"a": 3600.0}, {"a": 400.0}, 300.0, active_from_us=30 * _TICK, active_to_us=90 * _TICK),
        ),
        memory_budget_bytes=budget,
        tick_us=_TICK,
        rate_change=0.3,
        half_life_s=600.0,
    )


_RATES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(1, 30)), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    bursts=_RATES, budget=st.sampled_from([5_000.0, 20_000.0, 60_000.0]), cuts=st.sets(st.integers(1, 119), max_size=6)
)
def test_the_controller_does_not_see_how_ticks_are_split_into_runs(bursts, budget, cuts):
    spec = _two_stream_spec(budget)
    counts = [(a, b) for a, b, ticks in bursts for _ in range(ticks)]
    counts = (counts * 120)[:120]
    state, rows = ControllerState.initial(spec), []
    for i, (a, b) in enumerate(counts):
        state, new = step(spec, state, i * _TICK, {"a": a, "b": b}, {"a": a * 55.0, "b": b * 90.0})
        rows.extend(new)
        if i in cuts:
            state = ControllerState.from_arrow(state.to_arrow(), spec)
    whole, every = ControllerState.initial(spec), []
    for i, (a, b) in enumerate(counts):
        whole, new = step(spec, whole, i * _TICK, {"a": a, "b": b}, {"a": a * 55.0, "b": b * 90.0})
        every.extend(new)
    assert rows == every and state == whole
    for instant in {row.effective_from_us for row in rows}:
        at = [row for row in rows if row.effective_from_us == instant]
        assert [row.stream for row in at] == ["a", "b"]
        assert sum(row.planned_bytes for row in at) <= budget * (1 + 1e-12)
        assert all(row.width_s % 60.0 == 0.0 for row in at)
        if at[0].support_level in ("A", "B"):
            assert all(row.width_s >= row.min_width_s for row in at)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), cuts=st.sets(st.integers(1, 47), max_size=5))
def test_any_split_of_the_range_gives_the_same_rates_and_plans(seed, cuts):
    rng = np.random.default_rng(seed)
    spec = _two_stream_spec(20_000.0)
    end = 48 * 5 * _TICK
    arrivals = {s: rng.integers(0, end, int(rng.integers(0, 3000))) for s in ("a", "b")}
    sizes = {s: rng.uniform(20, 200, len(arrivals[s])) for s in arrivals}

    def run(edges: list[int]):
        state, rates, plans = ControllerState.initial(spec), [], []
        for start, stop in zip(edges[:-1], edges[1:], strict=True):
            within = {s: (arrivals[s] >= start) & (arrivals[s] < stop) for s in arrivals}
            order = {s: rng.permutation(int(within[s].sum())) for s in arrivals}
            state, new_rates, new_plans = advance(
                spec,
                ControllerState.from_arrow(state.to_arrow(), spec),
                start,
                stop,
                {s: arrivals[s][within[s]][order[s]] for s in arrivals},
                {s: sizes[s][within[s]][order[s]] for s in arrivals},
            )
            rates.extend(new_rates)
            plans.extend(new_plans)
        return state, rates, plans

    assert run([0, *(5 * _TICK * cut for cut in sorted(cuts)), end]) == run([0, end])
