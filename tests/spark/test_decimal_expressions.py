"""Expressions over decimals against Spark: the type, and the value of every row."""

from __future__ import annotations

import os
from decimal import Context, Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
import sqlglot
from pyspark.errors import PySparkException

from tidegate.declarations.expression_types import Typer, render
from tidegate.declarations.positions import Report, Source
from tidegate.operators.expressions import evaluate
from tidegate.values.types import arrow_type, digits_of, is_decimal

EXACT = Context(prec=100)
KINDS = {
    "p": "decimal(10,2)", "q": "decimal(10,2)", "w": "decimal(38,0)", "f": "decimal(38,38)", "m": "decimal(38,18)",
    "n": "decimal(5,5)", "s": "decimal(18,6)", "i": "integer", "x": "double", "k": "string", "b": "boolean",
    "t": "timestamp",
}  # fmt: skip
DECIMALS = [name for name, kind in KINDS.items() if is_decimal(kind)]
SCHEMA = pa.schema([(name, arrow_type(kind)) for name, kind in KINDS.items()])
OTHERS: dict[str, list[Any]] = {
    "integer": [0, 1, -1, 7, -3, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), None],
    "double": [0.0, 0.1, -2.5, 1e15, 1e-9, 123456.789, None],
    "string": ["12", "-7.555", " 0.005 ", "1e3", "x", "99999999.995", "", "1E-40", None],
    "boolean": [True, False, None],
    "timestamp": [0, 1_360_281_600_123_456, -1, None],
}
SPELLED = {"integer": "BIGINT", "double": "DOUBLE", "string": "STRING", "boolean": "BOOLEAN"}


def values(kind: str, random: Random) -> Any:
    """A value of a type, often near its ends."""
    digits = digits_of(kind)
    if digits is None:
        return random.choice(OTHERS[kind])
    most = 10**digits.precision - 1
    near = [0, 1, -1, most, -most, 5 * 10 ** (digits.precision - 1), None]
    number = random.choice([*near, *(random.randint(-(10**n), 10**n) for n in range(1, digits.precision, 4))])
    if number is None:
        return None
    return Decimal(number).scaleb(-digits.scale, EXACT)


class Expressions:
    """Random expressions that are decimals, and such as are made of them."""

    def __init__(self, seed: int):
        self.random = Random(seed)

    def pick(self, *texts: str) -> str:
        return self.random.choice(texts)

    def decimal(self, d: int) -> str:
        if d <= 0 or self.random.random() < 0.15:
            return self.pick(*DECIMALS, *DECIMALS, "CAST(i AS DECIMAL(21, 1))", "CAST('0.05' AS DECIMAL(3, 2))")
        a, b = self.decimal(d - 1), self.decimal(d - 1)
        return self.pick(
            f"({a} {self.pick('+', '-', '*')} {b})",
            f"({a} {self.pick('/', '%')} {self.small(d - 1)})",
            f"({a} {self.pick('+', '-', '*', '/', '%')} {self.pick('i', '3', '100', '-7', '1.5', '0.05', '-2.50')})",
            f"({self.pick('i', '3', '1.5')} {self.pick('+', '-', '*')} {a})",
            f"({self.pick('i', '3', '1.5')} {self.pick('/', '%')} {self.small(d - 1)})",
            f"{self.pick('FLOOR', 'CEIL')}({a})",
            f"{self.pick('ABS', '-')}({self.small(d - 1)})",  # of more than 34 digits Spark loses some here
            f"ROUND({a}, {self.pick('0', '1', '2', '-1', '7', '-3')})",
            f"CAST({a} AS DECIMAL({self.pick('5, 2', '38, 2', '10', '20, 10', '38, 38')}))",
            f"CAST({self.pick('i', 'x', 'b', 't', 'k')} AS DECIMAL({self.pick('5, 2', '38, 10', '20', '3, 3')}))",
            f"COALESCE({a}, {self.pick('i', '0', '1.5', 'CAST(NULL AS BIGINT)')}, {b})",
            f"CASE WHEN {self.condition(d - 1)} THEN {a} ELSE {self.pick(b, '0', '0.5', 'NULL')} END",
            f"{self.pick('GREATEST', 'LEAST')}({a}, {self.pick(b, 'i', '2', '2.5')})",
            f"NULLIF({self.small(d - 1)}, {self.pick('p', '0', 'i')})",
            f"({a} * CASE WHEN b THEN 0.9 ELSE 1 END)",
        )

    def small(self, d: int) -> str:
        """Of so few digits that Spark compares it exactly."""
        a = self.pick("p", "q", "s", "n")
        return self.pick(a, a, f"({a} + 1.5)", f"({a} * 3)", f"ABS({a})") if d > 0 else a

    def condition(self, d: int) -> str:
        a, b = self.small(d), self.pick(self.small(d), "i", "x", "0", "0.05", "-1.5")
        sign = self.pick("=", "<>", "<", "<=", ">", ">=", "<=>")
        return self.pick(f"({a} {sign} {b})", f"({a} BETWEEN {b} AND 100.5)", f"({a} IN (0, 1.5, {b}))")

    def other(self, d: int) -> str:
        a = self.decimal(d)
        return self.pick(
            self.condition(d), f"CAST({a} AS BIGINT)", f"CAST({a} AS DOUBLE)", f"CAST({a} AS STRING)",
            f"CAST({a} AS BOOLEAN)", f"({a} * x)", f"SQRT({a})", f"SIGN({a})", f"(x + {a})", f"({a} IS NULL)",
            f"CAST({self.pick('p', 's')} AS TIMESTAMP)", f"ISNAN({a})", f"COALESCE({a}, x)",
        )  # fmt: skip


def checked(sql: str) -> tuple[str, str]:
    """The expression as declarations render it, and its type."""
    report = Report(Source(Path("query"), sql))
    node = sqlglot.parse_one(sql, dialect="spark")
    kind = Typer(report, lambda column: KINDS[column.name]).type_of(node)  # type: ignore[arg-type, return-value]
    assert report.mistakes == [], (sql, report.mistakes)
    return render(node, lambda column: None), str(kind)


def plain(column: pa.ChunkedArray) -> list[Any]:
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()


def of_spark(frame, sql: str) -> tuple[str, list[Any]] | None:  # type: ignore[no-untyped-def]
    """Type and values; None where a row raises."""
    found = frame.selectExpr(f"{sql} AS v")
    kind = found.schema["v"].dataType.simpleString()
    try:
        return kind, plain(found.toArrow().column("v"))
    except PySparkException:
        return None


@pytest.mark.spark
def test_random_decimals_have_sparks_types_and_values(spark):
    seed, count = int(os.environ.get("TIDEGATE_SEED", "1")), int(os.environ.get("TIDEGATE_EXPRESSIONS", "120"))
    random = Random(seed)
    columns = {name: [values(kind, random) for _ in range(30)] for name, kind in KINDS.items()}
    table = pa.table(columns, schema=SCHEMA)
    whole = spark.createDataFrame(table)
    made, compared = Expressions(seed), 0
    for turn in range(count):
        sql = made.decimal(3) if turn % 3 else made.other(2)
        rendered, kind = checked(sql)
        mine = pa.chunked_array([evaluate(rendered, table)])
        assert mine.type == arrow_type(kind), sql
        found = of_spark(whole, rendered)
        rows = range(len(table))
        if found is None:
            some = [(n, of_spark(spark.createDataFrame(table.slice(n, 1)), rendered)) for n in range(4)]
            known = {n: one[1][0] for n, one in some if one is not None}
        else:
            assert found[0] == SPELLED.get(kind, kind).lower(), sql
            known = dict(zip(rows, found[1], strict=True))
        got = plain(mine)
        differ = [n for n, value in known.items() if repr(got[n]) != repr(value)]
        assert not differ, (
            sql,
            rendered,
            kind,
            [(table.slice(n, 1).to_pylist(), got[n], known[n]) for n in differ[:2]],
        )
        compared += len(known)
    assert compared > 15 * count
