"""Spark SQL over a table's columns as pyarrow expressions that give the very same values, or none at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tidegate.declarations.tables import ARROW_TYPES

Value = tuple[pc.Expression, pa.DataType]

_INTEGER, _DOUBLE, _BOOLEAN, _STRING = pa.int64(), pa.float64(), pa.bool_(), pa.string()
_ARITHMETIC: Mapping[type[exp.Expression], Callable[..., pc.Expression]] = {
    exp.Add: pc.add_checked,
    exp.Sub: pc.subtract_checked,
    exp.Mul: pc.multiply_checked,
}
_CASTS = {"BIGINT": _INTEGER, "DOUBLE": _DOUBLE, "TEXT": _STRING, "BOOLEAN": _BOOLEAN}


class _UnlikeError(Exception):
    """pyarrow does not do this, or not as Spark does."""


def as_arrow(sql: str, schema: pa.Schema, kind: pa.DataType | None = None) -> pc.Expression | None:
    """The pyarrow expression whose values are Spark's for every row; None if there is none.

    What is translated: columns, literals, + − * /, comparisons, AND, OR, NOT, IN, BETWEEN, IS NULL, COALESCE, NULLIF,
    CASE WHEN, IF, and casts between numbers. NaN equals NaN and is larger than all other numbers, as in Spark.

    Args:
        sql: as ``declarations`` render it.
        schema: of the table.
        kind: type of the values; None: any.

    >>> rows = pa.table({"x": [1.0, None, float("nan")], "k": ["a", "b", "c"]})
    >>> import pyarrow.dataset as ds
    >>> ds.dataset(rows).to_table(filter=as_arrow("x > 2 OR k = 'b'", rows.schema))["k"].to_pylist()
    ['b', 'c']
    >>> as_arrow("UPPER(k) = 'B'", rows.schema) is None
    True
    """
    try:
        expression, found = _value(sqlglot.parse_one(sql, dialect="spark"), schema)
        return expression if kind is None else _cast(expression, found, kind)
    except (_UnlikeError, SqlglotError):
        return None


def _value(node: exp.Expression, schema: pa.Schema) -> Value:
    match node:
        case exp.Paren():
            return _value(node.this, schema)
        case exp.Column():
            named = [field for field in schema if field.name.lower() == node.name.lower()]
            if len(named) != 1:
                raise _UnlikeError
            return pc.field(named[0].name), named[0].type
        case exp.Literal() if node.is_string:
            return pc.scalar(str(node.this)), _STRING
        case exp.Literal():
            whole = node.this.isdigit()
            return (pc.scalar(int(node.this)), _INTEGER) if whole else (pc.scalar(float(node.this)), _DOUBLE)
        case exp.Boolean():
            return pc.scalar(bool(node.this)), _BOOLEAN
        case exp.Neg():
            value, kind = _value(node.this, schema)
            return pc.negate_checked(value), _number(kind)
        case exp.And() | exp.Or():
            both = pc.and_kleene if isinstance(node, exp.And) else pc.or_kleene
            return both(_condition(node.this, schema), _condition(node.expression, schema)), _BOOLEAN
        case exp.Not():
            return pc.invert(_condition(node.this, schema)), _BOOLEAN
        case exp.Is() if isinstance(node.expression, exp.Null):
            return pc.is_null(_value(node.this, schema)[0]), _BOOLEAN
        case exp.Between():
            value = _value(node.this, schema)
            low, high = _value(node.args["low"], schema), _value(node.args["high"], schema)
            return pc.and_kleene(_compared(exp.GTE, value, low), _compared(exp.LTE, value, high)), _BOOLEAN
        case exp.In() if node.expressions:
            value = _value(node.this, schema)
            equal = [_compared(exp.EQ, value, _value(item, schema)) for item in node.expressions]
            any_of = equal[0]
            for following in equal[1:]:
                any_of = pc.or_kleene(any_of, following)
            return any_of, _BOOLEAN
        case exp.Div():
            left, right = (_cast(*_value(side, schema), _DOUBLE) for side in (node.this, node.expression))
            return pc.divide(left, right), _DOUBLE
        case exp.Nullif():
            value, other = _value(node.this, schema), _value(node.expression, schema)
            same = pc.coalesce(_compared(exp.EQ, value, other), pc.scalar(False))
            return pc.if_else(same, pc.scalar(pa.scalar(None, value[1])), value[0]), value[1]
        case exp.Coalesce():
            values, kind = _unified([_value(item, schema) for item in (node.this, *node.expressions)])
            return pc.coalesce(*values), kind
        case exp.Case() if node.this is None:
            branches = [(branch.this, branch.args["true"]) for branch in node.args["ifs"]]
            return _cases(branches, node.args.get("default"), schema)
        case exp.If():
            return _cases([(node.this, node.args["true"])], node.args.get("false"), schema)
        case exp.Cast():
            target = node.args["to"].this
            kind = _CASTS.get(target.name if isinstance(target, exp.DataType.Type) else "")
            if kind is None:
                raise _UnlikeError
            return _cast(*_value(node.this, schema), kind), kind
    if type(node) in _ARITHMETIC:
        sides = [_value(side, schema) for side in (node.this, node.expression)]
        if all(isinstance(part, exp.Literal) for part in node.find_all(exp.Literal, exp.Column)):
            raise _UnlikeError  # Spark computes with 32 bits what has no column
        values, kind = _unified(sides)
        return _ARITHMETIC[type(node)](*values), _number(kind)
    if type(node) in (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE):
        return _compared(type(node), _value(node.this, schema), _value(node.expression, schema)), _BOOLEAN
    raise _UnlikeError


def _cast(value: pc.Expression, kind: pa.DataType, wanted: pa.DataType) -> pc.Expression:
    if kind == wanted:
        return value
    if (kind, wanted) == (_INTEGER, _DOUBLE):
        return value.cast(wanted, safe=False)
    raise _UnlikeError


def _number(kind: pa.DataType) -> pa.DataType:
    if kind not in (_INTEGER, _DOUBLE):
        raise _UnlikeError
    return kind


def _condition(node: exp.Expression, schema: pa.Schema) -> pc.Expression:
    value, kind = _value(node, schema)
    return _cast(value, kind, _BOOLEAN)


def _unified(values: list[Value]) -> tuple[list[pc.Expression], pa.DataType]:
    """All of one type: whole numbers beside real ones become real."""
    kinds = {kind for _, kind in values}
    wanted = _DOUBLE if kinds == {_INTEGER, _DOUBLE} else values[0][1]
    return [_cast(value, kind, wanted) for value, kind in values], wanted


def _compared(kind: type[exp.Expression], left: Value, right: Value) -> pc.Expression:
    (one, other), of = _unified([left, right])
    if of not in ARROW_TYPES.values():
        raise _UnlikeError
    if of == _DOUBLE:
        return _ordered(kind, one, other)
    plain: Mapping[type[exp.Expression], Callable[..., pc.Expression]] = {
        exp.EQ: pc.equal,
        exp.NEQ: pc.not_equal,
        exp.GT: pc.greater,
        exp.GTE: pc.greater_equal,
        exp.LT: pc.less,
        exp.LTE: pc.less_equal,
    }
    return plain[kind](one, other)


def _ordered(kind: type[exp.Expression], one: pc.Expression, other: pc.Expression) -> pc.Expression:
    """Doubles compared with NaN as the largest number; NULL if either is."""
    match kind:
        case exp.GT:
            return _ordered(exp.LT, other, one)
        case exp.GTE:
            return pc.invert(_ordered(exp.LT, one, other))
        case exp.LTE:
            return pc.invert(_ordered(exp.LT, other, one))
        case exp.NEQ:
            return pc.invert(_ordered(exp.EQ, one, other))
    nan = pc.is_nan(one), pc.is_nan(other)
    if kind is exp.EQ:
        return pc.or_kleene(pc.equal(one, other), pc.and_kleene(*nan))
    return pc.or_kleene(pc.less(one, other), pc.and_kleene(pc.invert(nan[0]), nan[1]))


def _cases(
    branches: list[tuple[exp.Expression, exp.Expression]], default: exp.Expression | None, schema: pa.Schema
) -> Value:
    given = [_value(result, schema) for _, result in branches]
    nothing = default is None or isinstance(default, exp.Null)
    values, kind = _unified(given if nothing else [*given, _value(default, schema)])
    result: Any = pc.scalar(pa.scalar(None, kind)) if nothing else values[-1]
    for (condition, _), value in reversed(list(zip(branches, values, strict=False))):
        result = pc.if_else(pc.coalesce(_condition(condition, schema), pc.scalar(False)), value, result)
    return result, kind
