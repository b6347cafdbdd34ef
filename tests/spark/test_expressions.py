"""pyarrow computes what queries ask of tuples as Spark does, value for value, or says that it does not."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from tidegate.declarations.tables import ARROW_TYPES
from tidegate.hosts.expressions import as_arrow, as_spark

SCHEMA = pa.schema(
    [
        ("x", ARROW_TYPES["double"]),
        ("y", ARROW_TYPES["double"]),
        ("i", ARROW_TYPES["integer"]),
        ("j", ARROW_TYPES["integer"]),
        ("k", ARROW_TYPES["string"]),
        ("b", ARROW_TYPES["boolean"]),
        ("t", ARROW_TYPES["timestamp"]),
        ("d", ARROW_TYPES["date"]),
    ]
)
DOUBLES = [0.0, -0.0, 1.5, -1e300, 5e-324, math.inf, -math.inf, math.nan, None]
INTEGERS = [0, 1, -1, 2**53 + 1, -(2**40), 2**63 - 1, -(2**63), None]
TEXTS = ["", "a", "B", "ä", "\U0001f6eb", "a'b", None]
TIMES = [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2013, 2, 8, tzinfo=UTC), None]
DAYS = [date(1969, 12, 31), date(2013, 2, 8), None]
ORDERED = ("=", "<>", "<", "<=", ">", ">=")
TRANSLATED = [
    *(f"`x` {sign} `y`" for sign in ORDERED),
    *(f"`x` {sign} 1.5E0" for sign in ORDERED),
    *(f"0 {sign} `x`" for sign in ORDERED),
    *(f"`x` {sign} `i`" for sign in ORDERED),
    *(f"`i` {sign} `j`" for sign in ORDERED),
    *(f"`k` {sign} 'a'" for sign in ORDERED),
    "`b` = (`k` = 'a')",
    "`t` <= `t`",
    "`d` = `d`",
    "`x` + `y`",
    "`x` - `i`",
    "`x` * 2",
    "-`x`",
    "`i` + 1",
    "`i` * 2 - `j`",
    "`i` + `j`",
    "`i` - `j`",
    "`i` * `j`",
    "COALESCE(`i` * `j`, 0) - `i`",
    "`x` / NULLIF(`y`, 0)",
    "`i` / NULLIF(`j`, 0)",
    "`i` / 7",
    "`b` AND `x` > 0",
    "`b` OR `i` IN (1, -1)",
    "NOT `b`",
    "NOT (`x` BETWEEN 0 AND `y`)",
    "`k` IN ('a', 'ä', 'a\\'b')",
    "`k` IS NULL OR NOT `k` IS NULL",
    "COALESCE(`x`, `i`, 3.25E0)",
    "CASE WHEN `b` THEN `x` WHEN `i` > 0 THEN `y` END",
    "CASE WHEN `x` > `y` THEN 1 ELSE 0 END",
    "IF(`b`, `k`, 'none')",
    "TRY_CAST(`i` AS DOUBLE)",
]
LEFT_TO_SPARK = [
    "UPPER(`k`) = 'A'",
    "`k` LIKE 'a%'",
    "`i` % 2",
    "`t` > '2013-01-01'",
    "TRY_CAST(`x` AS BIGINT)",
    "1 + 1",
]


def rows() -> pa.Table:
    """Every pair of doubles and of integers, the other columns in turn."""
    reals, wholes = (itertools.product(values, repeat=2) for values in (DOUBLES, INTEGERS))
    pairs = [real + whole for real, whole in itertools.zip_longest(reals, wholes, fillvalue=(None, None))]
    others = zip(*(itertools.cycle(c) for c in (TEXTS, [True, False, None], TIMES, DAYS)), strict=False)
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, (*pair, *other), strict=True)) for pair, other in zip(pairs, others, strict=False)],
        schema=SCHEMA,
    )


@pytest.mark.spark
def test_translated_expressions_have_sparks_values(spark):
    table = rows()
    frame = spark.createDataFrame(table)
    translated = {f"v{n}": as_arrow(sql, SCHEMA) for n, sql in enumerate(TRANSLATED)}
    assert [sql for sql, value in zip(TRANSLATED, translated.values(), strict=True) if value is None] == []
    found = ds.dataset(table).to_table(columns=translated)
    expected = frame.coalesce(1).selectExpr(*(f"{as_spark(sql)} AS v{n}" for n, sql in enumerate(TRANSLATED))).toArrow()
    for name, sql in zip(translated, TRANSLATED, strict=True):
        mine, sparks = found.column(name).to_pylist(), expected.column(name).to_pylist()
        differ = [row for row, pair in enumerate(zip(mine, sparks, strict=True)) if repr(pair[0]) != repr(pair[1])]
        assert differ == [], (sql, [(table.slice(row, 1).to_pylist(), mine[row], sparks[row]) for row in differ[:3]])


@pytest.mark.parametrize("sql", LEFT_TO_SPARK)
def test_what_pyarrow_does_otherwise_is_left_to_spark(sql):
    assert as_arrow(sql, SCHEMA) is None
