"""Which columns a sample has, and of which types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from functools import cached_property
from typing import Any

from tidegate.declarations.models import CsvDialect
from tidegate.declarations.source_paths import read_cell, read_path, show_path
from tidegate.declarations.units import UnreadableError
from tidegate.guess import words
from tidegate.guess.csv_dialect import CERTAIN_NULLS, NULL_WORDS
from tidegate.guess.records import Sample, Steps
from tidegate.guess.written_times import TimeFormat, instant_of, time_format, time_reader
from tidegate.values.base import Number
from tidegate.values.types import MAX_PRECISION, ColumnType, decimal_type

FITTING = 0.95
"""The share of a column's values that are of its type at least: the others may be broken."""
RARE = 0.01
_SMALL = 200
"""In so few records a constant may be one by chance."""
_FEW_COLUMNS = 8
_LONG_TEXT = 60
_TWO_SHAPES = "an object or a list in some records, not in others"
_MONEY_SCALE = 4
_LARGEST = 2**63
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_NESTED = (Mapping, list, tuple)
_KEPT_AS_TEXT = frozenset(("zip", "zipcode", "postcode", "plz", "phone", "code"))


@dataclass(frozen=True, eq=False)
class Seen:
    """One column as it was seen: its values in the sample's order, and what they are. Equal to itself alone.

    ``seen``: the guess in words, for a comment. ``unfit``: how many values are not of the type. ``zone``: of local
    times.
    """

    path: Steps
    values: Sequence[Any] = field(repr=False)
    type: ColumnType = "string"
    time: TimeFormat | None = None
    seen: str = ""
    unfit: int = 0
    zone: str = "UTC"

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of its name."""
        return words.words_of(self.path)

    @cached_property
    def present(self) -> list[Any]:
        """Its values that are not NULL."""
        return [value for value in self.values if value is not None]

    @cached_property
    def fill(self) -> float:
        """The share of records that have a value."""
        return len(self.present) / len(self.values) if self.values else 0.0

    @cached_property
    def distinct(self) -> dict[Any, int]:
        """Value → how often it comes."""
        counts: dict[Any, int] = {}
        for value in self.present:
            counts[value] = counts.get(value, 0) + 1
        return counts

    @cached_property
    def instants(self) -> list[int | None]:
        """Of a time: of every record the microseconds since 1970."""
        if self.time is None:
            return [None] * len(self.values)
        read = time_reader(self.time.format)
        known = [None if value is None else read(value) for value in self.values]
        if self.zone == "UTC" or not self.time.local:
            return known
        return [None if us is None else instant_of(us, self.zone) for us in known]

    @property
    def shown(self) -> str:
        """Its path, as people write it."""
        return show_path(self.path) if self.path and isinstance(self.path[0], str) else f"[{self.path[0]}]"


@dataclass(frozen=True)
class Schema:
    """The columns that are worth declaring, in the records' order; and path → why another is left out."""

    columns: tuple[Seen, ...]
    left_out: Mapping[Steps, str]
    nulls: tuple[str, ...] = ()


def schema_of(sample: Sample, csv: CsvDialect | None, declared: Mapping[Steps, ColumnType]) -> Schema:
    """The columns of a sample. ``declared``: types that the files themselves declare, for decimals."""
    columns, nulls = dict(sample.columns), tuple[str, ...]()
    if csv is not None:
        columns, nulls = _without_nulls(columns)
    seen: list[Seen] = []
    left_out: dict[Steps, str] = {path: _TWO_SHAPES for path in _of_two_shapes(columns)}
    for path, values in columns.items():
        if path in left_out:
            continue
        present = [value for value in values if value is not None]
        reason = _why_not(present, sample.count)
        if not can_be_written(path, csv):
            reason = "a name that pipeline.yml cannot have"
        if reason:
            left_out[path] = reason
            continue
        column = column_of(path, values, csv, declared.get(path))
        reason = _why_dull(column, len(columns))
        if reason:
            left_out[path] = reason
        else:
            seen.append(column)
    return Schema(tuple(seen), left_out, nulls)


def _of_two_shapes(columns: Mapping[Steps, Sequence[Any]]) -> set[Steps]:
    """The paths that lead through values which are no objects or lists in other records, or are seldom such.

    A field of a value that is no object is of the wrong type, so of the two shapes one can be declared: the usual one.
    """
    counts = {path: sum(value is not None for value in values) for path, values in columns.items()}
    seldom: set[Steps] = set()
    for path in columns:
        for length in range(1, len(path)):
            if path[:length] in columns:
                below = max(n for other, n in counts.items() if other[:length] == path[:length] and len(other) > length)
                seldom.add(path if counts[path[:length]] >= below else path[:length])
    return seldom


def can_be_written(path: Steps, csv: CsvDialect | None) -> bool:
    """Whether the key ``from`` of a column can name the path.

    >>> can_be_written(("a.b", "c"), None), can_be_written(("",), None), can_be_written(("[0]",), CsvDialect())
    (True, False, False)
    """
    if any(isinstance(step, str) and ("${" in step or not step.isprintable()) for step in path):
        return False
    text = show_path(path) if csv is None else f"[{path[0]}]" if isinstance(path[0], int) else path[0]
    try:
        return text == text.strip() and (read_path(text) if csv is None else read_cell(text)) == path
    except UnreadableError:
        return False


def _without_nulls(columns: Mapping[Steps, list[Any]]) -> tuple[dict[Steps, list[Any]], tuple[str, ...]]:
    """The columns of CSV files with NULL where a cell stands for no value, and the cells that do."""
    absent: set[str] = set()
    for values in columns.values():
        cells = {cell.strip() for cell in values if cell is not None}
        suspects = cells & set(NULL_WORDS)
        rest = [cell for cell in cells - suspects if cell]
        typed = bool(rest) and sum(cell[0] in "+-.0123456789" for cell in rest) >= len(rest) * FITTING
        absent |= {word for word in suspects if typed or word in CERTAIN_NULLS - {"NA"}}
    kept = {
        path: [None if cell is None or not cell.strip() or cell.strip() in absent else cell for cell in values]
        for path, values in columns.items()
    }
    return kept, tuple(word for word in NULL_WORDS if word in absent)


def _why_not(present: Sequence[Any], records: int) -> str:
    """Why no column can be made of these values; empty if one can."""
    if not present:
        return "never a value"
    nested = [value for value in present if isinstance(value, _NESTED)]
    if len(nested) > len(present) * (1 - FITTING):
        return "an object" if isinstance(nested[0], Mapping) else "a list"
    if sum(isinstance(value, (bytes, bytearray)) for value in present) > len(present) / 2:
        return "bytes"
    known = (str, bool, int, float, Decimal, date, *_NESTED)
    if not all(isinstance(value, known) for value in present[:100]):
        return f"values of the type {type(present[0]).__name__}"
    return "rare" if len(present) < records * RARE else ""


def _why_dull(column: Seen, columns: int) -> str:
    """Why a column is not worth declaring; empty if it is."""
    many = len(column.values) >= _SMALL or columns > _FEW_COLUMNS
    if many and len(column.distinct) == 1 and column.fill == 1 and column.time is None:
        return f"always {_short(next(iter(column.distinct))) or 'empty'}"
    if column.type == "string":
        texts = [value for value in column.present if isinstance(value, str)]
        long = sum(map(len, texts)) / max(len(texts), 1) > _LONG_TEXT
        if long and len(column.distinct) > len(texts) * 0.3:
            return "long texts"
    return ""


def _short(value: Any) -> str:
    text = "".join(c if c.isprintable() else " " for c in str(value))
    return text if len(text) <= 24 else text[:21] + "…"


def column_of(
    path: Steps, values: Sequence[Any], csv: CsvDialect | None = None, declared: ColumnType | None = None
) -> Seen:
    """One column: the narrowest type that nearly all of its values are of."""
    values = [None if isinstance(value, _NESTED) else value for value in values]
    present = [value for value in values if value is not None]
    column = Seen(path, values)
    decimal = csv.decimal if csv else "."
    named = column.words
    # A column without a name may be anything: if its numbers rise as times do, they are such.
    speaks = bool(named & words.TIMES) if named else _rises(present)
    otherwise = str(path[-1]).startswith("$number") and "$date" not in path
    otherwise |= bool(named & (words.IDS | words.MONEY | words.PLACES)) and not named & (words.TIMES - {"t", "at"})
    plain = [v.replace(",", ".") if decimal == "," and _is_cell(v) and "." not in v else v for v in present]
    times = None if all(isinstance(v, bool) for v in present) else time_format(plain, speaks, otherwise)
    if times is not None:
        kind = "date" if times.day_only else "timestamp"
        unfit = round((1 - times.share) * len(present))
        return replace(column, type=kind, time=times, seen=_time_words(times, present), unfit=unfit)
    if all(isinstance(value, bool) for value in present):
        return replace(column, type="boolean", seen="true or false")
    if declared is not None:
        return replace(column, type=declared, seen=f"{declared} in the file")
    return _number_or_text(column, present, plain, csv is None)


def _rises(present: Sequence[Any]) -> bool:
    """Whether most numbers are not less than the one ahead."""
    texts = [value.strip() for value in present[:_SMALL] if isinstance(value, str)]
    numbers = [Decimal(text) for text in texts if _NUMBER.fullmatch(text)]
    pairs = list(zip(numbers, numbers[1:], strict=False))
    return sum(a <= b for a, b in pairs) > 0.7 * max(len(pairs), 1)


def _is_cell(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Number)


def _number_or_text(column: Seen, present: Sequence[Any], plain: Sequence[Any], quoted: bool) -> Seen:
    """A column of numbers, of true and false, or of text. ``quoted``: whether the format tells text from numbers."""
    named = column.words
    texts = [value.strip(" \t") for value in plain if isinstance(value, str)]
    if len(texts) == len(plain) and not any(isinstance(value, Number) for value in plain):
        words_seen = {text.lower() for text in texts}
        if words_seen and words_seen <= {"true", "false"}:
            return replace(column, type="boolean", seen="true or false")
    written = [repr(value) if isinstance(value, float) else str(value).strip(" \t") for value in plain]
    numbers = [
        text
        for text, value in zip(written, plain, strict=True)
        if _NUMBER.fullmatch(text) and not isinstance(value, bool)
    ]
    if len(numbers) < len(plain) * FITTING or not numbers:
        return replace(column, seen=_text_words(column))
    unfit = len(plain) - len(numbers)
    native = any(isinstance(value, float) for value in plain)
    if all(map(_INTEGER.fullmatch, numbers)) and not native:
        return _integer(column, numbers, quoted and any(map(_is_cell, plain)), unfit)
    money = _money(numbers, named, exact=not any(isinstance(v, (Number, Decimal)) for v in plain))
    if (money or any(isinstance(value, Decimal) for value in plain)) and not native:
        kind = money or _digits(numbers)
        return replace(column, type=kind, seen=f"{_range(numbers)}, exact", unfit=unfit)
    return replace(column, type="double", seen=_range(numbers), unfit=unfit)


def _integer(column: Seen, numbers: Sequence[str], quoted: bool, unfit: int) -> Seen:
    """A column of digits: an integer, unless it is an id or a code that was written as a text."""
    padded = any(len(text.lstrip("+-")) > 1 and text.lstrip("+-")[0] == "0" for text in numbers)
    too_large = any(abs(int(text)) >= _LARGEST for text in numbers if len(text) > 18)
    if padded or too_large or (quoted and column.words & (words.IDS | _KEPT_AS_TEXT)):
        why = "digits with zeros ahead" if padded else "digits beyond 64 bits" if too_large else "digits, as text"
        return replace(column, seen=f"{why}: {_text_words(column)}")
    return replace(column, type="integer", seen=_range(numbers), unfit=unfit)


def _money(numbers: Sequence[str], named: frozenset[str], exact: bool) -> ColumnType | None:
    """The decimal type of amounts of money; None if the numbers do not look like such.

    ``exact``: whether zeros at a fraction's end are written, so that all have as many digits.
    """
    if not named & words.MONEY or any("e" in text.lower() for text in numbers):
        return None
    scales = {len(text.partition(".")[2]) for text in numbers}
    most = max(scales)
    if most > (_MONEY_SCALE if exact else 2) or (exact and len(scales - {0}) > 1):
        return None
    return _digits(numbers, 2)


def _digits(numbers: Sequence[str], least: int = 0) -> ColumnType:
    """A decimal with room for numbers a thousand times as large as those seen, and ``least`` digits of a fraction."""
    scale = max(least, *(len(text.partition(".")[2]) for text in numbers))
    whole = max(len(text.lstrip("+-").partition(".")[0].lstrip("0")) for text in numbers)
    return decimal_type(min(max(10, whole + 3 + scale), MAX_PRECISION), min(scale, MAX_PRECISION))


def _range(numbers: Sequence[str]) -> str:
    least, most = min(numbers, key=Decimal), max(numbers, key=Decimal)
    return f"{_short(least)} to {_short(most)}" if least != most else f"always {_short(least)}"


def _text_words(column: Seen) -> str:
    count = len(column.distinct)
    most = sorted(column.distinct.items(), key=lambda item: (-item[1], str(item[0])))[:3]
    some = ", ".join(_short(value) for value, _ in most)
    if count <= 3:
        return some
    return f"{count:,} different: {some}, …" if count < len(column.present) else f"all different: {some}, …"


def _time_words(times: TimeFormat, present: Sequence[Any]) -> str:
    unit = {
        "epoch_s": "seconds", "epoch_ms": "milliseconds", "epoch_us": "microseconds", "epoch_ns": "nanoseconds"
    }.get(times.format)  # fmt: skip
    first = _short(present[0])
    if unit:
        return f"{first}: {unit} since 1970"
    either = f"; {times.other} would fit as well" if times.other else ""
    return f"{first}{either}"
