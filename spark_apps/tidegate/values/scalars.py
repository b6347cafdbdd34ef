"""Texts, numbers and booleans.

| type         | text, and JSON numbers as written                 | a file's own types                           |
|--------------|---------------------------------------------------|----------------------------------------------|
| string       | as it is, valid UTF-8; a JSON number or           | integers, decimals, doubles, booleans, dates |
|              | true/false as written; an object or a list as     | and timestamps in the notation of this       |
|              | compact JSON                                      | table; structs, lists and maps as JSON       |
| integer      | ``[+-]?digits``, then nothing or ``.0``, ``.00``  | integers, decimals and doubles whose value   |
|              | …; within 64 bits                                 | is whole and within 64 bits                  |
| double       | ``[+-]?digits[.digits][e[+-]digits]``, ``.5``,    | integers, decimals, doubles                  |
|              | ``5.``; the nearest double. NaN, inf, infinity    |                                              |
|              | (any letter case, signed) and what is too large   |                                              |
|              | for a double are ``non_finite``                   |                                              |
| decimal(p,s) | as double, but exact: digits that have no place   | integers and decimals by the same rule;      |
|              | are ``wrong_type``                                | doubles, rounded to the nearest (half even)  |
| boolean      | true, false (any letter case), 1, 0; JSON's too   | booleans; the integers 1 and 0               |

Spaces and tabs around text do not count, except for strings. Where the dialect of a CSV file says so, a comma stands
for the point of a number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date
from decimal import ROUND_HALF_EVEN, Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.values.base import (
    BLANKS,
    DAY_US,
    END_US,
    LEAST_US,
    Day,
    Mask,
    Moment,
    Nested,
    NotFiniteError,
    NotOfTypeError,
    RawValue,
    Typed,
    Untyped,
    ValueFormat,
    bytes_of,
    valid,
)
from tidegate.values.clock import moment_text
from tidegate.values.types import MAX_PRECISION, ColumnType, arrow_type, digits_of

_LEAST_INTEGER, _LARGEST_INTEGER = -(2**63), 2**63 - 1
_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,19})(?:\.0+)?", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_NO_NUMBER = re.compile(r"[+-]?(?:nan|inf|infinity)", re.ASCII | re.IGNORECASE)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_WHOLE = np.isin(np.arange(256), np.frombuffer(b"0123456789-", np.uint8))
_REAL = np.isin(np.arange(256), np.frombuffer(b"0123456789+-.eE", np.uint8))
# More digits than any value may have: what is exact in them is exact.
EXACT = Context(prec=400, Emin=-10_000, Emax=10_000)
_LARGEST_EXPONENT = 300


class String(ValueFormat):
    """Text."""

    kind = "string"

    def read(self, raw: RawValue) -> Typed:
        """Text as it is; of other values what the table above says."""
        if raw is None:
            return None
        if isinstance(raw, Untyped):
            raise NotOfTypeError
        if isinstance(raw, Nested):
            return raw.text
        if isinstance(raw, bool):
            return "true" if raw else "false"
        if isinstance(raw, Moment):
            if not LEAST_US <= raw.us < END_US:
                raise NotOfTypeError
            return moment_text(raw.us)
        if isinstance(raw, Day):
            if not LEAST_US <= raw.days * DAY_US < END_US:
                raise NotOfTypeError
            return date.fromordinal(raw.days + _EPOCH_DAY).isoformat()
        return format(raw, "f") if isinstance(raw, Decimal) else str(raw)

    def texts(self, column: pa.Array) -> pa.Array | None:
        """Text as it is."""
        return column

    def natives(self, column: pa.Array) -> pa.Array | None:
        """Integers and booleans."""
        if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
            return column.cast(pa.string())
        return None


class _WithPoint(ValueFormat):
    """A number. ``point``: the sign before its fraction, in text."""

    def __init__(self, point: str = "."):
        self.point = point

    def pointed(self, text: str) -> str:
        """The text with a point before the fraction, blanks around it dropped."""
        if self.point == ".":
            return text.strip(BLANKS)
        if "." in text:
            raise NotOfTypeError
        return text.strip(BLANKS).replace(self.point, ".")

    def pointed_texts(self, column: pa.Array) -> pa.Array | None:
        """The texts with points before their fractions; None if there are points that say something else."""
        if self.point == ".":
            return column
        data, _, _ = bytes_of(column)
        return None if (data == ord(".")).any() else pc.replace_substring(column, self.point, ".")


class Integer(_WithPoint):
    """A whole number of 64 bits."""

    kind = "integer"

    def read(self, raw: RawValue) -> Typed:
        """The number, if it is whole."""
        if raw is None:
            return None
        if isinstance(raw, str):
            match = _INTEGER.fullmatch(self.pointed(raw))
            if match is None:
                raise NotOfTypeError
            value = int(match[1] + match[2])
        elif isinstance(raw, bool) or not isinstance(raw, int | float | Decimal):
            raise NotOfTypeError
        else:
            value = _whole(raw)
        if not _LEAST_INTEGER <= value <= _LARGEST_INTEGER:
            raise NotOfTypeError
        return value

    def texts(self, column: pa.Array) -> pa.Array | None:
        """Digits and signs alone."""
        data, _, _ = bytes_of(column)
        return column.cast(pa.int64()) if _WHOLE[data].all() else None

    def natives(self, column: pa.Array) -> pa.Array | None:
        """Integers."""
        return column.cast(pa.int64()) if pa.types.is_integer(column.type) else None

    def json_numbers(self, fraction: bool) -> pa.DataType | None:
        """Whole numbers."""
        return None if fraction else pa.int64()


class Double(_WithPoint):
    """A number of double precision."""

    kind = "double"

    def read(self, raw: RawValue) -> Typed:
        """The nearest double."""
        if raw is None:
            return None
        if isinstance(raw, str):
            value = float(_number_text(self.pointed(raw)))
        elif isinstance(raw, bool) or not isinstance(raw, int | float | Decimal):
            raise NotOfTypeError
        else:
            value = float(raw)
        if not math.isfinite(value):
            raise NotFiniteError
        return value

    def texts(self, column: pa.Array) -> pa.Array | None:
        """Digits, signs, points and exponents alone."""
        pointed = self.pointed_texts(column)
        return pointed.cast(pa.float64()) if pointed is not None and _REAL[bytes_of(pointed)[0]].all() else None

    def natives(self, column: pa.Array) -> pa.Array | None:
        """Floating-point numbers and integers."""
        number = pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
        return column.cast(pa.float64()) if number else None

    def json_numbers(self, fraction: bool) -> pa.DataType | None:
        """All numbers."""
        return pa.float64()

    def suspects(self, typed: pa.Array) -> Mask | None:
        """NaN and infinities."""
        return np.asarray(~np.isfinite(np.asarray(typed.fill_null(0.0))))


class DecimalNumber(_WithPoint):
    """An exact number with a fixed number of digits."""

    def __init__(self, kind: ColumnType, point: str = "."):
        super().__init__(point)
        digits = digits_of(kind)
        assert digits is not None
        self.kind, self.digits = kind, digits
        self._step = Decimal(1).scaleb(-digits.scale)
        self._end = Decimal(1).scaleb(digits.precision - digits.scale)

    def read(self, raw: RawValue) -> Typed:
        """The number, if it has no digits but those that there is room for; a double is rounded."""
        if raw is None:
            return None
        if isinstance(raw, str):
            value = exact_number(self.pointed(raw))
        elif isinstance(raw, bool) or not isinstance(raw, int | float | Decimal):
            raise NotOfTypeError
        elif isinstance(raw, float):
            if not math.isfinite(raw):
                raise NotFiniteError
            value = Decimal(repr(raw)).quantize(self._step, ROUND_HALF_EVEN, EXACT)
        else:
            value = Decimal(raw)
        if not -self._end < value < self._end:
            raise NotOfTypeError
        rounded = value.quantize(self._step, context=EXACT)
        if rounded != value:
            raise NotOfTypeError
        return rounded if rounded else rounded.copy_abs()

    def texts(self, column: pa.Array) -> pa.Array | None:
        """Digits, signs and points alone."""
        pointed = self.pointed_texts(column)
        if pointed is None or not _REAL[bytes_of(pointed)[0]].all():
            return None
        return pointed.cast(arrow_type(self.kind))

    def natives(self, column: pa.Array) -> pa.Array | None:
        """Integers, decimals, and doubles that lie close to a decimal of few digits."""
        kind = column.type
        if pa.types.is_integer(kind):
            return column.cast(pa.int64()).cast(pa.decimal128(19, 0)).cast(arrow_type(self.kind))
        if pa.types.is_decimal(kind):
            return column.cast(arrow_type(self.kind))
        return self._doubles(column.cast(pa.float64())) if pa.types.is_floating(kind) else None

    def _doubles(self, column: pa.Array) -> pa.Array | None:
        scaled = np.asarray(column.fill_null(0.0)) * 10.0**self.digits.scale
        near = np.rint(scaled)
        # Neither near a half, where the last bit decides, nor so large that it decides, nor not finite.
        if not (np.abs(scaled - near) < 0.499).all() or not (np.abs(near) < 2**50).all() or self.digits.scale > 18:
            return None
        unscaled = pa.array(near.astype(np.int64), mask=~valid(column) if column.null_count else None)
        whole = unscaled.cast(pa.decimal128(19, 0))
        return _with_scale(whole, self.digits.scale).cast(arrow_type(self.kind))

    def json_numbers(self, fraction: bool) -> pa.DataType | None:
        """All numbers, exactly; whether there is room for them is seen when they are typed."""
        return pa.decimal128(MAX_PRECISION, self.digits.scale)


class Boolean(ValueFormat):
    """True or false."""

    kind = "boolean"
    _WORDS = {"true": True, "false": False, "1": True, "0": False}

    def read(self, raw: RawValue) -> Typed:
        """Words and digits, in any letter case."""
        if raw is None or isinstance(raw, bool):
            return raw
        if isinstance(raw, str):
            value = self._WORDS.get(raw.strip(BLANKS).lower())
        else:
            value = {0: False, 1: True}.get(raw) if isinstance(raw, int) else None
        if value is None:
            raise NotOfTypeError
        return value

    def natives(self, column: pa.Array) -> pa.Array | None:
        """Booleans."""
        return column if pa.types.is_boolean(column.type) else None


def exact_number(text: str) -> Decimal:
    """The number that a text writes, exactly.

    >>> exact_number("1.5e3"), exact_number("-0.10")
    (Decimal('1.5E+3'), Decimal('-0.10'))

    Raises:
        NotOfTypeError: it writes none, or one that is out of any type's range.
        NotFiniteError: it writes NaN or an infinity.
    """
    number = Decimal(_number_text(text))
    if number.adjusted() >= _LARGEST_EXPONENT and not number.is_zero():
        raise NotOfTypeError
    if number.adjusted() <= -_LARGEST_EXPONENT:
        # Nothing is as small: it is its sign that counts.
        return Decimal("0e-1") if number.is_zero() else Decimal(f"1e-{_LARGEST_EXPONENT}").copy_sign(number)
    if len(number.as_tuple().digits) > _LARGEST_EXPONENT:
        number = number.normalize(Context(prec=1000))
    return number


def _whole(number: int | float | Decimal) -> int:
    if not math.isfinite(number) or number != int(number):
        raise NotOfTypeError
    return int(number)


def _number_text(text: str) -> str:
    if _NO_NUMBER.fullmatch(text):
        raise NotFiniteError
    if _DOUBLE.fullmatch(text) is None:
        raise NotOfTypeError
    return text


def _with_scale(whole: pa.Array, scale: int) -> pa.Array:
    """Decimals without a fraction, taken for so many units of 10⁻ˢ."""
    return pa.Array.from_buffers(pa.decimal128(38, scale), len(whole), whole.buffers(), offset=whole.offset)


SCALARS: dict[ColumnType, Callable[[str], ValueFormat]] = {
    "string": lambda point: String(),
    "integer": Integer,
    "double": Double,
    "boolean": lambda point: Boolean(),
}
"""Type → how its values are read, given the sign before fractions, where there is one way."""
