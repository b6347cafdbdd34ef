"""Sums of decimals of up to 38 digits, merged and taken back in any order, equal those of Python's Decimal."""

from __future__ import annotations

from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import reduce

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegate.aggregates.decimal_totals import averages, scaled_up
from tidegate.aggregates.exact import split, totals
from tidegate.operators.join_aggregate import Measure, Side, Spec, combined, finish, start, step
from tidegate.operators.schedule import Schedule
from tidegate.values.limbs import LIMBS, as_doubles, divided, from_limbs, from_unscaled, limbs, read, unscaled

LAWS = settings(max_examples=examples(100), deadline=None)
EXACT = Context(prec=300)
MOST = 10**38 - 1
NUMBERS = st.one_of(
    st.integers(-MOST, MOST), st.integers(-300, 300), st.sampled_from([MOST, -MOST, 2**63, -(2**63), 2**64, -(2**64)])
)
SCALES = st.sampled_from([0, 2, 17, 38])


def decimals(numbers: list[int | None], scale: int) -> pa.Array:
    return from_unscaled(numbers, pa.decimal128(38, scale))


@LAWS
@given(st.lists(st.one_of(st.none(), NUMBERS)), SCALES)
def test_limbs_and_whole_numbers_are_the_decimals(numbers: list[int | None], scale: int) -> None:
    column = decimals(numbers, scale)
    assert column.to_pylist() == [None if n is None else Decimal(n).scaleb(-scale, EXACT) for n in numbers]
    assert unscaled(column) == [n or 0 for n in numbers]
    assert from_limbs(limbs(column), column.type, np.array([n is None for n in numbers], bool)).equals(column)
    assert unscaled(column.slice(1)) == [n or 0 for n in numbers[1:]]


@LAWS
@given(st.lists(NUMBERS, max_size=40), st.lists(st.tuples(st.integers(0, 39), st.booleans()), max_size=60))
def test_parts_are_added_and_taken_back_exactly(numbers: list[int], changes: list[tuple[int, bool]]) -> None:
    column = limbs(decimals(list(numbers), 0))
    assert column.dtype == LIMBS
    kind, total, parts = pa.decimal256(76, 0), 0, {}
    for place, adds in changes:
        if place < len(numbers):
            total += numbers[place] if adds else -numbers[place]
            for part, values in split(column[place : place + 1]).items():
                parts[part] = parts.get(part, 0) + int(values[0]) * (1 if adds else -1)
    columns = {part: np.array([number], dtype=np.int64) for part, number in parts.items()}
    assert totals(columns, 1, kind, np.zeros(1, bool)).to_pylist() == [Decimal(total)]


@LAWS
@given(st.data(), SCALES, st.integers(1, 5))
def test_windows_and_partitions_sum_as_decimal_does(data: st.DataObject, scale: int, parts: int) -> None:
    tuples = data.draw(
        st.lists(st.tuples(st.one_of(st.none(), NUMBERS), st.integers(0, 40), st.integers(0, parts - 1)))
    )
    columns = pa.schema([("a0", pa.decimal128(38, scale)), ("a1", pa.decimal128(38, scale))])
    spec = Spec((Side("d"),), (Measure("a0", "sum", "d"), Measure("a1", "max", "d")), columns, in_parts=True)
    schedule = Schedule.from_ticks(np.arange(10, 60, 5), 0, {"d": 15})

    def answers(own: list[tuple[int | None, int, int]]) -> pa.Table:
        own = sorted(own, key=lambda item: item[1])
        values = decimals([number for number, _, _ in own], scale)
        times = pa.array([at for _, at, _ in own], pa.int64())
        sides = pa.array([0] * len(own), pa.int8())
        batch = pa.table({"side": sides, "event_us": times, "arrival_us": times, "a0": values, "a1": values})
        state, early = step(start(spec, schedule), batch)
        return pa.concat_tables([early, finish(state)[1]])

    split_up = [answers([item for item in tuples if item[2] == part]) for part in range(parts)]
    together = combined(spec, pa.concat_tables(split_up)).to_pylist()
    assert together == combined(spec, answers(tuples)).to_pylist()
    for row in together:
        end = int(schedule.window_end_us[row["window_index"]])
        held = [Decimal(n).scaleb(-scale, EXACT) for n, at, _ in tuples if n is not None and end - 15 <= at < end]
        assert row["a0_sum"] == (reduce(EXACT.add, held) if held else None)
        assert row["a1_max"] == max(held, default=None)


@LAWS
@given(st.lists(st.integers(-(10**60), 10**60), min_size=1), st.floats(1e-3, 1), st.integers(1, 10**9))
def test_emitted_sums_and_averages_are_rounded_once(numbers: list[int], share: float, count: int) -> None:
    column, kind = from_unscaled(list(numbers), pa.decimal256(76, 4)), pa.decimal128(38, 4)

    def nearest(number: Fraction) -> int | None:
        found = int((abs(number) + Fraction(1, 2)).__floor__())
        return (found if number >= 0 else -found) if found <= MOST else None

    scaled = scaled_up(column, pa.array([share] * len(numbers)), kind)
    assert unscaled(scaled) == [nearest(Fraction(n) / Fraction(share)) or 0 for n in numbers]
    assert scaled.is_null().to_pylist() == [nearest(Fraction(n) / Fraction(share)) is None for n in numbers]
    whole = scaled_up(column, pa.array([1.0] * len(numbers)), kind)
    assert whole.to_pylist() == [None if abs(n) > MOST else Decimal(n).scaleb(-4, EXACT) for n in numbers]
    mean = averages(column, pa.array([count] * len(numbers)), pa.decimal128(38, 8))
    expected = [nearest(Fraction(n * 10**4, count)) for n in numbers]
    assert mean.to_pylist() == [None if n is None else Decimal(n).scaleb(-8, EXACT) for n in expected]


@LAWS
@given(st.lists(NUMBERS), SCALES)
def test_doubles_are_the_nearest_and_keep_the_order(numbers: list[int], scale: int) -> None:
    found = as_doubles(decimals(list(numbers), scale)).tolist()
    assert found == [float(Fraction(n, 10**scale)) for n in numbers]


@LAWS
@given(st.integers(), st.integers().filter(bool), st.integers(0, 20))
def test_quotients_and_texts_are_rounded_half_up(a: int, b: int, scale: int) -> None:
    exact = EXACT.copy()
    exact.prec = 1000
    quotient = Fraction(abs(a), abs(b))
    expected = int(quotient + Fraction(1, 2))
    assert divided(a, b) == (expected if (a < 0) == (b < 0) else -expected)
    text = f"{a}.{abs(b)}"
    if len(str(abs(a))) < 70:
        wanted = Decimal(text).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, exact)
        assert read(text, scale) == int(wanted.scaleb(scale, exact))


def test_a_spec_of_wide_decimals_takes_sixteen_bytes_a_number() -> None:
    columns = pa.schema([("a0", pa.decimal128(38, 2))])
    spec = Spec((Side("d"),), (Measure("a0", "avg", "d"),), columns)
    assert spec.side_schema(0).field("a0").type.bit_width == 128
    assert replace(spec, in_parts=False).output_schema.field("a0_sum").type == pa.decimal256(76, 2)
