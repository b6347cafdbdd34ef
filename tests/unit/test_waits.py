"""Waits and widths chosen together, and what windows of any height would have taken."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.operators.accuracy import Support
from tidegate.operators.window_sizing import Arrivals, Footprint, FootprintSpec, Room, Want, choose_waits, observed

TICK, DAY = 60_000_000, 86_400_000_000


def support(*needed: tuple[float, float]) -> Support:
    slack_s, share = (np.array(column, dtype=np.float64) for column in zip(*needed, strict=True))
    return Support(slack_s, share, np.ones(len(needed)), 1.0)


def a_day(budget: float) -> Room:
    """A byte a stream and day of height."""
    return Room(budget, DAY, lambda stream, height_us: height_us / DAY)


LATE = support(*((day * 86400.0, 1.0) for day in range(10)))


def want(name: str, stream: str = "s", days: float = 9.0, priority: int = 0, every: float = 86400.0) -> Want:
    return Want(name, {stream: 86400.0}, days * 86400, 1.0, LATE, every, priority)


@pytest.mark.parametrize("budget", [10.0, 11.0, math.inf])
def test_ample_memory_leaves_every_wait_as_wanted(budget: float) -> None:
    wants = [want("a"), want("b", days=2.0)]
    waits = choose_waits(wants, a_day(budget))
    assert {q: wait.slack_s for q, wait in waits.items()} == {w.query: w.slack_s for w in wants}
    assert not any(wait.limited for wait in waits.values())


def test_updates_take_memory_until_the_horizon_and_no_promise_gives_way_to_them() -> None:
    wants = [replace(want("a", days=2.0), longest_wait_s=9 * 86400.0), want("b", days=4.0)]
    waits = choose_waits(wants, a_day(10.0))
    assert [(w.slack_s / 86400, w.limited, w.bytes_needed) for w in waits.values()] == [
        (2, False, 10.0),
        (4, False, 10.0),
    ]
    for budget in (3.2, 4.5, 9.9):
        without = choose_waits([replace(w, longest_wait_s=0.0) for w in wants], a_day(budget))
        waits = choose_waits(wants, a_day(budget))
        assert {q: (w.slack_s, w.share, w.limited) for q, w in waits.items()} == {
            q: (w.slack_s, w.share, w.limited) for q, w in without.items()
        }
        assert waits["a"].bytes_needed == 10.0 > without["a"].bytes_needed


def test_a_fixed_wait_is_left_to_the_widths_where_they_suffice() -> None:
    """papers/01: K fixed, less memory than whole ranges take, enough for the shares that keep the promise."""
    narrow = Want("a", {"s": 8 * 86400.0}, 86400.0, 0.5, support((86400.0, 0.5), (0.0, 0.25)), 86400.0)
    wait = choose_waits([narrow], a_day(5.0))["a"]
    assert (wait.slack_s, wait.share, wait.limited) == (86400.0, 0.5, False)


def test_the_best_that_fits_is_taken_and_what_the_promise_needs_is_said() -> None:
    wait = choose_waits([want("a")], a_day(5.3))["a"]
    assert (wait.slack_s, wait.share, wait.limited, wait.bytes_needed) == (4 * 86400, 1.0, True, 10.0)


def test_a_promise_that_fits_is_not_refused_for_the_part_that_is_left_free() -> None:
    """13 of 13.2 bytes, and no less for those before it; without the third query all would have been wanted."""
    wants = [want("first", "s", 9.0, 3), want("second", "t", 2.0, 2), want("never", "u", 30.0, 1)]
    waits = choose_waits(wants, a_day(13.2))
    assert [(waits[q].slack_s / 86400, waits[q].limited) for q in ("first", "second")] == [(9, False), (2, False)]
    assert waits["never"].limited
    assert choose_waits(wants, a_day(12.9))["second"].limited, "13 do not fit"


def test_width_gives_way_where_that_costs_less_than_the_wait() -> None:
    near = support(*((day * 86400.0, 0.25) for day in range(8)))
    asked = Want("a", {"s": 4 * 86400.0}, 7 * 86400.0, 1.0, near, 86400.0)
    wait = choose_waits([asked], a_day(8.5))["a"]
    assert (wait.slack_s, wait.limited) == (7 * 86400, False) and wait.share <= 0.25


def test_as_many_promises_as_can_be_are_kept_by_priority() -> None:
    equal = choose_waits([want("a", "s"), want("b", "t", days=2.0)], a_day(7.5))
    assert not equal["b"].limited and 0 < equal["a"].slack_s <= 3 * 86400
    first = choose_waits([want("a", "s", priority=1), want("b", "t", days=2.0)], a_day(10.6))
    assert not first["a"].limited and first["b"].limited


def test_queries_of_two_streams_share_what_neither_promise_fits_in() -> None:
    waits = choose_waits([want("a", "s"), want("b", "t")], a_day(8.5))
    assert [wait.slack_s / 86400 for wait in waits.values()] == [3.0, 3.0]


def test_before_anything_is_known_the_range_comes_before_the_wait() -> None:
    none = np.zeros(0)
    asked = Want("a", {"s": 86400.0}, 9 * 86400.0, 1.0, Support(none, none, none, 1.0), 86400.0)
    wait = choose_waits([asked], a_day(4.3))["a"]
    assert wait.share == 1.0 and 2 * 86400 < wait.slack_s <= 3 * 86400


@given(
    st.lists(st.tuples(st.sampled_from("st"), st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=5),
    st.floats(0, 30),
)
def test_what_is_chosen_fits_or_is_what_was_wanted(asked: list[tuple[str, int, int]], budget: float) -> None:
    wants = [want(f"q{i}", stream, days, priority) for i, (stream, days, priority) in enumerate(asked)]
    room, waits = a_day(budget), choose_waits(wants, a_day(budget))
    assert all(0 <= waits[w.query].slack_s <= w.slack_s for w in wants)
    heights: dict[str, int] = {}
    for w in wants:
        for stream, height_us in room.heights(w, waits[w.query].slack_s, waits[w.query].share).items():
            used = height_us if waits[w.query].share else 0
            heights[stream] = max(heights.get(stream, 0), used)
    limited = any(wait.limited for wait in waits.values())
    assert not limited or room.taken(heights) <= budget + 1e-9


@pytest.mark.parametrize(("tick_us", "ticks"), [(TICK, 40), (TICK, 200)])
def test_a_footprint_is_what_windows_would_have_held(tick_us: int, ticks: int) -> None:
    """Against a count of all tuples, at the end of every tick of the last intervals."""
    chance = np.random.default_rng(3)
    event_us = np.sort(chance.integers(0, 600 * tick_us, 3000))
    arrival_us = event_us + (chance.exponential(20, 3000) * tick_us).astype(np.int64) - 3 * tick_us
    arrival_us = np.maximum(arrival_us, 0)
    spec = FootprintSpec(tick_us, ticks * tick_us)
    footprint = Footprint.initial(spec)
    for start in range(0, 600, 60):
        own = (arrival_us // tick_us >= start) & (arrival_us // tick_us < start + 60)
        arrivals = Arrivals.of(arrival_us[own], event_us[own], 10.0, tick_us)
        table = footprint.to_arrow()
        footprint = observed(footprint, start * tick_us, (start + 60) * tick_us, arrivals)
        if start:
            again = Footprint.from_arrow(table, spec)
            assert observed(again, start * tick_us, (start + 60) * tick_us, arrivals).to_arrow() == footprint.to_arrow()
    seen_us = np.maximum(arrival_us // tick_us + 1, event_us // tick_us + 1) * tick_us
    for height in (1, 5, ticks):
        held = [
            10.0 * np.count_nonzero((seen_us <= t) & (event_us >= t - height * tick_us) & (event_us < t))
            for t in range(tick_us, 601 * tick_us, tick_us)
        ]
        assert footprint.bytes_at(height * tick_us) == max(held)


def test_a_stream_that_is_new_is_taken_to_go_on_as_it_began() -> None:
    spec, times = FootprintSpec(TICK, 100 * TICK), np.arange(0, 10 * TICK, TICK // 6)
    footprint = observed(Footprint.initial(spec), 0, 10 * TICK, Arrivals.of(times, times, 50.0, TICK))
    assert footprint.bytes_at(10 * TICK) == 3000.0 and footprint.bytes_at(100 * TICK) == 30_000.0


def test_after_a_burst_the_wait_is_the_longest_that_fits() -> None:
    """A tuple an hour, and on day 20 twelve; M holds 8 quiet days, a twentieth of them left free.

    Against a count: the longest wait with which, at no hour of the last day, windows would have held more. As the burst
    gets old K grows day by day, not only when nothing reaches back to it any more.
    """
    hour_us, budget = 3_600_000_000, 8 * 24.0
    late = support(*((days * 86400.0, 1.0) for days in np.arange(0.0, 12.25, 0.25)))
    asked = Want("a", {"s": 86400.0}, 12 * 86400.0, 1.0, late, 86400.0)
    times = np.concatenate(
        [day * DAY + np.arange(count) * DAY // count for day in range(40) for count in [24 * 12 if day == 20 else 24]]
    )
    footprint, chosen = Footprint.initial(FootprintSpec(hour_us, 13 * DAY)), []
    for day in range(40):
        own = times[times // DAY == day]
        footprint = observed(footprint, day * DAY, (day + 1) * DAY, Arrivals.of(own, own, 1.0, hour_us))
        room = Room(budget, hour_us, lambda _, height_us, of=footprint: of.bytes_at(height_us))
        chosen.append(choose_waits([asked], room)["a"].slack_s / 86400)
        hours = (day * 24 + np.arange(1, 25)) * hour_us
        held = [
            max(np.diff(np.searchsorted(times, [t - (24 + wait) * hour_us, t]))[0] for t in hours)
            for wait in range(0, 12 * 24, 6)
        ]
        fits = np.searchsorted(np.maximum.accumulate(held), 0.95 * budget, side="right") / 4 - 0.25
        if day >= 13 and day not in (20, 21):
            assert chosen[-1] == pytest.approx(max(fits, 0.0), abs=0.26), day
    assert chosen[19] >= 6 and max(chosen[20:23]) <= 1
    assert all(later >= earlier for earlier, later in zip(chosen[22:], chosen[23:], strict=False))
    assert chosen[26] >= 4 and chosen[29] >= 6
