"""An expression and rows → its value for every row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from functools import cache, reduce
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

from tidegate.declarations.decimals import alternative, is_marked, literal_digits, mark_literals, operand
from tidegate.declarations.expression_types import cast_type, time_unit
from tidegate.declarations.functions import places
from tidegate.operators.expressions import decimals, numbers, texts, times
from tidegate.operators.expressions.casts import cast
from tidegate.operators.expressions.columns import BOOLEAN, DATE, DOUBLE, INTEGER, STRING, TIMESTAMP, Value, whole
from tidegate.operators.expressions.comparing import (
    COMPARISONS,
    comparable,
    compared,
    larger,
    null_safe_equal,
    unified,
)
from tidegate.values.limbs import is_decimal
from tidegate.values.types import Digits, arrow_type

Rows: TypeAlias = Any
"""A ``pa.Table`` or ``pa.RecordBatch``."""
Expression: TypeAlias = "str | exp.Expression"

_ONE_NUMBER: Mapping[type[exp.Expression], Callable[[Value], Value]] = {
    exp.Sign: numbers.sign,
    exp.Sqrt: numbers.root,
    exp.Exp: numbers.exponential,
    exp.Ln: numbers.logarithm,
}
_TWO_NUMBERS: Mapping[type[exp.Expression], Callable[[Value, Value], Value]] = {
    exp.Log: numbers.logarithm_to,
    exp.Pow: numbers.power,
}
_ONE_TEXT: Mapping[type[exp.Expression], Callable[[Value], Value]] = {
    exp.Upper: texts.upper,
    exp.Lower: texts.lower,
    exp.Length: texts.length,
}
_TWO_TEXTS: Mapping[type[exp.Expression], Callable[[Value, Value], Value]] = {
    exp.Contains: texts.contains,
    exp.StartsWith: texts.starts_with,
    exp.EndsWith: texts.ends_with,
    exp.Like: texts.like,
    exp.ILike: texts.like_ignoring_case,
    exp.RegexpLike: texts.matches,
}
_FIELDS: Mapping[type[exp.Expression], str] = {
    exp.Year: "YEAR",
    exp.Quarter: "QUARTER",
    exp.Month: "MONTH",
    exp.Day: "DAY",
    exp.DayOfMonth: "DAY",
    exp.DayOfWeek: "DAYOFWEEK",
    exp.Hour: "HOUR",
    exp.Minute: "MINUTE",
    exp.Second: "SECOND",
}
_EVERYWHERE = nullcontext()
_SINCE_EPOCH = {exp.UnixSeconds: "SECOND", exp.UnixMillis: "MILLISECOND", exp.UnixMicros: "MICROSECOND"}


def evaluate(expression: Expression, rows: Rows, kind: pa.DataType | None = None) -> pa.Array:
    """The value of a checked expression for every row.

    Args:
        expression: as ``declarations`` render or parse it; its columns are found without regard to letter case.
        rows: with at least the columns that the expression names.
        kind: type of the values; None: as they are.

    >>> rows = pa.table({"x": [1, None, 3], "k": ["a", "b", "c"]})
    >>> evaluate("x > 1 OR k = 'b'", rows).to_pylist()
    [False, True, True]
    >>> evaluate("UPPER(k) || SUBSTRING('xyz', x, 1)", rows).to_pylist()
    ['Ax', None, 'Cz']
    >>> evaluate("9223372036854775807 + x", rows).to_pylist()
    [None, None, None]
    """
    return Evaluator(rows).column(expression, kind)


def truth(expression: Expression, rows: Rows) -> np.ndarray:
    """bool[n]: where a condition is true; neither false nor NULL."""
    return np.asarray(pc.fill_null(evaluate(expression, rows, BOOLEAN), False).to_numpy(zero_copy_only=False), bool)


def columns_of(expression: Expression, known: Sequence[str]) -> list[str]:
    """The known columns that an expression names."""
    node = parsed(expression) if isinstance(expression, str) else expression
    by_lower = {name.lower(): name for name in known}
    return [by_lower[c.name.lower()] for c in node.find_all(exp.Column) if c.name.lower() in by_lower]


@cache
def parsed(sql: str) -> exp.Expression:
    """The tree of rendered SQL, not to be changed: what is a literal of Spark's DECIMAL is one here."""
    tree = sqlglot.parse_one(sql, dialect="spark")
    mark_literals(tree)
    return tree


class Evaluator:
    """Values of expressions over the same rows."""

    def __init__(self, rows: Rows):
        self.rows = rows
        self.names = {name.lower(): name for name in rows.schema.names}

    def column(self, expression: Expression, kind: pa.DataType | None = None) -> pa.Array:
        """The value for every row, of a type if one is given."""
        value = self.value(parsed(expression) if isinstance(expression, str) else expression)
        if kind is not None and value.type != kind:
            value = cast(value, kind)
        return whole(value, self.rows.num_rows)

    def among(self, rows: Callable[[], Value]) -> AbstractContextManager[None]:
        """Inside, values matter only for the rows for which ``rows`` is true: for whoever watches them."""
        return _EVERYWHERE

    def value(self, node: exp.Expression) -> Value:  # noqa: C901 - a case per kind of expression
        """A node's value: a column, or a constant."""
        match node:
            case exp.Paren():
                return self.value(node.this)
            case exp.Column():
                return self._column(node)
            case exp.Literal():
                return _literal(node)
            case exp.Boolean():
                return pa.scalar(bool(node.this))
            case exp.Null():
                return pa.scalar(None)
            case exp.And() | exp.Or():
                return self._both(node)
            case exp.Not():
                return pc.invert(self._condition(node.this))
            case exp.Is():
                return self._is(node)
            case exp.Between():
                return self._between(node)
            case exp.In():
                return self._in(node)
            case exp.NullSafeEQ() | exp.NullSafeNEQ():
                same = null_safe_equal(*self._comparable(node.this, node.expression))
                return pc.invert(same) if isinstance(node, exp.NullSafeNEQ) else same
            case exp.Case():
                return self._case(node)
            case exp.If():
                return self._chosen([(lambda: self._condition(node.this), node.args["true"])], node.args.get("false"))
            case exp.Coalesce():
                return self._first(node)
            case exp.Greatest() | exp.Least():
                return self._extreme(node)
            case exp.Nullif():
                value = self.value(node.this)
                same = pc.fill_null(self._compared(exp.EQ, node.this, node.expression), False)
                return pc.if_else(same, pa.scalar(None, value.type), value)
            case exp.Cast():
                kind = cast_type(node.args["to"])
                assert kind is not None
                return cast(self.value(node.this), arrow_type(kind))
        if isinstance(node, COMPARISONS):
            return self._compared(type(node), node.this, node.expression)
        return self._function(node)

    def _column(self, node: exp.Column) -> Value:
        column = self.rows.column(self.names[node.name.lower()])
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if column.type in (INTEGER, DOUBLE, BOOLEAN, STRING, TIMESTAMP, DATE):
            return column
        if pa.types.is_integer(column.type):
            return column.cast(INTEGER)
        return column.cast(TIMESTAMP) if pa.types.is_timestamp(column.type) else column

    def _condition(self, node: exp.Expression) -> Value:
        return cast(self.value(node), BOOLEAN)

    def _number(self, node: exp.Expression, kind: pa.DataType) -> Value:
        """Of a type that a whole number, or NULL, may stand for."""
        return cast(self.value(node), kind)

    def _text(self, node: exp.Expression) -> Value:
        return cast(self.value(node), STRING)

    def _unified(self, nodes: Sequence[exp.Expression], values: list[Value]) -> list[Value]:
        """The values of nodes that take each other's place, of one type."""
        digits = _digits(alternative, nodes, values)
        return unified(values) if digits is None else decimals.widest(values, digits)

    def _comparable(self, *nodes: exp.Expression) -> list[Value]:
        return comparable([self.value(node) for node in nodes])

    def _compared(self, kind: type[exp.Expression], left: exp.Expression, right: exp.Expression) -> Value:
        return compared(kind, *self._comparable(left, right))

    def _both(self, node: exp.And | exp.Or) -> Value:
        left, conjunction = self._condition(node.this), isinstance(node, exp.And)
        with self.among(lambda: pc.fill_null(left if conjunction else pc.invert(left), True)):
            right = self._condition(node.expression)
        return (pc.and_kleene if conjunction else pc.or_kleene)(left, right)

    def _first(self, node: exp.Coalesce) -> Value:
        values = [self.value(node.this)]
        for other in node.expressions:
            with self.among(lambda: reduce(pc.and_, map(pc.is_null, values))):
                values.append(self.value(other))
        return pc.coalesce(*self._unified([node.this, *node.expressions], values))

    def _is(self, node: exp.Is) -> Value:
        value = self.value(node.this)
        if isinstance(node.expression, exp.Null):
            return pc.is_null(value)
        return pc.fill_null(pc.equal(cast(value, BOOLEAN), self._condition(node.expression)), False)

    def _between(self, node: exp.Between) -> Value:
        def within(low: exp.Expression, high: exp.Expression) -> Value:
            return pc.and_kleene(self._compared(exp.GTE, node.this, low), self._compared(exp.LTE, node.this, high))

        low, high = node.args["low"], node.args["high"]
        return pc.or_kleene(within(low, high), within(high, low)) if node.args.get("symmetric") else within(low, high)

    def _in(self, node: exp.In) -> Value:
        value, *items = self._comparable(node.this, *node.expressions)
        if value.type in (INTEGER, STRING) and all(isinstance(item, pa.Scalar) and item.is_valid for item in items):
            found = pc.is_in(value, value_set=pa.array([item.as_py() for item in items], value.type))
            return pc.if_else(pc.is_valid(value), found, pa.scalar(None, BOOLEAN))
        return reduce(pc.or_kleene, (compared(exp.EQ, value, item) for item in items))

    def _case(self, node: exp.Case) -> Value:
        def condition(branch: exp.Expression) -> Callable[[], Value]:
            if node.this is None:
                return lambda: self._condition(branch)
            return lambda: self._compared(exp.EQ, node.this, branch)

        branches = [(condition(branch.this), branch.args["true"]) for branch in node.args["ifs"]]
        return self._chosen(branches, node.args.get("default"))

    def _chosen(
        self, branches: list[tuple[Callable[[], Value], exp.Expression]], default: exp.Expression | None
    ) -> Value:
        """The value of the first branch whose condition is true, else the default."""
        conditions: list[Value] = []
        values: list[Value] = []
        for condition, node in branches:
            with self.among(lambda: _none(conditions)):
                found = pc.fill_null(condition(), False)
                with self.among(lambda: found):  # noqa: B023 - it is asked for at once
                    values.append(self.value(node))
            conditions.append(found)
        otherwise = exp.Null() if default is None else default
        with self.among(lambda: _none(conditions)):
            values.append(self.value(otherwise))
        *values, result = self._unified([*(node for _, node in branches), otherwise], values)
        for holds, value in reversed(list(zip(conditions, values, strict=True))):
            result = pc.if_else(holds, value, result)
        return result

    def _extreme(self, node: exp.Greatest | exp.Least) -> Value:
        nodes = [node.this, *node.expressions]
        result, *others = self._unified(nodes, [self.value(n) for n in nodes])
        for other in others:
            better = larger(other, result) if isinstance(node, exp.Greatest) else _smaller(other, result)
            result = pc.if_else(better, other, result)
        return result

    def _function(self, node: exp.Expression) -> Value:
        kind = type(node)
        if kind in _ONE_NUMBER:
            return _ONE_NUMBER[kind](self._number(node.this, DOUBLE))
        if kind in _TWO_NUMBERS:
            return _TWO_NUMBERS[kind](self._number(node.this, DOUBLE), self._number(node.expression, DOUBLE))
        if kind in _ONE_TEXT:
            return _ONE_TEXT[kind](self._text(node.this))
        if kind in _TWO_TEXTS:
            found = _TWO_TEXTS[kind](self._text(node.this), self._text(node.expression))
            return pc.invert(found) if node.args.get("negate") else found
        if kind in _FIELDS:
            return times.field(_FIELDS[kind], self._time(node.this))
        if kind in _SINCE_EPOCH:
            return times.since_epoch(_SINCE_EPOCH[kind], cast(self.value(node.this), TIMESTAMP))
        return self._other(node)

    def _time(self, node: exp.Expression) -> Value:
        value = self.value(node)
        return value.cast(TIMESTAMP) if pa.types.is_null(value.type) else value

    def _numbers(self, *nodes: exp.Expression) -> list[Value]:
        """Of one type, whole if they can be."""
        values = unified([self.value(node) for node in nodes])
        return [value.cast(INTEGER) if pa.types.is_null(value.type) else value for value in values]

    def _arithmetic(self, node: exp.Expression) -> Value:
        nodes = node.this, node.expression
        values = [self.value(n) for n in nodes]
        digits = _digits(operand, nodes, values)
        if digits is not None:
            one, other = (decimals.from_any(v, decimals.of_digits(d)) for v, d in zip(values, digits, strict=True))
            return decimals.arithmetic(type(node), one, other)
        if isinstance(node, exp.Div):
            return numbers.divided(*(cast(value, DOUBLE) for value in values))
        one, other = (value.cast(INTEGER) if pa.types.is_null(value.type) else value for value in unified(values))
        return numbers.remainder(one, other) if isinstance(node, exp.Mod) else numbers.added(type(node), one, other)

    def _other(self, node: exp.Expression) -> Value:  # noqa: C901 - a case per kind of expression
        match node:
            case exp.Add() | exp.Sub() if isinstance(node.expression, exp.Interval):
                interval = node.expression
                amount = int(interval.this.this) * (1 if isinstance(node, exp.Add) else -1)
                return times.shifted(cast(self.value(node.this), TIMESTAMP), amount, time_unit(interval))
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod():
                return self._arithmetic(node)
            case exp.IntDiv():
                return numbers.whole_quotient(*self._numbers(node.this, node.expression))
            case exp.Neg():
                return numbers.negated(*self._numbers(node.this))
            case exp.Abs():
                return numbers.absolute(*self._numbers(node.this))
            case exp.Floor() | exp.Ceil():
                return numbers.rounded_to_whole(isinstance(node, exp.Ceil), *self._numbers(node.this))
            case exp.Round():
                (value,) = self._numbers(node.this)
                return numbers.rounded(value, places(node))
            case exp.IsNan():
                return numbers.is_nan(*self._numbers(node.this))
            case exp.Trim():
                return texts.trimmed(self._text(node.this), str(node.args.get("position") or ""))
            case exp.Substring():
                start, count = node.args.get("start"), node.args.get("length")
                first = pa.scalar(1) if start is None else cast(self.value(start), INTEGER)
                return texts.part(
                    self._text(node.this), first, None if count is None else cast(self.value(count), INTEGER)
                )
            case exp.Left() | exp.Right():
                part = texts.first_part if isinstance(node, exp.Left) else texts.last_part
                return part(self._text(node.this), cast(self.value(node.expression), INTEGER))
            case exp.Concat():
                return texts.joined([self._text(n) for n in node.expressions])
            case exp.DPipe():
                return texts.joined([self._text(node.this), self._text(node.expression)])
            case exp.Replace():
                by = node.args.get("replacement")
                new = pa.scalar("") if by is None else self._text(by)
                return texts.replaced(self._text(node.this), self._text(node.expression), new)
            case exp.TsOrDsToDate():
                return times.date_of(self._time(node.this))
            case exp.TimestampTrunc():
                return times.truncated(time_unit(node), self._time(node.this))
            case exp.TimestampDiff():
                return times.difference(time_unit(node), self._time(node.expression), self._time(node.this))
            case exp.DateDiff() if node.args.get("unit") is not None:
                start, end = (self._time(_undated(n)) for n in (node.expression, node.this))
                return times.difference(time_unit(node), start, end)
            case exp.DateDiff():
                return times.days_between(self._time(node.this), self._time(node.expression))
        raise AssertionError(f"declarations let through what is not computed: {node.sql('spark')[:80]}")


def _none(conditions: Sequence[Value]) -> Value:
    """Where none of some conditions is true."""
    return pc.invert(reduce(pc.or_, conditions, pa.scalar(False)))


def _smaller(one: Value, other: Value) -> Value:
    below = pc.fill_null(compared(exp.LT, one, other), False)
    return pc.or_(below, pc.and_(pc.is_valid(one), pc.is_null(other)))


def _undated(node: exp.Expression) -> exp.Expression:
    """What sqlglot puts into TO_DATE of its own accord: with a unit, DATEDIFF counts from instant to instant."""
    return node.this if isinstance(node, exp.TsOrDsToDate) and not node.args.get("safe") else node


def _literal(node: exp.Literal) -> pa.Scalar:
    if node.is_string:
        return pa.scalar(str(node.this), STRING)
    digits = literal_digits(node) if is_marked(node) else None
    if digits is not None:
        return pa.scalar(Decimal(node.this), decimals.of_digits(digits))
    return pa.scalar(int(node.this), INTEGER) if node.this.isdigit() else pa.scalar(float(node.this), DOUBLE)


def _digits(
    of: Callable[[exp.Expression, str], Digits], nodes: Sequence[exp.Expression], values: Sequence[Value]
) -> list[Digits] | None:
    """The digits of each value, if they are decimals, and integers or NULLs beside one; else None."""
    known = next((value.type for value in values if is_decimal(value.type)), None)
    if known is None or any(value.type == DOUBLE for value in values):
        return None
    kinds = [known if pa.types.is_null(value.type) else value.type for value in values]
    return [
        decimals.digits_of(kind) if is_decimal(kind) else of(node, "integer")
        for node, kind in zip(nodes, kinds, strict=True)
    ]
