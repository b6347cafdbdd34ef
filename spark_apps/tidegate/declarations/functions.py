"""The functions that a query may call, and those that it may not with a reason of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from sqlglot import exp

from tidegate.aggregates import sql_names
from tidegate.declarations import decimals
from tidegate.values.types import ColumnType, Digits

# Not functions of the tuple: their value depends on when or where they are computed.
UNSTEADY = (exp.Rand, exp.Randn, exp.Uuid, exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.CurrentUser)


@dataclass(frozen=True)
class Function:
    """Argument key (sqlglot's) → families of types that it takes; the result's type, None: that of the first argument.

    ``of_decimal``: the result's digits where the first argument is a decimal, if they are a matter of it.
    """

    arguments: dict[str, tuple[str, ...]]
    result: ColumnType | None = None
    of_decimal: Callable[[Digits, exp.Expression], Digits] | None = None


_NUMBER = ("integer", "double", "decimal")
_INTEGER = ("integer",)
_TEXT = ("string",)
_TIME = ("timestamp", "date")
_INSTANT = ("timestamp",)

_one_number = Function({"this": _NUMBER}, "double")
_two_numbers = Function({"this": _NUMBER, "expression": _NUMBER}, "double")
_one_text = Function({"this": _TEXT}, "string")
_part_of_text = Function({"this": _TEXT, "expression": _INTEGER}, "string")
_test_of_text = Function({"this": _TEXT, "expression": _TEXT}, "boolean")
_part_of_time = Function({"this": _TIME}, "integer")
_since_epoch = Function({"this": _INSTANT}, "integer")
_two_times = Function({"this": _TIME, "expression": _TIME}, "integer")


def places(node: exp.Expression) -> int:
    """To how many places ROUND rounds."""
    digits = node.args.get("decimals")
    if digits is None:
        return 0
    return -int(digits.this.this) if isinstance(digits, exp.Neg) else int(digits.this)


_whole_number = Function({"this": _NUMBER}, "integer", lambda digits, _: decimals.whole(digits))

FUNCTIONS: dict[type[exp.Expression], Function] = {
    exp.Abs: Function({"this": _NUMBER}),
    exp.Round: Function(
        {"this": _NUMBER, "decimals": _INTEGER}, None, lambda digits, node: decimals.rounded(digits, places(node))
    ),
    exp.Floor: _whole_number,
    exp.Ceil: _whole_number,
    exp.Sign: _one_number,
    exp.Sqrt: _one_number,
    exp.Exp: _one_number,
    exp.Ln: _one_number,
    exp.Log: _two_numbers,
    exp.Pow: _two_numbers,
    exp.IsNan: Function({"this": _NUMBER}, "boolean"),
    exp.Upper: _one_text,
    exp.Lower: _one_text,
    exp.Trim: _one_text,
    exp.Length: Function({"this": _TEXT}, "integer"),
    exp.Substring: Function({"this": _TEXT, "start": _INTEGER, "length": _INTEGER}, "string"),
    exp.Left: _part_of_text,
    exp.Right: _part_of_text,
    exp.Concat: Function({"expressions": _TEXT}, "string"),
    exp.DPipe: Function({"this": _TEXT, "expression": _TEXT}, "string"),
    exp.Replace: Function({"this": _TEXT, "expression": _TEXT, "replacement": _TEXT}, "string"),
    exp.Contains: _test_of_text,
    exp.StartsWith: _test_of_text,
    exp.EndsWith: _test_of_text,
    exp.Year: _part_of_time,
    exp.Quarter: _part_of_time,
    exp.Month: _part_of_time,
    exp.Day: _part_of_time,
    exp.DayOfMonth: _part_of_time,
    exp.DayOfWeek: _part_of_time,
    exp.Hour: _part_of_time,
    exp.Minute: _part_of_time,
    exp.Second: _part_of_time,
    exp.UnixSeconds: _since_epoch,
    exp.UnixMillis: _since_epoch,
    exp.UnixMicros: _since_epoch,
    exp.TsOrDsToDate: Function({"this": _TIME}, "date"),
    exp.TimestampTrunc: Function({"this": _TIME}, "timestamp"),
    exp.TimestampDiff: _two_times,
    exp.DateDiff: _two_times,
}


@cache
def function_names() -> tuple[str, ...]:
    """Names to suggest, as Spark writes them."""
    others = (exp.Coalesce, exp.Greatest, exp.Least, exp.Nullif, exp.If)
    own = tuple(n for kind in (*FUNCTIONS, *others) if issubclass(kind, exp.Func) for n in kind.sql_names())
    return (*sql_names(), *own)
