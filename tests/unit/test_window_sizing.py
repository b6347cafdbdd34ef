"""Laws of window sizing on small cases that can be worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from tidegate.operators.window_sizing import (
    NOT_YET_US,
    PLAN_SCHEMA,
    RATES_SCHEMA,
    STATE_SCHEMA,
    ControllerSpec,
    ControllerState,
    EffectiveBounds,
    Needs,
    QueryNeed,
    SizedQuery,
    SizedStream,
    TooManyWindowsError,
    WindowNeed,
    advance,
    advance_counts,
    live_widths,
    plan,
    plan_table,
    rates_table,
    step,
)
from tidegate.operators.window_sizing.a_support import a_support
from tidegate.operators.window_sizing.b_support import b_support
from tidegate.operators.window_sizing.c_support import Swings, serial_groups, swings

MINUTE = 60_000_000


def test_level_follows_from_the_budget_alone():
    needs = Needs.of(
        [WindowNeed("w", 2.0)], [QueryNeed("q", {"w": 60.0}, 30.0, delay_s=20.0), QueryNeed("p", {"w": 20.0})]
    )
    levels = {budget: plan(needs, budget).support_level for budget in (0.0, 59.9, 60.0, 119.9, 120.0, 1e9)}
    assert levels == {0.0: "infeasible", 59.9: "infeasible", 60.0: "B", 119.9: "B", 120.0: "A", 1e9: "A"}


def test_surplus_at_level_a_is_memory_in_proportion_to_the_widest_range():
    needs = Needs.of([WindowNeed("a", 1.0), WindowNeed("b", 4.0)], [QueryNeed("q", {"a": 10.0, "b": 30.0})])
    assert a_support(needs, 130.0 + 80.0).tolist() == [10.0 + 20.0, 30.0 + 60.0 / 4]


def test_what_a_cap_refuses_goes_to_the_others():
    windows = [WindowNeed("a", 1.0, max_width_s=12.0), WindowNeed("b", 1.0), WindowNeed("c", 1.0)]
    needs = Needs.of(windows, [QueryNeed("q", {"a": 10.0, "b": 10.0, "c": 20.0})])
    assert a_support(needs, 40.0 + 32.0).tolist() == [12.0, 10.0 + 10.0, 20.0 + 20.0]


def test_a_cap_below_the_widest_range_does_not_cut_it():
    needs = Needs.of([WindowNeed("a", 1.0, max_width_s=5.0)], [QueryNeed("q", {"a": 10.0})])
    assert a_support(needs, 100.0).tolist() == [10.0]


def test_windows_without_rate_get_their_widest_range_at_every_level():
    windows = [WindowNeed("free", 0.0), WindowNeed("w", 1.0)]
    needs = Needs.of(
        windows, [QueryNeed("q", {"free": 50.0, "w": 100.0}, 10.0, delay_s=5.0), QueryNeed("p", {"w": 1.0})]
    )
    for budget in (200.0, 95.0, 86.0, 10.0):
        assert plan(needs, budget).windows[0].width_s == 50.0


def test_windows_that_nobody_reads_get_nothing():
    needs = Needs.of([WindowNeed("idle", 1.0), WindowNeed("w", 1.0)], [QueryNeed("q", {"w": 10.0})])
    assert plan(needs, 1000.0).windows[0].width_s == 0.0


def test_equal_gains_go_to_the_smaller_id():
    needs = Needs.of([WindowNeed("b", 1.0), WindowNeed("a", 1.0)], [QueryNeed("q", {"a": 10.0, "b": 10.0}, 10.0)])
    assert b_support(needs, 12.0, needs.min_t).tolist() == [2.0, 10.0]


def test_weights_decide_between_windows():
    windows = [WindowNeed("a", 1.0), WindowNeed("b", 1.0)]
    queries = [QueryNeed("p", {"a": 10.0}, 10.0), QueryNeed("q", {"b": 10.0}, 10.0, weight=3.0)]
    needs = Needs.of(windows, queries)
    assert b_support(needs, 12.0, needs.min_t).tolist() == [2.0, 10.0]


def test_whole_quanta_are_spent_by_gain_and_then_where_they_fit():
    windows = [WindowNeed("a", 3.0), WindowNeed("b", 1.0)]
    queries = [QueryNeed("p", {"a": 60.0}, 60.0, weight=9.0), QueryNeed("q", {"b": 60.0}, 60.0)]
    level, widths = live_widths(Needs.of(windows, queries), 100.0, quantum_s=10.0)
    assert (level, widths.tolist()) == ("B", [30.0, 10.0])


def test_live_widths_keep_the_least_width_when_rounded():
    needs = Needs.of([WindowNeed("a", 1.0)], [QueryNeed("q", {"a": 3600.0}, 72.0)])
    assert live_widths(needs, 3599.0, quantum_s=300.0)[0] == "infeasible"  # 3528 s rounds up to 3600 s
    assert live_widths(needs, 3600.0, quantum_s=300.0)[1].tolist() == [3600.0]


def test_live_widths_below_level_b_are_scaled_down_within_the_budget():
    needs = Needs.of([WindowNeed("a", 1.0), WindowNeed("b", 2.0)], [QueryNeed("q", {"a": 600.0, "b": 1200.0})])
    level, widths = live_widths(needs, 1500.0, quantum_s=60.0)
    assert (level, widths.tolist()) == ("infeasible", [300.0, 600.0])
    assert needs.bytes_of(widths) <= 1500.0


def test_swing_of_a_window():
    queries = [
        QueryNeed("base", {"w": 100.0}, 10.0, delay_s=50.0),
        QueryNeed("tied", {"w": 90.0}, delay_s=40.0),
        QueryNeed("second", {"w": 70.0}, delay_s=1.0),
    ]
    swing = swings(Needs.of([WindowNeed("w", 2.0)], queries))
    assert (swing.min_d_s[0], swing.period_s[0]) == (20.0, 40.0)  # 90 − 70, the smaller delay of the tied
    assert (swing.static_bytes[0], swing.exchange_bytes[0]) == (140.0, 40.0)


def test_a_single_query_may_swing_from_nothing_but_not_longer_than_its_delay():
    swing = swings(Needs.of([WindowNeed("w", 1.0)], [QueryNeed("q", {"w": 100.0}, delay_s=30.0)]))
    assert swing.min_d_s[0] == 30.0


def _instance_c() -> Needs:
    windows = [WindowNeed("a", 3.0), WindowNeed("b", 2.0), WindowNeed("c", 1.0)]
    ranges = {"a": 10.0, "b": 10.0, "c": 10.0}
    return Needs.of(windows, [QueryNeed(f"q{w}", {w: r}, delay_s=21.0) for w, r in ranges.items()])


@pytest.mark.parametrize("method", ["dp", "ap", "exact"])
def test_windows_that_take_turns_share_the_dearest_exchange(method):
    planned = plan(_instance_c(), 41.0, method)
    assert planned.support_level == "C"
    assert [group.windows for group in planned.groups] == [("a", "b"), ("c",)]
    assert [group.share_bytes for group in planned.groups] == [30.0, 10.0]
    assert planned.needed.C == planned.planned_bytes == 40.0
    assert planned.needed.A == planned.needed.B == 60.0
    assert planned.optimal and planned.gap == 0.0


def test_first_fit_can_be_beaten():
    # First fit puts the two dearest together, and then neither of the long slots fits anywhere.
    slots = np.array([4.0, 3.0, 6.0, 7.0])
    swing = Swings(slots, np.full(4, 10.0), np.zeros(4), np.array([9.0, 8.0, 7.0, 7.0]))
    assert serial_groups(swing, "ap").groups == ((0, 1), (2,), (3,))
    assert serial_groups(swing, "ap").share_bytes == 23.0
    assert serial_groups(swing, "dp").groups == ((0, 2), (1, 3))
    assert serial_groups(swing, "dp").share_bytes == 17.0


def test_beyond_twenty_windows_dp_refuses_only_where_level_c_is_needed():
    windows = [WindowNeed(f"w{i:02}", 1.0 + i) for i in range(21)]
    queries = [QueryNeed(f"q{i:02}", {w.id: 10.0}, delay_s=25.0) for i, w in enumerate(windows)]
    needs = Needs.of(windows, queries)
    assert plan(needs, 1e6, "dp").support_level == "A"
    with pytest.raises(TooManyWindowsError, match="at most 20 windows .* here are 21; method ap"):
        plan(needs, 1500.0, "dp")
    assert plan(needs, 1500.0, "ap").support_level == "C"


def test_infeasible_admits_by_priority_and_says_who_loses():
    windows = [WindowNeed("a", 1.0), WindowNeed("b", 1.0)]
    queries = [
        QueryNeed("low", {"a": 100.0}, 10.0, delay_s=1.0),
        QueryNeed("high", {"b": 60.0}, 10.0, delay_s=1.0, priority=5),
        QueryNeed("small", {"a": 20.0}, delay_s=1.0, priority=-1),
    ]
    planned = plan(Needs.of(windows, queries), 75.0)
    assert planned.support_level == "infeasible"
    assert planned.unsupported == ("low",)
    assert planned.planned_bytes <= 75.0 < planned.needed.C
    assert planned.windows[1].width_s >= 50.0 and planned.windows[0].width_s >= 20.0
    assert plan(Needs.of(windows, queries), planned.needed.C).support_level != "infeasible"


def test_ids_are_unique_and_known():
    with pytest.raises(ValueError, match="unique"):
        Needs.of([WindowNeed("w", 1.0), WindowNeed("w", 1.0)], [])
    with pytest.raises(ValueError, match="unknown window 'v'"):
        Needs.of([WindowNeed("w", 1.0)], [QueryNeed("q", {"v": 1.0})])


# ---------------------------------------------------------------------------------------------------------------
# Effective bounds


def test_widening_takes_time_and_narrowing_does_not():
    bounds = EffectiveBounds.of([0, 100, 200], [50, 10, 50])
    assert bounds.width_s(np.array([99, 100, 200, 220, 300])).tolist() == [50e-6, 10e-6, 10e-6, 30e-6, 50e-6]


def test_a_window_that_counts_as_filled_and_one_that_does_not():
    assert EffectiveBounds.of([0], [50]).lower_us(np.array([0, 10])).tolist() == [-50, -40]
    assert EffectiveBounds.of([0], [50], initial_lower_us=-20).lower_us(np.array([0, 10, 40])).tolist() == [
        -20,
        -20,
        -10,
    ]


def test_a_tuple_leaves_at_the_first_tick_after_its_width():
    bounds = EffectiveBounds.of([0], [50], until_us=100)
    assert bounds.leave_tick_us(np.array([-60, -51, -50, -41, -40, 0, 39, 40]), 10).tolist() == [
        0,
        0,
        10,
        10,
        20,
        60,
        90,
        NOT_YET_US,
    ]


def test_of_two_plans_at_one_instant_the_later_given_counts():
    assert EffectiveBounds.of([0, 0], [50, 20]).lower_us(np.array([0])).tolist() == [-20]


def test_no_plan_no_bounds():
    with pytest.raises(ValueError, match="without any window plan"):
        EffectiveBounds.of([], [])


# ---------------------------------------------------------------------------------------------------------------
# Controller


def _spec(budget: float = 36_000.0, **changes) -> ControllerSpec:
    queries = changes.pop("queries", (SizedQuery("q", {"s": 3600.0}, {"s": 1800.0}, 300.0),))
    streams = (SizedStream("s", 0.1, 100.0, max_width_s=7200.0),)
    return ControllerSpec(streams, queries, budget, 5 * MINUTE, **changes)


def _run(spec, state, counts, first=0):
    rows = []
    for i, count in enumerate(counts):
        state, new = step(spec, state, first + i * spec.tick_us, {"s": count}, {"s": count * 100.0})
        rows.extend(new)
    return state, rows


def test_first_tick_plans_with_declared_rates():
    state, rows = _run(_spec(), ControllerState.initial(_spec()), [0])
    (row,) = rows
    assert (row.trigger, row.support_level, row.effective_from_us) == ("start", "A", 0)
    assert (row.width_s, row.min_width_s, row.max_width_s, row.byte_rate) == (3600.0, 1800.0, 3600.0, 10.0)
    assert row.planned_bytes == 36_000.0


def test_nothing_changes_nothing_is_planned():
    _, rows = _run(_spec(), ControllerState.initial(_spec()), [0] + [30] * 500)
    assert [row.trigger for row in rows] == ["start"]


def test_declared_rate_stands_until_the_first_arrival():
    state, rows = _run(_spec(), ControllerState.initial(_spec()), [0] * 50)
    assert state.stream("s").rate == 0.1 and len(rows) == 1 and state.stream("s").first_arrival_us is None
    state, _ = _run(_spec(), state, [3], first=50 * 5 * MINUTE)
    assert state.stream("s").first_arrival_us == 49 * 5 * MINUTE


def test_a_rate_that_moves_by_more_than_delta_makes_a_plan_and_the_level_falls():
    _, rows = _run(_spec(), ControllerState.initial(_spec()), [0] + [30] * 20 + [90] * 60)
    assert [row.trigger for row in rows[1:]] == ["rate"] * (len(rows) - 1) and len(rows) >= 2
    assert rows[-1].support_level == "infeasible"
    assert all(row.planned_bytes <= 36_000.0 for row in rows)


def test_one_odd_tick_is_not_a_change_of_rate():
    _, rows = _run(_spec(half_life_s=1.0, hysteresis_ticks=2), ControllerState.initial(_spec()), [0, 30, 300, 30, 30])
    assert len(rows) == 1


def test_a_quiet_night_does_not_plan_for_ever():
    _, rows = _run(_spec(), ControllerState.initial(_spec()), [0, 30] + [0] * 5000)
    assert len(rows) < 12


def test_budget_change_makes_a_plan():
    state, _ = _run(_spec(), ControllerState.initial(_spec()), [0, 30])
    _, rows = _run(_spec(20_000.0), state, [30, 30], first=10 * MINUTE)
    assert [(row.trigger, row.support_level, row.width_s) for row in rows] == [("budget", "B", 1800.0)]


def test_an_edited_declaration_starts_anew():
    state, _ = _run(_spec(), ControllerState.initial(_spec()), [0, 30])
    wider = _spec(queries=(SizedQuery("q", {"s": 3000.0}, {}, 300.0),))
    _, rows = _run(wider, state, [30], first=10 * MINUTE)
    assert [row.trigger for row in rows] == ["start"]


@pytest.mark.parametrize(
    ("budget", "range_s", "slack_s", "start", "end"),
    [
        pytest.param(1e9, 7000.0, 0.0, True, False, id="A: wider than every other"),
        pytest.param(1e9, 3600.0, 0.0, False, False, id="A: not wider"),
        pytest.param(30_000.0, 2000.0, 600.0, True, True, id="B: reaches Min_T"),
        pytest.param(30_000.0, 1500.0, 0.0, False, False, id="B: below Min_T"),
        pytest.param(9_000.0, 600.0, 0.0, True, True, id="infeasible: always"),
    ],
)
def test_table_4(budget, range_s, slack_s, start, end):
    always = SizedQuery("q", {"s": 3600.0}, {"s": 1800.0}, 300.0)
    guest = SizedQuery("g", {"s": range_s}, {"s": slack_s}, 300.0, active_from_us=10 * MINUTE, active_to_us=30 * MINUTE)
    spec = _spec(budget, queries=(always, guest))
    _, rows = _run(spec, ControllerState.initial(spec), [0] + [30] * 9)
    events = {row.trigger: row.effective_from_us for row in rows}
    expected = (
        {"start": 0} | ({"query_start": 10 * MINUTE} if start else {}) | ({"query_end": 30 * MINUTE} if end else {})
    )
    assert events == expected


def test_a_tick_may_not_be_left_out():
    state, _ = _run(_spec(), ControllerState.initial(_spec()), [0])
    with pytest.raises(ValueError, match="the tick after 0 is"):
        step(_spec(), state, 10 * MINUTE, {}, {})
    with pytest.raises(ValueError, match="not a multiple"):
        step(_spec(), state, MINUTE, {}, {})


def test_tables_have_the_columns_of_the_contract():
    spec = _spec()
    arrivals = {"s": np.arange(0, 60 * MINUTE, MINUTE)}
    state, rates, plans = advance(spec, ControllerState.initial(spec), 0, 60 * MINUTE, arrivals, {"s": 120.0})
    assert plan_table(plans).schema == PLAN_SCHEMA and rates_table(rates).schema == RATES_SCHEMA
    assert plan_table(()).num_rows == rates_table(()).num_rows == 0
    assert rates_table(rates)["tuples"].to_pylist() == [0] + [5] * 11
    assert state.stream("s").pending_tuples == 5 and state.stream("s").pending_bytes == 600.0
    assert state.to_arrow().schema == STATE_SCHEMA and state.nbytes > 0
    assert plan_table(plans)["slot_s"].null_count == len(plans)


def test_counts_and_arrivals_give_the_same():
    spec = _spec()
    arrivals = {"s": np.arange(0, 60 * MINUTE, MINUTE)}
    counted = advance_counts(spec, ControllerState.initial(spec), 0, 60 * MINUTE, {"s": [5] * 12}, {"s": [600.0] * 12})
    assert advance(spec, ControllerState.initial(spec), 0, 60 * MINUTE, arrivals, {"s": 120.0}) == counted


def test_state_survives_arrow_and_a_change_of_streams():
    spec = _spec()
    state, _ = _run(spec, ControllerState.initial(spec), [0, 30, 40])
    assert ControllerState.from_arrow(state.to_arrow(), spec) == state
    other = ControllerSpec((SizedStream("new", 1.0, 1.0),), (), 10.0, spec.tick_us)
    carried = ControllerState.from_arrow(state.to_arrow(), other)
    assert [s.stream for s in carried.streams] == ["new"] and carried.tick_us == state.tick_us
    assert ControllerState.from_arrow(pa.Table.from_pylist([], schema=STATE_SCHEMA), spec) == ControllerState.initial(
        spec
    )


def test_bounds_from_a_saved_state_continue_those_of_all_plans():
    spec = _spec()
    counts = [0] + [30] * 20 + [90] * 60 + [10] * 60
    _, every = _run(spec, ControllerState.initial(spec), counts)
    state, _ = _run(spec, ControllerState.initial(spec), counts[:70])
    _, later = _run(spec, state, counts[70:], first=70 * spec.tick_us)
    whole = EffectiveBounds.of([r.effective_from_us for r in every], [round(r.width_s * 1e6) for r in every])
    ticks = np.arange(70, 140) * spec.tick_us
    assert state.bounds("s", later).lower_us(ticks).tolist() == whole.lower_us(ticks).tolist()
    assert math.isclose(state.stream("s").lower_us, whole.lower_us(np.array([69 * spec.tick_us]))[0])
