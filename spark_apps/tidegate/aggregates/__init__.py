"""Aggregates: one class a file, from which the language, the operators, history, explain and the tests' oracle learn.

To add one, write an :class:`~tidegate.aggregates.base.AggregateFunction` in a file of its own and name it below; its
cases go to tests/spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from tidegate.aggregates.any_value import AnyValue
from tidegate.aggregates.avg import Average
from tidegate.aggregates.base import AggregateFunction, Call, CallError
from tidegate.aggregates.bool_and import AllTrue
from tidegate.aggregates.bool_or import AnyTrue
from tidegate.aggregates.count import Count
from tidegate.aggregates.count_if import CountIf
from tidegate.aggregates.max import Greatest
from tidegate.aggregates.min import Least
from tidegate.aggregates.stddev_pop import PopulationDeviation
from tidegate.aggregates.stddev_samp import SampleDeviation
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
)
AGGREGATES: Mapping[str, AggregateFunction] = {function.name: function for function in _FUNCTIONS}
# What stands around an aggregate and is part of its call.
_AROUND = (exp.Filter,)
_BY_NODE = {node: function for function in AGGREGATES.values() for node in function.nodes}


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
    function = _BY_NODE.get(type(node))
    if function is None or node.args.get("expressions"):
        raise CallError(f"aggregate '{node.sql('spark', comments=False)[:60]}' is not supported", shapes())
    if isinstance(node.this, (exp.Distinct, exp.Order)):
        what = "DISTINCT" if isinstance(node.this, exp.Distinct) else "ORDER BY"
        raise CallError(f"{what} in an aggregate is not supported", "the aggregate of all values")
    return function.read(node)


def shapes(estimated: bool = False) -> str:
    """How the aggregates are written, to suggest; ``estimated``: those that history estimates.

    >>> shapes(estimated=True)
    'COUNT(*), COUNT(x), COUNT_IF(condition), SUM(x), AVG(x), MIN(x) or MAX(x)'
    """
    functions = (f for f in AGGREGATES.values() if f.estimated or not estimated)
    *most, last = (shape for function in functions for shape in function.shapes)
    return f"{', '.join(most)} or {last}"


def sql_names() -> tuple[str, ...]:
    """The aggregates' names in SQL, to suggest."""
    return tuple(name for node in _BY_NODE if issubclass(node, exp.Func) for name in node.sql_names())


__all__ = ["AGGREGATES", "AggregateFunction", "Call", "CallError", "is_call", "read_call", "shapes", "sql_names"]
