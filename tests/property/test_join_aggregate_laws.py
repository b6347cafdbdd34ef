"""Laws of the join-aggregate, against every combination of tuples counted one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.operators.join_aggregate import (
    Measure,
    Side,
    Spec,
    State,
    advance,
    finish,
    oracle,
    start,
    state_bytes,
    step,
)
from tidegate.operators.schedule import Schedule

Row = dict[str, Any]
LAWS = settings(max_examples=80, deadline=None)

ALONE = Spec(
    (Side("a", groups=("g0",)),),
    (Measure("a0", "count"), Measure("a1", "avg", "a"), Measure("a2", "max", "a"), Measure("a3", "count", "a")),
    pa.schema([("g0", pa.string()), ("a1", pa.float64()), ("a2", pa.string()), ("a3", pa.bool_())]),
)
PAIR = Spec(
    (Side("a", classes=("j0", "j1")), Side("b", classes=("j0", "j1"), groups=("g0", "g1"))),
    (Measure("a0", "count"), Measure("a1", "sum", "a"), Measure("a2", "min", "b"), Measure("a3", "sum", "b")),
    pa.schema(
        [
            ("j0", pa.string()),
            ("j1", pa.int64()),
            ("g0", pa.string()),
            ("g1", pa.int64()),
            ("a1", pa.float64()),
            ("a2", pa.float64()),
            ("a3", pa.int64()),
        ]
    ),
)
STAR = Spec(
    (Side("a", classes=("j0",)), Side("b", classes=("j0",), groups=("g0",)), Side("c", classes=("j0",))),
    (Measure("a0", "count"), Measure("a1", "sum", "c"), Measure("a2", "max", "a"), Measure("a3", "count", "b")),
    pa.schema([("j0", pa.string()), ("g0", pa.string()), ("a1", pa.int64()), ("a2", pa.int64()), ("a3", pa.float64())]),
)
CHAIN = Spec(  # a and c meet only through b
    (Side("a", classes=("j0",), groups=("g0",)), Side("c", classes=("j1",), groups=("g1",)), Side("b", ("j0", "j1"))),
    (Measure("a0", "count"), Measure("a1", "avg", "a"), Measure("a2", "sum", "b"), Measure("a3", "min", "c")),
    pa.schema(
        [
            ("j0", pa.string()),
            ("j1", pa.int64()),
            ("g0", pa.int64()),
            ("g1", pa.string()),
            ("a1", pa.int64()),
            ("a2", pa.float64()),
            ("a3", pa.string()),
        ]
    ),
)
TOTAL = Spec(  # no group, no shared class: the cross product
    (Side("a"), Side("b")),
    (Measure("a0", "count"), Measure("a1", "sum", "a"), Measure("a2", "max", "b")),
    pa.schema([("a1", pa.float64()), ("a2", pa.int64())]),
)
CYCLE = Spec(
    (Side("a", ("j0", "j1")), Side("b", ("j1", "j2")), Side("c", ("j2", "j0"), groups=("g0",))),
    (Measure("a0", "count"), Measure("a1", "sum", "b")),
    pa.schema([("j0", pa.string()), ("j1", pa.int64()), ("j2", pa.int64()), ("g0", pa.string()), ("a1", pa.int64())]),
)
SPECS = {"alone": ALONE, "pair": PAIR, "star": STAR, "chain": CHAIN, "total": TOTAL, "cycle": CYCLE}


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Few distinct values and NULL; doubles that add up exactly, so that the oracle must agree to the last bit."""
    if pa.types.is_string(kind):
        return st.sampled_from([None, "", "x", "é"])
    if pa.types.is_boolean(kind):
        return st.sampled_from([None, True, False])
    if pa.types.is_integer(kind):
        return st.sampled_from([None, -3, 0, 7])
    return st.sampled_from([None, -0.25, 0.0, 1.5, 4096.0])


UGLY = st.sampled_from([0.1, 0.2, 0.3, 1 / 3, -0.7, 1e16, -1e16, 1e-9])  # sums depend on the order


@st.composite
def streams(draw: st.DrawFn, spec: Spec, most: int = 24) -> list[Row]:
    """Rows in order of arrival, with ties and late ones."""
    rows = []
    for _ in range(draw(st.integers(0, most))):
        side = draw(st.integers(0, len(spec.sides) - 1))
        event_us = draw(st.integers(0, 40))
        late_us = draw(st.sampled_from([0, 0, 1, 5, 20]))
        row = {"side": side, "event_us": event_us, "arrival_us": event_us + late_us}
        owned = set(spec.side_schema(side).names)
        for field in spec.columns:
            row[field.name] = draw(values_of(field.type)) if field.name in owned else None
        rows.append(row)
    return sorted(rows, key=lambda row: int(row["arrival_us"]))


@st.composite
def schedules(draw: st.DrawFn, aliases: tuple[str, ...]) -> Schedule:
    """Ticks with a slack that rises and falls, and lower bounds that differ by alias and never move back."""
    every = draw(st.sampled_from([4, 5, 12]))
    ends = np.arange(0, 60, every, dtype=np.int64)
    slack = np.array(draw(st.lists(st.sampled_from([0, 3, 9, 30]), min_size=len(ends), max_size=len(ends))))
    ranges = {alias: draw(st.sampled_from([4, 10, 25])) for alias in aliases}
    lower = {}
    for alias in aliases:
        widths = draw(st.lists(st.sampled_from([0, 4, 10, 99]), min_size=len(ends), max_size=len(ends)))
        lower[alias] = np.maximum.accumulate(ends - np.array(widths, dtype=np.int64))
    return Schedule.from_ticks(ends, slack, ranges, lower)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Spec, Schedule, list[Row]]:
    spec = SPECS[draw(st.sampled_from(sorted(SPECS)))]
    return spec, draw(schedules(tuple(side.alias for side in spec.sides))), draw(streams(spec))


def batch_of(spec: Spec, rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=spec.input_schema)


def run(spec: Spec, schedule: Schedule, rows: list[Row], cuts: list[int] = [], save: bool = False) -> pa.Table:  # noqa: B006
    """All answers, with the stream cut into batches, and the state saved and loaded between them if asked to."""
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    state, parts = start(spec, schedule), []
    for begin, end in zip(edges[:-1], edges[1:], strict=True):
        state, answered = step(state, batch_of(spec, rows[begin:end]))
        parts.append(answered)
        if save:
            state = State.from_arrow(state.to_arrow(), spec, schedule)
    state, answered = finish(state)
    assert state_bytes(state) == 0
    return pa.concat_tables([*parts, answered]).combine_chunks()


def as_set(rows: list[Row]) -> set[tuple[Any, ...]]:
    return {tuple(sorted(row.items())) for row in rows}


@LAWS
@given(cases())
def test_answers_equal_the_definition(case: tuple[Spec, Schedule, list[Row]]) -> None:
    spec, schedule, rows = case
    answered = run(spec, schedule, rows)
    assert answered.schema == spec.output_schema
    expected = oracle.answers(spec, schedule, rows)
    assert len(expected) == answered.num_rows
    assert as_set(answered.to_pylist()) == as_set(expected)


@LAWS
@given(cases(), st.lists(st.integers(0, 24), max_size=5), st.booleans())
def test_batch_boundaries_and_a_saved_state_change_nothing(
    case: tuple[Spec, Schedule, list[Row]], cuts: list[int], save: bool
) -> None:
    assert run(*case, cuts=cuts, save=save).equals(run(*case))


@LAWS
@given(cases(), st.randoms(use_true_random=False))
def test_order_among_equal_arrivals_changes_nothing(case: tuple[Spec, Schedule, list[Row]], random: Any) -> None:
    spec, schedule, rows = case
    shuffled = sorted(random.sample(rows, len(rows)), key=lambda row: int(row["arrival_us"]))
    assert run(spec, schedule, shuffled).equals(run(spec, schedule, rows))


@LAWS
@given(st.sampled_from(["pair", "star"]), st.data())
def test_partitions_of_a_shared_class_combine_to_the_whole(name: str, data: st.DataObject) -> None:
    spec = SPECS[name]
    schedule = data.draw(schedules(tuple(side.alias for side in spec.sides)))
    rows = data.draw(streams(spec))
    whole = run(spec, schedule, rows)
    parts = [run(spec, schedule, [r for r in rows if (r["j0"] in ("x", None)) is first]) for first in (True, False)]
    combining = {
        column: ("min" if column.endswith("_min") else "max" if column.endswith("_max") else "sum")
        for column in spec.output_schema.names
        if column not in ("window_index", *spec.groups)
    }
    combined = pa.concat_tables(parts).group_by(["window_index", *spec.groups]).aggregate(list(combining.items()))
    combined = combined.rename_columns(
        ["window_index", *spec.groups, *combining]
        if combined.column_names[0] == "window_index"
        else [*combining, "window_index", *spec.groups]
    )
    assert as_set(combined.to_pylist()) == as_set(whole.to_pylist())


@LAWS
@given(cases(), st.integers(0, 90))
def test_two_runs_over_a_growing_schedule_give_the_answers_of_one(
    case: tuple[Spec, Schedule, list[Row]], cut_us: int
) -> None:
    """The host's way: interval by interval, each from the state that the one before it left."""
    spec, schedule, rows = case
    state, first = step(start(spec, schedule), batch_of(spec, [r for r in rows if r["arrival_us"] < cut_us]))
    state, second = advance(state, cut_us)
    left = schedule.slice(cut_us, 10**9)
    state, third = step(
        State.from_arrow(state.to_arrow(), spec, left), batch_of(spec, [r for r in rows if r["arrival_us"] >= cut_us])
    )
    state, fourth = finish(state)
    shift = len(schedule) - len(left)
    later = pa.concat_tables([third, fourth])
    later = later.set_column(0, spec.output_schema.field(0), pc.add(later.column(0), shift))
    assert pa.concat_tables([first, second, later]).combine_chunks().equals(run(spec, schedule, rows))


@LAWS
@given(
    st.lists(st.tuples(st.integers(0, 1), UGLY, st.integers(0, 1)), min_size=10, max_size=60),
    st.randoms(use_true_random=False),
)
def test_sums_of_doubles_are_the_same_bytes_in_any_order(values: list[tuple[int, float, int]], random: Any) -> None:
    spec = Spec(
        (Side("a", ("j0",)), Side("b", ("j0",))),
        (Measure("a0", "sum", "a"), Measure("a1", "avg", "b")),
        pa.schema([("j0", pa.int64()), ("a0", pa.float64()), ("a1", pa.float64())]),
    )
    schedule = Schedule.from_ticks(np.array([10]), 0, {"a": 10, "b": 10})
    rows = [
        {"side": s, "event_us": 1, "arrival_us": 1, "j0": j, f"a{s}": value, f"a{1 - s}": None}
        for s, value, j in values
    ]
    answered = run(spec, schedule, rows)
    shuffled = run(spec, schedule, random.sample(rows, len(rows)), cuts=[random.randrange(61)])
    for column in ("a0_sum", "a1_sum"):
        bits = [t.column(column).to_numpy().view(np.int64).tolist() for t in (answered, shuffled)]
        assert bits[0] == bits[1]
    for got, expected in zip(answered.to_pylist(), oracle.answers(spec, schedule, rows), strict=True):
        for slot, side in (("a0_sum", 0), ("a1_sum", 1)):
            magnitude = sum(abs(value) for s, value, _ in values if s == side) * max(1, len(values))
            assert abs(got[slot] - expected[slot]) <= 1e-12 * magnitude


@LAWS
@given(cases(), st.integers(0, 24))
def test_only_what_a_window_still_needs_is_held(case: tuple[Spec, Schedule, list[Row]], cut: int) -> None:
    spec, schedule, rows = case
    state = start(spec, schedule)
    for batch in (rows[:cut], rows[cut:]):
        state, _ = step(state, batch_of(spec, batch))
        for side, held in zip(spec.sides, state.held, strict=True):
            needed_us = schedule.needed_from_us(side.alias)[state.next_window]
            assert all(event_us >= needed_us for event_us in held.column("event_us").to_pylist())
    whole, _ = step(start(spec, schedule), batch_of(spec, rows))
    assert finish(state)[0].peak_bytes == finish(whole)[0].peak_bytes
