"""What pyarrow and numpy make of the query language's expressions, against Spark: value for value, on hostile rows."""

from __future__ import annotations

import itertools
import math
import os
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import sqlglot
from pyspark.errors import PySparkException
from sqlglot import exp

from tidegate.declarations.expression_types import Typer, render
from tidegate.declarations.functions import FUNCTIONS
from tidegate.declarations.positions import Report, Source
from tidegate.operators.expressions import evaluate, pushed_down, truth
from tidegate.values.types import arrow_type

KINDS = {
    "x": "double", "y": "double", "i": "integer", "j": "integer", "k": "string", "m": "string",
    "b": "boolean", "c": "boolean", "t": "timestamp", "u": "timestamp", "d": "date", "e": "date",
}  # fmt: skip
SCHEMA = pa.schema([(name, arrow_type(kind)) for name, kind in KINDS.items()])
LEAST, MOST = -(2**63), 2**63 - 1
VALUES: dict[str, list[Any]] = {
    "double": [0.0, -0.0, 1.5, -2.5, 0.045, 1234.5678, -1e300, 1e308, math.inf, -math.inf, math.nan, None],
    "integer": [0, 1, -1, 2, 7, -3, 100, 2**31, 2**53 + 1, -(2**40), MOST, LEAST, None],
    "string": [
        "", "a", "B", "aB c", " padded ", "ä", "ß", "ΑΣ", "\U0001f6eb fly", "a'b", "50%", "a_b", "back\\slash",
        "12", "-7.5", "1e3", "NaN", "yes", "2013-02-08", "2013-02-08 10:30:00.25", "2013-02-30", "line\nbreak", None,
    ],
    "boolean": [True, False, None],
    "timestamp": [
        datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2013, 2, 8, tzinfo=UTC),
        datetime(2012, 2, 29, 12, 30, 15, 250000, UTC), datetime(2013, 1, 31, 23, 0, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), None,
    ],
    "date": [date(1969, 12, 31), date(2012, 2, 29), date(2013, 2, 8), date(1, 1, 1), date(9999, 12, 31), None],
}  # fmt: skip
EXTREMES = (LEAST, MOST, 2**53 + 1, 1e308, -1e300)
UNITS = ["YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"]
LIKES = ["a%", "%b%", "_", "%", "", "a\\\\_b", "50\\\\%", "%\\\\\\\\%", "__ %"]
REGEXPS = ["a", "^a.*c$", "[a-z]+", "\\\\d+", "\\\\s", "b.k$", "(?i)B", "^$", "a|ß", "(a)(B)?", "\\\\.5", "\\\\p{L}"]
CASTS = {
    "integer": ["double", "string", "boolean", "timestamp"],
    "double": ["integer", "boolean", "string", "timestamp"],
    "string": ["integer", "double", "boolean", "timestamp", "date"],
    "boolean": ["integer", "double", "string"],
    "timestamp": ["integer", "double", "string", "date"],
    "date": ["string", "timestamp"],
}
SPELLED = {"integer": "BIGINT", "double": "DOUBLE", "string": "STRING"}
NEAR = (exp.Exp, exp.Ln, exp.Log, exp.Pow)
TOGETHER = 5
CUT = (exp.Left, exp.Right, exp.Substring)


class Expressions:
    """Random expressions of the language, by type."""

    def __init__(self, seed: int):
        self.random = Random(seed)

    def of(self, kind: str, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.15:
            return self.leaf(kind)
        return self.random.choice(getattr(self, f"{kind}s"))(self, depth - 1)

    def leaf(self, kind: str) -> str:
        names = [name for name, own in KINDS.items() if own == kind]
        literals = {
            "integer": ["0", "1", "2", "-3", "10"], "double": ["0.5", "2.0", "-1.5", "1e3"],
            "string": ["'a'", "'ß'", "' '", "''"], "boolean": ["TRUE", "FALSE"],
            "timestamp": ["CAST('2013-02-08 10:00:00' AS TIMESTAMP)"], "date": ["CAST('2012-03-31' AS DATE)"],
        }  # fmt: skip
        return self.random.choice(names + names + literals[kind])

    def pick(self, *texts: str) -> str:
        return self.random.choice(texts)

    def any_kind(self) -> str:
        return self.random.choice(list(VALUES))

    def choice(self, kind: str, d: int) -> str:
        a, b, c = (self.of(kind, d) for _ in range(3))
        test = self.of("boolean", d)
        return self.pick(
            f"COALESCE({a}, {b})", f"GREATEST({a}, {b}, {c})", f"LEAST({a}, {b})", f"NULLIF({a}, {b})",
            f"CASE WHEN {test} THEN {a} ELSE {b} END", f"IF({test}, {a}, {b})",
            f"CASE {a} WHEN {b} THEN {c} END", f"CASE WHEN {test} THEN {a} END",
        )  # fmt: skip

    def cast_to(self, kind: str, d: int) -> str:
        source = self.random.choice([s for s, targets in CASTS.items() if kind in targets])
        value = self.of(source, d)
        if (source, kind) == ("double", "string"):
            # How Java writes a double that was computed depends on its version; of those written out, it does not.
            value = self.leaf(source)
        elif (source, kind) == ("integer", "timestamp"):
            # Of seconds beyond the last instant Spark makes the last instant; here they are NULL.
            value = f"({value} % 1000000000000)"
        elif source == "string" and kind in ("timestamp", "date"):
            value = self.pick("k", "m")  # Spark reads more than instants: a year alone, a date and anything behind it
        return f"CAST({value} AS {SPELLED.get(kind, kind.upper())})"

    doubles = [
        lambda s, d: f"({s.of('double', d)} {s.pick('+', '-', '*', '/', '%')} {s.of(s.pick('double', 'integer'), d)})",
        lambda s, d: f"({s.of('integer', d)} / {s.of('integer', d)})",
        lambda s, d: f"{s.pick('SIGN', 'SQRT', 'EXP', 'LN', 'LOG2')}({s.of(s.pick('double', 'integer'), d)})",
        lambda s, d: f"{s.pick('ABS', '-')}({s.of('double', d)})",
        lambda s, d: f"ROUND({s.of('double', d)}, {s.pick('0', '1', '2', '-1', '7', '-20')})",
        lambda s, d: f"{s.pick('POW', 'LOG')}({s.of('double', d)}, {s.of('double', 0)})",
        lambda s, d: s.choice("double", d),
        lambda s, d: s.cast_to("double", d),
    ]
    integers = [
        lambda s, d: f"({s.of('integer', d)} {s.pick('+', '-', '*', '%', 'DIV')} {s.of('integer', d)})",
        lambda s, d: f"{s.pick('ABS', '-')}({s.of('integer', d)})",
        lambda s, d: f"{s.pick('FLOOR', 'CEIL')}({s.of(s.pick('double', 'integer'), d)})",
        lambda s, d: f"ROUND({s.of('integer', d)}, {s.pick('0', '-1', '-3', '2', '-20')})",
        lambda s, d: f"LENGTH({s.of('string', d)})",
        lambda s, d: (
            f"{s.pick('YEAR', 'QUARTER', 'MONTH', 'DAY', 'DAYOFMONTH', 'DAYOFWEEK', 'HOUR', 'MINUTE', 'SECOND')}"
            f"({s.of(s.pick('timestamp', 'date'), d)})"
        ),
        lambda s, d: f"{s.pick('UNIX_SECONDS', 'UNIX_MILLIS', 'UNIX_MICROS')}({s.of('timestamp', d)})",
        lambda s, d: f"TIMESTAMPDIFF({s.pick(*UNITS)}, {s.of('timestamp', d)}, {s.of('timestamp', d)})",
        lambda s, d: f"DATEDIFF({s.of('date', d)}, {s.of('timestamp', d)})",
        lambda s, d: f"DATEDIFF({s.pick(*UNITS)}, {s.of('timestamp', d)}, {s.of('date', d)})",
        lambda s, d: s.choice("integer", d),
        lambda s, d: s.cast_to("integer", d),
    ]
    strings = [
        lambda s, d: f"{s.pick('UPPER', 'LOWER', 'TRIM', 'LTRIM', 'RTRIM')}({s.of('string', d)})",
        lambda s, d: f"SUBSTRING({s.of('string', d)}, {s.of('integer', d)}, {s.of('integer', d)})",
        lambda s, d: f"SUBSTRING({s.of('string', d)}, {s.pick('1', '2', '0', '-2')})",
        lambda s, d: f"SUBSTRING({s.of('string', d)}, {s.pick('1', '2', '0', '-2')}, {s.pick('0', '1', '3')})",
        lambda s, d: f"{s.pick('LEFT', 'RIGHT')}({s.of('string', d)}, {s.pick('0', '1', '2', '-1', 'i')})",
        lambda s, d: f"CONCAT({s.of('string', d)}, {s.of('string', d)}, {s.of('string', 0)})",
        lambda s, d: f"({s.of('string', d)} || {s.of('string', d)})",
        lambda s, d: f"REPLACE({s.of('string', d)}, {s.of('string', 0)}, {s.of('string', 0)})",
        lambda s, d: s.choice("string", d),
        lambda s, d: s.cast_to("string", d),
    ]
    timestamps = [
        lambda s, d: (
            f"({s.of('timestamp', d)} {s.pick('+', '-')} INTERVAL "
            f"{s.pick('5 MINUTES', '40 DAYS', '1 SECOND', '106751991 DAYS', '3 HOURS')})"
        ),
        lambda s, d: f"DATE_TRUNC('{s.pick(*UNITS)}', {s.of(s.pick('timestamp', 'date'), d)})",
        lambda s, d: s.choice("timestamp", d),
        lambda s, d: s.cast_to("timestamp", d),
    ]
    dates = [
        lambda s, d: f"{s.pick('TO_DATE', 'DATE')}({s.of('timestamp', d)})",
        lambda s, d: s.choice("date", d),
        lambda s, d: s.cast_to("date", d),
    ]
    booleans = [
        lambda s, d: s.comparison(d),
        lambda s, d: s.comparison(d),
        lambda s, d: f"({s.of('boolean', d)} {s.pick('AND', 'OR')} {s.of('boolean', d)})",
        lambda s, d: f"(NOT {s.of('boolean', d)})",
        lambda s, d: f"({s.of(s.any_kind(), d)} IS {s.pick('', 'NOT ')}NULL)",
        lambda s, d: f"({s.of('boolean', d)} IS {s.pick('', 'NOT ')}{s.pick('TRUE', 'FALSE')})",
        lambda s, d: f"ISNAN({s.of('double', d)})",
        lambda s, d: f"{s.pick('CONTAINS', 'STARTSWITH', 'ENDSWITH')}({s.of('string', d)}, {s.of('string', 0)})",
        lambda s, d: f"({s.of('string', d)} {s.pick('LIKE', 'NOT LIKE', 'ILIKE')} '{s.pick(*LIKES)}')",
        lambda s, d: f"({s.of('string', d)} RLIKE '{s.pick(*REGEXPS)}')",
        lambda s, d: f"({s.of('string', d)} {s.pick('LIKE', 'RLIKE', 'ILIKE')} {s.pick('k', 'm')})",
        lambda s, d: s.choice("boolean", d),
        lambda s, d: s.cast_to("boolean", d),
    ]

    def comparison(self, d: int) -> str:
        left, right = self.random.choice(
            [(kind, kind) for kind in VALUES] + [("integer", "double"), ("timestamp", "date")]
        )
        a, b, c = self.of(left, d), self.of(right, d), self.of(right, d)
        sign = self.pick("=", "<>", "<", "<=", ">", ">=", "<=>", "IS DISTINCT FROM")
        return self.pick(
            f"({a} {sign} {b})", f"({a} BETWEEN {b} AND {c})", f"({a} IN ({b}, {c}))", f"({a} NOT IN ({b}, NULL))",
            "(k IN ('a', 'ß', '12'))", f"(i IN (1, {MOST}, -3))", "(t >= '2013-02-08 00:00:00')", "(d < '2013-02-08')",
        )  # fmt: skip


def rows(seed: int, number: int, hostile: bool = True) -> pa.Table:
    random = Random(seed)
    values = {kind: [v for v in own if hostile or v not in EXTREMES] for kind, own in VALUES.items()}
    columns = {name: [random.choice(values[kind]) for _ in range(number)] for name, kind in KINDS.items()}
    return pa.table(columns, schema=SCHEMA)


def checked(sql: str) -> exp.Expression:
    """The expression as declarations parse it; they must have nothing against it."""
    report = Report(Source(Path("query"), sql))
    node = sqlglot.parse_one(sql, dialect="spark")
    Typer(report, lambda column: KINDS[column.name]).type_of(node)  # type: ignore[arg-type, return-value]
    assert report.mistakes == [], (sql, report.mistakes)
    return node


def for_spark(node: exp.Expression) -> str:
    """As declarations render it, with whole numbers of 64 bits, as the language has them."""

    def wide(part: exp.Expression) -> exp.Expression:
        literal = isinstance(part, exp.Literal) and not part.is_string and part.this.isdigit()
        kind = FUNCTIONS.get(type(part))
        inside = isinstance(part.parent, (*CUT, exp.Round, exp.Interval, exp.Neg))
        if (literal and not inside) or (kind is not None and kind.result == "integer"):
            return exp.cast(part.copy() if literal else part, "BIGINT")
        return part

    rendered = sqlglot.parse_one(render(node, lambda column: None), dialect="spark")
    return rendered.transform(wide).sql("spark")


def plain(column: pa.ChunkedArray) -> list[Any]:
    """Values that can be compared: instants and dates as numbers, since Python's end before theirs."""
    stored = {arrow_type("timestamp"): pa.int64(), arrow_type("date"): pa.int32()}
    return column.cast(stored.get(column.type, column.type)).to_pylist()


def same(mine: Any, sparks: Any, near: bool) -> bool:
    if isinstance(mine, float) and isinstance(sparks, float) and near and math.isfinite(mine):
        return math.isclose(mine, sparks, rel_tol=1e-13)
    return repr(mine) == repr(sparks)


@pytest.mark.spark
@pytest.mark.parametrize("hostile", [False, True])
def test_random_expressions_have_sparks_values(spark, hostile):
    seed, count = int(os.environ.get("TIDEGATE_SEED", "1")), int(os.environ.get("TIDEGATE_EXPRESSIONS", "100"))
    table = rows(seed, 40, hostile)
    whole = spark.createDataFrame(table)
    made, kinds, compared = Expressions(seed + hostile), itertools.cycle(VALUES), 0
    nodes = {sql: checked(sql) for sql in (made.of(next(kinds), 3 - hostile) for _ in range(count))}
    known = {}
    for first in range(0, count, TOGETHER):
        known |= together(whole, [for_spark(node) for node in list(nodes.values())[first : first + TOGETHER]])
    for sql, node in nodes.items():
        mine = plain(pa.chunked_array([evaluate(render(node, lambda column: None), table)]))
        assert repr(plain(pa.chunked_array([evaluate(node, table)]))) == repr(mine), sql
        expected = known.get(for_spark(node)) or sparks(spark, for_spark(node), whole, table)
        compared += len(expected)
        near = node.find(*NEAR) is not None
        differ = [n for n, value in expected.items() if not same(mine[n], value, near)]
        assert differ == [], (sql, [(table.slice(n, 1).to_pylist(), mine[n], expected[n]) for n in differ[:2]])
    assert compared > 20 * count


def together(whole, asked: list[str]) -> dict[str, dict[int, Any]]:  # type: ignore[no-untyped-def]
    """SQL → row → Spark's value, of several at once; nothing if it raises on a row."""
    try:
        found = whole.selectExpr(*(f"{sql} AS v{n}" for n, sql in enumerate(asked))).toArrow()
    except PySparkException:
        return {}
    return {sql: dict(enumerate(plain(found.column(n)))) for n, sql in enumerate(asked)}


def sparks(spark, sql: str, whole, table: pa.Table) -> dict[int, Any]:  # type: ignore[no-untyped-def]
    """Row → Spark's value; where it raises on a row, of the first few rows that it does not."""
    try:
        return dict(enumerate(plain(whole.selectExpr(f"{sql} AS v").toArrow().column("v"))))
    except PySparkException as error:
        assert "DATATYPE_MISMATCH" not in str(error), sql
    found = {}
    for row in range(6):
        frame = spark.createDataFrame(table.slice(row, 1))
        try:
            found[row] = plain(frame.selectExpr(f"{sql} AS v").toArrow().column("v"))[0]
        except PySparkException:
            continue
    return found


@pytest.mark.spark
def test_spark_reads_a_test_within_another_as_it_is_read_here(spark):
    nested = ["k ILIKE 'a%' IN (b, c)", "b = c IN (TRUE)", "k LIKE 'a' IS NULL", "i BETWEEN 1 AND 3 IN (b)"]
    table = rows(1, 40)
    asked = [render(checked(sql), lambda column: None) for sql in nested]
    known = together(spark.createDataFrame(table), asked)
    for sql in asked:
        assert list(known[sql].values()) == plain(pa.chunked_array([evaluate(sql, table)])), sql


FAULTS = [
    "i * 2", "i + 1", "-i - 2", "-j", "ABS(j)", "j DIV -1", "j * -1", "i % 0", "i DIV 0", "x / 0", "x % 0E0",
    "FLOOR(x)", "CEIL(-x)", "CAST(x AS BIGINT)", "ROUND(i, -1)", "LN(0)", "LOG(-1, 2)", "k RLIKE m", "m LIKE k",
    "t + INTERVAL 106751991 DAYS", "CAST(i AS TIMESTAMP)", "CAST('x' AS DOUBLE)", "CAST('12:3' || '0' AS TIMESTAMP)",
    "CAST('2013-02-3' || '0' AS DATE)", "CAST('1d' AS DOUBLE)", "CAST('99999999999999999999' AS BIGINT)",
    "TIMESTAMPDIFF(MICROSECOND, t - INTERVAL 100000000 DAYS, t + INTERVAL 100000000 DAYS)",
    "DATEDIFF(DAY, t, CAST(t - INTERVAL 106751991 DAYS - INTERVAL 15744 DAYS - INTERVAL 1 HOUR AS DATE))",
]  # fmt: skip


@pytest.mark.parametrize("sql", FAULTS)
def test_a_fault_on_a_row_is_null_and_stops_nothing(sql):
    faulty = {"i": [MOST], "j": [LEAST], "x": [1e308], "k": ["a\\\\b\\"], "m": ["("], "t": [VALUES["timestamp"][1]]}
    table = pa.table(faulty, schema=pa.schema([SCHEMA.field(name) for name in faulty]))
    assert evaluate(render(checked(sql), lambda column: None), table).to_pylist() == [None]
    assert evaluate(f"COALESCE(CAST({sql} AS STRING), 'good')", table).to_pylist() == ["good"]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [("LEFT(k, 9223372036854775807)", "abc"), ("RIGHT(k, 9223372036854775807)", "abc"), ("SUBSTRING(k, i, i)", "")],
)
def test_numbers_of_code_points_are_cut_to_what_there_is(sql, expected):
    assert evaluate(sql, pa.table({"k": ["abc"], "i": [MOST]})).to_pylist() == [expected]


def test_every_function_of_the_language_is_generated():
    made = Expressions(1)
    kinds = itertools.cycle(VALUES)
    found = {type(part) for _ in range(4000) for part in checked(made.of(next(kinds), 3)).walk()}
    assert set(FUNCTIONS) - found == set()


@pytest.mark.parametrize(
    "sql", ["i > 1", "i = 2 AND UPPER(k) = 'A'", "x < 1.5E0", "x > 1.5E0 AND k >= 'a'", "(i <= 2) AND 1 < i", "k = 'ä'"]
)
def test_what_is_pushed_down_leaves_out_nothing_that_holds(sql):
    table = rows(3, 400)
    pushed = pushed_down(sql, SCHEMA)
    assert pushed is not None or "x > " in sql
    kept = table if pushed is None else ds.dataset(table).to_table(filter=pushed)
    mine, all_of_it = (own.filter(pa.array(truth(sql, own))).to_pylist() for own in (kept, table))
    assert repr(mine) == repr(all_of_it)
    assert len(kept) < len(table)
