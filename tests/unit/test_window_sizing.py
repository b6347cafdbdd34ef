"""Laws of window sizing on small cases that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.operators.window_sizing import (
    NOT_YET_US,
    EffectiveBounds,
    Needs,
    QueryNeed,
    TooManyWindowsError,
    WindowNeed,
    live_plan,
    plan,
)
from tidegate.operators.window_sizing.a_support import a_support
from tidegate.operators.window_sizing.b_support import b_support
from tidegate.operators.window_sizing.c_support import Swings, serial_groups, swings


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
    planned = live_plan(Needs.of(windows, queries), 100.0, tick_s=10.0)
    assert (planned.support_level, planned.width_s.tolist()) == ("B", [30.0, 10.0])


def test_a_live_plan_below_level_c_admits_by_priority_in_whole_quanta():
    needs = Needs.of(
        [WindowNeed("a", 1.0), WindowNeed("b", 2.0)],
        [QueryNeed("p", {"a": 600.0}, delay_s=60.0), QueryNeed("q", {"b": 600.0}, delay_s=60.0, priority=1)],
    )
    planned = live_plan(needs, 1500.0, tick_s=60.0)
    assert (planned.support_level, planned.width_s.tolist()) == ("infeasible", [300.0, 600.0])


def test_live_slots_stay_as_long_as_they_do():
    queries = [QueryNeed(w, {w: 60.0}, delay_s=120.0) for w in "ab"]
    windows = [WindowNeed("a", 1.0), WindowNeed("b", 1.0)]
    first = live_plan(Needs.of(windows, queries), 100.0, tick_s=10.0)
    assert first.support_level == "C" and first.peak_bytes(np.ones(2)) <= 100.0
    later = first.shifted(np.arange(2), 20.0)
    dearer = Needs.of([WindowNeed("a", 1.5), WindowNeed("b", 0.5)], queries)
    assert live_plan(dearer, 100.0, 10.0, current=later).slot_offset_s.tolist() == later.slot_offset_s.tolist()
    hastier = Needs.of(windows, [QueryNeed(w, {w: 60.0}, delay_s=110.0) for w in "ab"])
    assert not later.carries(hastier)


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


def test_nothing_is_evicted_in_a_slot_and_an_answer_at_its_end_finds_all():
    bounds = EffectiveBounds.from_rows([0], [40], [(10, 20, 50)], initial_lower_us=-60)
    instants = np.array([0, 9, 10, 29, 30, 59, 60, 79, 80])
    assert bounds.lower_us(instants).tolist() == [-40, -31, -30, -30, -10, 19, 20, 20, 40]
    assert bounds.lower_before_us(np.array([30, 80])).tolist() == [-30, 20]
    assert bounds.leave_tick_us(np.array([-31, -30, 19, 20]), 10).tolist() == [10, 30, 60, 80]


def test_a_slot_that_runs_when_the_plan_comes_has_a_negative_offset():
    bounds = EffectiveBounds.from_rows([0], [40], [(-15, 20, 50)], initial_lower_us=-60)
    assert bounds.lower_us(np.array([0, 4, 5, 34, 35])).tolist() == [-55, -55, -35, -6, -5]


def test_a_window_of_width_0_holds_nothing_but_in_its_slots():
    bounds = EffectiveBounds.from_rows([0, 100], [0, 0], [None, (10, 20, 50)])
    assert bounds.closed(np.array([0, 100, 110, 120, 130])).tolist() == [True, True, False, False, True]
    assert bounds.held_from_us(np.array([5, 105, 115, 130]), 10).tolist() == [5, 105, 110, 110]


def test_an_answer_finds_what_the_last_tick_before_it_left():
    bounds = EffectiveBounds.of([0, 100], [50, 20])
    assert bounds.held_from_us(np.array([100, 101, 110]), 10).tolist() == [40, 80, 80]
