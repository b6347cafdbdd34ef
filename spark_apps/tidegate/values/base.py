"""What a record's values are before they are typed, and what reads them: the seam of value formats.

A value is given as text (CSV, JSON strings, strings of Parquet and Avro), as a number of a JSON document, as a nested
value, or as a file's own type. No rule depends on the day of the run, on the machine, or on other records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.values.types import ColumnType, arrow_type

LEAST_US, END_US = -62_135_596_800_000_000, 253_402_300_800_000_000
"""The years 1 to 9999, microseconds since 1970-01-01 UTC, half-open."""
DAY_US = 86_400_000_000
BLANKS = " \t"
Mask = npt.NDArray[np.bool_]


class Number(str):
    """A number (or NaN, Infinity) of a JSON document, as written."""


@dataclass(frozen=True)
class Moment:
    """A timestamp of a file's own type: microseconds since 1970-01-01, UTC if ``zoned``, else on a local clock."""

    us: int
    zoned: bool = True


@dataclass(frozen=True)
class Day:
    """A date of a file's own type: days since 1970-01-01."""

    days: int


@dataclass(frozen=True)
class Nested:
    """An object or a list; ``text``: as compact JSON."""

    text: str


@dataclass(frozen=True)
class Untyped:
    """A value of no type: bytes, a time of day, or what stands on a path where it cannot go on; ``text`` shows it."""

    text: str


RawValue = str | bool | int | float | Decimal | Number | Moment | Day | Nested | Untyped | None
"""A value as a record has it."""
Typed = str | int | float | bool | Decimal | None
"""A value in the declared type: timestamps as microseconds, dates as days since 1970-01-01."""


class NotOfTypeError(ValueError):
    """The value is not one of the declared type."""


class NotFiniteError(ValueError):
    """The value is NaN or infinite."""


class ValueFormat(ABC):
    """Reads the values of one type, written in one way.

    :meth:`read` is the definition, a value at a time. :meth:`texts` and :meth:`natives` read whole columns, and may
    leave any of them to :meth:`read`: they only get there faster. A subclass is a value format; the table in its module
    gives it a name.
    """

    kind: ColumnType

    @abstractmethod
    def read(self, raw: RawValue) -> Typed:
        """The value in the declared type; None stays None.

        Raises:
            NotOfTypeError: it is none.
            NotFiniteError: it is no finite number.
        """

    def texts(self, column: pa.Array) -> pa.Array | None:
        """A column of text, typed; None, or an ArrowException, if its values must be read one by one."""
        return None

    def natives(self, column: pa.Array) -> pa.Array | None:
        """A column of a file's own type, typed; None, or an ArrowException, if its values must be read one by one."""
        return None

    def json_numbers(self, fraction: bool) -> pa.DataType | None:
        """As which Arrow type a JSON document's numbers are best read: whole ones, or with a ``fraction``."""
        return None

    def suspects(self, typed: pa.Array) -> Mask | None:
        """Which values of a typed column are none after all (bool[n]); None: they are all right."""
        return None

    def of(self, values: Sequence[Typed]) -> pa.Array:
        """Typed values as a column."""
        return pa.array(values, arrow_type(self.kind))

    def column(self, raw: pa.Array) -> tuple[pa.Array, Mask]:
        """A column's values in the declared type, and which rows need a closer look: their value here is NULL.

        ``raw``: text, or of a file's own type. **Cost**: tens of nanoseconds a value where all have a usual form, else
        a few microseconds for each different text.
        """
        text = pa.types.is_string(raw.type)
        try:
            typed = nulls_of(self.kind, len(raw)) if pa.types.is_null(raw.type) else None
            if typed is None:
                typed = self.texts(raw) if text else self.natives(raw)
            if typed is not None and typed.null_count == raw.null_count:
                return typed, np.zeros(len(raw), dtype=bool)
        except (pa.ArrowException, UnicodeDecodeError):
            pass
        return self._one_by_one(raw) if text else (nulls_of(self.kind, len(raw)), valid(raw))

    def _one_by_one(self, raw: pa.Array) -> tuple[pa.Array, Mask]:
        coded = raw.dictionary_encode()
        values: list[Typed] = []
        for text in coded.dictionary.to_pylist():
            try:
                values.append(self.read(text))
            except (NotOfTypeError, NotFiniteError):
                values.append(None)
        typed = self.of(values).take(coded.indices)
        return typed, valid(raw) & ~valid(typed)


def valid(column: pa.Array) -> Mask:
    """Which values are not NULL."""
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=bool)


def nulls_of(kind: ColumnType, rows: int) -> pa.Array:
    """A column of the type that has no value."""
    return pa.nulls(rows, arrow_type(kind))


def bytes_of(column: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A text column's bytes, and where each value that is not NULL starts in them and how long it is."""
    _, places, content = column.buffers()
    offsets = np.frombuffer(places, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    data = np.frombuffer(content or b"", np.uint8)[offsets[0] : offsets[-1]]
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    if column.null_count:
        there = valid(column)
        starts, lengths = starts[there], lengths[there]
    return data, starts, lengths
