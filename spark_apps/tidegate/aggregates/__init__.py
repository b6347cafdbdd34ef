"""Aggregates: one class a file, from which the language, the operators, history, explain and the tests' oracle learn.

To add one, write an :class:`~tidegate.aggregates.base.AggregateFunction` in a file of its own and name it below; its
cases go to tests/spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from tidegate.aggregates.any_value import AnyValue
from tidegate.aggregates.approx_count_distinct import ApproxCountDistinct
from tidegate.aggregates.avg import Average
from tidegate.aggregates.base import AggregateFunction, Call, CallError
from tidegate.aggregates.bool_and import AllTrue
from tidegate.aggregates.bool_or import AnyTrue
from tidegate.aggregates.count import Count
from tidegate.aggregates.count_distinct import CountDistinct
from tidegate.aggregates.count_if import CountIf
from tidegate.aggregates.first_value import First
from tidegate.aggregates.last_value import Last
from tidegate.aggregates.max import Greatest
from tidegate.aggregates.max_by import LargestBy
from tidegate.aggregates.median import Median
from tidegate.aggregates.min import Least
from tidegate.aggregates.min_by import LeastBy
from tidegate.aggregates.percentile import Percentile
from tidegate.aggregates.percentile_approx import PercentileApprox
from tidegate.aggregates.percentile_cont import PercentileCont
from tidegate.aggregates.stddev_pop import PopulationDeviation
from tidegate.aggregates.stddev_samp import SampleDeviation
from tidegate.aggregates.sum_distinct import SumDistinct
from tidegate.aggregates.sums import Sum
from tidegate.aggregates.var_pop import PopulationVariance
from tidegate.aggregates.var_samp import SampleVariance

_FUNCTIONS: tuple[AggregateFunction, ...] = (
    Count(),
    CountIf(),
    Sum(),
    Average(),
    Least(),
    Greatest(),
    AllTrue(),
    AnyTrue(),
    AnyValue(),
    SampleDeviation(),
    PopulationDeviation(),
    SampleVariance(),
    PopulationVariance(),
    CountDistinct(),
    SumDistinct(),
    ApproxCountDistinct(),
    Percentile(),
    PercentileCont(),
    Median(),
    PercentileApprox(),
    LargestBy(),
    LeastBy(),
    First(),
    Last(),
)
AGGREGATES: Mapping[str, AggregateFunction] = {function.name: function for function in _FUNCTIONS}
# What stands around an aggregate and is part of its call.
_AROUND = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls)
_BY_NODE = {(node, function.distinct): function for function in _FUNCTIONS for node in function.nodes}


def is_call(node: exp.Expression) -> bool:
    """Whether an expression is an aggregate, of this language or another."""
    while isinstance(node, _AROUND):
        node = node.this
    return isinstance(node, exp.AggFunc)


def read_call(node: exp.Expression) -> Call:
    """The aggregate that an expression calls.

    Raises:
        CallError: none of the language, or it is written wrongly.

    >>> call = read_call(exp.func("SUM", exp.column("price")))
    >>> call.function.name, call.argument.sql()
    ('sum', 'price')
    """
    if isinstance(node, exp.Filter):
        call, condition = read_call(node.this), node.expression.this
        both = condition if call.condition is None else exp.and_(call.condition, condition)
        return replace(call, condition=both)
    if isinstance(node, exp.IgnoreNulls):
        call = read_call(node.this)
        if not call.function.chooses or call.by is not None or call.argument is None:
            raise CallError("IGNORE NULLS is of FIRST_VALUE and LAST_VALUE", "the aggregate alone: NULLs never count")
        return replace(call, condition=exp.Not(this=exp.Is(this=call.argument.copy(), expression=exp.null())))
    distinct = isinstance(node.this, exp.Distinct)
    function = _BY_NODE.get((type(node), distinct))
    if function is None and distinct and (type(node), False) in _BY_NODE:
        written = [shape for own in _FUNCTIONS if own.distinct for shape in own.shapes]
        raise CallError("DISTINCT is not supported here", f"the aggregate of all values, or {' or '.join(written)}")
    if function is None or node.args.get("expressions"):
        raise CallError(f"aggregate '{node.sql('spark', comments=False)[:60]}' is not supported", names())
    if isinstance(node.this, exp.Order):
        raise CallError("ORDER BY in an aggregate is not supported", "the aggregate of all values")
    return function.read(node)


def shapes(estimated: bool = False) -> str:
    """How the aggregates are written, to suggest; ``estimated``: those that history estimates.

    >>> shapes(estimated=True).rpartition("SUM(x), ")[2]  # doctest: +ELLIPSIS
    'AVG(x), MIN(x), MAX(x), BOOL_AND(condition), ... or PERCENTILE_APPROX(x, 0.95, 1000)'
    """
    functions = (f for f in AGGREGATES.values() if f.estimated or not estimated)
    *most, last = (shape for function in functions for shape in function.shapes)
    return f"{', '.join(most)} or {last}"


def names() -> str:
    """The aggregates' names, to suggest."""
    *most, last = dict.fromkeys(shape.partition("(")[0] for function in _FUNCTIONS for shape in function.shapes)
    return f"{', '.join(most)} or {last}"


def sql_names() -> tuple[str, ...]:
    """The aggregates' names in SQL, to suggest."""
    nodes = dict.fromkeys(node for node, _ in _BY_NODE if issubclass(node, exp.Func))
    return tuple(name for node in nodes for name in node.sql_names())


__all__ = [
    "AGGREGATES",
    "AggregateFunction",
    "Call",
    "CallError",
    "is_call",
    "names",
    "read_call",
    "shapes",
    "sql_names",
]
