"""Order and equality as Spark has them, for every type of the language."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidegate.operators.expressions import decimals
from tidegate.operators.expressions.casts import cast, date_of_text, instant_of_text
from tidegate.operators.expressions.columns import BOOLEAN, DATE, DOUBLE, STRING, TIMESTAMP, Value, midnight
from tidegate.values.limbs import is_decimal

_PLAIN: Mapping[type[exp.Expression], Callable[..., Value]] = {
    exp.EQ: pc.equal,
    exp.NEQ: pc.not_equal,
    exp.GT: pc.greater,
    exp.GTE: pc.greater_equal,
    exp.LT: pc.less,
    exp.LTE: pc.less_equal,
}
COMPARISONS = tuple(_PLAIN)


def unified(values: list[Value]) -> list[Value]:
    """All of one type: NULLs take the others', whole numbers and decimals beside real ones become real."""
    kinds = {value.type for value in values if not pa.types.is_null(value.type)}
    if not kinds:
        return values
    wanted = DOUBLE if DOUBLE in kinds else next(iter(kinds))
    assert len(kinds) == 1 or wanted == DOUBLE, kinds
    return [cast(value, wanted) for value in values]


def comparable(values: list[Value]) -> list[Value]:
    """The same for what is compared: text beside an instant or a date is read as one, a date beside an instant is its
    midnight."""
    kinds = {value.type for value in values}
    if STRING in kinds and kinds & {TIMESTAMP, DATE}:
        target = TIMESTAMP if TIMESTAMP in kinds else DATE
        read = instant_of_text if target == TIMESTAMP else date_of_text
        values = [read(value) if value.type == STRING else value for value in values]
        kinds = {value.type for value in values}
    if TIMESTAMP in kinds and DATE in kinds:
        values = [midnight(value) if value.type == DATE else value for value in values]
    if any(map(is_decimal, kinds)) and DOUBLE not in kinds:
        return decimals.comparable(values)
    return unified(values)


def compared(kind: type[exp.Expression], one: Value, other: Value) -> Value:
    """Two values of one type; NULL if either is."""
    if one.type == DOUBLE and (_has_nan(one) or _has_nan(other)):
        return _with_nan(kind, one, other)
    if one.type == BOOLEAN and kind not in (exp.EQ, exp.NEQ):
        one, other = (side.cast(pa.int8()) for side in (one, other))
    if pa.types.is_null(one.type):
        one, other = (side.cast(BOOLEAN) for side in (one, other))
    return _PLAIN[kind](one, other)


def null_safe_equal(one: Value, other: Value) -> Value:
    """Equality that takes NULL for a value."""
    both = pc.and_(pc.is_null(one), pc.is_null(other))
    return pc.or_(both, pc.fill_null(compared(exp.EQ, one, other), False))


def larger(one: Value, other: Value) -> Value:
    """Where the first is a value that is larger than the other, or the other is none."""
    above = pc.fill_null(compared(exp.GT, one, other), False)
    return pc.or_(above, pc.and_(pc.is_valid(one), pc.is_null(other)))


def _has_nan(value: Value) -> bool:
    found = pc.is_nan(value)
    return bool((pc.any(found) if isinstance(value, pa.Array) else found).as_py())


def _with_nan(kind: type[exp.Expression], one: Value, other: Value) -> Value:
    """Doubles compared with NaN as the largest number; NULL if either is."""
    if kind is exp.GT:
        return _with_nan(exp.LT, other, one)
    if kind is exp.GTE:
        return pc.invert(_with_nan(exp.LT, one, other))
    if kind is exp.LTE:
        return pc.invert(_with_nan(exp.LT, other, one))
    if kind is exp.NEQ:
        return pc.invert(_with_nan(exp.EQ, one, other))
    nan = pc.is_nan(one), pc.is_nan(other)
    if kind is exp.EQ:
        return pc.or_kleene(pc.equal(one, other), pc.and_kleene(*nan))
    return pc.or_kleene(pc.less(one, other), pc.and_kleene(pc.invert(nan[0]), nan[1]))
