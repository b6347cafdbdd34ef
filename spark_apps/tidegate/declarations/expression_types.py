"""The types of expressions, and the expressions as Spark SQL.

Only what is listed here may appear in a query. So each expression has a known type, gives the same value for the same
tuple whenever it is computed, and cannot fail on a row: a division by zero and a cast that does not fit are NULL.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import Literal

from sqlglot import exp, tokenize
from sqlglot.tokens import TokenType

from tidegate.aggregates import is_call
from tidegate.declarations import decimals
from tidegate.declarations.functions import FUNCTIONS, UNSTEADY, function_names
from tidegate.declarations.names import ID_COLUMN, is_reserved
from tidegate.declarations.patterns import PatternError, like_pattern, regular_expression
from tidegate.declarations.positions import Misspelt, Report
from tidegate.declarations.scope import ScopedColumn, offset_of
from tidegate.declarations.units import INTERVAL_US, UnreadableError, read_instant
from tidegate.values.types import (
    MAX_PRECISION,
    ColumnType,
    digits_of,
    family_of,
    is_decimal,
    is_number,
    read_type,
)

ExpressionType = ColumnType | Literal["null"]

_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_MATCHES = (exp.Like, exp.ILike, exp.RegexpLike)
# Spark reads none of them as a part of another without parentheses.
_RANGED = (*_MATCHES, exp.In, exp.Between, exp.Is)
_NUMBERS = ("integer", "double", "decimal", "null")
# What sqlglot can do without and Spark cannot: the argument, and how it is written.
_NEEDED: dict[type[exp.Expression], tuple[str, str]] = {
    exp.Greatest: ("expressions", "GREATEST(a, b)"),
    exp.Least: ("expressions", "LEAST(a, b)"),
    exp.If: ("false", "IF(condition, a, b)"),
    exp.Substring: ("start", "SUBSTRING(text, 1, 3)"),
}
_CAST_TYPES: dict[str, ColumnType] = {
    "TINYINT": "integer", "SMALLINT": "integer", "INT": "integer", "BIGINT": "integer", "FLOAT": "double",
    "DOUBLE": "double", "TEXT": "string", "VARCHAR": "string", "BOOLEAN": "boolean",
    "TIMESTAMP": "timestamp", "TIMESTAMPTZ": "timestamp", "DATE": "date",
}  # fmt: skip
_SPARK_TYPES = {"integer": "BIGINT", "double": "DOUBLE", "string": "STRING"}
_NOT_CAST: dict[str, tuple[str, ...]] = {
    "integer": ("date",),
    "double": ("date",),
    "decimal": ("date",),
    "boolean": ("timestamp", "date"),
    "timestamp": ("boolean",),
    "date": ("integer", "double", "decimal", "boolean"),
}
_CASTS = f"BIGINT, DOUBLE, DECIMAL(p, s) of at most {MAX_PRECISION} digits, STRING, BOOLEAN, TIMESTAMP or DATE"
_DIFFERENCE_UNITS = (
    "YEAR",
    "QUARTER",
    "MONTH",
    "WEEK",
    "DAY",
    "HOUR",
    "MINUTE",
    "SECOND",
    "MILLISECOND",
    "MICROSECOND",
)
_UNIT_NAMES = {"YYYY": "YEAR", "YY": "YEAR", "MON": "MONTH", "MM": "MONTH", "DD": "DAY"}
_MAX_INTEGER = 2**63 - 1

Leaf = Callable[[exp.Expression], "ExpressionType | None"]


class Typer:
    """Tells the type of an expression; ``leaf`` tells that of columns and aggregates. None follows a mistake.

    ``known``: the types of expressions that stand for themselves, such as those that are grouped by; None of others.
    """

    def __init__(self, report: Report, leaf: Leaf, known: Leaf = lambda node: None):
        self.report = report
        self.leaf = leaf
        self.known = known
        self._exact = False

    def value_type(self, node: exp.Expression) -> ColumnType | None:
        """The type of an expression that must have one."""
        kind = self.type_of(node)
        if kind == "null":
            self._mistake(node, "NULL has no type", "a value, or CAST(NULL AS DOUBLE)")
            return None
        return kind

    def condition(self, node: exp.Expression, clause: str) -> bool:
        """Whether an expression is a condition without mistakes."""
        kind = self.type_of(node)
        if kind not in ("boolean", None):
            self._mistake(node, f"a condition of {clause} must be true or false, not {kind}", "a comparison")
        return kind == "boolean"

    def type_of(self, node: exp.Expression) -> ExpressionType | None:  # noqa: C901 - one branch a kind of node
        """The type of an expression."""
        if (known := self.known(node)) is not None:
            return known
        argument, written = _NEEDED.get(type(node), ("", ""))
        if argument and not node.args.get(argument):
            self._mistake(node, f"{_name(node)} has too few arguments", written)
            return None
        if is_call(node):
            return self.leaf(node)
        match node:
            case exp.Column():
                return self.leaf(node)
            case exp.Paren():
                return self.type_of(node.this)
            case exp.Literal():
                return self._literal(node)
            case exp.Boolean():
                return "boolean"
            case exp.Null():
                return "null"
            case exp.Neg():
                return self._same(node, self.type_of(node.this), _NUMBERS)
            case exp.And() | exp.Or():
                return self._all([node.this, node.expression], ("boolean", "null"), "boolean")
            case exp.Not():
                return self._all([node.this], ("boolean", "null"), "boolean")
            case exp.Is():
                return self._is(node)
            case exp.Between():
                return self._comparable([node.this, node.args["low"], node.args["high"]])
            case exp.In():
                return self._in(node)
            case exp.Case():
                return self._case(node)
            case exp.If():
                return self._if(node)
            case exp.Coalesce() | exp.Greatest() | exp.Least():
                return self._unified([node.this, *node.expressions])
            case exp.Nullif():
                kind = self.type_of(node.this)
                return kind if self._comparable([node.this, node.expression]) else None
            case exp.Cast():
                return self._cast(node)
        if isinstance(node, _ARITHMETIC):
            return self._arithmetic(node)
        if isinstance(node, _COMPARISONS):
            return self._comparable([node.this, node.expression])
        if isinstance(node, _MATCHES):
            return self._match(node)
        if type(node) in FUNCTIONS:
            return self._function(node)
        self._refuse(node)
        return None

    def _mistake(
        self, node: exp.Expression, message: str, expected: str = "", misspelt: Misspelt | None = None
    ) -> None:
        self.report.add(offset_of(node), message, expected, misspelt)

    def _same(self, node: exp.Expression, kind: ExpressionType | None, allowed: Sequence[str]) -> ExpressionType | None:
        """The type, if it is one of the allowed ones."""
        if kind is None or family_of(kind) in allowed:
            return kind
        words = [word for word in allowed if word != "null"]
        choices = " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
        self._mistake(node, f"{_short(node)} is of type {kind}", f"type {choices}")
        return None

    def _all(self, nodes: Sequence[exp.Expression], allowed: Sequence[str], result: ColumnType) -> ColumnType | None:
        """``result``, if all nodes are of an allowed type."""
        kinds = [self._same(node, self.type_of(node), allowed) for node in nodes]
        return result if all(kinds) else None

    def _literal(self, node: exp.Literal) -> ColumnType | None:
        if node.is_string:
            return "string"
        if not node.this.isdigit():
            if math.isinf(float(node.this)):
                self._mistake(node, "the number is too large", f"at most {sys.float_info.max}")
                return None
            digits = decimals.literal_digits(node) if self._exact else None
            return decimals.as_type(digits) if digits else "double"
        if len(node.this) > 19 or int(node.this) > _MAX_INTEGER:
            self._mistake(node, "the number is too large", f"at most {_MAX_INTEGER}")
            return None
        return "integer"

    def _types(self, nodes: Sequence[exp.Expression]) -> list[ExpressionType | None]:
        """The types of expressions that meet: beside a decimal, literals such as 1.5 are decimals."""
        kinds = [self.type_of(node) for node in nodes]
        if not decimals.any_decimal(kinds):
            return kinds
        return [self._exactly(node) if kind == "double" else kind for node, kind in zip(nodes, kinds, strict=True)]

    def _exactly(self, node: exp.Expression) -> ExpressionType | None:
        """The type of an expression if its literals are decimals; where that makes it one, they are from now on."""
        before, self._exact = self._exact, True
        try:
            kind = self.type_of(node)
        finally:
            self._exact = before
        if kind is not None and is_decimal(kind):
            decimals.mark_literals(node)
        return kind

    def _arithmetic(self, node: exp.Expression) -> ExpressionType | None:
        left, right = node.this, node.expression
        if isinstance(right, exp.Interval) and isinstance(node, (exp.Add, exp.Sub)):
            return self._shifted(left, right)
        kinds = self._types([left, right])
        if kinds == ["timestamp", "timestamp"] and isinstance(node, exp.Sub):
            self._mistake(node, "the difference of two timestamps has no plain type", "TIMESTAMPDIFF(MINUTE, from, to)")
            return None
        allowed = ("integer", "null") if isinstance(node, exp.IntDiv) else _NUMBERS
        checked = [self._same(side, kind, allowed) for side, kind in zip((left, right), kinds, strict=True)]
        if None in checked:
            return None
        if decimals.any_decimal(checked) and "double" not in checked:
            known = next(kind for kind in checked if kind and is_decimal(kind))
            one, other = (
                decimals.operand(side, known if kind == "null" else str(kind))
                for side, kind in zip((left, right), checked, strict=True)
            )
            return decimals.as_type(decimals.arithmetic(type(node), one, other))
        return "double" if isinstance(node, exp.Div) or "double" in checked else "integer"

    def _shifted(self, left: exp.Expression, interval: exp.Interval) -> ColumnType | None:
        kind = self._same(left, self.type_of(left), ("timestamp",))
        unit = interval.args.get("unit")
        amount = interval.this
        plain = isinstance(unit, exp.Var) and time_unit(interval) in INTERVAL_US
        if not plain or not isinstance(amount, exp.Literal) or not re.fullmatch(r"\d{1,9}", amount.this):
            self._mistake(interval, "the interval cannot be read", "INTERVAL 5 MINUTES")
            return None
        if int(amount.this) * INTERVAL_US[time_unit(interval)] > _MAX_INTEGER:
            most = _MAX_INTEGER // INTERVAL_US["DAY"]
            self._mistake(interval, "the interval is longer than time itself", f"at most {most} days")
            return None
        return "timestamp" if kind else None

    def _match(self, node: exp.Expression) -> ColumnType | None:
        kind = self._all([node.this, node.expression], ("string", "null"), "boolean")
        pattern = node.expression
        if kind and isinstance(pattern, exp.Literal):
            try:
                (regular_expression if isinstance(node, exp.RegexpLike) else like_pattern)(pattern.this)
            except PatternError as error:
                self._mistake(pattern, str(error))
                return None
        return kind

    def _is(self, node: exp.Is) -> ColumnType | None:
        if isinstance(node.expression, exp.Null):
            return "boolean" if self.type_of(node.this) else None
        if not isinstance(node.expression, exp.Boolean):
            self._mistake(node.expression, "IS takes NULL, TRUE or FALSE; = compares with anything else", "x IS TRUE")
            return None
        return self._all([node.this], ("boolean", "null"), "boolean")

    def _in(self, node: exp.In) -> ColumnType | None:
        if any(value for key, value in node.args.items() if key not in ("this", "expressions")) or not node.expressions:
            self._mistake(node, "IN takes a list of values", "x IN (1, 2)")
            return None
        return self._comparable([node.this, *node.expressions])

    def _comparable(self, nodes: Sequence[exp.Expression]) -> ColumnType | None:
        """Whether all can be compared with the first."""
        kinds = self._types(nodes)
        if None in kinds:
            return None
        for node, kind in zip(nodes[1:], kinds[1:], strict=True):
            if not self._pair(nodes[0], kinds[0], node, kind):
                return None
        return "boolean"

    def _pair(
        self, left: exp.Expression, left_kind: ExpressionType | None, right: exp.Expression, kind: ExpressionType | None
    ) -> bool:
        kinds = {left_kind, kind}
        if len(kinds) == 1 or "null" in kinds or kinds <= {"timestamp", "date"}:
            return True
        if all(one is not None and is_number(one) for one in kinds):
            return True
        for text, other in ((left, kind), (right, left_kind)):
            if other in ("timestamp", "date") and isinstance(text, exp.Literal) and text.is_string:
                return self._is_instant(text)
        self._mistake(right, f"{_short(left)} ({left_kind}) and {_short(right)} ({kind}) cannot be compared")
        return False

    def _unified(self, nodes: Sequence[exp.Expression]) -> ExpressionType | None:
        """The one type of all the nodes."""
        kinds = self._types(nodes)
        if None in kinds:
            return None
        distinct = {kind for kind in kinds if kind and kind != "null"}
        if len(distinct) > 1 and all(map(is_number, distinct)):
            if "double" in distinct:
                return "double"
            values = [(node, kind) for node, kind in zip(nodes, kinds, strict=True) if kind and kind != "null"]
            return decimals.as_type(decimals.widest(decimals.alternative(node, kind) for node, kind in values))
        if len(distinct) > 1:
            names = ", ".join(sorted(str(kind) for kind in distinct))
            self._mistake(nodes[0], f"the alternatives are of several types: {names}", "one type")
            return None
        return distinct.pop() if distinct else "null"

    def _case(self, node: exp.Case) -> ExpressionType | None:
        branches = node.args["ifs"]
        good = True
        for branch in branches:
            if node.this is None:
                good &= self.condition(branch.this, "CASE")
            else:
                good &= self._comparable([node.this, branch.this]) is not None
        default = node.args.get("default")
        kind = self._unified([branch.args["true"] for branch in branches] + ([default] if default else []))
        return kind if good else None

    def _if(self, node: exp.If) -> ExpressionType | None:
        good = self.condition(node.this, "IF")
        kind = self._unified([n for n in (node.args.get("true"), node.args.get("false")) if n is not None])
        return kind if good else None

    def _cast(self, node: exp.Cast) -> ColumnType | None:
        target = node.args["to"]
        kind = cast_type(target)
        if kind is None or any(node.args.get(key) for key in ("format", "action", "default")):
            self._mistake(node, f"cannot cast to {target.sql('spark')}", _CASTS)
            return None
        literal = isinstance(node.this, exp.Literal) and node.this.is_string
        if literal and kind in ("timestamp", "date") and not self._is_instant(node.this):
            return None
        source = self.type_of(node.this)
        if source == "double" and is_decimal(kind):
            source = self._exactly(node.this)
        if source is not None and source != "null" and family_of(kind) in _NOT_CAST.get(family_of(source), ()):
            self._mistake(node, f"type {source} cannot be cast to {kind}", "a type that it can be read as")
            return None
        return kind if source else None

    def _is_instant(self, text: exp.Expression) -> bool:
        try:
            read_instant(text.this)
        except UnreadableError as error:
            self._mistake(text, error.message, error.expected)
            return False
        return True

    def _function(self, node: exp.Expression) -> ExpressionType | None:
        function = FUNCTIONS[type(node)]
        kinds: list[ExpressionType | None] = []
        for key, value in node.args.items():
            arguments = value if isinstance(value, list) else [value]
            for argument in arguments:
                if not isinstance(argument, exp.Expression) or isinstance(argument, exp.Var):
                    continue
                if key not in function.arguments:
                    self._mistake(argument, f"{_name(node)} does not take this argument")
                    return None
                kinds.append(self._same(argument, self.type_of(argument), (*function.arguments[key], "null")))
        if not kinds or None in kinds or not self._parameters_are_good(node):
            return None
        digits = digits_of(kinds[0] or "")
        if digits and function.of_decimal:
            return decimals.as_type(function.of_decimal(digits, node))
        return function.result or kinds[0]

    def _parameters_are_good(self, node: exp.Expression) -> bool:
        """Units of time, and the digits of ROUND: what is no value of the tuple."""
        unit = node.args.get("unit")
        if unit is not None and time_unit(node) not in _DIFFERENCE_UNITS:
            self._mistake(node, f"'{unit.name[:60]}' is no unit of time", ", ".join(_DIFFERENCE_UNITS))
            return False
        digits = node.args.get("decimals")
        plain = digits.this if isinstance(digits, exp.Neg) else digits
        if plain is not None and not (isinstance(plain, exp.Literal) and plain.this.isdigit()):
            self._mistake(digits, "ROUND takes a plain number of digits", "ROUND(x, 2)")
            return False
        return True

    def _refuse(self, node: exp.Expression) -> None:
        name = _name(node)
        if isinstance(node, UNSTEADY) or name in ("NOW", "SHUFFLE", "MONOTONICALLY_INCREASING_ID", "INPUT_FILE_NAME"):
            self._mistake(node, f"{name} is not deterministic: the same tuples must always give the same answer")
        elif isinstance(node, exp.Window):
            self._mistake(
                node,
                "window functions (OVER) are not supported",
                "GROUP BY, ORDER BY … LIMIT k, or QUALIFY ROW_NUMBER() OVER (…) <= k",
            )
        elif isinstance(node, exp.Filter):
            self._mistake(node, "FILTER stands behind an aggregate", "SUM(x) FILTER (WHERE …)")
        elif isinstance(node, exp.Star):
            self._mistake(node, "'*' is not supported", "the columns by name")
        elif isinstance(node, exp.Interval):
            self._mistake(node, "an interval can only be added to a timestamp", "timestamp + INTERVAL 5 MINUTES")
        elif isinstance(node, exp.Func):
            misspelt = Misspelt(name, [n for n in function_names() if n != name])
            self._mistake(node, f"function {name} is not supported", "", misspelt)
        elif isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
            self._mistake(node, f"{_short(node)} is not supported", "one list of groups, and a query for each other")
        else:
            self._mistake(node, f"{_short(node)} is not supported here")


def _name(node: exp.Expression) -> str:
    if isinstance(node, exp.Anonymous):
        return str(node.this).upper()[:60]
    return node.sql_name() if isinstance(node, exp.Func) else type(node).__name__.upper()


def _short(node: exp.Expression) -> str:
    text = node.sql("spark", comments=False)
    return f"'{text[:57]}...'" if len(text) > 60 else f"'{text}'"


def time_unit(node: exp.Expression) -> str:
    """The unit that a function of time or an interval names: its full name, in capitals and the singular."""
    name = str(node.args["unit"].name).upper()
    name = name.removesuffix("S")
    return _UNIT_NAMES.get(name, name)


def cast_type(target: exp.Expression) -> ColumnType | None:
    """The type that a CAST names; None if it is none of the language. DECIMAL alone has 10 digits, as in Spark.

    >>> [cast_type(exp.DataType.build(text, dialect="spark")) for text in ("INT", "DECIMAL", "DECIMAL(5)", "BINARY")]
    ['integer', 'decimal(10,0)', 'decimal(5,0)', None]
    """
    name = target.this.name if isinstance(target.this, exp.DataType.Type) else ""
    if name != "DECIMAL":
        return _CAST_TYPES.get(name)
    return read_type(f"decimal({','.join(one.name for one in target.expressions) or 10})")


def spark_type(kind: ColumnType) -> exp.DataType:
    """The type as Spark SQL has it."""
    return exp.DataType.build(_SPARK_TYPES.get(kind, kind.upper()), dialect="spark")


def render(node: exp.Expression, replace: Callable[[exp.Expression], exp.Expression | None]) -> str:
    """Spark SQL of a checked expression; ``replace`` gives what stands for a column or an aggregate, None: itself."""

    def step(part: exp.Expression) -> exp.Expression:
        found = replace(part)
        if found is not None or isinstance(part, exp.Column) or is_call(part):
            return part if found is None else found
        if isinstance(part, exp.Literal) and not part.is_string and not part.this.isdigit():
            # Without an exponent it is a DECIMAL to Spark; here it is one only beside another.
            plain = "e" in part.this.lower() or decimals.is_marked(part)
            return part if plain else exp.Literal.number(f"{part.this}E0")
        if isinstance(part, (exp.Div, exp.IntDiv, exp.Mod)) and not _is_not_zero(part.expression):
            # One written by hand stays within: the NULL that it gives is asked for, and no failure.
            zero = exp.Literal.number(0)
            part.set("expression", exp.Nullif(this=part.expression.unnest(), expression=zero))
        elif isinstance(part, (*_RANGED, *_COMPARISONS)):
            for key in ("this", "expression", "low", "high"):
                if isinstance(side := part.args.get(key), _RANGED):
                    part.set(key, exp.Paren(this=side))
        elif isinstance(part, exp.Cast):
            kind = cast_type(part.args["to"])
            assert kind is not None
            part.set("to", spark_type(kind))
            if isinstance(part, exp.TryCast):  # what sqlglot reads a written CAST as
                part.set("safe", True)
        return part

    return str(node.copy().transform(step).sql("spark", comments=False))


def column_named(name: str) -> exp.Column:
    """The column as an expression; in backticks where its bare name is a word of SQL.

    >>> [column_named(name).sql("spark") for name in ("dep_delay", "drop", "order")]
    ['dep_delay', '`drop`', '`order`']
    """
    word = re.fullmatch(r"\w+", name) is not None
    plain = word and tokenize(name, dialect="spark")[0].token_type is TokenType.VAR and not is_reserved(name)
    return exp.column(name, quoted=not plain)


def stored_column(column: ScopedColumn) -> exp.Expression:
    """The column as an expression over stored tuples: ``event_id`` is stored as text, whatever its declared type.

    >>> [stored_column(ScopedColumn("t", "event_id", kind)).sql("spark") for kind in ("string", "integer")]
    ['event_id', 'TRY_CAST(event_id AS BIGINT)']
    """
    if column.computed:  # rendered before
        return exp.Var(this=f"({column.computed})")
    stored = column_named(column.source)
    if column.source != ID_COLUMN or column.type == "string":
        return stored
    return exp.TryCast(this=stored, to=spark_type(column.type), safe=True)


def _is_not_zero(node: exp.Expression) -> bool:
    number = node.this if isinstance(node, exp.Neg) else node
    return isinstance(number, exp.Literal) and not number.is_string and float(number.this) != 0


def typed_sql(sql: str, kind: ColumnType, node: exp.Expression) -> str:
    """The SQL such that Spark gives exactly the declared type: computed integers may be of fewer bits."""
    return sql if kind != "integer" or isinstance(node.unnest(), exp.Column) else f"CAST({sql} AS BIGINT)"
