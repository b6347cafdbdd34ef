"""Laws of the join-aggregate, against every combination of tuples counted one by one."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegate.aggregates import exact
from tidegate.aggregates.accumulators import GREATEST, LEAST, Extreme
from tidegate.operators.join_aggregate import (
    Cells,
    Measure,
    Side,
    Spec,
    combined,
    finish,
    oracle,
    start,
    state_bytes,
    step,
)
from tidegate.operators.join_aggregate.chains import cut
from tidegate.operators.join_aggregate.rows import extreme_over, rows_for
from tidegate.operators.join_aggregate.running import Crest
from tidegate.operators.schedule import Schedule

Row = dict[str, Any]
LAWS = settings(max_examples=examples(80), deadline=None)

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
BY_CLASS = Spec(  # groups that are join keys, beside one that is not
    (Side("a", ("j0",), ("g1",)), Side("b", ("j0", "j1")), Side("c", ("j1",))),
    (Measure("a0", "count"), Measure("a1", "sum", "a"), Measure("a2", "max", "c"), Measure("a3", "count", "b")),
    pa.schema(
        [("j0", pa.string()), ("j1", pa.int64()), ("g1", pa.int64()), *((f"a{i}", pa.int64()) for i in (1, 2, 3))]
    ),
    (("g0", "j0"),),
)
BY_KEY = Spec(  # j1 joins nothing, but groups; an extreme of texts
    (Side("a", ("j0",)), Side("b", ("j0", "j1"))),
    (Measure("a0", "count"), Measure("a1", "avg", "a"), Measure("a2", "min", "b")),
    pa.schema([("j0", pa.float64()), ("j1", pa.string()), ("a1", pa.float64()), ("a2", pa.string())]),
    (("g0", "j0"), ("g1", "j1")),
)
BY_ALL = Spec(  # groups of both sides, two keys of which one groups, and one that joins nothing
    (Side("a", ("j0", "j1"), ("g1",)), Side("b", ("j1", "j2", "j0"), ("g2",))),
    (Measure("a0", "count"), Measure("a1", "avg", "b"), Measure("a2", "max", "a"), Measure("a3", "count", "a")),
    pa.schema(
        [
            ("j0", pa.int64()),
            ("j1", pa.string()),
            ("j2", pa.int64()),
            ("g1", pa.string()),
            ("g2", pa.int64()),
            *((f"a{i}", pa.float64()) for i in (1, 2, 3)),
        ]
    ),
    (("g0", "j1"), ("g3", "j2")),
)
COMPARED = Spec(  # conditions over both sides, one of which reads two columns of one
    (Side("a", ("j0",), compared=("c0", "c1")), Side("b", ("j0",), ("g0",), ("c2", "c3"))),
    PAIR.aggregates,
    pa.schema(
        [
            ("j0", pa.string()),
            ("g0", pa.string()),
            *((f"c{i}", pa.int64()) for i in (0, 1, 2)),
            ("c3", pa.string()),
            ("a1", pa.float64()),
            ("a2", pa.float64()),
            ("a3", pa.int64()),
        ]
    ),
    conditions=("c0 <= c2", "c1 > c2 OR c3 = 'x' AND c0 = 0 OR c1 IS NULL AND c3 IS NULL"),
)
COMPARED_CHAIN = Spec(  # a and c, which meet only through b, are compared; and all three
    (
        Side("a", ("j0",), ("g0",), ("c0",)),
        Side("c", ("j1",), compared=("c1",)),
        Side("b", ("j0", "j1"), compared=("c2",)),
    ),
    (Measure("a0", "count"), Measure("a1", "avg", "a"), Measure("a2", "sum", "b"), Measure("a3", "min", "c")),
    pa.schema(
        [
            ("j0", pa.string()),
            ("j1", pa.int64()),
            ("g0", pa.int64()),
            *((f"c{i}", pa.int64()) for i in range(3)),
            ("a1", pa.int64()),
            ("a2", pa.float64()),
            ("a3", pa.string()),
        ]
    ),
    conditions=("c0 <> c1", "c0 + c1 >= c2"),
)
SPECS = {"alone": ALONE, "pair": PAIR, "star": STAR, "chain": CHAIN, "total": TOTAL, "cycle": CYCLE}
SPECS |= {
    "compared": COMPARED,
    "compared chain": COMPARED_CHAIN,
    "by class": BY_CLASS,
    "by key": BY_KEY,
    "by all": BY_ALL,
}


def of_decimals(spec: Spec) -> Spec:
    """The same with decimals in the place of numbers: of all 38 digits, but for extremes."""
    extremes = {measure.slot for measure in spec.aggregates if measure.extreme is not None}

    def decimal(field: pa.Field) -> pa.Field:
        if not (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)):
            return field
        return field.with_type(pa.decimal128(12, 2) if field.name in extremes else pa.decimal128(38, 3))

    return replace(spec, columns=pa.schema([decimal(field) for field in spec.columns]))


SPECS |= {f"{name} of decimals": of_decimals(spec) for name, spec in SPECS.items()}


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Few distinct values and NULL; doubles that add up exactly, so that the oracle must agree to the last bit."""
    if pa.types.is_string(kind):
        return st.sampled_from([None, "", "x", "é"])
    if pa.types.is_boolean(kind):
        return st.sampled_from([None, True, False])
    if pa.types.is_integer(kind):
        return st.sampled_from([None, -3, 0, 7])
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        numbers = [most, -most, most // 3, -(2**31), 2**32 + 5, 0, 1]
        return st.sampled_from([None, *(Decimal(n).scaleb(-kind.scale, WIDE) for n in numbers)])
    return st.sampled_from([None, -0.25, 0.0, 1.5, 4096.0])


WIDE = Context(prec=200)
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


def run(spec: Spec, schedule: Schedule, rows: list[Row], cuts: list[int] = []) -> pa.Table:  # noqa: B006
    """All answers, with the stream cut into batches."""
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    state, parts = start(spec, schedule), []
    for begin, end in zip(edges[:-1], edges[1:], strict=True):
        state, answered = step(state, batch_of(spec, rows[begin:end]))
        parts.append(answered)
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
@given(cases(), st.lists(st.integers(0, 24), max_size=5))
def test_batch_boundaries_change_nothing(case: tuple[Spec, Schedule, list[Row]], cuts: list[int]) -> None:
    assert run(*case, cuts=cuts).equals(run(*case))


@LAWS
@given(st.data(), st.integers(1, 30), st.integers(1, 30))
def test_cells_answer_as_their_tuples_do(data: st.DataObject, batch_rows: int, block_rows: int) -> None:
    number = pa.field("a2", pa.float64())
    spec = SPECS[data.draw(st.sampled_from(sorted(SPECS)))]
    if "a2" in spec.columns.names:  # an extreme of strings has no cells
        spec = replace(spec, columns=spec.columns.set(spec.columns.get_field_index("a2"), number))
    if "a3" in spec.columns.names and pa.types.is_string(spec.columns.field("a3").type):
        spec = replace(spec, columns=spec.columns.set(spec.columns.get_field_index("a3"), number.with_name("a3")))
    asked = [data.draw(schedules(tuple(side.alias for side in spec.sides))) for _ in range(2)]
    rows = data.draw(streams(spec, 40))
    for row in rows:
        for name in ("a1", "a2"):
            if name in spec.side_schema(row["side"]).names and pa.types.is_floating(spec.columns.field(name).type):
                row[name] = data.draw(st.one_of(UGLY, st.sampled_from([None, math.inf, math.nan, -0.0, 1e300])))
    batches = [batch_of(spec, rows[at : at + batch_rows]) for at in range(0, len(rows), batch_rows)]
    with patch.multiple("tidegate.operators.join_aggregate.cells", _GATHERED_ROWS=batch_rows):
        cells = Cells.of(spec, asked, batches)
    assert cells is not None
    for schedule in asked:
        sizes = {"BLOCK_ROWS": block_rows, "ANSWER_ROWS": batch_rows, "LEAST_WINDOWS": 1}
        with patch.multiple("tidegate.operators.join_aggregate.operator", **sizes):
            given_ = list(cells.answers(schedule))
        answered = pa.concat_tables([spec.output_schema.empty_table(), *(part for _, _, part in given_)])
        expected = run(spec, schedule, rows)
        # NaN equals nothing, and neither do floats of other bits.
        assert repr(answered.to_pylist()) == repr(expected.to_pylist())
        assert [first for first, _, _ in given_] == [0, *(last for _, last, _ in given_)][:-1]


@LAWS
@given(cases(), st.randoms(use_true_random=False))
def test_order_among_equal_arrivals_changes_nothing(case: tuple[Spec, Schedule, list[Row]], random: Any) -> None:
    spec, schedule, rows = case
    shuffled = sorted(random.sample(rows, len(rows)), key=lambda row: int(row["arrival_us"]))
    assert run(spec, schedule, shuffled).equals(run(spec, schedule, rows))


@LAWS
@given(st.sampled_from(["pair", "star", "compared", "pair of decimals"]), st.data())
def test_partitions_of_a_shared_class_combine_to_the_whole(name: str, data: st.DataObject) -> None:
    spec = SPECS[name]
    schedule = data.draw(schedules(tuple(side.alias for side in spec.sides)))
    rows = data.draw(streams(spec))
    whole, split_up = run(spec, schedule, rows), replace(spec, in_parts=True)
    parts = [run(split_up, schedule, [r for r in rows if (r["j0"] in ("x", None)) is first]) for first in (True, False)]
    assert as_set(combined(split_up, pa.concat_tables(parts)).to_pylist()) == as_set(whole.to_pylist())


@LAWS
@given(
    st.lists(
        st.tuples(st.floats(width=64), st.integers(0, 3), st.integers(0, 20), st.sampled_from(["x", "y", None])),
        max_size=30,
    )
)
def test_sums_of_any_doubles_do_not_depend_on_the_partitions(
    tuples: list[tuple[float, int, int, str | None]],
) -> None:
    """Infinities and NaN included: the bytes of one partition, down to the sign of a zero."""
    measures = (Measure("a0", "sum", "d"), Measure("a1", "min", "d"), Measure("a2", "max", "d"))
    types = pa.schema([("g0", pa.string()), *((m.slot, pa.float64()) for m in measures)])
    spec = Spec((Side("d", groups=("g0",)),), measures, types)
    schedule = Schedule.from_ticks(np.array([10, 20]), 30, {"d": 15})

    def answers(spec: Spec, bucket: int | None) -> pa.Table:
        own = sorted((t for t in tuples if bucket in (None, t[1])), key=lambda t: t[2])
        times = {"side": [0] * len(own), "event_us": [t[2] for t in own], "arrival_us": [t[2] for t in own]}
        values = {m.slot: [t[0] for t in own] for m in measures}
        batch = pa.table({**times, "g0": [t[3] for t in own], **values}, schema=spec.input_schema)
        state, early = step(start(spec, schedule), batch)
        return pa.concat_tables([early, finish(state)[1]])

    split_up = replace(spec, in_parts=True)
    whole = answers(spec, None)
    parts = combined(split_up, pa.concat_tables([answers(split_up, bucket) for bucket in range(4)]))
    assert {repr(row) for row in parts.to_pylist()} == {repr(row) for row in whole.to_pylist()}


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
    peak_bytes = finish(whole)[0].peak_bytes
    assert finish(state)[0].peak_bytes == peak_bytes
    one_by_one = {"ANSWER_ROWS": 0, "LEAST_WINDOWS": 1}
    with patch.multiple("tidegate.operators.join_aggregate.operator", **one_by_one):
        assert finish(step(start(spec, schedule), batch_of(spec, rows))[0])[0].peak_bytes == peak_bytes


@settings(LAWS, max_examples=examples(40))
@given(cases(), st.integers(1, 9), st.lists(st.integers(0, 24), max_size=3))
def test_sizes_of_blocks_parts_and_codebooks_change_nothing(
    case: tuple[Spec, Schedule, list[Row]], block_rows: int, cuts: list[int]
) -> None:
    whole = run(*case)
    package = "tidegate.operators.join_aggregate"
    with (
        patch(f"{package}.operator.BLOCK_ROWS", block_rows),
        patch(f"{package}.operator.ANSWER_ROWS", 0),
        patch(f"{package}.operator.LEAST_WINDOWS", block_rows),
        patch(f"{package}.operator.CODES_PER_ROW", 1 << 20),
        patch(f"{package}.held.SMALL_PART_ROWS", block_rows // 2),
        patch(f"{package}.state.SPARE_CODES", 0),
        patch(f"{package}.codebook.SPREAD", 0),
        patch(f"{package}.rows.PLACES_PER_MARK", block_rows - 1),
        patch(f"{package}.chains.LONGEST_GAP", block_rows),
        patch(f"{package}.joins.SPREAD", block_rows - 1),
        patch(f"{package}.combinations.SPREAD", block_rows % 3),
        patch(f"{package}.grids.ROW_NS", (block_rows - 1) * 1000),  # nothing or all on a grid
        patch(f"{package}.grids.SLAB_WINDOWS", block_rows),
        patch(f"{package}.grids.CHUNK_CELLS", block_rows * 9),
        patch(f"{package}.pairs.PAIRS_PER_TUPLE", block_rows % 3 / 2),
        patch(f"{package}.joins.LOOKED_AT", block_rows - 1),
        patch(f"{package}.joins.SUMMED_UP", block_rows),
    ):
        assert run(*case, cuts=cuts).equals(whole)


@pytest.mark.parametrize("name", sorted({"pair", "star", "chain", "cycle", "by class"}))
@pytest.mark.parametrize("keys", [3, 40])
def test_joins_on_a_grid_and_row_by_row_give_the_same_bytes(name: str, keys: int) -> None:
    on_grid, by_row = (
        answers_with(name, keys, {"grids.ROW_NS": row_ns, "pairs.PAIRS_PER_TUPLE": 0}) for row_ns in (10**6, 0)
    )
    assert on_grid.num_rows > 0
    assert on_grid.equals(by_row)


@pytest.mark.parametrize("name", ["pair", "by key", "by all"])
@pytest.mark.parametrize(("keys", "null"), [(3, 0.1), (40, 0.1), (200, 0.1), (40, 1.0)])
def test_joins_by_pairs_and_by_totals_give_the_same_bytes(name: str, keys: int, null: float) -> None:
    """Also where a block is joined by pairs and the next one by totals, as they become more; and of NULLs alone."""
    by_totals = answers_with(name, keys, {"pairs.PAIRS_PER_TUPLE": 0}, null)
    assert by_totals.num_rows > 0
    for most in (3 / keys, 1, 10**9):
        found = answers_with(name, keys, {"pairs.PAIRS_PER_TUPLE": most, "operator.BLOCK_ROWS": 500}, null)
        assert found.equals(by_totals)


def answers_with(name: str, keys: int, constants: dict[str, float], null: float = 0.1) -> pa.Table:
    """Of 6000 tuples, whose keys and groups are so many numbers, with some constants of the operator.

    ``null``: the share of NULLs among measured values; a tenth of keys and groups is NULL.
    """
    spec, rng, count = SPECS[name], np.random.default_rng(keys), 6_000
    schedule = changing_schedule(rng, 10_000).slice(0, 4_000)
    schedule = Schedule(
        schedule.window_end_us,
        schedule.emit_us,
        {side.alias: schedule.lower_us["ab"[i % 2]] for i, side in enumerate(spec.sides)},
    )
    at = np.sort(rng.integers(0, 4_000, count))
    columns: dict[str, Any] = {"side": rng.integers(0, len(spec.sides), count).astype(np.int8)}
    columns |= {"event_us": at, "arrival_us": at}
    for field in spec.columns:
        most, lacking = (keys, 0.1) if field.name[0] in "jg" else (999, null)
        number = pa.array(rng.integers(0, most, count), mask=rng.random(count) < lacking)
        columns[field.name] = number.cast(field.type)
    batch = pa.table(columns).cast(spec.input_schema)
    with ExitStack() as patched:
        for constant, value in constants.items():
            patched.enter_context(patch(f"tidegate.operators.join_aggregate.{constant}", value))
        state, early = step(start(spec, schedule), batch)
        return pa.concat_tables([early, finish(state)[1]])


@given(schedules(("a", "b")))
def test_no_chain_of_windows_moves_back(schedule: Schedule) -> None:
    chains = cut(schedule, ["a", "b"])
    for chain in np.unique(chains):
        for bound in (schedule.window_end_us, schedule.lower_us["a"], schedule.lower_us["b"]):
            assert (np.diff(bound[chains == chain]) >= 0).all()
    never_back = all((np.diff(b) >= 0).all() for b in (schedule.window_end_us, *schedule.lower_us.values()))
    assert (len(np.unique(chains)) == 1) == never_back


DOUBLES = st.lists(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300), max_size=20)


@given(DOUBLES, DOUBLES)
def test_a_sum_in_parts_is_the_rounded_true_sum_whatever_came_and_went(stay: list[float], go: list[float]) -> None:
    totals: dict[exact.Part, Any] = {}
    for values, sign in ((stay, 1), (go, 1), (go, -1)):
        for part, column in exact.split(np.array(values)).items():
            totals[part] = totals.get(part, 0) + sign * np.array([sum(map(int, column))])
    expected = math.fsum(stay)
    for bits in (32, 16, 8):
        (found,) = exact.rounded(exact.narrowed(totals, 32, bits) if bits < 32 else totals, 1)
        assert found == expected


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_a_sum_of_integers_is_exact_or_refused(values: list[int]) -> None:
    parts = exact.split(np.array(values, dtype=np.int64))
    totals = {part: np.array([sum(map(int, column))]) for part, column in parts.items()}
    numbers, beyond = exact.integers(totals, 1)
    assert bool(beyond[0]) == (not -(2**63) <= sum(values) < 2**63)
    assert beyond[0] or numbers[0] == sum(values)


SPANS = st.lists(st.tuples(st.integers(0, 29), st.integers(1, 30), st.integers(-9, 9)), max_size=20)


@given(SPANS, st.sampled_from([LEAST, GREATEST]))
def test_the_extreme_over_intervals_is_that_of_those_that_cover_a_row(spans: list[Any], extreme: Extreme) -> None:
    begin, length, value = (np.array([s[i] for s in spans], dtype=np.int64) for i in range(3))
    end = np.minimum(begin + length, 30)
    pick = min if extreme is LEAST else max
    for row, found in enumerate(extreme_over(extreme, begin, end, value, 30).tolist()):
        covering = [v for b, e, v in zip(begin, end, value, strict=True) if b <= row < e]
        assert found == (pick(covering) if covering else extreme.absent)


@given(SPANS, st.sampled_from([LEAST, GREATEST]))
def test_a_crest_has_the_extreme_of_whatever_has_not_left(spans: list[Any], extreme: Extreme) -> None:
    event_us, code, value = (np.array([s[i] for s in spans], dtype=np.int64) for i in range(3))
    crest = Crest.of(extreme, code % 3, event_us, value, None)
    pick = min if extreme is LEAST else max
    for of in range(3):
        for from_us in range(31):
            left = [v for e, c, v in zip(event_us, code % 3, value, strict=True) if c == of and e >= from_us]
            kept = [
                v for e, c, v in zip(crest.event_us, crest.code, crest.value, strict=True) if c == of and e >= from_us
            ]
            assert (pick(left) if left else None) == (pick(kept) if kept else None)


@given(st.lists(st.integers(0, 39), max_size=60), st.integers(0, 100))
def test_every_history_has_a_row_at_its_first_window_and_at_each_mark(marks: list[int], per_mark: int) -> None:
    places = np.array(marks, dtype=np.int64)
    with patch("tidegate.operators.join_aggregate.rows.PLACES_PER_MARK", per_mark):
        first, window, (row,) = rows_for([places], 4, 10)
    owner = np.repeat(np.arange(4), np.diff(first, append=len(window)))
    assert (window[first] == 0).all()
    assert (owner[row] * 10 + window[row] == places).all()
    assert (np.diff(owner * 10 + window) > 0).all()


# Many arrivals, against sums per key and group over the tuples of one window at a time.
KEYS, GROUPS = 40, 3
LARGE = Spec(
    (Side("a", classes=("j0",)), Side("b", classes=("j0",), groups=("g0",))),
    tuple(
        Measure(f"a{i}", f, alias)
        for i, (f, alias) in enumerate(  # type: ignore[arg-type]
            [("count", None), ("sum", "a"), ("avg", "b"), ("min", "b"), ("max", "a"), ("count", "a")]
        )
    ),
    pa.schema([("j0", pa.int64()), ("g0", pa.int64()), *((f"a{i}", pa.float64()) for i in range(1, 6))]),
)


def arrivals(rng: np.random.Generator, count: int, span_us: int) -> dict[str, Any]:
    """Tuples in order of arrival: ties, lateness with a long tail, a silent stretch, NULLs; numbers add up exactly."""
    event_us = rng.integers(0, span_us, count)
    event_us[(event_us > span_us // 2) & (event_us < span_us * 6 // 10)] = span_us // 3
    late_us = np.where(rng.random(count) < 0.5, 0, rng.exponential(span_us / 200, count)).astype(np.int64)
    order = np.argsort(event_us + late_us, kind="stable")
    key = np.minimum(rng.zipf(1.5, count) - 1, KEYS - 1)
    return {
        "side": rng.integers(0, 2, count).astype(np.int8),
        "event_us": event_us[order],
        "arrival_us": (event_us + late_us)[order],
        "key": np.where(rng.random(count) < 0.05, -1, key),
        "group": rng.integers(-1, GROUPS, count),
        "value": np.where(rng.random(count) < 0.1, np.nan, rng.integers(-4000, 4000, count) / 4),
    }


def changing_schedule(rng: np.random.Generator, span_us: int) -> Schedule:
    """400 windows of unequal widths that change at any of them, the slack rising and falling."""
    ends = np.arange(1, 401) * (span_us // 400)
    slack_us = rng.choice([0, span_us // 300, span_us // 100], 8).repeat(50)
    ranges_us = {"a": span_us // 40, "b": span_us // 15}
    lower_us = {
        alias: np.maximum.accumulate(ends - (range_us * rng.choice([0.0, 0.3, 1.0, 1.0], 400)).astype(np.int64))
        for alias, range_us in ranges_us.items()
    }
    return Schedule.from_ticks(ends, slack_us, ranges_us, lower_us)


def answers_of_window(rows: dict[str, Any], schedule: Schedule, window: int) -> dict[Any, list[Any]]:
    """Group → pairs, sum a, count and sum b, least b, largest a, count a."""
    seen = (rows["arrival_us"] <= schedule.emit_us[window]) & (rows["event_us"] < schedule.window_end_us[window])
    seen &= rows["key"] >= 0
    inside = [
        np.flatnonzero(seen & (rows["side"] == side) & (rows["event_us"] >= schedule.lower_us[alias][window]))
        for side, alias in enumerate("ab")
    ]
    (key_a, value_a), (key_b, value_b) = ((rows["key"][i], rows["value"][i]) for i in inside)
    group_b, found = rows["group"][inside[1]], {}
    n_a, known_a = np.bincount(key_a, minlength=KEYS), ~np.isnan(value_a)
    for group in range(-1, GROUPS):
        own_key, own = key_b[group_b == group], value_b[group_b == group]
        n_b, known = np.bincount(own_key, minlength=KEYS), ~np.isnan(own)
        pairs, count_b = int(n_a @ n_b), int(n_a[own_key[known]].sum())
        if not pairs:
            continue
        count_a = int(n_b[key_a[known_a]].sum())
        joined_a, joined_b = value_a[known_a & (n_b[key_a] > 0)], own[known & (n_a[own_key] > 0)]
        found[None if group < 0 else group] = [
            pairs,
            float((value_a * n_b[key_a])[known_a].sum()) if count_a else None,
            count_b,
            float((own * n_a[own_key])[known].sum()) if count_b else None,
            float(joined_b.min()) if len(joined_b) else None,
            float(joined_a.max()) if len(joined_a) else None,
            count_a,
        ]
    return found


def check_arrivals(seed: int, count: int, windows: int) -> None:
    rng = np.random.default_rng(seed)
    span_us = 10_000_000
    rows, schedule = arrivals(rng, count, span_us), changing_schedule(rng, span_us)
    table = pa.table({name: rows[name] for name in ("side", "event_us", "arrival_us")})
    table = table.append_column("j0", pa.array(rows["key"], mask=rows["key"] < 0))
    table = table.append_column("g0", pa.array(rows["group"], mask=rows["group"] < 0))
    for slot in LARGE.columns.names[2:]:
        table = table.append_column(slot, pa.array(rows["value"], mask=np.isnan(rows["value"])))
    current, parts = start(LARGE, schedule), []
    edges = np.unique([0, *rng.integers(0, count, 7), count])
    for begin, end in zip(edges[:-1], edges[1:], strict=True):
        current, answered = step(current, table.slice(begin, end - begin))
        parts.append(answered)
    current, answered = finish(current)
    columns = ["pairs", "a1_sum", "a2_count", "a2_sum", "a3_min", "a4_max", "a5_count"]
    found: dict[int, dict[Any, list[Any]]] = {window: {} for window in range(len(schedule))}
    for row in pa.concat_tables([*parts, answered]).to_pylist():
        found[row["window_index"]][row["g0"]] = [row[name] for name in columns]
    assert any(not answers for answers in found.values()), "some windows are empty"
    for window in rng.choice(len(schedule), windows, replace=False).tolist():
        assert found[window] == answers_of_window(rows, schedule, window)


def test_a_hundred_thousand_arrivals_are_answered_as_defined() -> None:
    for seed in range(2):
        check_arrivals(seed, 100_000, 400)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_a_million_arrivals_are_answered_as_defined(seed: int) -> None:
    check_arrivals(1000 + seed, 1_000_000, 25)
