"""Which stage answers a query: DAGs know aggregates by their names, without the registry."""

from __future__ import annotations

import sqlglot
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from tidegate_dags.declaration import DeclaredQuery

from tidegate.aggregates import AGGREGATES, CallError, is_call, read_call

ARGUMENTS = ("(x)", "(x, y)", "(x, 0.5)", "(DISTINCT x)", "(0.5) WITHIN GROUP (ORDER BY x)")
REWRITTEN = {"count_if", "percentile_cont"}  # read as a COUNT, a PERCENTILE
NAMES = sorted({*Spark.Parser.FUNCTIONS, *Spark.Parser.FUNCTION_PARSERS})


def called(sql: str) -> set[str]:
    """The aggregate that an expression is a call of; none if it is no call that the language takes."""
    try:
        node = sqlglot.parse_one(f"SELECT {sql}", dialect="spark").expressions[0]
        return {read_call(node).function.name} if is_call(node) else set()
    except (
        SqlglotError,
        CallError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ):  # arguments of other functions
        return set()


def test_an_aggregate_by_any_of_its_names_is_an_aggregate_to_the_dag() -> None:
    aggregates = {name: set().union(*(called(name + arguments) for arguments in ARGUMENTS)) for name in NAMES}
    assert set().union(*aggregates.values()) == AGGREGATES.keys() - REWRITTEN
    ranked = "SELECT a FROM s [1 HOUR] GROUP BY a ORDER BY {}(b) DESC LIMIT 3 EVERY 1 HOUR"
    kinds = {name: DeclaredQuery("q", "", ranked.format(name)).kind for name in NAMES}
    assert {name for name in NAMES if kinds[name] == "aggregate"} == {name for name in NAMES if aggregates[name]}
