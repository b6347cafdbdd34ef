"""Laws of the top-k, against every window sorted as a whole."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegate.operators.accuracy import accuracy_at, hit_rate, needed_slack
from tidegate.operators.schedule import Schedule
from tidegate.operators.top_k import (
    Spec,
    Term,
    finish,
    merge,
    oracle,
    sifted,
    start,
    state_bytes,
    step,
)

Row = dict[str, Any]
LAWS = settings(max_examples=examples(100), deadline=None)
PANE_US = 4


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    kinds = draw(st.lists(st.sampled_from([pa.float64(), pa.int64(), pa.string(), pa.bool_()]), max_size=2))
    order = tuple(Term(f"o{i}", draw(st.booleans())) for i in range(len(kinds)))
    fields = [pa.field(f"o{i}", kind) for i, kind in enumerate(kinds)]
    payload = [pa.field("payload", pa.string())] if draw(st.booleans()) else []
    kinds = draw(st.lists(st.sampled_from([pa.string(), pa.int64(), pa.bool_()]), max_size=2))
    grouped = [pa.field(f"g{i}", kind) for i, kind in enumerate(kinds)]
    columns = pa.schema(fields + grouped + payload)
    return Spec(draw(st.integers(1, 4)), order, columns, PANE_US, "s", tuple(f.name for f in grouped))


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_string(kind):
        return st.sampled_from([None, "", "Z", "a", "é"])
    if pa.types.is_boolean(kind):
        return st.sampled_from([None, True, False])
    if pa.types.is_integer(kind):
        return st.sampled_from([None, -2, 0, 5])
    return st.sampled_from([None, -0.0, 0.0, 1.5, math.nan, math.inf, -math.inf])


@st.composite
def streams(draw: st.DrawFn, spec: Spec) -> list[Row]:
    rows = []
    for number in range(draw(st.integers(0, 30))):
        event_us = draw(st.integers(0, 40))
        row = {
            "event_us": event_us,
            "event_id": draw(st.sampled_from("aBé")) + str(number),
            "arrival_us": event_us + draw(st.sampled_from([0, 0, 1, 6, 20])),
        }
        rows.append(row | {field.name: draw(values_of(field.type)) for field in spec.columns})
    return sorted(rows, key=lambda row: int(row["arrival_us"]))


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    ends = np.arange(0, 60, draw(st.sampled_from([4, 8, 20])), dtype=np.int64)
    many = {"min_size": len(ends), "max_size": len(ends)}
    slack = np.array(draw(st.lists(st.sampled_from([0, 3, 9, 30]), **many)))
    widths = np.array(draw(st.lists(st.sampled_from([0, 4, 12, 400]), **many)), dtype=np.int64)
    lower = {"s": np.maximum.accumulate(ends - widths)}
    return Schedule.from_ticks(ends, slack, {"s": draw(st.sampled_from([4, 12, 24]))}, lower)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Spec, Schedule, list[Row]]:
    spec = draw(specs())
    return spec, draw(schedules()), draw(streams(spec))


def batch_of(spec: Spec, rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=spec.input_schema)


def told(answers: pa.Table) -> str:
    """All values, of which NaN is not unlike NaN."""
    return repr(answers.to_pylist())


def run(spec: Spec, schedule: Schedule, rows: list[Row], cuts: tuple[int, ...] | list[int] = ()) -> pa.Table:
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    state, parts = start(spec, schedule), []
    for begin, end in zip(edges[:-1], edges[1:], strict=True):
        state, answered = step(state, batch_of(spec, rows[begin:end]))
        parts.append(answered)
        held = state.candidates.select(["event_us", *spec.groups]).to_pylist()
        units = Counter((row["event_us"] // PANE_US, *(row[name] for name in spec.groups)) for row in held)
        assert max(units.values(), default=0) <= spec.k
    state, answered = finish(state)
    assert state_bytes(state) == 0
    return pa.concat_tables([*parts, answered]).combine_chunks()


@LAWS
@given(cases())
def test_answers_equal_the_definition(case: tuple[Spec, Schedule, list[Row]]) -> None:
    answered = run(*case)
    assert answered.schema == case[0].output_schema
    assert told(answered) == told(pa.Table.from_pylist(oracle.answers(*case), schema=answered.schema))


@LAWS
@given(cases(), st.lists(st.integers(0, 30), max_size=5))
def test_batch_boundaries_change_nothing(case: tuple[Spec, Schedule, list[Row]], cuts: list[int]) -> None:
    assert told(run(*case, cuts=cuts)) == told(run(*case))


@LAWS
@given(cases(), st.lists(st.integers(0, 30), max_size=3))
def test_what_is_sifted_out_of_any_stretch_is_in_no_answer(
    case: tuple[Spec, Schedule, list[Row]], cuts: list[int]
) -> None:
    """One sieve for all schedules: it sees none."""
    spec, schedule, rows = case
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [sifted(spec, batch_of(spec, rows[a:b])) for a, b in zip(edges[:-1], edges[1:], strict=True)]
    left = pa.concat_tables(parts).to_pylist()
    assert told(run(spec, schedule, left)) == told(run(spec, schedule, rows))


@LAWS
@given(cases(), st.randoms(use_true_random=False))
def test_order_among_equal_arrivals_changes_nothing(case: tuple[Spec, Schedule, list[Row]], random: Any) -> None:
    spec, schedule, rows = case
    shuffled = sorted(random.sample(rows, len(rows)), key=lambda row: int(row["arrival_us"]))
    assert told(run(spec, schedule, shuffled)) == told(run(spec, schedule, rows))


@LAWS
@given(cases(), st.integers(1, 4))
def test_partitions_merge_to_the_whole(case: tuple[Spec, Schedule, list[Row]], partitions: int) -> None:
    spec, schedule, rows = case
    parts = [run(spec, schedule, rows[number::partitions]) for number in range(partitions)]
    assert told(merge(parts, spec)) == told(run(spec, schedule, rows))


@settings(max_examples=examples(15), deadline=None)  # each one runs the operator for every slack
@given(specs(), st.data())
def test_needed_slack_gives_the_accuracy_of_every_slack(spec: Spec, data: st.DataObject) -> None:
    """accuracy(K) = share of the true winners with needed slack ≤ K, for every K, against the answers really given."""
    rows = data.draw(streams(spec))
    ends = np.arange(0, 60, 4, dtype=np.int64)
    ranges = {"s": 12}
    truth = run(spec, Schedule.from_ticks(ends, 1_000, ranges), rows)
    window_end = pa.array(ends)
    needed = needed_slack(truth.column("arrival_us").to_numpy(), ends[truth.column("window_index").to_numpy()])
    winners = np.bincount(truth.column("window_index").to_numpy(), minlength=len(ends))
    weights = 1 / np.maximum(winners, 1)[truth.column("window_index").to_numpy()]
    for slack_us in range(0, 22):
        answered = run(spec, Schedule.from_ticks(ends, slack_us, ranges), rows)
        named, true = (
            t.append_column("window_end", window_end.take(t.column("window_index").combine_chunks()))
            for t in (answered, truth)
        )
        rates = hit_rate(named, true, window_end)
        for window in range(len(ends)):
            own = needed[truth.column("window_index").to_numpy() == window]
            assert rates[window] == accuracy_at(own, slack_us / 1e6)
        if winners.any():
            assert np.isclose(rates[winners > 0].mean(), accuracy_at(needed, slack_us / 1e6, weights))


SAMPLED = settings(max_examples=examples(25), deadline=None)


@SAMPLED
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 3, 40]),
    st.sampled_from([1, 7]),
    st.sampled_from([0, 2_000, 30_000]),
    st.sampled_from([0, 5_000, 60_000]),
    st.sampled_from([3, 1_000_000]),
    st.booleans(),
)
def test_large_batches_give_the_best_too(
    seed: int, k: int, groups: int, delay_us: int, slack_us: int, scores: int, outliers: bool
) -> None:
    """Of many tuples most fall by a sample and by plain numbers: the windows by numpy, whatever the ties."""
    chance = np.random.default_rng(seed)
    rows, pane_us = 20_000, 5_000
    event_us = np.sort(chance.integers(0, 200_000, rows))
    if outliers:
        event_us[chance.integers(0, rows, 3)] += 10**9
    arrival_us = event_us + (chance.exponential(delay_us, rows).astype(np.int64) if delay_us else 0)
    place = np.argsort(arrival_us, kind="stable")
    event_us, arrival_us = event_us[place], arrival_us[place]
    score, group = chance.integers(0, scores, rows), chance.integers(0, groups, rows)
    columns = pa.schema([("o0", pa.int64()), ("g0", pa.int64())])
    spec = Spec(k, (Term("o0"),), columns, pane_us, "s", ("g0",) if groups > 1 else ())
    ids = np.array([f"{number:05}" for number in range(rows)])
    times = {"event_us": event_us, "arrival_us": arrival_us}
    batch = pa.table({**times, "event_id": ids, "o0": score, "g0": group})
    ends = np.arange(pane_us, 260_000, pane_us)
    schedule = Schedule.from_ticks(ends, slack_us, {"s": 40_000})
    state, first = step(start(spec, schedule), batch.slice(0, 15_000))
    state, second = step(state, batch.slice(15_000))
    answers = pa.concat_tables([first, second, finish(state)[1]])
    window = answers.column("window_index").to_numpy()
    for index in range(len(schedule)):
        inside = (event_us >= schedule.lower_us["s"][index]) & (event_us < schedule.window_end_us[index])
        inside = np.flatnonzero(inside & (arrival_us <= schedule.emit_us[index]))
        own = group[inside] if groups > 1 else np.zeros(len(inside), dtype=np.int64)
        order = np.lexsort((ids[inside], event_us[inside], -score[inside], own))
        inside, own = inside[order], own[order]
        best = inside[np.arange(len(own)) - np.searchsorted(own, own) < k]
        assert answers.filter(pa.array(window == index)).column("event_id").to_pylist() == ids[best].tolist()
