"""The join-aggregate on examples small enough to check by eye, and what it refuses."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.operators.join_aggregate import (
    Measure,
    Side,
    Spec,
    advance,
    finish,
    start,
    state_bytes,
    step,
)
from tidegate.operators.schedule import Schedule

DELAYS = Spec(
    (Side("d", classes=("j0",), groups=("g0",)), Side("w", classes=("j0",))),
    (Measure("a0", "count"), Measure("a1", "avg", "d"), Measure("a2", "max", "w")),
    pa.schema([("j0", pa.string()), ("g0", pa.string()), ("a1", pa.int64()), ("a2", pa.timestamp("us", tz="UTC"))]),
)


def departure(at: int, origin: str | None, carrier: str | None, delay: int | None, arrival: int | None = None) -> Any:
    return {"side": 0, "event_us": at, "arrival_us": arrival or at, "j0": origin, "g0": carrier, "a1": delay}


def weather(at: int, origin: str | None, stamp: Any = None, arrival: int | None = None) -> Any:
    return {"side": 1, "event_us": at, "arrival_us": arrival or at, "j0": origin, "a2": stamp}


def answers(spec: Spec, schedule: Schedule, rows: list[Any]) -> list[Any]:
    state, early = step(start(spec, schedule), pa.Table.from_pylist(rows, schema=spec.input_schema))
    _, late = finish(state)
    return pa.concat_tables([early, late]).to_pylist()


def test_pairs_of_matching_tuples_per_group() -> None:
    schedule = Schedule.from_ticks(np.array([10]), 0, {"d": 10, "w": 10})
    rows = [
        departure(1, "JFK", "AA", 5),
        weather(2, "JFK"),
        departure(3, "JFK", "AA", None),
        weather(4, "JFK"),
        departure(5, "LGA", "AA", 100),  # no weather there
        departure(6, None, "AA", 100),  # NULL joins nothing
        weather(7, None),
        departure(8, "JFK", None, 7),
    ]
    expected = [
        {"window_index": 0, "g0": "AA", "pairs": 4, "a0_count": 4, "a1_count": 2, "a1_sum": 10},
        {"window_index": 0, "g0": None, "pairs": 2, "a0_count": 2, "a1_count": 2, "a1_sum": 14},
    ]
    assert answers(DELAYS, schedule, rows) == [{**row, "a2_count": 0, "a2_max": None} for row in expected]


def test_each_alias_has_its_own_lower_bound_and_the_end_is_exclusive() -> None:
    schedule = Schedule.from_ticks(np.array([10]), 5, {"d": 2, "w": 10})
    rows = [
        weather(0, "JFK"),
        departure(7, "JFK", "early", 1),
        departure(8, "JFK", "first", 1),
        departure(9, "JFK", "last", 1, arrival=15),
        departure(10, "JFK", "end", 1),
        departure(9, "JFK", "late", 1, arrival=16),
    ]
    rows.sort(key=lambda row: row["arrival_us"])
    assert [row["g0"] for row in answers(DELAYS, schedule, rows)] == ["first", "last"]


def test_a_window_is_answered_only_when_a_later_tuple_has_been_seen() -> None:
    schedule = Schedule.from_ticks(np.array([10, 20]), 0, {"d": 10, "w": 10})
    rows = [departure(5, "JFK", "AA", 1), weather(5, "JFK"), weather(6, "JFK", arrival=10), weather(11, "JFK")]
    state, pairs = start(DELAYS, schedule), []
    for row in rows:
        state, answered = step(state, pa.Table.from_pylist([row], schema=DELAYS.input_schema))
        pairs.append(answered.column("pairs").to_pylist())
    assert pairs == [[], [], [], [2]]
    assert [held.num_rows for held in state.held] == [0, 1]
    state, answered = advance(state, 20)
    assert state.next_window == 1
    state, answered = advance(state, 21)
    assert (state.next_window, answered.num_rows, state_bytes(state)) == (2, 0, 0)


def test_no_batch_at_all_gives_no_rows_of_the_declared_schema() -> None:
    schedule = Schedule.from_ticks(np.array([10, 20]), 0, {"d": 10, "w": 10})
    _, answered = finish(start(DELAYS, schedule))
    assert answered.schema == DELAYS.output_schema
    assert answered.num_rows == 0


def test_extremes_and_counts_of_any_type() -> None:
    spec = Spec(
        (Side("d"),),
        (Measure("a0", "min", "d"), Measure("a1", "max", "d"), Measure("a2", "count", "d")),
        pa.schema([("a0", pa.string()), ("a1", pa.date32()), ("a2", pa.bool_())]),
    )
    rows = [
        {"side": 0, "event_us": 1, "arrival_us": 1, "a0": "b", "a1": None, "a2": False},
        {"side": 0, "event_us": 2, "arrival_us": 2, "a0": "", "a1": 40, "a2": None},
        {"side": 0, "event_us": 3, "arrival_us": 3, "a0": None, "a1": 39, "a2": True},
    ]
    (row,) = answers(spec, Schedule.from_ticks(np.array([10]), 0, {"d": 10}), rows)
    assert (row["pairs"], row["a0_min"], str(row["a1_max"]), row["a2_count"]) == (3, "", "1970-02-10", 2)


def test_negative_zero_and_zero_are_one_key_and_one_group() -> None:
    spec = Spec(
        (Side("a", ("j0",), ("g0",)), Side("b", ("j0",))),
        (Measure("a0", "count"),),
        pa.schema([("j0", pa.float64()), ("g0", pa.float64())]),
    )
    rows = [
        {"side": side, "event_us": 1, "arrival_us": 1, "j0": zero, "g0": zero}
        for side in (0, 1)
        for zero in (0.0, -0.0)
    ]
    (row,) = answers(spec, Schedule.from_ticks(np.array([10]), 0, {"a": 10, "b": 10}), rows)
    assert row["pairs"] == 4


def test_the_state_holds_no_more_than_the_windows() -> None:
    spec = Spec((Side("d"),), (Measure("a0", "count"),), pa.schema([]))
    schedule = Schedule.from_ticks(np.arange(10, 10_000, 10), 20, {"d": 50})
    times = np.arange(10_000)
    batch = pa.table({"side": np.zeros(len(times)), "event_us": times, "arrival_us": times})
    state, early = step(start(spec, schedule), batch)
    state, late = finish(state)
    assert pa.concat_tables([early, late]).column("pairs").to_pylist() == [10, 20, 30, 40] + [50] * 995
    assert state.peak_bytes <= (50 + 20 + 1) * 17


def test_an_integer_total_beyond_64_bits_is_null_and_its_values_are_counted() -> None:
    spec = Spec((Side("d"),), (Measure("a0", "sum", "d"),), pa.schema([("a0", pa.int64())]))
    rows = [{"side": 0, "event_us": 1, "arrival_us": 1, "a0": 2**62}] * 2
    (row,) = answers(spec, Schedule.from_ticks(np.array([10]), 0, {"d": 10}), rows)
    assert (row["a0_count"], row["a0_sum"]) == (2, None)


def pair_of(kind: pa.DataType, function: Any) -> Spec:
    sides = (Side("a", ("j0",)), Side("b", ("j0",)))
    return Spec(sides, (Measure("a0", function, "a"),), pa.schema([("j0", pa.int64()), ("a0", kind)]))


def test_a_sum_over_billions_of_pairs_is_the_rounded_true_sum() -> None:
    rows = 60_000
    values = np.random.default_rng(1).random(rows)
    batch = pa.table(
        {
            "side": np.repeat([0, 1], rows),
            "event_us": np.ones(2 * rows),
            "arrival_us": np.ones(2 * rows),
            "j0": np.zeros(2 * rows),
            "a0": np.concatenate([values, np.zeros(rows)]),
        }
    )
    schedule = Schedule.from_ticks(np.array([10]), 0, {"a": 10, "b": 10})
    state, _ = step(start(pair_of(pa.float64(), "sum"), schedule), batch)
    (row,) = finish(state)[1].to_pylist()
    assert row["pairs"] == rows**2
    assert row["a0_sum"] == float(sum(map(Fraction, values.tolist())) * rows)


def test_nothing_is_left_of_a_large_number_or_of_an_infinity_that_has_left_the_window() -> None:
    spec = Spec((Side("d"),), (Measure("a0", "sum", "d"),), pa.schema([("a0", pa.float64())]))
    values = [1e300, 0.1, math.inf, 0.2, -math.inf, math.nan, 0.3]
    rows = [{"side": 0, "event_us": at, "arrival_us": at, "a0": value} for at, value in enumerate(values)]
    answered = answers(spec, Schedule.from_ticks(np.arange(1, 8), 0, {"d": 2}), rows)
    expected = [1e300, 1e300, math.inf, math.inf, -math.inf, math.nan, math.nan]
    assert str([row["a0_sum"] for row in answered]) == str(expected)
    answered = answers(spec, Schedule.from_ticks(np.arange(1, 8), 0, {"d": 1}), rows)
    assert str([row["a0_sum"] for row in answered]) == str(values)


def test_more_pairs_than_64_bits_can_count_are_an_error() -> None:
    sides = tuple(Side(f"s{i}") for i in range(4))
    spec = Spec(sides, (Measure("a0", "count"),), pa.schema([]))
    times = np.ones(4 * 60_000)
    batch = pa.table({"side": np.repeat(np.arange(4), 60_000), "event_us": times, "arrival_us": times})
    schedule = Schedule.from_ticks(np.array([10]), 0, {side.alias: 10 for side in sides})
    state, _ = step(start(spec, schedule), batch)
    with pytest.raises(OverflowError, match="64 bits"):
        finish(state)


def test_keys_that_never_come_back_leave_nothing_behind() -> None:
    spec = Spec(
        (Side("a", ("j0",)), Side("b", ("j0",), ("g0",))),
        (Measure("a0", "count"), Measure("a1", "max", "b")),
        pa.schema([("j0", pa.int64()), ("g0", pa.string()), ("a1", pa.string())]),
    )
    schedule = Schedule.from_ticks(np.arange(1_000, 200_001, 1_000), 0, {"a": 2_000, "b": 2_000})
    state, codes = start(spec, schedule), []
    for begin in range(0, 200_000, 5_000):
        at = np.arange(begin, begin + 5_000)
        names = [f"key {number}" for number in at]
        batch = {"side": at % 2, "event_us": at, "arrival_us": at, "j0": at // 2, "g0": names, "a1": names}
        state, _ = step(state, pa.table(batch))
        codes.append(sum(map(len, state.books.values())))
    assert max(codes[20:]) <= max(codes[:20])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arrival_us": [5, 4]}, "ascending order of arrival_us"),
        ({"side": [0, 2]}, "column side must lie in 0..1"),
        ({"event_us": [1, None]}, "event_us holds NULLs"),
    ],
)
def test_unfit_batches_are_refused(change: dict[str, Any], message: str) -> None:
    schedule = Schedule.from_ticks(np.array([10]), 0, {"d": 10, "w": 10})
    columns = {"side": [0, 1], "event_us": [1, 2], "arrival_us": [1, 2], "j0": ["x", "x"], "g0": ["y", None]}
    columns |= {"a1": [1, None], "a2": [None, None]}
    with pytest.raises(ValueError, match=re.escape(message)):
        step(start(DELAYS, schedule), pa.table(columns | change))
    del columns["j0"]
    with pytest.raises(ValueError, match="lacks columns"):
        step(start(DELAYS, schedule), pa.table(columns))


def test_tuples_before_the_last_batch_are_refused() -> None:
    state = start(DELAYS, Schedule.from_ticks(np.array([10]), 0, {"d": 10, "w": 10}))
    state, _ = step(state, pa.Table.from_pylist([weather(5, "JFK")], schema=DELAYS.input_schema))
    with pytest.raises(ValueError, match="ascending order"):
        step(state, pa.Table.from_pylist([weather(4, "JFK")], schema=DELAYS.input_schema))


def test_a_group_that_is_a_class_needs_no_column() -> None:
    spec = Spec(
        (Side("a", ("j0",)), Side("b", ("j0",))),
        (Measure("a0", "count"),),
        pa.schema([("j0", pa.string())]),
        (("g0", "j0"),),
    )
    rows = [{"side": side, "event_us": 1, "arrival_us": 1, "j0": key} for side in (0, 1) for key in ("y", "x", None)]
    answered = answers(spec, Schedule.from_ticks(np.array([10]), 0, {"a": 10, "b": 10}), rows)
    assert [(row["g0"], row["pairs"]) for row in answered] == [("x", 1), ("y", 1)]
    with pytest.raises(ValueError, match=r"groups by classes \['j1'\] that no side has"):
        Spec(spec.sides, spec.aggregates, spec.columns, (("g0", "j1"),))


@pytest.mark.parametrize(
    ("sides", "aggregates", "columns", "message"),
    [
        ((), (), [], "no sides"),
        ((Side("a"), Side("a")), (), [], "alias named twice"),
        ((Side("a"),), (Measure("a0", "sum"),), [], "SUM of 'a0' has no alias"),
        ((Side("a"),), (Measure("a0", "max", "b"),), [("a0", pa.int64())], "unknown alias 'b'"),
        ((Side("a"),), (Measure("a0", "avg", "a"),), [("a0", pa.string())], "needs a number, not string"),
        ((Side("a"),), (Measure("a0", "avg", "a"),), [("a1", pa.int64())], "columns must be"),
    ],
)
def test_contradictory_specs_are_refused(sides: Any, aggregates: Any, columns: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Spec(sides, aggregates, pa.schema(columns))


def test_a_schedule_without_an_alias_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no lower bounds for aliases \['w'\]"):
        start(DELAYS, Schedule.from_ticks(np.array([10]), 0, {"d": 10}))
