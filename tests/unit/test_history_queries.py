"""Questions to history as they are read, and expressions over sampled tuples, against DuckDB on the same rows."""

from __future__ import annotations

from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pytest
import sqlglot

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Column, History, Stream
from tidegate.history.answers import values_of
from tidegate.operators.expressions import columns_of, evaluate, truth
from tidegate.operators.history.query import parse_history_query

TIMES = [*(datetime(2013, 2, 7, hour, 30, tzinfo=UTC) for hour in (0, 5, 12, 23)), None]
ROWS = pa.table(
    {
        "x": pa.array([1.5, None, -3.0, 0.0, 1e9]),
        "n": pa.array([1, 2, None, -4, 0]),
        "name": pa.array(["Ann", None, "bob", "", "a%b"]),
        "flag": pa.array([True, False, None, True, False]),
        "at": pa.array(TIMES, pa.timestamp("us", "UTC")),
    }
)  # fmt: skip


@pytest.mark.parametrize(
    "sql",
    [
        "x > 1", "x <> 0", "n = 2 OR x < 0", "NOT (n > 0)", "n > 0 AND flag", "flag IS TRUE", "x IS NULL",
        "x IS NOT NULL", "n IN (1, -4)", "n IN (1, NULL)", "n NOT IN (1, 2)", "x BETWEEN -3 AND 1.5",
        "x / n", "n / 2", "x * n - 1",
        "-n + 3", "ABS(x)", "name LIKE 'a%'", "name ILIKE 'A%'", "UPPER(name) = 'BOB'", "LENGTH(name)",
        "COALESCE(x, n, 7)", "CASE WHEN x > 0 THEN 1 WHEN x < 0 THEN -1.5 END", "CASE WHEN flag THEN n ELSE 0 END",
        "at >= '2013-02-07 12:00:00'", "HOUR(at)", "HOUR(at) BETWEEN 5 AND 12", "MINUTE(at) = 30",
        "name = 'Ann'", "1 = 1", "name NOT LIKE 'a%'", "SQRT(ABS(x))", "at + INTERVAL 5 MINUTES",
        "name LIKE UPPER(name)",
    ],
)  # fmt: skip
def test_values_are_duckdbs(sql: str) -> None:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("r", ROWS)
    translated = sqlglot.transpile(sql, read="spark", write="duckdb")[0]
    expected = [row[0] for row in connection.execute(f"SELECT {translated} FROM r").fetchall()]
    assert evaluate(sqlglot.parse_one(sql, dialect="spark"), ROWS).to_pylist() == [
        pytest.approx(v) if isinstance(v, float) else v for v in expected
    ]


def test_a_condition_holds_only_where_it_is_true() -> None:
    assert truth(sqlglot.parse_one("n > 0", dialect="spark"), ROWS).tolist() == [True, True, False, False, False]
    assert truth(sqlglot.parse_one("NULL", dialect="spark"), ROWS).tolist() == [False] * 5


def test_a_division_by_zero_is_null() -> None:
    assert evaluate(sqlglot.parse_one("x / 0", dialect="spark"), ROWS).null_count == 5


def test_columns_are_found_without_regard_to_letter_case() -> None:
    node = sqlglot.parse_one("X + t.N", dialect="spark")
    assert columns_of(node, ROWS.schema.names) == ["x", "n"]
    assert evaluate(node, ROWS).to_pylist()[0] == 2.5


def stream() -> Stream:
    return Stream(
        name="calls", format="csv", path="", id=("i",), event_time="t", arrival_time=None, rate=1,
        max_early_s=0, max_late_s=0,
        columns=(Column(name="cost", type="double"), Column(name="kind", type="string")),
        history=History(leaf_s=60, capacity_tuples=10),
    )  # fmt: skip


def test_answers_are_named_as_the_select_list_says() -> None:
    items = "c.kind AS what, COUNT(*), COUNT(kind), SUM(cost) AS total, AVG(c.cost), MAX(cost * 2) AS top"
    sql = f"SELECT {items} FROM calls c GROUP BY kind"
    query = parse_history_query(sql, [stream()])
    assert query.groups == (("what", "kind"),)
    assert [a.name for a in query.aggregates] == ["count", "count_kind", "total", "avg_cost", "top"]
    assert [a.column for a in query.aggregates] == [None, "kind", "cost", "cost", None]


@pytest.mark.parametrize(
    ("aggregate", "counted"),
    [
        ("COUNT_IF(cost > 1)", [1.0, None, None, 1.0]),
        ("COUNT(*) FILTER (WHERE kind = 'a')", [1.0, None, None, None]),
        ("SUM(cost) FILTER (WHERE kind <> 'a')", [None, 1.0, None, None]),
        ("AVG(cost) FILTER (WHERE cost > 1)", [2.0, None, None, 5.0]),
        ("STDDEV(cost)", [2.0, 1.0, None, 5.0]),
    ],
)
def test_an_aggregate_is_of_the_tuples_that_its_condition_chooses(aggregate: str, counted: list[float | None]) -> None:
    rows = pa.table({"cost": [2.0, 1.0, None, 5.0], "kind": ["a", "b", "b", None]})
    (found,) = parse_history_query(f"SELECT {aggregate} AS a FROM calls", [stream()]).aggregates
    values, valid = values_of(found, rows)
    assert [v if known else None for v, known in zip(values.tolist(), valid.tolist(), strict=True)] == counted
    assert (found.column == "cost") == (aggregate == "STDDEV(cost)")


@pytest.mark.parametrize("aggregate", ["MIN(kind)", "COUNT(DISTINCT kind)", "MAX_BY(kind, cost)", "FIRST_VALUE(cost)"])
def test_what_samples_do_not_show_is_refused_with_what_they_do(aggregate: str) -> None:
    sql = f"SELECT {aggregate} AS a FROM calls"
    with pytest.raises(UserError, match=r"history cannot estimate '.*expected COUNT\(\*\), .*VAR_POP\(x\)"):
        parse_history_query(sql, [stream()], only_estimated=True)
    (found,) = parse_history_query(sql, [stream()]).aggregates
    assert not found.estimated


@pytest.mark.parametrize(
    ("groups", "read"),
    [
        ("kind", [("kind", "string")]),
        ("2, kind", [("group 0", "integer"), ("kind", "string")]),
        ("b, 1", [("group 0", "integer"), ("kind", "string")]),
        ("length(calls.KIND), kind, kind", [("group 0", "integer"), ("kind", "string")]),
    ],
)
def test_groups_are_columns_or_what_is_computed_of_them(groups: str, read: list[tuple[str, str]]) -> None:
    sql = f"SELECT kind, LENGTH(kind) AS b, COUNT(*) FROM calls GROUP BY {groups}"
    if groups == "kind":
        with pytest.raises(UserError, match="aggregate 'LENGTH"):
            parse_history_query(sql, [stream()])
        sql = "SELECT kind, COUNT(*) FROM calls GROUP BY kind"
    query = parse_history_query(sql, [stream()])
    assert [(group.name, group.kind) for group in query.group_by] == read


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ("9", "GROUP BY 9 is no item of the SELECT list"),
        ("n", "GROUP BY stands for an aggregate"),
        ("COUNT(*)", "an aggregate cannot stand here"),
        ("ROLLUP(kind)", "one list of groups"),
        ("kind WITH ROLLUP", "only plain GROUP BY"),
    ],
)
def test_what_no_group_is_is_refused(groups: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_history_query(f"SELECT COUNT(*) AS n FROM calls GROUP BY {groups}", [stream()])


def test_a_condition_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match="FILTER"):
        parse_history_query("SELECT SUM(cost) FILTER (WHERE kind) AS a FROM calls", [stream()])


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(UserError) as error:
        parse_history_query("SELECT AVG(cots), SUM(kind), MAX(cost * 2)\nFROM calls WHERE kined = 'a'", [stream()])
    text = str(error.value)
    for part in (
        "query:1:12: unknown column 'cots'",
        "SUM of string is not defined",
        "needs a name",
        "query:2:18: unknown column 'kined'",
    ):
        assert part in text
