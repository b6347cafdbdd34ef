"""The published top-k methods: what each is, what it refuses, and how right it is where that can be foretold."""

from __future__ import annotations

import doctest
import math

import numpy as np
import pytest
from infra.research.published.top_k import (
    METHODS,
    Arrival,
    Options,
    Query,
    arrivals,
    candidates,
    catalogue,
    interval_search,
    oracle,
    run,
    running,
    start,
    windows_of,
)
from infra.research.published.top_k import query as query_module
from infra.research.published.top_k.interval_search import Interval, next_interval

SECOND_US = 1_000_000
MINUTE_BY_5_S = Query(60 * SECOND_US, 5 * SECOND_US, 5)
HOURS, RATE_PER_S = 10, 1
# A mean of many windows leaves the expected value by more than so many standard deviations once in 1.7 million.
DEVIATIONS = 5


def random_stream(theta_s: float, hours: float = HOURS, rate_per_s: float = RATE_PER_S, seed: int = 0) -> list[Arrival]:
    """Delays exponential and independent of the scores."""
    random = np.random.default_rng(seed)
    rows = int(hours * 3600 * rate_per_s)
    events_us = random.integers(0, int(hours * 3600) * SECOND_US, rows)
    late_us = (random.exponential(theta_s, rows) * SECOND_US).astype(np.int64)
    return arrivals(events_us.tolist(), (events_us + late_us).tolist(), random.random(rows).tolist(), list(range(rows)))


def accuracy_of(name: str, stream: list[Arrival], options: Options | None = None) -> float:
    """Mean over the windows that are full from the start."""
    query, windows = MINUTE_BY_5_S, windows_of(MINUTE_BY_5_S, stream)
    found = list(run(start(name, query, windows[0], options), stream, windows))[query.slides :]
    return oracle.mean_accuracy(found, oracle.truth(query, stream, windows))


def bound(expected: float) -> float:
    """How far the mean accuracy over the stream's windows may lie from the expected.

    The k winners of a window arrived in time or not independently of each other: a window's accuracy has the variance
    p(1 − p)/k. Windows a width apart share no tuple, so of each of the width/slide ways to cut the stream into such
    windows the mean has the variance p(1 − p)/(k·M), M = hours/width; the mean over all windows is the mean of those,
    and varies no more.
    """
    apart = HOURS * 3600 * SECOND_US // MINUTE_BY_5_S.width_us - 1
    return DEVIATIONS * math.sqrt(expected * (1 - expected) / (MINUTE_BY_5_S.k * apart))


@pytest.mark.parametrize("module", [candidates, catalogue, interval_search, query_module, running])
def test_the_examples_run(module):
    results = doctest.testmod(module)
    assert results.attempted > 0 and results.failed == 0


def test_every_method_that_the_issue_names_can_be_chosen():
    family = {"K-SLACK", "MP-K-SLACK", "AQ-K-SLACK", "GSTOPK", "MINTOPK-ADAPTIVE"}
    assert set(METHODS) == family | {"SMA", "SMA-LATER", "MINTOPK", "MINTOPK-LATER"}


def test_an_unknown_name_is_refused_with_the_nearest_known():
    with pytest.raises(ValueError, match="did you mean MP-K-SLACK"):
        start("mp_k_slack", MINUTE_BY_5_S, 0)


@pytest.mark.parametrize("method", METHODS.values())
def test_every_method_says_idea_needs_guarantee_and_source(method):
    said = method.__doc__
    later = method.NAME.endswith("-LATER")
    for heading in ("Guarantee", "Source", *(() if later else ("Idea", "Needs", "Time", "Space"))):
        assert f"**{heading}" in said, heading


@pytest.mark.parametrize(("theta_s", "kept", "dropped"), [(1, 0.983, 0.80), (6, 0.900, 0.32), (20, 0.683, 0.12)])
def test_accuracy_without_waiting_is_what_the_formula_says(theta_s, kept, dropped):
    """papers/04: 1 − (θ/T)(1 − e^(−T/θ)) with late tuples kept; with the slide for T if they are dropped."""
    stream = random_stream(theta_s)
    for expected, printed, width_s, names in (
        (kept, 3, 60, ("GSTOPK",)),
        (dropped, 2, 5, ("SMA", "MINTOPK")),
    ):
        exact = 1 - theta_s / width_s * (1 - math.exp(-width_s / theta_s))
        assert round(exact, printed) == expected
        for name in names:
            assert abs(accuracy_of(name, stream) - exact) <= bound(exact), name
    assert accuracy_of("K-SLACK", stream, Options(slack_us=0)) == accuracy_of("GSTOPK", stream)


@pytest.mark.parametrize("slack_s", [2, 10, 40])
def test_accuracy_of_k_slack_is_what_the_formula_says(slack_s):
    theta_s, width_s = 20, 60
    exact = 1 - theta_s / width_s * math.exp(-slack_s / theta_s) * (1 - math.exp(-width_s / theta_s))
    found = accuracy_of("K-SLACK", random_stream(theta_s), Options(slack_us=slack_s * SECOND_US))
    assert abs(found - exact) <= bound(exact)


def test_late_tuples_counted_in_later_windows_can_keep_out_winners():
    """The best of all comes after its only window: it is counted in the next, and its winner is not."""
    query, stream = Query(10, 10, 1), arrivals([5, 15], [12, 15], [9.0, 1.0], ["late", "right"])
    windows = windows_of(query, stream)
    found = {name: [one.ids for one in run(start(name, query, windows[0]), stream, windows)] for name in METHODS}
    assert found["MINTOPK-LATER"] == found["SMA-LATER"] == [(), ("late",)]
    assert found["MINTOPK"] == found["SMA"] == found["GSTOPK"] == [(), ("right",)]


def test_what_is_in_no_answer_is_counted():
    query, stream = Query(10, 5, 1), arrivals([1, 4, 30], [1, 25, 30], [1.0, 2.0, 1.0], "abc")
    windows = windows_of(query, stream)
    lost = {}
    for name in METHODS:
        method = start(name, query, windows[0], Options(slack_us=0))
        list(run(method, stream, windows))
        lost[name] = method.dropped
    kept = dict.fromkeys(("SMA-LATER", "MINTOPK-LATER", "MP-K-SLACK"), 0)
    assert lost == {**dict.fromkeys(METHODS, 1), **kept, "MP-K-SLACK": lost["MP-K-SLACK"]}


def test_the_papers_example_of_the_interval_search():
    """Table 1: top-3, (0, 4.5 s], m = 3, ε = 0.8; 72, 83, 94 % at 1.5, 3, 4.5 s."""
    options = Options(parts=3, target=0.8)
    assert next_interval(Interval(0, 4_500_000), [0.6, 0.72, 0.83, 0.94], options) == (
        Interval(1_500_000, 3_000_000),
        3_000_000,
    )


def test_the_interval_moves_by_a_part_when_nothing_in_it_fits_and_stays_at_its_limits():
    options = Options(slack_us=0, parts=2, grain_us=10, horizon_us=200)
    fits, misses = [1.0] * 3, [0.5] * 3
    assert next_interval(Interval(100, 140), misses, options) == (Interval(120, 160), 160)
    assert next_interval(Interval(100, 140), fits, options) == (Interval(80, 120), 120)
    assert next_interval(Interval(0, 40), fits, options) == (Interval(0, 20), 0)
    assert next_interval(Interval(0, 10), [1.0, 1.0], options) == (Interval(0, 10), 0)
    assert next_interval(Interval(150, 190), misses, options) == (Interval(160, 200), 200)
    assert next_interval(Interval(160, 200), misses, options) == (Interval(160, 200), 200)


def test_the_search_and_the_controller_reach_the_target_where_delays_do_not_change():
    """K that θ = 6 s needs for 95 % is 4.2 s; the search begins above it."""
    stream = random_stream(6, hours=4)
    needed_s = 6 * math.log(6 / 60 * (1 - math.exp(-10)) / 0.05)
    for name in ("AQ-K-SLACK", "MINTOPK-ADAPTIVE"):
        query, windows = MINUTE_BY_5_S, windows_of(MINUTE_BY_5_S, stream)
        options = Options(slack_us=20 * SECOND_US, grain_us=SECOND_US)
        found = list(run(start(name, query, windows[0], options), stream, windows))
        settled = found[len(found) // 2 :]
        assert np.mean([one.slack_us for one in settled]) / SECOND_US == pytest.approx(needed_s, abs=2)
        assert oracle.mean_accuracy(settled, oracle.truth(query, stream, windows)) == pytest.approx(0.95, abs=0.015)


def test_only_mintopk_refuses_most_tuples_with_one_look():
    """Its candidates are few, whatever the rate; the skyband's window is held whole."""
    stream = random_stream(0, hours=0.2, rate_per_s=20)
    windows = windows_of(MINUTE_BY_5_S, stream)
    held, looked = {}, {}
    for name in ("SMA", "MINTOPK", "GSTOPK"):
        method = start(name, MINUTE_BY_5_S, windows[0])
        list(run(method, stream, windows))
        held[name], looked[name] = method.held, method.touched.total / len(stream)
    assert held["MINTOPK"] == held["GSTOPK"] < 5 * MINUTE_BY_5_S.k < held["SMA"]
    assert looked["MINTOPK"] == looked["GSTOPK"] < 4


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda: Query(0, 1, 1), "at least 1"),
        (lambda: Query(60, 25, 5), "multiple of the slide"),
        (lambda: Options(target=0.0), "target"),
        (lambda: Options(slack_us=2, horizon_us=1, grain_us=1), "within the horizon"),
        (lambda: Options(slack_us=0, horizon_us=1, grain_us=2), "within the horizon"),
        (lambda: arrivals([1, 2], [1, 2], [1.0, 1.0], [7, 7]), "unique"),
        (lambda: arrivals([1], [1], [float("nan")], [7]), "NaN"),
    ],
)
def test_what_cannot_be_answered_is_refused(refused, message):
    with pytest.raises(ValueError, match=message):
        refused()


def test_a_stream_without_tuples_has_no_windows():
    assert windows_of(MINUTE_BY_5_S, []) == range(0)
    assert list(run(start("GSTOPK", MINUTE_BY_5_S, 0), [], range(0))) == []
