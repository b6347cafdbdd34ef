"""SQL expressions over the columns of sampled tuples, computed by pyarrow with SQL's three-valued logic."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidegate.declarations.errors import UserError
from tidegate.declarations.units import read_instant

Values = Any  # a ChunkedArray, Array or Scalar of pyarrow

_COMPARISONS: dict[type[exp.Expression], Callable[..., Values]] = {
    exp.EQ: pc.equal,
    exp.NEQ: pc.not_equal,
    exp.GT: pc.greater,
    exp.GTE: pc.greater_equal,
    exp.LT: pc.less,
    exp.LTE: pc.less_equal,
}
_ARITHMETIC: dict[type[exp.Expression], Callable[..., Values]] = {
    exp.Add: pc.add_checked,
    exp.Sub: pc.subtract_checked,
    exp.Mul: pc.multiply_checked,
}
_FUNCTIONS: dict[type[exp.Expression], Callable[..., Values]] = {
    exp.Abs: pc.abs_checked,
    exp.Upper: pc.utf8_upper,
    exp.Lower: pc.utf8_lower,
    exp.Length: pc.utf8_length,
    exp.Year: pc.year,
    exp.Month: pc.month,
    exp.Day: pc.day,
    exp.DayOfMonth: pc.day,
    exp.Hour: pc.hour,
    exp.Minute: pc.minute,
    exp.Second: pc.second,
}


def evaluate(node: exp.Expression, table: pa.Table) -> pa.ChunkedArray:
    """The value of a typed expression for every row; UserError if it uses what history cannot compute, or overflows.

    Columns are found without regard to letter case. A division by zero is NULL, as in the pipeline's own queries.

    >>> import sqlglot
    >>> rows = pa.table({"x": [1, None, 3], "k": ["a", "b", "c"]})
    >>> evaluate(sqlglot.parse_one("x > 1 OR k = 'b'", dialect="spark"), rows).to_pylist()
    [False, True, True]
    """
    try:
        value = _value(node, table)
    except pa.ArrowInvalid as error:
        text = node.sql("spark", comments=False)[:60]
        raise UserError(f"'{text}' cannot be computed for every tuple: {error}") from None
    if isinstance(value, pa.Scalar):
        value = pa.repeat(value, table.num_rows)
    return pa.chunked_array([value]) if isinstance(value, pa.Array) else value


def columns_of(node: exp.Expression, known: list[str]) -> list[str]:
    """The known columns that an expression names."""
    by_lower = {name.lower(): name for name in known}
    return [by_lower[c.name.lower()] for c in node.find_all(exp.Column) if c.name.lower() in by_lower]


def _value(node: exp.Expression, table: pa.Table) -> Values:  # noqa: C901 - one branch a kind of node
    match node:
        case exp.Paren():
            return _value(node.this, table)
        case exp.Column():
            name = next(n for n in table.schema.names if n.lower() == node.name.lower())
            return table.column(name)
        case exp.Literal():
            return _literal(node)
        case exp.Boolean():
            return pa.scalar(bool(node.this))
        case exp.Null():
            return pa.scalar(None)
        case exp.Neg():
            return pc.negate_checked(_value(node.this, table))
        case exp.And():
            return pc.and_kleene(_boolean(node.this, table), _boolean(node.expression, table))
        case exp.Or():
            return pc.or_kleene(_boolean(node.this, table), _boolean(node.expression, table))
        case exp.Not():
            return pc.invert(_boolean(node.this, table))
        case exp.Is():
            return _is(node, table)
        case exp.Between():
            low = _compared(exp.GTE, node.this, node.args["low"], table)
            return pc.and_kleene(low, _compared(exp.LTE, node.this, node.args["high"], table))
        case exp.In():
            found: Values = pa.scalar(False)
            for item in node.expressions:
                found = pc.or_kleene(found, _compared(exp.EQ, node.this, item, table))
            return found
        case exp.Like() | exp.ILike() if isinstance(node.expression, exp.Literal):
            ignore_case = isinstance(node, exp.ILike)
            return pc.match_like(_value(node.this, table), node.expression.this, ignore_case=ignore_case)
        case exp.Div():
            divisor = doubles(_value(node.expression, table))
            nonzero = pc.if_else(pc.equal(divisor, 0.0), pa.scalar(None, pa.float64()), divisor)
            return pc.divide(doubles(_value(node.this, table)), nonzero)
        case exp.Nullif():
            value = _value(node.this, table)
            same = pc.fill_null(_compared(exp.EQ, node.this, node.expression, table), False)
            return pc.if_else(same, pa.scalar(None, value.type), value)
        case exp.Coalesce():
            return pc.coalesce(*_unified([_value(n, table) for n in (node.this, *node.expressions)]))
        case exp.Case() if node.this is None:
            return _case(node, table)
    if type(node) in _COMPARISONS:
        return _compared(type(node), node.this, node.expression, table)
    if type(node) in _ARITHMETIC and not isinstance(node.expression, exp.Interval):
        return _ARITHMETIC[type(node)](*_unified([_value(node.this, table), _value(node.expression, table)]))
    if type(node) in _FUNCTIONS:
        return _FUNCTIONS[type(node)](_value(node.this.unnest(), table))
    text = node.sql("spark", comments=False)[:60]
    raise UserError(
        f"'{text}' is not supported in a query over history: use columns, numbers, strings, + − * /, comparisons, "
        "AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL, COALESCE, CASE WHEN, ABS, UPPER, LOWER, LENGTH, YEAR … SECOND"
    )


def _literal(node: exp.Literal) -> pa.Scalar:
    if node.is_string:
        return pa.scalar(str(node.this))
    return pa.scalar(int(node.this)) if node.this.isdigit() else pa.scalar(float(node.this))


def _boolean(node: exp.Expression, table: pa.Table) -> Values:
    value = _value(node, table)
    return pc.cast(value, pa.bool_()) if pa.types.is_null(value.type) else value


def _is(node: exp.Is, table: pa.Table) -> Values:
    value = _value(node.this, table)
    if isinstance(node.expression, exp.Null):
        return pc.is_null(value)
    return pc.fill_null(pc.equal(value, bool(node.expression.this)), False)


def _compared(kind: type[exp.Expression], left: exp.Expression, right: exp.Expression, table: pa.Table) -> Values:
    one, other = _as_instants(_value(left, table), _value(right, table))
    if _is_number(one) and _is_number(other):
        one, other = _unified([one, other])
    return _COMPARISONS[kind](one, other)


def doubles(value: Values) -> Values:
    """Numbers as doubles, rounded to the nearest: a whole number beyond 2^53 may have no double of its own."""
    return pc.cast(value, pa.float64(), safe=False)


def _is_number(value: Values) -> bool:
    return bool(pa.types.is_integer(value.type) or pa.types.is_floating(value.type))


def _as_instants(left: Values, right: Values) -> tuple[Values, Values]:
    """Text beside an instant is read as one; a date beside a timestamp is its midnight in UTC."""
    kinds = (left.type, right.type)
    if not any(pa.types.is_timestamp(k) or pa.types.is_date(k) for k in kinds):
        return left, right
    timestamp = pa.timestamp("us", tz="UTC")

    def instant(value: Values) -> Values:
        if isinstance(value, pa.Scalar) and pa.types.is_string(value.type):
            read: datetime = read_instant(value.as_py())
            return pa.scalar(read, timestamp)
        if pa.types.is_date(value.type):
            return pc.assume_timezone(pc.cast(value, pa.timestamp("us")), "UTC")
        return value

    return instant(left), instant(right)


def _case(node: exp.Case, table: pa.Table) -> Values:
    default = node.args.get("default")
    branches = [_value(branch.args["true"], table) for branch in node.args["ifs"]]
    *branches, result = _unified([*branches, pa.scalar(None) if default is None else _value(default, table)])
    for branch, value in reversed(list(zip(node.args["ifs"], branches, strict=True))):
        result = pc.if_else(pc.fill_null(_boolean(branch.this, table), False), value, result)
    return result


def _unified(values: list[Any]) -> list[Values]:
    """All of one type, NULLs and whole numbers beside real ones included."""
    kinds = [v.type for v in values if not pa.types.is_null(v.type)]
    if not kinds:
        return values
    if any(pa.types.is_floating(k) for k in kinds):
        return [doubles(v) for v in values]
    return [pc.cast(v, kinds[0]) for v in values]


def truth(node: exp.Expression, table: pa.Table) -> np.ndarray:
    """bool[n]: where a condition is true; neither false nor NULL."""
    return np.asarray(pc.fill_null(pc.cast(evaluate(node, table), pa.bool_()), False).to_numpy(), dtype=bool)
