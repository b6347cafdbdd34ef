"""History answers what leaves and samples know, as DuckDB does on the same tuples; the rest is refused in words."""

from __future__ import annotations

import io
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import sqlglot
from tests.spark.test_history_stages import END, HISTORY, START, calls_of, expected_entry_us, pipeline_in, write_events

from tidegate.aggregates import read_call
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, to_us
from tidegate.engine.context import RunContext
from tidegate.history.questions import estimate, query_history, render
from tidegate.stages import sample_history

EXACT = [
    "COUNT(DISTINCT units)", "COUNT(DISTINCT kind)", "SUM(DISTINCT units)", "MAX_BY(kind, cost)", "MIN_BY(cost, units)",
    "FIRST_VALUE(kind)", "LAST_VALUE(cost)", "ANY_VALUE(kind)", "ANY_VALUE(cost)", "MIN(kind)", "MAX(event_time)",
    "BOOL_OR(units > 8)", "BOOL_AND(units > 0)", "MEDIAN(cost)", "PERCENTILE(units, 0.95)", "MAX(cost > 30)",
    "COUNT(DISTINCT kind) FILTER (WHERE units > 6)", "FIRST_VALUE(kind) FILTER (WHERE units = 3)", "COUNT(*)",
]  # fmt: skip


class Calls:
    """Three days of calls, some of each leaf's tuples sampled or all of them, and no pass."""

    def __init__(self, root: Path, share: float):
        made = pipeline_in(root / "phones")
        history = HISTORY.model_copy(update={"max_fraction": share, "capacity_tuples": 100_000})
        calls = made.streams[0].model_copy(update={"history": history})
        self.pipeline: Pipeline = made.model_copy(update={"streams": (calls, made.streams[1])})
        self.root = root / "warehouse"
        context = RunContext(self.pipeline, self.root, output=io.StringIO())
        context.warehouse.folder.mkdir(parents=True)
        self.tuples = calls_of(4)
        sample_history.run(context, write_events(self.pipeline, self.root, self.tuples))

    def ask(self, sql: str, start: datetime = START, end: datetime = END, **options: Any) -> dict[str, Any]:
        return query_history(self.pipeline, self.root, sql, start, end, **options)

    def truth(self, sql: str, start: datetime = START, end: datetime = END) -> list[tuple[Any, ...]]:
        """DuckDB's answer on the tuples that have entered history."""
        entered = self.tuples.filter(pa.array(expected_entry_us(self.tuples) < to_us(END)))
        calls = entered.filter((pc.field("event_time") >= start) & (pc.field("event_time") < end))
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("calls", calls)
        return connection.execute(sql).fetchall()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Calls:
    return Calls(tmp_path_factory.mktemp("kept"), 1.0)


@pytest.fixture(scope="module")
def thin(tmp_path_factory: pytest.TempPathFactory) -> Calls:
    return Calls(tmp_path_factory.mktemp("thin"), 0.4)


def in_duckdb(aggregate: str) -> str:
    call = read_call(sqlglot.parse_one(aggregate, dialect="spark"))
    argument, by = (part.sql("duckdb") if part is not None else "" for part in (call.argument, call.by))
    if call.condition is None:
        return call.function.duckdb(argument or "*", by or "event_time", call.parameters)
    condition = call.condition.sql("duckdb")
    if call.function.chooses:
        return call.function.duckdb(argument, f"CASE WHEN {condition} THEN {by or 'event_time'} END", call.parameters)
    return call.function.duckdb(f"CASE WHEN {condition} THEN {argument} END", by, call.parameters)


@pytest.mark.parametrize("groups", ["", "kind", "HOUR(event_time) >= 12", "units % 2, kind"])
def test_a_past_whose_tuples_are_all_kept_is_answered_exactly(kept: Calls, groups: str) -> None:
    start, end = START + timedelta(hours=7, minutes=20), START + timedelta(hours=52)
    terms = groups.split(", ") if groups else []
    shown = [f"{term} AS g{i}" for i, term in enumerate(terms)]
    asked = ", ".join([*shown, *(f"{aggregate} AS a{i}" for i, aggregate in enumerate(EXACT))])
    tail = f" WHERE cost IS NOT NULL{f' GROUP BY {groups}' if groups else ''}"
    found = kept.ask(f"SELECT {asked} FROM calls{tail}", start, end)["rows"]
    told = ", ".join([*shown, *map(in_duckdb, EXACT)])
    expected = sorted(kept.truth(f"SELECT {told} FROM calls{tail}", start, end), key=str)
    assert len(found) == len(expected) > 0
    rows = [tuple(v["estimate"] if isinstance(v, dict) else v for v in row.values()) for row in found]
    assert all(value["exact"] for row in found for value in row.values() if isinstance(value, dict))
    for row, truth in zip(sorted(rows, key=str), expected, strict=True):
        assert row == tuple(pytest.approx(v) if isinstance(v, float) else v for v in truth)


def test_no_tuples_are_answered_like_no_rows(kept: Calls) -> None:
    sql = "SELECT COUNT(DISTINCT kind) AS n, MAX_BY(kind, cost) AS k, MEDIAN(cost) AS m FROM calls WHERE kind = 'none'"
    (row,) = kept.ask(sql)["rows"]
    assert [value["estimate"] for value in row.values()] == [0, None, None]
    assert all(value["exact"] for value in row.values())


def test_a_table_has_the_answers_types(kept: Calls) -> None:
    sql = (
        "SELECT units > 4 AS many, MAX_BY(kind, cost) AS k, COUNT(DISTINCT units) AS n, BOOL_OR(cost > 9) AS b, "
        "MEDIAN(units) AS m, MAX(event_time) AS last FROM calls GROUP BY many"
    )
    table = estimate(kept.pipeline, kept.root, sql, START, END)
    types = {name: str(table.schema.field(name).type) for name in ("many", "k", "n", "b", "m", "last")}
    assert types == {
        "many": "bool", "k": "string", "n": "int64", "b": "bool", "m": "double", "last": "timestamp[us, tz=UTC]"
    }  # fmt: skip
    assert table.column("many").to_pylist() == [False, True] and table.column("k_low").equals(table.column("k"))
    text = render(kept.ask(sql))
    assert "true (exact)" in text and "2013-02-0" in text


@pytest.mark.parametrize("aggregate", ["COUNT(DISTINCT units)", "MAX_BY(kind, cost)", "LAST_VALUE(cost)", "MIN(kind)"])
def test_what_a_sample_does_not_show_is_refused_with_what_it_does(thin: Calls, aggregate: str) -> None:
    with pytest.raises(UserError) as error:
        thin.ask(f"SELECT COUNT(*), {aggregate} AS a FROM calls", within=0.01)
    text = str(error.value)
    assert f"of the tuples of that time, and '{aggregate}' needs each of them" in text and "MEDIAN(x)" in text


def test_a_refusal_says_from_when_on_every_tuple_is_kept(thin: Calls) -> None:
    """Leaves in which nothing happened are kept whole: the last of the period does not hold the answer back."""
    last = thin.tuples.filter(pa.array(expected_entry_us(thin.tuples) < to_us(END))).column("event_time")
    end = pc.max(last).as_py().replace(minute=0, second=0, microsecond=0) + timedelta(hours=2)
    with pytest.raises(UserError, match=f"the same --from {end - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ} on"):
        thin.ask("SELECT COUNT(DISTINCT units) AS n FROM calls", END - timedelta(hours=12), end)


def test_values_of_a_group_column_are_those_of_the_leaves(thin: Calls) -> None:
    start = START + timedelta(hours=60)
    (row,) = thin.ask("SELECT COUNT(DISTINCT kind) AS n FROM calls", start, start + timedelta(hours=5))["rows"]
    assert row["n"] == {"estimate": 3, "low": 3, "high": 3, "exact": True}
    for minutes in range(3, 60, 8):
        cut = start + timedelta(minutes=minutes), start + timedelta(minutes=minutes + 9)
        (row,) = thin.ask("SELECT COUNT(DISTINCT kind) AS n FROM calls", *cut)["rows"]
        ((truth,),) = thin.truth("SELECT COUNT(DISTINCT kind) FROM calls", *cut)
        assert row["n"]["low"] <= truth <= row["n"]["high"] <= 3
    with pytest.raises(UserError, match="needs each of them"):
        thin.ask("SELECT COUNT(DISTINCT kind) AS n FROM calls WHERE units > 2", start)


def test_any_value_is_the_least_of_whole_leaves(thin: Calls) -> None:
    start = START + timedelta(hours=50)
    found = thin.ask("SELECT ANY_VALUE(cost) AS a, MIN(cost) AS b FROM calls", start, start + timedelta(hours=9))
    (row,) = found["rows"]
    ((truth,),) = thin.truth("SELECT MIN(cost) FROM calls", start, start + timedelta(hours=9))
    assert row["a"] == row["b"] == {"estimate": truth, "low": truth, "high": truth, "exact": True}
    assert found["sampled_rows"] == 0


def test_computed_groups_are_those_of_their_tuples(thin: Calls) -> None:
    """Intervals of 99.9 %: of some hundred none misses but by a chance of a tenth, and the seed is fixed."""
    sql = (
        "SELECT HOUR(event_time) AS h, CASE WHEN cost > 20 THEN 'dear' END AS price, COUNT(*) AS n, "
        "PERCENTILE(cost, 0.25) AS p, AVG(cost) AS mean FROM calls GROUP BY {}"
    )
    found = thin.ask(sql.format("1, price"), confidence=0.999)["rows"]
    truth = {row[:2]: row[2:] for row in thin.truth(sql.format("1, 2").replace("PERCENTILE", "quantile_cont"))}
    assert len(found) > 40 and [row["h"] for row in found] == sorted(row["h"] for row in found)
    for row in found:
        for name, value in zip(("n", "p", "mean"), truth[row["h"], row["price"]], strict=True):
            low, high = row[name]["low"], row[name]["high"]
            assert (low is None or low <= value + 1e-9) and (high is None or value <= high + 1e-9), (row, name, value)


def test_a_condition_is_known_where_a_tuple_decides_it(thin: Calls) -> None:
    sql = "SELECT BOOL_OR(units > 4) AS a, BOOL_AND(units > 4) AS b, BOOL_OR(units > 9) AS c, BOOL_AND(units < 9) AS d "
    (row,) = thin.ask(sql + "FROM calls")["rows"]
    assert row["a"] == {"estimate": True, "low": True, "high": True, "exact": True}
    assert row["b"] == {"estimate": False, "low": False, "high": False, "exact": True}
    assert row["c"] == {"estimate": False, "low": False, "high": True, "exact": False}
    assert row["d"] == {"estimate": True, "low": False, "high": True, "exact": False}
    assert "false (false to true)" in render(thin.ask(sql + "FROM calls"))
