"""Laws of the live controller on small cases that can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tidegate.operators.window_sizing import (
    PLAN_SCHEMA,
    QUERY_PLAN_SCHEMA,
    RATES_SCHEMA,
    STATE_SCHEMA,
    Advanced,
    Arrivals,
    ControllerSpec,
    ControllerState,
    EffectiveBounds,
    SizedQuery,
    SizedStream,
    advance,
    advance_counts,
    plan_table,
    query_plan_table,
    rates_table,
)

MINUTE = 60_000_000
TICK = 5 * MINUTE


def _spec(budget: float = 39_000.0, **changes) -> ControllerSpec:
    """One stream of 10 bytes/s (0.1 tuples of 100), a tick of 5 minutes, no headroom for chance.

    A tick's arrivals take 3 000 bytes, so the budget has 36 000 to plan with: 3 600 s of width.
    """
    queries = changes.pop("queries", (SizedQuery("q", {"s": 3600.0}, {"s": 1800.0}, 300.0),))
    streams = (SizedStream("s", 0.1, 100.0, max_width_s=7200.0),)
    return ControllerSpec(streams, queries, budget, TICK, headroom_sd=0.0, **changes)


def _arrivals(counts: list[int], first_tick: int = 0, late_ticks: int = 0) -> Arrivals:
    """So many tuples of 100 bytes a tick."""
    slots = (first_tick + np.arange(len(counts))) * TICK
    tuples = np.array(counts, dtype=np.int64)
    some = tuples > 0
    return Arrivals(slots[some], slots[some] - late_ticks * TICK, tuples[some], tuples[some] * 100.0)


def _run(spec: ControllerSpec, counts: list[int], state: ControllerState | None = None, first: int = 0) -> Advanced:
    state = state or ControllerState.initial(spec)
    end = (first + len(counts)) * TICK
    return advance_counts(spec, state, first * TICK, end, {"s": _arrivals(counts, first)})


def test_the_first_tick_plans_with_declared_rates():
    (row,) = _run(_spec(), [0]).plans
    assert (row.trigger, row.support_level, row.effective_from_us) == ("start", "A", 0)
    assert (row.width_s, row.min_width_s, row.max_width_s, row.byte_rate) == (3600.0, 1800.0, 3600.0, 10.0)
    assert row.planned_bytes == 36_000.0


@pytest.mark.parametrize(
    ("budget", "level", "width_s"),
    [
        pytest.param(39_000.0, "A", 3600.0, id="chance takes nothing that queries need"),
        pytest.param(38_900.0, "B", 3600.0, id="a tick's arrivals take something"),
        pytest.param(49_800.0, "A", 4200.0, id="49 800 − 3 000 − 2·√(M·100): 42 336 bytes"),
    ],
)
def test_chance_is_left_free_by_surplus_alone(budget, level, width_s):
    (row,) = _run(replace(_spec(budget), headroom_sd=2.0), [0]).plans
    assert (row.support_level, row.width_s) == (level, width_s)
    assert row.planned_bytes <= budget - 3000


def test_what_is_held_and_would_serve_is_not_refused_for_a_forecast():
    """Declared ten times too high: memory never fills, so nothing is let go of, whatever level was foreseen."""
    streams = (SizedStream("s", 1.0, 100.0, max_width_s=7200.0),)
    done = _run(replace(_spec(45_000.0), streams=streams), [30] * 200)
    assert done.plans[0].support_level == "infeasible" and min(row.width_s for row in done.plans) == 3600.0
    assert {row.evicted_early for row in done.rates} == {0}
    assert {row.support_level for row in done.query_plans} == {"A"}
    assert done.plans[-1].support_level == "A"  # once the rate is known


def _days(range_days: int, budget: float) -> ControllerSpec:
    """Ticks of a day; a query over so many days; ten tuples of 100 bytes are expected a day."""
    day = 86_400_000_000
    query = SizedQuery("q", {"s": range_days * 86_400.0}, {"s": 43_200.0}, 86_400.0)
    return ControllerSpec((SizedStream("s", 10 / 86_400, 100.0, 40 * 86_400.0),), (query,), budget, day)


def _run_days(spec: ControllerSpec, counts: list[int]) -> Advanced:
    slots = np.arange(len(counts)) * spec.tick_us
    tuples = np.array(counts, dtype=np.int64)
    arrivals = Arrivals(slots, slots, tuples, tuples * 100.0)
    return advance_counts(spec, ControllerState.initial(spec), 0, len(counts) * spec.tick_us, {"s": arrivals})


@pytest.mark.parametrize("burst", [10, 100])
def test_daily_ticks_with_bursts_keep_level_a_at_the_true_need(burst):
    """A day's burst is held for a week, and is not what comes every day."""
    counts = [10] * 30 + [10 * burst] + [10] * 30
    needed = (10 * burst + 10 * 7) * 100.0  # a week, and the tick that is arriving
    done = _run_days(_days(7, needed), counts)
    assert {row.support_level for row in done.query_plans} == {"A"}
    assert max(row.held_bytes for row in done.rates) <= needed
    twice = _run_days(_days(7, 2 * needed), counts)
    assert {row.support_level for row in twice.plans} == {"A"}


@pytest.mark.parametrize("tick_s", [1, 60, 3600, 86_400])
def test_a_burst_is_taken_for_no_more_than_it_brings_whatever_the_tick(tick_s):
    """Rate × widest need never passes what the window holds of a burst, and does not forget it while it is held."""
    query = SizedQuery("q", {"s": 60.0 * tick_s}, {}, float(tick_s))
    spec = ControllerSpec(
        (SizedStream("s", 5 / tick_s, 10.0, 1e9),), (query,), 1e9, tick_s * 1_000_000, half_life_s=1.0
    )
    counts = np.array([5] * 200 + [500] * 3 + [5] * 40)
    slots = np.arange(len(counts)) * spec.tick_us
    arrivals = Arrivals(slots, slots, counts, counts * 10.0)
    done = advance_counts(spec, ControllerState.initial(spec), 0, len(counts) * spec.tick_us, {"s": arrivals})
    foreseen = np.array([row.rate * row.tuple_bytes * query.ranges_s["s"] for row in done.rates])
    held = np.convolve(counts * 10.0, np.ones(60))[: len(counts) - 1]  # by the tick before
    assert (foreseen[101:] <= 1.01 * held[100:]).all() and (foreseen[204:] >= 0.4 * held[203:]).all()


def test_a_silent_stream_holds_what_it_holds():
    """A night without tuples throws nothing away, and asks for nothing."""
    done = _run(_spec(), [30] * 12 + [0] * 6)
    assert {row.evicted_early for row in done.rates} == {0}
    assert done.state.stream("s").held_tuples == 6 * 30 + 30


def test_a_stream_that_no_query_reads_takes_no_memory():
    """Whatever rate it declares, and whatever arrives: its tick is not reserved, and nothing of it is held."""
    spec = _spec()
    spec = replace(spec, streams=(*spec.streams, SizedStream("unread", 1000.0, 100.0, max_width_s=7200.0)))
    arrived = {"s": _arrivals([30, 30]), "unread": _arrivals([300_000, 300_000])}
    done = advance_counts(spec, ControllerState.initial(spec), 0, 2 * TICK, arrived)
    assert [row.support_level for row in done.plans if row.trigger == "start"] == ["A", "A"]
    assert {row.held_bytes for row in done.rates if row.stream == "unread"} == {0}
    assert [row.evicted_early for row in done.rates] == [0, 0, 0, 0]


def test_slack_widens_what_is_needed():
    query = SizedQuery("q", {"s": 1800.0}, {"s": 900.0}, 300.0, slack_s=450.0)
    (row,) = _run(_spec(queries=(query,)), [0]).plans
    assert (row.min_width_s, row.max_width_s) == (900.0 + 600.0, 1800.0 + 600.0)  # K in whole ticks
    assert (query.need_s("s"), query.tolerable_need_s("s"), query.tolerable_s("s")) == (2250.0, 1350.0, 900.0)
    assert replace(query, slack_widths_s={"s": 1800.0}).tolerable_need_s("s") == 0.0


def test_nothing_changes_nothing_is_planned():
    done = _run(_spec(), [30] * 500)
    assert [row.trigger for row in done.plans] == ["start"] and len(done.query_plans) == 1


def test_the_declared_rate_stands_until_the_first_arrival():
    done = _run(_spec(), [0] * 50)
    assert done.state.stream("s").rate == 0.1 and len(done.plans) == 1
    assert done.state.stream("s").first_arrival_us is None
    state = _run(_spec(), [3, 0], done.state, first=50).state
    assert state.stream("s").first_arrival_us == 50 * TICK


def test_a_rate_that_moves_by_more_than_delta_makes_a_plan():
    done = _run(_spec(), [30] * 20 + [9] * 60)
    assert [row.trigger for row in done.plans] == ["start", "rate"]
    half = next(row for row in done.rates if row.rate * row.tuple_bytes < 5.0)
    assert done.plans[1].effective_from_us == half.tick_us + TICK  # for two ticks in a row


def test_the_level_falls_with_a_rate_that_rises():
    done = _run(_spec(), [30] * 20 + [90] * 60)
    assert done.plans[-1].support_level == "infeasible"
    assert done.query_plans[-1].support_level == "unsupported"
    assert all(row.held_bytes <= 39_000 for row in done.rates)


def test_one_odd_tick_is_not_a_change_of_rate():
    query = SizedQuery("q", {"s": 300.0}, {}, 300.0)  # the rate follows within a tick
    spec = _spec(1e9, queries=(query,), half_life_s=60.0, hysteresis_ticks=2)
    assert len(_run(spec, [30] * 8 + [60, 30, 30]).plans) == 1
    assert [row.trigger for row in _run(spec, [30] * 8 + [60, 60, 60]).plans] == ["start", "rate"]


def test_a_quiet_night_does_not_plan_for_ever():
    assert len(_run(_spec(), [30] + [0] * 5000).plans) < 12


def test_a_budget_change_makes_a_plan():
    state = _run(_spec(), [30, 30]).state
    (row,) = _run(_spec(23_000.0), [30, 30], state, first=2).plans
    assert (row.trigger, row.support_level, row.width_s, row.planned_bytes) == ("budget", "B", 3600.0, 18_000.0)


def test_an_edited_declaration_starts_anew():
    state = _run(_spec(), [30, 30]).state
    wider = _spec(queries=(SizedQuery("q", {"s": 3000.0}, {}, 300.0),))
    assert [row.trigger for row in _run(wider, [30], state, first=2).plans] == ["start"]


@pytest.mark.parametrize(
    ("budget", "range_s", "slack_s", "start", "end"),
    [
        pytest.param(1e9, 7000.0, 0.0, True, False, id="A: wider than every other"),
        pytest.param(1e9, 3600.0, 0.0, False, False, id="A: not wider"),
        pytest.param(33_000.0, 2000.0, 600.0, True, True, id="B: reaches Min_T"),
        pytest.param(33_000.0, 1500.0, 0.0, False, False, id="B: below Min_T"),
        pytest.param(12_000.0, 600.0, 0.0, True, True, id="infeasible: always"),
    ],
)
def test_table_4(budget, range_s, slack_s, start, end):
    always = SizedQuery("q", {"s": 3600.0}, {"s": 1800.0}, 300.0)
    guest = SizedQuery("g", {"s": range_s}, {"s": slack_s}, 300.0, active_from_us=10 * MINUTE, active_to_us=30 * MINUTE)
    # What is evicted early says so in the place of what is planned: so little arrives that memory is never full.
    done = _run(_spec(budget, queries=(always, guest)), [30 if budget > 12_000.0 else 9] * 9)
    events = {row.trigger: row.effective_from_us for row in done.plans}
    expected = {"start": 0}
    expected |= {"query_start": 10 * MINUTE} if start else {}
    expected |= {"query_end": 30 * MINUTE} if end else {}
    assert events == expected
    assert any(row.query == "g" and row.effective_from_us == 10 * MINUTE for row in done.query_plans)


def _turns(*guests: SizedQuery, budget: float = 9_500.0, **changes) -> ControllerSpec:
    """Two streams of 1 byte/s that take turns: 6 000 s each every 12 000 s, of which 600 s are always held."""
    streams = (SizedStream("a", 0.1, 10.0, 86_400.0), SizedStream("b", 0.1, 10.0, 86_400.0))
    always = [SizedQuery(f"{s} always", {s: 600.0}, {}, 300.0) for s in "ab"]
    rarely = [SizedQuery(f"{s} rarely", {s: 6000.0}, {}, 12_000.0, slack_s=450.0) for s in "ab"]
    return ControllerSpec(streams, (*always, *rarely, *guests), budget, TICK, headroom_sd=0.0, **changes)


def _run_turns(spec: ControllerSpec, ticks: int, state: ControllerState | None = None, first: int = 0) -> Advanced:
    state = state or ControllerState.initial(spec)
    times = np.arange(first * TICK, (first + ticks) * TICK, 10_000_000)
    arrivals = Arrivals.of(times, times, 10.0, TICK)
    return advance_counts(spec, state, first * TICK, (first + ticks) * TICK, {"a": arrivals, "b": arrivals})


def test_windows_take_turns_and_queries_answer_at_the_ends_of_slots():
    done = _run_turns(_turns(), 100)
    assert {row.support_level for row in done.plans} == {"C"} and len(done.plans) == 2
    swinging = [row for row in done.plans if row.slot_s]
    assert [(row.width_s, row.slot_s, row.period_s) for row in swinging] == [(600.0, 6000.0, 12_000.0)] * 2
    assert sum(row.planned_bytes for row in done.plans) <= 9_500.0 - 600.0
    levels = {row.query: row.support_level for row in done.query_plans}
    assert levels == {"a always": "A", "b always": "A", "a rarely": "C", "b rarely": "C"}
    rarely = [row for row in done.query_plans if row.query == "a rarely"]
    (own,) = [row for row in swinging if row.stream == "a"]
    assert rarely[0].slot_end_us == round((own.slot_offset_s + own.slot_s) * 1e6) and rarely[0].period_s == 12_000.0
    assert max(row.held_bytes for row in done.rates) <= 6600 + 300


@pytest.mark.parametrize(
    ("range_s", "slack_s", "planned"),
    [
        pytest.param(900.0, 300.0, True, id="reaches what is always held"),
        pytest.param(900.0, 600.0, False, id="does not"),
    ],
)
def test_table_4_at_level_c(range_s, slack_s, planned):
    guest = SizedQuery("g", {"a": range_s}, {"a": slack_s}, 300.0, active_from_us=10 * TICK, active_to_us=40 * TICK)
    done = _run_turns(_turns(guest), 60)
    events = {(row.effective_from_us // TICK, row.trigger) for row in done.plans}
    assert events == {(0, "start")} | ({(10, "query_start"), (40, "query_end")} if planned else set())
    guests = [row.support_level for row in done.query_plans if row.query == "g"]
    assert set(guests) == {"B"}  # 600 s are always held


def test_from_regular_answers_to_slots_and_back_no_delay_is_missed():
    state = _run_turns(_turns(budget=20_000.0), 50).state
    assert state.support_level == "A"
    to_slots = _run_turns(_turns(), 41, state, first=50)
    (row,) = [row for row in to_slots.query_plans if row.query == "a rarely"]
    assert row.support_level == "C" and row.extra_answer_us == 50 * TICK
    assert row.slot_end_us - 50 * TICK <= 12_000e6
    last = row.slot_end_us + (91 * TICK - row.slot_end_us) // 12_000_000_000 * 12_000_000_000
    back = _run_turns(_turns(budget=20_000.0), 50, to_slots.state, first=91)
    row = next(row for row in back.query_plans if row.query == "a rarely" and row.extra_answer_us)
    assert row.support_level == "B" and row.effective_from_us == 91 * TICK
    assert row.effective_from_us < row.extra_answer_us <= last + 12_000_000_000
    assert back.query_plans[-1].support_level == "A"  # once the windows have filled


def test_the_less_urgent_loses_when_not_all_can_be_supported():
    queries = (
        SizedQuery("low", {"s": 3000.0}, {"s": 300.0}, 300.0),
        SizedQuery("high", {"s": 1800.0}, {}, 300.0, priority=1),
    )
    done = _run(_spec(22_000.0, queries=queries), [30] * 20)
    assert {row.query: row.support_level for row in done.query_plans} == {"low": "unsupported", "high": "A"}
    assert {row.support_level for row in done.plans} == {"infeasible"}
    assert min(row.width_s for row in done.plans) >= 1800.0
    assert max(row.held_bytes for row in done.rates) > 0.85 * 22_000.0  # what is left serves the other


def test_who_is_admitted_keeps_its_window_from_who_is_not():
    """Both streams are as full; without admission both queries would lose half."""
    streams = tuple(SizedStream(s, 0.1, 100.0, max_width_s=7200.0) for s in "ab")
    queries = (SizedQuery("a", {"a": 3600.0}, {}, 300.0), SizedQuery("b", {"b": 3600.0}, {}, 300.0))
    spec = ControllerSpec(streams, queries, 42_500.0, TICK, headroom_sd=0.0)
    arrivals = _arrivals([30] * 40)
    done = advance_counts(spec, ControllerState.initial(spec), 0, 40 * TICK, {"a": arrivals, "b": arrivals})
    levels = {row.query: row.support_level for row in done.query_plans}
    assert levels == {"a": "A", "b": "unsupported"}
    assert done.state.stream("a").held_bytes == 36_000  # the oldest of 13 panes reaches no answer any more


def test_what_is_learnt_plans_anew_only_if_it_matters():
    spec = _spec(1e9)
    state = _run(spec, [30, 30]).state

    def learnt(**changes) -> Advanced:
        return _run(replace(spec, queries=(replace(spec.queries[0], **changes),)), [30], state, first=2)

    assert learnt(slack_s=450.0).plans[0].trigger == "calibration"
    assert learnt(slack_s=0.0).plans == () and learnt(slack_s=0.0).query_plans == ()
    narrower = learnt(slack_widths_s={"s": 900.0})
    assert narrower.plans == () and narrower.query_plans[0].tolerable_s == {"s": 2700.0}


def test_memory_that_is_full_gives_way_early_and_is_planned_anew():
    """36 000 bytes are held and 3 000 arrive in a tick; 9 000 at once are 6 000 too many: two panes have to go."""
    done = _run(_spec(), [30] * 20 + [90] + [30] * 5)
    eviction = next(row for row in done.plans if row.trigger == "eviction")
    assert eviction.effective_from_us == 20 * TICK and eviction.support_level == "B"
    assert eviction.width_s == 3600.0 - 600.0  # two panes of 3 000 bytes
    rates = {row.tick_us // TICK: row for row in done.rates}
    assert (rates[20].held_bytes, rates[20].evicted_early) == (39_000, 0)
    assert (rates[21].held_bytes, rates[21].evicted_early) == (39_000, 60)
    assert [row.support_level for row in done.query_plans] == ["A", "B"]


def test_a_window_that_gave_way_grows_again_at_once():
    """A burst pushes out four panes, and a pane more in the next tick; after that there is room for all that comes."""
    done = _run(_spec(42_000.0), [30] * 20 + [150] + [5] * 20)
    first, second = [row for row in done.plans if row.trigger == "eviction"]
    assert (first.width_s, first.grows_to_s, second.width_s) == (3600.0 - 900.0, 3600.0, 3600.0 - 900.0)
    levels = [(row.effective_from_us // TICK, row.support_level) for row in done.query_plans]
    assert levels[:3] == [(0, "A"), (20, "B"), (23, "A")] and {level for _, level in levels[2:]} == {"A"}
    held = [row.held_bytes for row in done.rates]
    assert held[21:26] == [42_000, 39_500, 40_000, 40_500, 41_000]


def test_what_no_query_needs_goes_first():
    """Stream a holds 3 600 s, of which queries need 600; stream b is needed whole."""
    streams = (SizedStream("a", 0.1, 100.0, 3600.0), SizedStream("b", 0.1, 100.0, 1800.0))
    queries = (SizedQuery("a", {"a": 600.0}, {}, 300.0), SizedQuery("b", {"b": 1800.0}, {}, 300.0))
    spec = ControllerSpec(streams, queries, 60_000.0, TICK, headroom_sd=0.0)
    counts = [30] * 20
    arrivals = {s: _arrivals(counts) for s in "ab"}
    done = advance_counts(spec, ControllerState.initial(spec), 0, 20 * TICK, arrivals)
    assert {row.stream: row.width_s for row in done.plans if row.trigger == "start"} == {"a": 3600.0, "b": 1800.0}
    burst = advance_counts(
        spec, done.state, 20 * TICK, 21 * TICK, {"a": Arrivals.none(), "b": _arrivals([200], first_tick=20)}
    )
    assert {row.stream for row in burst.plans if row.trigger == "eviction"} == {"a"}
    assert sum(stream.held_bytes for stream in burst.state.streams) <= 60_000


def test_a_burst_beyond_the_whole_budget_leaves_nothing():
    done = _run(_spec(), [30] * 5 + [1000] + [30] * 5)
    eviction = next(row for row in done.plans if row.trigger == "eviction")
    assert eviction.width_s == 0.0
    rates = {row.tick_us // TICK: row for row in done.rates}
    assert (rates[6].held_bytes, rates[6].evicted_early, rates[6].tuples) == (0, 1150, 1000)


def test_a_tuple_before_its_event_time_takes_memory_from_then_on():
    done = advance_counts(
        _spec(), ControllerState.initial(_spec()), 0, 4 * TICK, {"s": _arrivals([7], first_tick=1, late_ticks=-2)}
    )
    assert [row.tuples for row in done.rates] == [0, 0, 7, 0] and [row.held_tuples for row in done.rates] == [0] * 4
    assert done.state.stream("s").held_tuples == 7


def test_a_tuple_that_comes_too_late_is_not_held():
    late = {"s": _arrivals([7, 5], first_tick=20, late_ticks=13)}
    done = advance_counts(_spec(), ControllerState.initial(_spec()), 0, 22 * TICK, late)
    assert done.state.stream("s").held_tuples == 0 and done.rates[-1].tuples == 7


def test_a_tick_may_not_be_left_out():
    state = _run(_spec(), [0]).state
    with pytest.raises(ValueError, match="the tick after 0 is"):
        _run(_spec(), [0], state, first=2)
    with pytest.raises(ValueError, match="multiples of the tick"):
        advance_counts(_spec(), state, MINUTE, TICK, {})
    with pytest.raises(ValueError, match="outside the interval"):
        advance_counts(_spec(), state, TICK, 2 * TICK, {"s": _arrivals([1], first_tick=5)})


def test_tables_have_the_columns_of_the_contract():
    done = _run_turns(_turns(), 12)
    assert plan_table(done.plans).schema == PLAN_SCHEMA and rates_table(done.rates).schema == RATES_SCHEMA
    assert query_plan_table(done.query_plans).schema == QUERY_PLAN_SCHEMA
    assert plan_table(()).num_rows == rates_table(()).num_rows == query_plan_table(()).num_rows == 0
    assert query_plan_table(done.query_plans)["tolerable_s"].to_pylist()[0] == [("a", 600.0)]
    assert plan_table(done.plans)["slot_s"].null_count == 0
    assert done.state.to_arrow().schema == STATE_SCHEMA and done.state.nbytes > 0


def test_counts_and_arrivals_give_the_same():
    times = np.arange(0, 60 * MINUTE, MINUTE)
    counted = _run(_spec(), [5] * 12)
    raw = advance(_spec(), ControllerState.initial(_spec()), 0, 12 * TICK, {"s": times}, {"s": times}, {"s": 100.0})
    assert raw == counted


def test_the_state_survives_arrow_and_a_change_of_streams():
    for state, spec in ((_run(_spec(), [30, 40, 50]).state, _spec()), (_run_turns(_turns(), 30).state, _turns())):
        assert ControllerState.from_arrow(state.to_arrow(), spec) == state
    state, spec = _run(_spec(), [30, 40, 50]).state, _spec()
    other = ControllerSpec((SizedStream("new", 1.0, 1.0, 3600.0),), (), 10.0, spec.tick_us)
    carried = ControllerState.from_arrow(state.to_arrow(), other)
    assert [s.stream for s in carried.streams] == ["new"] and carried.tick_us == state.tick_us
    nothing = pa.Table.from_pylist([], schema=STATE_SCHEMA)
    assert ControllerState.from_arrow(nothing, spec) == ControllerState.initial(spec)


@pytest.mark.parametrize("cut", [1, 17, 33, 45, 61])
def test_bounds_from_a_saved_state_continue_those_of_all_plans(cut):
    guest = SizedQuery("g", {"a": 900.0}, {}, 300.0, active_from_us=40 * TICK)
    spec = _turns(guest)
    whole, first = _run_turns(spec, 80), _run_turns(spec, cut)
    later = _run_turns(spec, 80 - cut, first.state, first=cut)
    ticks = np.arange(cut, 80) * TICK
    for stream in "ab":
        own = [row for row in whole.plans if row.stream == stream]
        every = ControllerState.initial(spec).bounds(stream, own, 80 * TICK)
        continued = first.state.bounds(stream, later.plans, 80 * TICK)
        assert continued.lower_us(ticks).tolist() == every.lower_us(ticks).tolist()
        assert continued.held_from_us(ticks[1:], TICK).tolist() == every.held_from_us(ticks[1:], TICK).tolist()
        events = np.arange(cut - 30, 80) * TICK
        known = every.leave_tick_us(events, TICK) >= ticks[0]
        assert (
            continued.leave_tick_us(events[known], TICK).tolist() == every.leave_tick_us(events[known], TICK).tolist()
        )
    assert isinstance(every, EffectiveBounds)
