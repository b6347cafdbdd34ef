"""The slack that keeps a promise: the law of all delays, and the choice over periods."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegate.operators.accuracy import DelayLaw, DelaySample, Needed, Promise, PromiseState, promise_step
from tidegate.operators.accuracy.delay_law import LEAST_TUPLES
from tidegate.operators.accuracy.likeness import LEVELS, Moments, places_of, scales, slack_at
from tidegate.operators.accuracy.promise import Choice, _over_periods
from tidegate.operators.accuracy.slack import rounded_up

HOUR_US = 3_600_000_000
RANGE_S, TARGET = 60.0, 0.95
delays = st.lists(st.floats(-5, 500), min_size=1, max_size=40)


def exponential(theta_s: float, rows: int, seed: int) -> np.ndarray:
    """Delays with that mean."""
    return np.random.default_rng(seed).exponential(theta_s, rows)


def arrived(theta_s: list[float], lengths_s: list[float], rate: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(arrival_us, delay_s) of what has arrived by the end of the last length, by arrival."""
    bounds = np.concatenate([[0.0], np.cumsum(lengths_s)])
    rows = int(bounds[-1] * rate)
    event_s = np.sort(np.random.default_rng(seed).uniform(0, bounds[-1], rows))
    theta = np.array(theta_s)[np.minimum(np.searchsorted(bounds, event_s, side="right") - 1, len(theta_s) - 1)]
    delay_s = exponential(1.0, rows, seed + 1) * theta
    arrival_s = event_s + delay_s
    order = np.argsort(arrival_s, kind="stable")
    order = order[arrival_s[order] <= bounds[-1]]
    return (arrival_s[order] * 1e6).astype(np.int64), delay_s[order]


def by_the_law(theta_s: float) -> float:
    """papers/04: 1 − (θ/T)·e^(−K/θ)·(1 − e^(−T/θ)) = target, solved for K."""
    late = theta_s / RANGE_S * (1 - math.exp(-RANGE_S / theta_s))
    return max(0.0, theta_s * math.log(late / (1 - TARGET)))


@given(delays, st.floats(0, 300))
def test_accuracy_is_the_share_of_a_windows_tuples_that_have_arrived(values: list[float], slack_s: float) -> None:
    delay_s, steps = np.maximum(values, 0.0), 4000
    ages_s = (np.arange(steps) + 0.5) / steps * RANGE_S
    counted = (delay_s[:, None] <= slack_s + ages_s).mean()
    found = DelayLaw(np.array(values), np.ones(len(values))).accuracy_at(slack_s, RANGE_S)
    assert abs(found - counted) <= 1 / steps


@given(delays, st.floats(0.01, 1.0))
def test_the_slack_is_the_least_that_reaches_the_target(values: list[float], target: float) -> None:
    law = DelayLaw(np.array(values), np.ones(len(values)))
    slack_s = law.slack_s(target, RANGE_S)
    assert law.accuracy_at(slack_s, RANGE_S) >= target - 1e-12
    if slack_s > 0.01:
        assert law.accuracy_at(slack_s * (1 - 1e-6) - 1e-6, RANGE_S) < target


@pytest.mark.parametrize("theta_s", [1.0, 3.0, 6.0, 20.0])
def test_of_exponential_delays_the_slack_is_the_papers(theta_s: float) -> None:
    """On the law's own quantiles, evenly spaced; their spacing is the only error."""
    rows = 200_000
    delay_s = -np.log1p(-(np.arange(rows) + 0.5) / rows) * theta_s
    assert DelayLaw(delay_s, np.ones(rows)).slack_s(TARGET, RANGE_S) == pytest.approx(by_the_law(theta_s), abs=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_a_step_of_the_delays_is_forgotten_within_minutes(seed: int) -> None:
    """Fifteen would do. Five after the step some 6000 tuples followed the new law: the accuracy of the slack then has a
    standard deviation of at most sqrt(0.05 · 0.95 / 6000) = 0.0028, a third more for the weights; four are allowed."""
    arrival_us, delay_s = arrived([6.0, 20.0], [3600, 300], 20, seed)
    law = DelaySample(arrival_us, delay_s).newest_law(RANGE_S, TARGET)
    assert law is not None
    slack_s = law.slack_s(TARGET, RANGE_S)
    reached = 1 - 20 / RANGE_S * math.exp(-slack_s / 20) * (1 - math.exp(-RANGE_S / 20))
    assert abs(reached - TARGET) <= 4 * 1.33 * 0.0028


def test_a_young_stream_is_not_taken_for_a_punctual_one() -> None:
    """What happened in the last five minutes has arrived only if it was not later than that: unweighted, the slack's
    accuracy would be 0.939. Of the mean over five streams four standard deviations, as above, are 0.0067."""
    reached = []
    for seed in range(5):
        law = DelaySample(*arrived([20.0], [300], 20, seed)).newest_law(RANGE_S, TARGET)
        assert law is not None
        slack_s = law.slack_s(TARGET, RANGE_S)
        reached.append(1 - 20 / RANGE_S * math.exp(-slack_s / 20) * (1 - math.exp(-RANGE_S / 20)))
    assert abs(np.mean(reached) - TARGET) <= 4 * 1.33 * 0.0028 / math.sqrt(5)


def test_a_steady_law_is_learnt_from_all_of_its_tuples() -> None:
    arrival_us, delay_s = arrived([10.0], [1000], 20, 7)
    law = DelaySample(arrival_us, delay_s).newest_law(RANGE_S, TARGET)
    assert law is not None and len(law.delay_s) > 0.9 * len(delay_s)


def test_too_few_tuples_say_nothing() -> None:
    few = LEAST_TUPLES - 1
    assert DelaySample(np.arange(few) * 1_000_000, np.ones(few)).newest_law(RANGE_S, TARGET) is None
    assert DelaySample(np.zeros(0, np.int64), np.zeros(0)).newest_law(RANGE_S, TARGET) is None


@pytest.mark.parametrize("poison_s", [1e6, 1e12, -1e9])
def test_one_poisoned_tuple_moves_the_slack_by_one_tuples_share(poison_s: float) -> None:
    """n tuples: its share is 1/n, so the slack is at most the one that a target higher by 1/n asks for; the weight of a
    whole tuple is not exceeded, since what is later than the span is long is left out."""
    arrival_us, delay_s = arrived([10.0], [500], 20, 3)
    clean = DelaySample(arrival_us, delay_s).newest_law(RANGE_S, TARGET)
    middle = len(delay_s) // 2
    poisoned = DelaySample(arrival_us, np.insert(delay_s[:-1], middle, poison_s)).newest_law(RANGE_S, TARGET)
    assert clean is not None and poisoned is not None
    share = 5 / len(clean.delay_s)  # a young tuple counts up to 5 times
    low, high = clean.slack_s(TARGET - share, RANGE_S), clean.slack_s(TARGET + share, RANGE_S)
    assert low <= poisoned.slack_s(TARGET, RANGE_S) <= high


def test_tuples_that_all_arrive_at_once_are_a_law_too() -> None:
    """A burst: nothing can be weighted by its span."""
    law = DelaySample(np.full(1000, 5_000_000), np.linspace(0, 99, 1000)).newest_law(RANGE_S, TARGET)
    assert law is not None and 0 < law.slack_s(TARGET, RANGE_S) < 99


# --- the choice ---


PROMISE = Promise(TARGET, period_s=3600, horizon_s=600, offset_s=6.0)


def one_window_a_period(oracle_s: np.ndarray, promise: Promise = PROMISE) -> tuple[list[Choice], np.ndarray]:
    """A choice at each hour's start, from the hours that are final then; K of each hour."""
    ends_us = (np.arange(len(oracle_s)) + 0.5) * HOUR_US
    needed = Needed(ends_us.astype(np.int64), oracle_s, np.ones(len(oracle_s)))
    state, choices = PromiseState.initial(promise), []
    for hour in range(len(oracle_s)):
        now_us = hour * HOUR_US
        known = needed.between(now_us - 3 * HOUR_US, now_us - 600_000_000)
        state, choice = promise_step(promise, state, now_us, known, None)
        choices.append(choice)
    return choices, np.array([c.slack_s for c in choices])


def test_exchangeable_periods_are_kept_with_the_confidence() -> None:
    """Of 3000 independent hours, each kept with probability ≥ 0.95 once 19 are known: 3 standard deviations less is
    0.95 − 3·sqrt(0.05 · 0.95 / 3000) = 0.938. And no more than needed: the rank of 60 known is at most 59 of 61, and
    the level holds the share near 0.95, so 0.98 is not passed."""
    oracle_s = np.exp(np.random.default_rng(5).normal(2, 0.6, 3000))
    choices, slack_s = one_window_a_period(oracle_s)
    kept = (oracle_s <= slack_s)[100:]
    assert 0.938 <= kept.mean() <= 0.98
    assert {c.method for c in choices[100:]} <= {"periods", "alike"}
    assert sum(c.method == "alike" for c in choices[100:]) <= 0.02 * len(choices)  # there is nothing to expect


DAY = Promise(TARGET, period_s=24 * 3600, horizon_s=3600, offset_s=60.0)


def day_by_day(
    days: int, seed: int, law: Callable[[int, float], float], empty: Callable[[np.ndarray], np.ndarray] | None = None
) -> tuple[list[Choice], np.ndarray, Needed]:
    """Four windows an hour; what each needs by the hour of the day and how late tuples are of late. K of each.

    ``empty``: of hours of the day, whether windows that end then have nothing.
    """
    rng = np.random.default_rng(seed)
    recent_s = np.exp(rng.normal(5, 1, days * 24))
    typical = [law(h % 24, float(recent_s[h])) for h in range(days * 24)]
    slack_s = np.repeat(typical, 4) * np.exp(rng.normal(0, 0.1, days * 96))
    has_rows = None if empty is None else ~empty(np.arange(days * 96) // 4 % 24)
    ends_us = (np.arange(days * 96) * HOUR_US // 4 + 1).astype(np.int64)
    needed = Needed(ends_us, slack_s, np.ones(days * 96), has_rows=has_rows)
    state, choices = PromiseState.initial(DAY), []
    for hour in range(days * 24):
        now_us = hour * HOUR_US
        known = needed.between(now_us - 27 * HOUR_US, now_us - HOUR_US)
        state, choice = promise_step(DAY, state, now_us, known, None, 0.0, float(recent_s[hour]))
        choices.append(choice)
    return choices, np.repeat([c.slack_s for c in choices], 4), needed


@pytest.mark.parametrize(
    ("law", "at_most"),
    [
        pytest.param(lambda hour, _: 1500.0 if 12 <= hour < 18 else 100.0, 0.65, id="the time of the period"),
        pytest.param(lambda _, recent_s: min(4 * recent_s, 3000.0), 0.6, id="the delays of late"),
    ],
)
def test_the_same_promise_is_kept_with_less_waiting_where_the_moment_tells(law, at_most) -> None:
    choices, slack_s, needed = day_by_day(90, 3, law)
    day = needed.end_us // (24 * HOUR_US)
    after = day >= 21
    kept = np.bincount(day, needed.slack_s <= slack_s)[21:] / 96 >= TARGET - 1e-9
    assert {c.method for c in choices[21 * 24 :]} == {"alike"}
    assert kept.mean() >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 69)
    oracles = np.sort([np.quantile(needed.slack_s[day == d], TARGET, method="inverted_cdf") for d in range(21, 90)])
    fixed_s = oracles[max(int(kept.sum()) - 1, 0)]  # the best fixed K that keeps as many days
    assert slack_s[after].mean() <= at_most * fixed_s


def test_k_does_not_go_up_and_down_for_windows_that_nobody_waits_for() -> None:
    """A third of the day is empty, and the rest all alike: a K that is short by night spares no answer any waiting."""

    def law(hour: int, recent_s: float) -> float:
        return 0.0 if hour < 8 else 400.0 * math.exp(((recent_s * 1e6) % 97) / 97)  # what comes is not told beforehand

    seen, told = (day_by_day(45, 3, law, empty) for empty in (None, lambda hour: hour < 8))
    assert {choice.method for choice in seen[0][25 * 24 :]} == {"alike"}
    assert {choice.method for choice in told[0][25 * 24 :]} == {"periods"}
    day = told[2].end_us // (24 * HOUR_US)
    kept = np.bincount(day, told[2].slack_s <= told[1])[25:] / 96 >= TARGET - 1e-9
    assert kept.mean() >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 20)


def test_slacks_to_expect_are_quantiles_and_multiples_of_what_moments_alike_have_needed() -> None:
    rng = np.random.default_rng(4)
    at_us, day_us = np.arange(200) * HOUR_US, 24 * HOUR_US
    moments = Moments(at_us, rng.exponential(50, 200), rng.exponential(50, 200))
    noon = moments.needed_s[:-1][(at_us[:-1] // HOUR_US % 24 >= 9) & (at_us[:-1] // HOUR_US % 24 <= 15)]
    for recent_s in (10.0, 1e6, None):
        found = scales(moments, 204 * HOUR_US, recent_s, 199 * HOUR_US, day_us, 5.0)
        assert found is not None and (np.diff(found, axis=1) >= 0).all()
        assert set(found[0].tolist()) <= set(noon.tolist())
    # Where nothing is alike but the hour, and all of it as much, the plain quantile.
    even = Moments(at_us, moments.needed_s, np.full(200, 5.0))
    found = scales(even, 204 * HOUR_US, 5.0, 199 * HOUR_US, HOUR_US, 5.0)
    middle = int(np.searchsorted(LEVELS, 0.9))
    assert found is not None
    assert found[0, middle] == np.quantile(moments.needed_s[:-1], LEVELS[middle], method="inverted_cdf")
    # Multiples of one mean, which lies among what was needed.
    ratio = (found[1, 1:] + 5.0) / (found[1, :-1] + 5.0)
    assert ratio[-5:] == pytest.approx(ratio[-1]) and 0.0 == found[1, 0] < noon.mean() < found[1, -1]
    # What was not known at an instant says nothing about it, nor do too few periods.
    assert scales(moments, 204 * HOUR_US, 5.0, 0, day_us, 5.0) is None
    assert scales(moments, 204 * HOUR_US, 5.0, 100 * HOUR_US, day_us, 5.0) is None
    assert scales(Moments(at_us, np.full(200, np.nan), at_us * 0.0), 0, 1.0, 0, day_us, 5.0) is None


@given(st.lists(st.floats(0, 500), min_size=2, max_size=10), st.floats(0, 2000))
def test_the_place_of_a_slack_is_the_least_that_covers_it(slacks: list[float], needed_s: float) -> None:
    slacks_s = np.sort(slacks)
    (place,) = places_of(slacks_s, np.array([needed_s]), 5.0).tolist()
    assert slack_at(slacks_s, place, 5.0) == pytest.approx(max(needed_s, slacks_s[0]), abs=1e-6)
    if place > 0:
        assert slack_at(slacks_s, max(place - 0.01, 0.0), 5.0) <= needed_s + 1e-6


def test_after_a_change_the_share_of_periods_kept_comes_back() -> None:
    """Gibbs & Candès 2021, Proposition 4.1: over n periods the share broken is within 0.96/(0.01·n) of 0.05."""
    periods = 3000
    rng = np.random.default_rng(6)
    oracle_s = np.exp(rng.normal(2, 0.4, periods) + np.arange(periods) * 1e-3)
    _, slack_s = one_window_a_period(np.minimum(oracle_s, 590))
    broken = (np.minimum(oracle_s, 590) > slack_s)[20:]
    assert broken.mean() <= 0.05 + 0.96 / (0.01 * len(broken))


def test_k_follows_all_delays_where_they_foretell_the_winners() -> None:
    rng = np.random.default_rng(8)
    theta = np.exp(rng.normal(2, 0.8, 400))
    oracle_s = theta * np.exp(rng.normal(0, 0.05, 400))
    ends_us = ((np.arange(400) + 0.5) * HOUR_US).astype(np.int64)
    needed, state = Needed(ends_us, oracle_s, np.ones(400)), PromiseState.initial(PROMISE)
    choices = []
    for hour in range(400):
        known = needed.between((hour - 3) * HOUR_US, hour * HOUR_US - 600_000_000)
        # What holds from now on was said by the delays of now: its unit is that of the hour that begins.
        state, choice = promise_step(PROMISE, state, hour * HOUR_US + 1, known, float(theta[hour]))
        choices.append(choice)
    slack_s = np.array([c.slack_s for c in choices])[50:]
    assert {c.method for c in choices[50:]} == {"scaled"}
    assert (oracle_s[50:] <= slack_s).mean() >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 350)
    # The 95 % quantile of the noise is e^(1.645·0.05) = 1.086; the offset and the rank add a little.
    assert (slack_s / theta[50:]).mean() <= 1.2


def test_few_periods_do_not_make_k_follow_delays_that_foretell_nothing() -> None:
    """Departures of January 2013: by chance, over eleven days, and K swung between one hour and six."""
    rng, followed = np.random.default_rng(9), 0
    for _ in range(400):
        state = replace(
            PromiseState.initial(PROMISE),
            oracle_s=np.exp(rng.normal(2, 0.6, 11)),
            unit_s=np.exp(rng.normal(2, 0.3, 11)),
        )
        followed += _over_periods(PROMISE, state, 7.0)[2]
    assert followed <= 0.05 * 400


def test_before_anything_is_known_the_declared_slack_holds_and_then_what_was_chosen() -> None:
    none = Needed(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    state, first = promise_step(PROMISE, PromiseState.initial(PROMISE), HOUR_US, none, None, 40.0)
    assert (first.method, first.slack_s, first.accuracy_expected) == ("initial", 40.0, None)
    state, second = promise_step(PROMISE, state, 2 * HOUR_US, none, None, 99.0)
    assert (second.method, second.slack_s) == ("carried", 40.0)
    _, third = promise_step(PROMISE, state, 3 * HOUR_US, none, 70.0, 99.0)
    assert (third.method, third.slack_s) == ("all_delays", 70.0)


def test_a_few_windows_do_not_undercut_the_declared_slack_before_two_periods_are_known() -> None:
    """On 1 January four quiet windows lowered K from two hours to five minutes, and the day's promise was broken."""
    ends_us = (np.arange(1, 13) * HOUR_US // 4).astype(np.int64)
    needed, state = Needed(ends_us, np.full(12, 5.0), np.ones(12)), PromiseState.initial(PROMISE)
    chosen = []
    for quarter in range(1, 16):
        known = needed.between(0, quarter * HOUR_US // 4 - 600_000_000)
        state, choice = promise_step(PROMISE, state, quarter * HOUR_US // 4, known, None, 40.0)
        chosen.append((len(state.period_us), choice.slack_s))
    assert {slack_s for periods, slack_s in chosen if periods < 2} == {40.0}
    assert {slack_s for periods, slack_s in chosen if periods >= 2} == {5.0}
    assert {periods for periods, _ in chosen} >= {0, 1, 2}


def test_a_silent_stream_keeps_what_was_learnt() -> None:
    _, learnt = one_window_a_period(np.full(40, 25.0))
    ends_us = ((np.arange(40) + 0.5) * HOUR_US).astype(np.int64)
    needed, state = Needed(ends_us, np.full(40, 25.0), np.ones(40)), PromiseState.initial(PROMISE)
    for hour in range(400):
        known = needed.between((hour - 3) * HOUR_US, hour * HOUR_US - 600_000_000)
        state, choice = promise_step(PROMISE, state, hour * HOUR_US, known, None)
    assert choice.slack_s == learnt[-1]


def test_k_never_passes_the_horizon() -> None:
    _, slack_s = one_window_a_period(np.full(40, 10_000.0))
    assert slack_s.max() == PROMISE.horizon_s


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 39), st.booleans())
def test_save_and_load_in_the_middle_does_not_matter(seed: int, at: int, on_average: bool) -> None:
    rng = np.random.default_rng(seed)
    promise = Promise(TARGET, 3600, 600, None if on_average else 0.9, 6.0)
    ends_us = np.sort(rng.integers(0, 40 * HOUR_US, 400))
    needed = Needed(ends_us, rng.exponential(20, 400), np.ones(400))
    units, recent = ([None if rng.random() < 0.2 else float(rng.exponential(20)) for _ in range(40)] for _ in range(2))

    def run(reload_at: int | None) -> list[Choice]:
        state, choices = PromiseState.initial(promise), []
        for hour in range(40):
            if hour == reload_at:
                state = PromiseState.from_arrow(state.to_arrow(), promise)
            known = needed.between((hour - 5) * HOUR_US, hour * HOUR_US - 600_000_000)
            state, choice = promise_step(promise, state, hour * HOUR_US, known, units[hour], 0.0, recent[hour])
            choices.append(choice)
        return choices

    assert run(at) == run(None)


@given(st.floats(1e-5, 1e6))
def test_rounding_adds_less_than_a_hundredth(slack_s: float) -> None:
    assert slack_s - 1e-9 <= float(rounded_up(slack_s)) <= slack_s * 1.01 + 1e-6
