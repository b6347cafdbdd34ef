"""History of streams of every shape, from nothing to one leaf to days: sampled, resampled, asked, reported."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from expectations.policy import Policy
from expectations.suites import history as history_suite
from expectations.tables import Cached, Cases

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import (
    Aggregate,
    Column,
    ColumnType,
    GroupColumn,
    History,
    Output,
    Pipeline,
    Query,
    Stream,
    Window,
    to_us,
)
from tidegate.engine.context import RunContext
from tidegate.history.filled import fill_answers, render_filled
from tidegate.history.questions import estimate, query_history, render
from tidegate.operators.window_sizing import ControllerSpec, ControllerState, EffectiveBounds
from tidegate.queries.planner import FIRST_ARRIVALS, FIRST_SCHEMA, STATE
from tidegate.report.history import history_section
from tidegate.report.tables import Tables
from tidegate.stages import resample_history, sample_history
from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse
from tidegate.values.types import TIMESTAMP, arrow_type

START = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = 2
END = START + timedelta(days=DAYS)
HOUR_US = 3_600_000_000
TICK_US = 300_000_000
Columns = Mapping[str, ColumnType]


@dataclass(frozen=True)
class Shape:
    """One stream: columns, those it is grouped by, how many tuples come, how wide its window is, how odd its values."""

    columns: Columns
    group_by: tuple[str, ...] = ()
    tuples: int = 150
    width_s: int = 3600
    capacity: int = 60
    nulls: float = 0.1
    keeps: bool = True
    extremes: bool = True


def _value(kind: str, rng: np.random.Generator, extremes: bool) -> Any:
    if not extremes and kind in ("integer", "double"):
        return arrow_type(kind).to_pandas_dtype()(rng.integers(0, 100)).item()  # type: ignore[index]
    match kind:
        case "string":
            return str(rng.choice(["ä", "b'c", "", "NULL"]))
        case "integer":
            return int(rng.choice([0, -5, 7, 2**63 - 1, 2**53 + 1]))
        case "double":
            return float(rng.choice([0.0, -1.5, 1e300, 5e-324, 3.25]))
        case "boolean":
            return bool(rng.random() < 0.5)
        case "timestamp":
            return START + timedelta(seconds=float(rng.integers(0, 10**6)))
    return date(2026, 1, int(rng.integers(1, 28)))


def _stream(name: str, shape: Shape) -> Stream:
    kept = History(
        leaf_s=3600, capacity_tuples=shape.capacity, min_fraction=0.05, merge_leaves=2, group_by=shape.group_by
    )
    return Stream(
        name=name,
        format="jsonl",
        path="x.jsonl",
        columns=tuple(Column(name=n, type=t) for n, t in shape.columns.items()),
        id=("event_id",),
        event_time="event_time",
        arrival_time="arrival_time",
        rate=0.01,
        max_early_s=0,
        max_late_s=86_400,
        history=kept if shape.keeps else None,
    )


def _tuples(shape: Shape, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    event = np.sort(rng.integers(0, DAYS * 24 * HOUR_US, shape.tuples)) + to_us(START)
    arrival = np.minimum(event + rng.integers(0, HOUR_US // 4, shape.tuples), to_us(END) - 1)
    order = np.argsort(arrival, kind="stable")
    columns: dict[str, pa.Array] = {
        "event_id": pa.array([f"é{i}" for i in range(shape.tuples)], pa.string()),
        "event_time": pa.array(event[order]).cast(TIMESTAMP),
        "arrival_time": pa.array(arrival[order]).cast(TIMESTAMP),
    }
    for name, kind in shape.columns.items():
        values = [
            None if rng.random() < shape.nulls else _value(kind, rng, shape.extremes) for _ in range(shape.tuples)
        ]
        columns[name] = pa.array(values, arrow_type(kind))
    return pa.table(columns)


def _pipeline(shapes: Mapping[str, Shape], folder: Path) -> Pipeline:
    return Pipeline(
        name="p", folder=folder, owner="o", start=START, interval_s=86_400, tick_s=300, horizon_s=86_400,
        memory_budget_bytes=1 << 20, process_budget_bytes=1 << 30,
        streams=tuple(_stream(name, shape) for name, shape in shapes.items()), queries=(),
    )  # fmt: skip


def _ingested(context: RunContext, shapes: Mapping[str, Shape], tuples: Mapping[str, pa.Table]) -> None:
    """What ingestion leaves behind: events, one plan a stream that holds for good, the controller's state."""
    pipeline, warehouse = context.pipeline, context.warehouse
    intervals = intervals_between(pipeline, START, END)
    with warehouse.commit("ingest", intervals) as commit:
        for interval in intervals:
            states = []
            for stream in ControllerState.initial(ControllerSpec.from_pipeline(pipeline)).streams:
                width_s, rows = shapes[stream.stream].width_s, tuples[stream.stream]
                at = rows.column("arrival_time").cast(pa.int64()).to_numpy()
                own = rows.filter(pa.array((at >= interval.start_us) & (at < interval.end_us)))
                commit.put_arrow(f"events_{stream.stream}", interval, own)
                bounds = EffectiveBounds.of([to_us(START)], [width_s * 1_000_000])
                lower_us = int(bounds.lower_us(np.array([interval.end_us - TICK_US]))[0])
                states.append(
                    replace(stream, plan_from_us=to_us(START), width_s=float(width_s), lower_us=lower_us)
                )  # fmt: skip
            plans = [
                {"stream": name, "effective_from": START, "support_level": "A", "width_s": float(shape.width_s)}
                for name, shape in shapes.items()
                if interval.start == START
            ]
            commit.put_arrow("window_plan", interval, pa.Table.from_pylist(plans, warehouse.schema("window_plan")))
            first = {"stream": list(shapes), "first_arrival_us": [to_us(START)] * len(shapes)}
            some = pa.array([tuples[name].num_rows > 0 for name in shapes])
            commit.put_state(FIRST_ARRIVALS, interval, pa.table(first, schema=FIRST_SCHEMA).filter(some))
            commit.put_state(STATE, interval, ControllerState(tuple(states), interval.end_us - TICK_US, "A").to_arrow())


def _run(shapes: Mapping[str, Shape], folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[RunContext, Any]:
    """All intervals one by one, then all of them again in one go: the second time nothing changes."""
    pipeline = _pipeline(shapes, folder)
    context = RunContext(pipeline, folder / "warehouse", output=io.StringIO())
    tuples = {name: _tuples(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}
    intervals = intervals_between(pipeline, START, END)
    with context:
        _ingested(context, shapes, tuples)
        for interval in intervals:
            for stage in (sample_history, resample_history):
                stage.run(context, [interval])
        before = _history_of(context)
        for stage in (sample_history, resample_history):
            stage.run(context, intervals)
        assert _history_of(context) == before
    capsys.readouterr()
    return context, tuples


def _history_of(context: RunContext) -> dict[str, list[dict[str, Any]]]:
    tables = [t for t in context.warehouse.tables() if t.startswith("history_")]
    return {table: context.warehouse.read_arrow(table).to_pylist() for table in tables}


def _entered(rows: pa.Table, shape: Shape) -> pa.Table:
    """The tuples that have left their window by the end: a tick after their event time plus the width."""
    event = rows.column("event_time").cast(pa.int64()).to_numpy()
    left = (event + shape.width_s * 1_000_000) // TICK_US * TICK_US + TICK_US
    return rows.filter(pa.array(left < to_us(END)))


def _check(context: RunContext, shapes: Mapping[str, Shape], tuples: Mapping[str, pa.Table]) -> None:
    """Everyone who reads history gets an answer, or is told in plain words that there is nothing."""
    for name, shape in shapes.items():
        if shape.keeps:
            _check_stream(context, name, shape, _entered(tuples[name], shape))
    section = history_section(context.pipeline, Tables(context.warehouse))
    assert section.title == "History"
    for interval in intervals_between(context.pipeline, START, END):
        cases = Cases(context.pipeline, (interval,), Cached(context.warehouse))
        frame = history_suite.frame(cases, Policy())
        assert not any(frame.column("unsound_aggregates").drop_null().to_pylist())


def _check_stream(context: RunContext, name: str, shape: Shape, entered: pa.Table) -> None:
    def ask(sql: str) -> dict[str, Any]:
        return query_history(context.pipeline, context.warehouse_root, sql, START, END)

    if not entered.num_rows:
        with pytest.raises(UserError, match="is still empty|has no history"):
            ask(f"SELECT COUNT(*) FROM {name}")
        return
    numeric = [n for n, kind in shape.columns.items() if kind in ("integer", "double")]
    (row,) = ask(f"SELECT COUNT(*) AS n FROM {name}")["rows"]
    assert row["n"] == {"estimate": entered.num_rows, "low": entered.num_rows, "high": entered.num_rows, "exact": True}
    for column, kind in shape.columns.items():
        ask(f"SELECT COUNT({column}) AS n, COUNT(*) AS m FROM {name} WHERE {column} IS NOT NULL")
        answer = ask(f"SELECT {column}, COUNT(*) AS n FROM {name} GROUP BY {column}")
        render(answer)
        if column in shape.group_by:
            assert sum(r["n"]["estimate"] for r in answer["rows"]) == entered.num_rows
        as_arrow = estimate(
            context.pipeline, context.warehouse_root,
            f"SELECT {column}, COUNT(*) AS n FROM {name} WHERE event_id <> '' GROUP BY {column}", START, END,
        )  # fmt: skip
        assert as_arrow.schema.field(column).type == arrow_type(kind)
    for column in numeric:
        values = entered.column(column).drop_null()
        (row,) = ask(f"SELECT SUM({column}) AS s, MIN({column}) AS low, COUNT({column}) AS n FROM {name}")["rows"]
        assert row["n"]["estimate"] == len(values) and row["n"]["exact"]
        assert row["low"]["estimate"] == (None if not len(values) else pytest.approx(float(pc.min(values).as_py())))
        total = sum(float(v) for v in values.to_pylist())
        assert row["s"]["estimate"] == (None if not len(values) else pytest.approx(total))
        ask(f"SELECT AVG({column}) AS a, MAX({column}) AS m FROM {name} WHERE {column} > 0 AND {column} / 2 < 5")


EVERY: Columns = {
    "name": "string", "amount": "double", "units": "integer", "open": "boolean", "seen": "timestamp", "day": "date",
}  # fmt: skip
STRINGS: Columns = {"name": "string", "city": "string"}
TIMES: Columns = {"open": "boolean", "seen": "timestamp", "day": "date"}


@pytest.mark.parametrize("tuples", [0, 1, 150])
def test_columns_of_every_kind_with_and_without_groups(tuples, tmp_path, capsys):
    shapes = {
        "texts": Shape(STRINGS, (), tuples),
        "times": Shape(TIMES, ("open",), tuples),
        "number": Shape({"amount": "double"}, (), tuples),
        "every": Shape(EVERY, ("name", "units", "open"), tuples),
    }
    _check(*_of(_run(shapes, tmp_path, capsys), shapes))


def test_numbers_need_no_group_by(tmp_path, capsys):
    shapes = {"s": Shape({"amount": "double", "units": "integer"}, extremes=False)}
    _check(*_of(_run(shapes, tmp_path, capsys), shapes))


def test_columns_without_any_value(tmp_path, capsys):
    shapes = {"plain": Shape(EVERY, nulls=1.0), "grouped": Shape(EVERY, ("name",), nulls=1.0)}
    _check(*_of(_run(shapes, tmp_path, capsys), shapes))


def test_windows_so_wide_that_nothing_has_become_history_at_the_first_pass(tmp_path, capsys):
    """The first day of `[1 DAY]`: a pass is due and history is still empty."""
    shapes = {"s": Shape(EVERY, ("name",), width_s=36 * 3600)}
    _check(*_of(_run(shapes, tmp_path, capsys), shapes))


def test_windows_that_never_let_go(tmp_path, capsys):
    shapes = {"s": Shape(EVERY, ("name",), width_s=30 * 86_400)}
    _check(*_of(_run(shapes, tmp_path, capsys), shapes))


@pytest.mark.parametrize("capacity", [1, 10_000])
def test_a_store_without_room_for_a_sample_and_one_with_room_for_all(capacity, tmp_path, capsys):
    shapes = {"s": Shape(EVERY, ("name",), capacity=capacity)}
    _check(*_of(_run(shapes, tmp_path, capsys), shapes))


def test_several_streams_of_which_some_keep_a_history_some_groups_and_some_got_nothing(tmp_path, capsys):
    shapes = {
        "plain": Shape({"amount": "double", "units": "integer"}),
        "grouped": Shape({"name": "string", "amount": "integer"}, ("name",)),
        "texts": Shape(STRINGS),
        "bare": Shape({}),
        "young": Shape({"price": "double"}, width_s=30 * 86_400),
        "empty": Shape({"price": "double"}, tuples=0),
        "unkept": Shape(EVERY, keeps=False),
    }
    _check(*_of(_run(shapes, tmp_path, capsys), shapes))


def test_no_stream_keeps_a_history(tmp_path, capsys):
    shapes = {"unkept": Shape(EVERY, keeps=False)}
    context, tuples = _run(shapes, tmp_path, capsys)
    _check(context, shapes, tuples)
    with pytest.raises(UserError, match="keeps no history"):
        query_history(context.pipeline, context.warehouse_root, "SELECT COUNT(*) FROM unkept", START, END)


def test_nothing_has_been_run_at_all(tmp_path):
    shapes = {"s": Shape(EVERY)}
    pipeline = _pipeline(shapes, tmp_path)
    with pytest.raises(UserError, match="has no history"):
        query_history(pipeline, tmp_path / "warehouse", "SELECT COUNT(*) FROM s", START, END)
    section = history_section(pipeline, Tables(Warehouse(tmp_path / "warehouse", pipeline)))
    assert section.missing


@pytest.mark.parametrize("tuples", [0, 1, 150])
def test_narrow_answers_are_filled_from_whatever_history_there_is(tuples, tmp_path, capsys):
    shapes = {"s": Shape({"amount": "double", "name": "string"}, tuples=tuples, width_s=600)}
    context, rows = _run(shapes, tmp_path, capsys)
    group = GroupColumn(slot="g0", alias="s", column="name", type="string", shown_as="name")
    aggregates = (
        Aggregate(slot="a0", function="count", alias=None, expression=None, type="integer"),
        Aggregate(slot="a1", function="max", alias="s", expression="amount", type="double"),
    )
    outputs = (Output(name="n", expression="a0", type="integer"), Output(name="most", expression="a1", type="double"))
    query = Query(
        id="q", kind="aggregate", text="", description="", windows=(Window(alias="s", stream="s", range_s=7200.0),),
        predicates={}, aggregates=aggregates, outputs=outputs, every_s=7200.0,
    )  # fmt: skip
    by_name = query.model_copy(update={"id": "by_name", "group_by": (group,)})
    pipeline = context.pipeline.model_copy(update={"queries": (query, by_name)})
    for query_id in ("q", "by_name"):
        result = fill_answers(pipeline, context.warehouse_root, query_id, START, END)
        assert result["answered"] == len(result["filled"]) and bool(result["filled"]) == bool(tuples)
        assert query_id in render_filled(result)
    event, arrival = rows["s"].column("event_time"), rows["s"].column("arrival_time")
    for window in fill_answers(pipeline, context.warehouse_root, "q", START, END, confidence=0.9999)["filled"]:
        begin, end = window["window_end"] - timedelta(hours=2), window["window_end"]
        inside = pc.and_(pc.greater_equal(event, begin), pc.less(event, end))
        seen = pc.sum(pc.and_(inside, pc.less_equal(arrival, window["emitted_at"]))).as_py()
        (row,) = window["rows"]
        low, high = row["n"]["low"], row["n"]["high"]
        assert (low is None or low <= seen) and (high is None or seen <= high), window


def test_narrow_medians_conditions_and_computed_groups_are_filled(tmp_path, capsys):
    shapes = {"s": Shape({"amount": "double", "name": "string"}, tuples=600, width_s=600, extremes=False)}
    context, rows = _run(shapes, tmp_path, capsys)
    aggregates = (
        Aggregate(slot="a0", function="percentile", alias="s", expression="amount", type="double", parameters=(0.5,)),
        Aggregate(slot="a1", function="bool_or", alias="s", expression="amount > 98", type="boolean"),
    )
    column = "CASE WHEN LENGTH(`name`) > 1 THEN 'long' END"
    group = GroupColumn(slot="g0", alias="s", column=column, type="string", shown_as="size", computed=True)
    kinds: dict[str, tuple[str, ColumnType]] = {
        "size": ("g0", "string"), "median": ("a0", "double"), "high": ("a1", "boolean"),
        "shown": ("CASE WHEN a1 THEN 100 ELSE a0 END", "double"),
    }  # fmt: skip
    query = Query(
        id="q", kind="aggregate", text="", description="", windows=(Window(alias="s", stream="s", range_s=7200.0),),
        predicates={}, aggregates=aggregates, group_by=(group,), having="a0 >= 0 OR a1",
        outputs=tuple(Output(name=n, expression=e, type=t) for n, (e, t) in kinds.items()), every_s=7200.0,
    )  # fmt: skip
    pipeline = context.pipeline.model_copy(update={"queries": (query,)})
    result = fill_answers(pipeline, context.warehouse_root, "q", START, END, confidence=0.9999)
    found = [(window, row) for window in result["filled"] for row in window["rows"]]
    assert len(found) > 20 and "false to true" in render_filled(result)
    table = rows["s"].to_pylist()
    for window, row in found:
        begin, end = window["window_end"] - timedelta(hours=2), window["window_end"]
        truth = [
            tuple_["amount"]
            for tuple_ in table
            if begin <= tuple_["event_time"] < end and tuple_["arrival_time"] <= window["emitted_at"]
            if tuple_["amount"] is not None and (len(tuple_["name"] or "") > 1) == (row["size"] == "long")
        ]
        low, high = row["median"]["low"], row["median"]["high"]
        assert (low is None or low <= np.median(truth)) and (high is None or np.median(truth) <= high), (window, row)
        assert row["high"]["low"] <= (max(truth) > 98) <= row["high"]["high"]
        assert row["shown"]["estimate"] == (100 if row["high"]["estimate"] else row["median"]["estimate"])
    listed = aggregates[0].model_copy(update={"function": "count_distinct", "type": "integer", "parameters": ()})
    other = query.model_copy(update={"aggregates": (listed, aggregates[1])})
    with pytest.raises(UserError, match=r"cannot estimate 'COUNT\(DISTINCT amount\)' from a sample; expected COUNT"):
        fill_answers(pipeline.model_copy(update={"queries": (other,)}), context.warehouse_root, "q", START, END)


def _of(done: tuple[RunContext, Any], shapes: Mapping[str, Shape]) -> Sequence[Any]:
    context, tuples = done
    return context, shapes, tuples
