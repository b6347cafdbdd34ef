"""Laws of the published top-k methods: each sees what its definition says that it can see, and ranks it rightly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from infra.research.published.top_k import (
    METHODS,
    Answer,
    Arrival,
    Options,
    Query,
    arrivals,
    oracle,
    run,
    start,
    windows_of,
)
from infra.research.published.top_k.interval_search import Interval, candidates_us, next_interval

from tidegate.operators.accuracy import accuracy_at
from tidegate.operators.schedule import Schedule
from tidegate.operators.top_k import Spec, Term, finish
from tidegate.operators.top_k import start as start_production
from tidegate.operators.top_k import step as step_production

LAWS = settings(max_examples=100, deadline=None)
WAITLESS = ["SMA", "SMA-LATER", "MINTOPK", "MINTOPK-LATER", "GSTOPK"]
BUFFERED = ["K-SLACK", "MP-K-SLACK", "AQ-K-SLACK", "MINTOPK-ADAPTIVE"]
Sees = Callable[[Query, Arrival, int], bool]


@st.composite
def queries(draw: st.DrawFn) -> Query:
    slide = draw(st.integers(1, 4))
    return Query(slide * draw(st.integers(1, 5)), slide, draw(st.integers(1, 3)))


@st.composite
def streams(draw: st.DrawFn, most_late: int = 25) -> list[Arrival]:
    """Tuples with ties of time and score, gaps and delays longer than a window, and clocks that are fast."""
    count = draw(st.integers(1, 40))
    events = np.cumsum(draw(st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 30]), min_size=count, max_size=count))).tolist()
    late = st.integers(-2, most_late) if most_late else st.just(0)
    delays = draw(st.lists(st.one_of(st.just(0), late), min_size=count, max_size=count))
    scores = draw(st.lists(st.integers(0, 6).map(float), min_size=count, max_size=count))
    return arrivals(events, [e + d for e, d in zip(events, delays, strict=True)], scores, list(range(count)))


@st.composite
def options(draw: st.DrawFn) -> Options:
    horizon = draw(st.integers(1, 30))
    return Options(
        slack_us=draw(st.integers(0, horizon)),
        target=draw(st.sampled_from([0.3, 0.7, 0.95, 1.0])),
        horizon_us=horizon,
        parts=draw(st.integers(1, 4)),
        windows=draw(st.integers(1, 4)),
        grain_us=draw(st.integers(1, min(4, horizon))),
    )


def answers(name: str, query: Query, stream: Sequence[Arrival], of: Options | None = None) -> list[Answer]:
    windows = windows_of(query, stream)
    return list(run(start(name, query, windows[0], of), stream, windows))


def best(query: Query, seen: Sequence[Arrival]) -> tuple[int, ...]:
    """By definition: score descending, event time, id."""
    return tuple(one.rank[2] for one in sorted(seen, key=lambda one: one.rank)[: query.k])


def within(query: Query, one: Arrival, window: int) -> bool:
    return query.end_us(window) - query.width_us <= one.event_us < query.end_us(window)


def on_time(query: Query, one: Arrival) -> bool:
    return one.arrival_us <= query.end_us(one.event_us // query.slide_us)


def seen_dropped(query: Query, one: Arrival, window: int) -> bool:
    """In the window, and arrived before its slide was over."""
    return within(query, one, window) and on_time(query, one)


def seen_later(query: Query, one: Arrival, window: int) -> bool:
    """In the window by event time if on time, by arrival time if late; a window is answered after it has ended."""
    if on_time(query, one):
        return within(query, one, window)
    return query.end_us(window) - query.width_us < one.arrival_us <= query.end_us(window)


def seen_by_end(query: Query, one: Arrival, window: int) -> bool:
    return within(query, one, window) and one.arrival_us <= query.end_us(window)


SEES: dict[str, Sees] = {
    "SMA": seen_dropped,
    "MINTOPK": seen_dropped,
    "SMA-LATER": seen_later,
    "MINTOPK-LATER": seen_later,
    "GSTOPK": seen_by_end,
}


@pytest.mark.parametrize("name", METHODS)
@LAWS
@given(query=queries(), stream=streams(most_late=0), of=options())
def test_in_order_every_method_gives_the_truth(name, query, stream, of):
    truth = oracle.truth(query, stream, windows_of(query, stream))
    for answer in answers(name, query, stream, of):
        assert answer.ids == tuple(one.rank[2] for one in truth[answer.window])
        assert oracle.accuracy(answer, truth[answer.window]) == 1


@pytest.mark.parametrize("name", WAITLESS)
@LAWS
@given(query=queries(), stream=streams())
def test_who_does_not_wait_answers_at_once_from_what_it_sees(name, query, stream):
    for answer in answers(name, query, stream):
        assert answer.emit_us == answer.window_end_us
        assert answer.ids == best(query, [one for one in stream if SEES[name](query, one, answer.window)])


@pytest.mark.parametrize("name", BUFFERED)
@LAWS
@given(query=queries(), stream=streams(), of=options())
def test_who_waits_answers_from_all_that_has_arrived_by_then(name, query, stream, of):
    last_us = 0
    for answer in answers(name, query, stream, of):
        seen = [one for one in stream if within(query, one, answer.window) and one.arrival_us <= answer.emit_us]
        assert answer.ids == best(query, seen)
        assert answer.emit_us >= max(last_us, answer.window_end_us + answer.slack_us)
        last_us = answer.emit_us


@LAWS
@given(query=queries(), stream=streams(), of=options())
def test_k_slack_waits_k(query, stream, of):
    for answer in answers("K-SLACK", query, stream, of):
        assert answer.slack_us == answer.delay_us == of.slack_us


@LAWS
@given(query=queries(), stream=streams(), slacks=st.sets(st.integers(0, 30), min_size=3))
def test_accuracy_of_any_k_is_the_share_of_winners_that_need_no_more(query, stream, slacks):
    """One window, one vote: a winner weighs 1 / the size of its window's truth; an empty truth is met by any answer."""
    windows = windows_of(query, stream)
    truth = oracle.truth(query, stream, windows)
    needed = oracle.needed_slacks_us(query, truth)
    needed_s = np.array([us / 1e6 for of_window in needed.values() for us in of_window])
    weights = np.array([1 / len(of_window) for of_window in needed.values() for _ in of_window])
    full = sum(bool(found) for found in truth.values())
    for slack in slacks:
        found = answers("K-SLACK", query, stream, Options(slack_us=slack, horizon_us=30, grain_us=1))
        share = (accuracy_at(needed_s, slack / 1e6, weights) * full + len(windows) - full) / len(windows)
        assert oracle.mean_accuracy(found, truth) == pytest.approx(share)


@LAWS
@given(query=queries(), stream=streams())
def test_mp_k_slack_answers_at_the_first_instant_that_lies_the_largest_delay_back(query, stream):
    def largest(at_us: int) -> int:
        return max((one.arrival_us - one.event_us for one in stream if one.arrival_us <= at_us), default=0)

    for answer in answers("MP-K-SLACK", query, stream):
        at_us = answer.window_end_us
        while answer.window_end_us + largest(at_us) > at_us:
            at_us += 1
        assert (answer.emit_us, answer.slack_us) == (at_us, largest(at_us))


@LAWS
@given(query=queries(), stream=streams(), of=options())
def test_aq_k_slack_follows_its_controller(query, stream, of):
    alpha = error_before = 0.0
    slack_us, measured = 0, windows_of(query, stream)[0] - 1
    for answer in answers("AQ-K-SLACK", query, stream, of):
        assert answer.slack_us == slack_us
        come = [one for one in stream if one.arrival_us <= answer.emit_us]
        since_us = come[-1].arrival_us - of.horizon_us if come else 0
        delays = [min(one.arrival_us - one.event_us, of.horizon_us) for one in come if one.arrival_us >= since_us]
        latest = (answer.emit_us - max(delays, default=0)) // query.slide_us - 1
        if not delays or latest <= measured:
            continue
        measured = latest
        inside = [one for one in come if within(query, one, latest)]
        if inside:
            covered = sum(one.arrival_us <= query.end_us(latest) + slack_us for one in inside)
            error = of.target - covered / len(inside)
            alpha = min(1.0, max(0.0, alpha + (0.5 * error + 0.8 * (error - error_before))))
            error_before = error
            slack_us = round(alpha * max(delays))


@LAWS
@given(query=queries(), stream=streams(), of=options())
def test_the_interval_search_follows_the_truth_of_its_rounds(query, stream, of):
    """By the identity of the needed slacks instead of recorded answers; K changes once something happens later."""
    found = answers("MINTOPK-ADAPTIVE", query, stream, of)
    interval, slack_us = Interval(0, max(of.slack_us, of.grain_us)), of.slack_us
    begins, given_us = windows_of(query, stream)[0], -1
    for answer in found:
        come_us = max((one.arrival_us for one in stream if one.arrival_us <= answer.emit_us), default=-1)
        while True:
            ends_us = query.end_us(begins + of.windows - 1) + of.horizon_us
            if come_us <= ends_us and given_us < ends_us:
                break
            windows = range(begins, begins + of.windows)
            truth = oracle.truth(query, stream, windows, of.horizon_us)
            needed = oracle.needed_slacks_us(query, truth).values()
            accuracies = [
                np.mean([np.mean([us <= tried for us in of_window]) if of_window else 1.0 for of_window in needed])
                for tried in candidates_us(interval, of)
            ]
            interval, slack_us = next_interval(interval, [round(one, 12) for one in accuracies], of)
            begins = ends_us // query.slide_us
        assert answer.slack_us == slack_us
        given_us = answer.emit_us


@LAWS
@given(interval=st.tuples(st.integers(0, 20), st.integers(1, 20)), of=options(), data=st.data())
def test_the_interval_stays_within_zero_and_the_horizon_and_never_narrower_than_a_grain(interval, of, data):
    down_us = min(interval[0], of.horizon_us - 1)
    begun = Interval(down_us, min(down_us + interval[1], of.horizon_us))
    tried = candidates_us(begun, of)
    assert tried[0] == begun.down_us and tried[-1] == begun.up_us and tried == sorted(set(tried))
    rising = sorted(data.draw(st.lists(st.floats(0, 1), min_size=len(tried), max_size=len(tried))))
    after, slack_us = next_interval(begun, rising, of)
    assert 0 <= after.down_us < after.up_us <= of.horizon_us
    assert slack_us in (0, after.up_us)
    # Parts are of whole microseconds, so that one may be rounded down.
    assert after.up_us - after.down_us >= min(of.grain_us, begun.up_us - begun.down_us) - 1


@LAWS
@given(query=queries(), stream=streams(), name=st.sampled_from(["MINTOPK", "MINTOPK-LATER", "GSTOPK"]))
def test_the_candidates_are_in_shape_after_every_arrival_and_answer(query, stream, name):
    windows = windows_of(query, stream)
    method = start(name, query, windows[0])
    absorb = method.absorb

    def checked(one: Arrival) -> None:
        absorb(one)
        method.check()

    method.absorb = checked
    for _ in run(method, stream, windows):
        method.check()


@pytest.mark.parametrize("seed", range(3))
def test_the_production_operator_gives_the_same_answers(seed):
    random = np.random.default_rng(seed)
    rows = 3000
    query = Query(60_000_000, 5_000_000, 5)
    event_us = np.sort(random.integers(0, 600_000_000, rows))
    arrival_us = event_us + random.exponential(20e6, rows).astype(np.int64)
    scores, ids = random.integers(0, 200, rows).astype(float), [f"{row:05}" for row in range(rows)]
    stream = arrivals(event_us.tolist(), arrival_us.tolist(), scores.tolist(), ids)
    found = answers("MINTOPK-ADAPTIVE", query, stream, Options(horizon_us=60_000_000, windows=6))
    assert len({answer.slack_us for answer in found}) > 3  # K moved

    ends_us, emits_us = (np.array([getattr(one, name) for one in found]) for name in ("window_end_us", "emit_us"))
    schedule = Schedule(ends_us, emits_us, {"d": ends_us - query.width_us})
    spec = Spec(query.k, (Term("o0"),), pa.schema([("o0", pa.float64())]), query.slide_us, "d")
    batch = pa.table({"event_us": event_us, "event_id": ids, "arrival_us": arrival_us, "o0": scores})
    state, some = step_production(start_production(spec, schedule), batch.sort_by("arrival_us"))
    _, rest = finish(state)
    produced: dict[int, list[str]] = {}
    for row in pa.concat_tables([some, rest]).to_pylist():
        produced.setdefault(row["window_index"], []).append(row["event_id"])
    assert [list(one.ids) for one in found] == [produced.get(index, []) for index in range(len(found))]
