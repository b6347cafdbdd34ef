"""What a file of records says, read independently: by hand, from docs/how-to/declare-a-pipeline.md alone.

Nothing of the product is imported but the declared models. Values are as the tables have them: timestamps as
microseconds, dates as days since 1970-01-01.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidegate.declarations.models import Column, Stream

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_US = 86_400_000_000
MOST_LEVELS = 100
Given = Any


class NoValueError(ValueError):
    """The reason for which there is no value."""


class BrokenError(ValueError):
    """It cannot be read: a record, or a file."""


class Written(str):
    """A number or a word of a JSON document, as written."""


@dataclass(frozen=True)
class Moment:
    """A Parquet timestamp: microseconds since 1970-01-01."""

    us: int


def us(instant: datetime) -> int:
    """Microseconds since 1970-01-01."""
    return (instant - EPOCH) // timedelta(microseconds=1)


# Values


def value(kind: str, given: Given) -> Any:
    """A given value in the declared type.

    Raises:
        NoValueError: wrong_type or non_finite.
    """
    if given is None:
        return None
    if kind == "string":
        return text_of(given)
    if isinstance(given, str):
        given = given.strip(" \t")
        if not given.isascii():
            raise NoValueError("wrong_type")
    try:
        return _READERS[kind](given)
    except (ArithmeticError, OverflowError, TypeError, KeyError):
        raise NoValueError("wrong_type") from None
    except ValueError as error:
        raise error if isinstance(error, NoValueError) else NoValueError("wrong_type") from None


def text_of(given: Given) -> str:
    """Text as it is, other scalars in the notation of the documentation."""
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, Moment):
        year_within(given.us)
        return (EPOCH + timedelta(microseconds=given.us)).replace(tzinfo=None).isoformat() + "Z"
    if isinstance(given, date):
        return given.isoformat()
    if isinstance(given, Decimal):
        return f"{given:f}"
    if isinstance(given, str | int | float):
        return str(given)
    raise NoValueError("wrong_type")


def integer(given: Given) -> int:
    """A whole number of 64 bits."""
    if isinstance(given, str):
        sign, digits = (given[:1], given[1:]) if given[:1] in ("+", "-") else ("", given)
        whole, point, rest = digits.partition(".")
        if not whole.isdigit() or (point and set(rest) != {"0"}):
            raise NoValueError("wrong_type")
        number = int(whole) * (-1 if sign == "-" else 1)
    elif isinstance(given, int | float | Decimal) and not isinstance(given, bool) and given == int(given):
        number = int(given)
    else:
        raise NoValueError("wrong_type")
    if number != max(-(2**63), min(number, 2**63 - 1)):
        raise NoValueError("wrong_type")
    return number


def double(given: Given) -> float:
    """A finite number."""
    if isinstance(given, str):
        bare = given.lstrip("+-") if given[:2] not in ("+-", "-+", "++", "--") else given
        if bare.lower() in ("nan", "inf", "infinity"):
            raise NoValueError("non_finite")
        if set(given) - set("0123456789+-.eE"):
            raise NoValueError("wrong_type")
    elif isinstance(given, bool) or not isinstance(given, int | float | Decimal):
        raise NoValueError("wrong_type")
    number = float(given)
    if not math.isfinite(number):
        raise NoValueError("non_finite")
    return number


def boolean(given: Given) -> bool:
    """true, false, 1 or 0."""
    if isinstance(given, str):
        return {"true": True, "1": True, "false": False, "0": False}[given.lower()]
    if isinstance(given, int):
        return {0: False, 1: True}[given]
    raise NoValueError("wrong_type")


def timestamp(given: Given) -> int:
    """Microseconds since 1970-01-01."""
    if isinstance(given, Moment):
        return year_within(given.us)
    if isinstance(given, date):
        return (given - EPOCH.date()).days * DAY_US
    if not isinstance(given, str):
        raise NoValueError("wrong_type")
    day_us = day(given[:10]) * DAY_US
    if len(given) == 10:
        return day_us
    clock, zone = split_zone(given[11:])
    parts = clock.split(":")
    seconds, point, fraction = (parts[2] if len(parts) == 3 else "00").partition(".")
    if given[10] not in "T " or len(parts) not in (2, 3) or (point and not 1 <= len(digits(fraction)) <= 9):
        raise NoValueError("wrong_type")
    hour, minute, second = two(parts[0], 23), two(parts[1], 59), two(seconds, 59)
    micros = int((fraction + "000000")[:6])
    return year_within(day_us + ((hour * 60 + minute - zone) * 60 + second) * 1_000_000 + micros)


def split_zone(text: str) -> tuple[str, int]:
    """The clock, and how many minutes it is ahead of UTC."""
    if text.endswith("Z"):
        return text[:-1], 0
    at = max(text.rfind("+"), text.rfind("-"))
    if at < 0:
        return text, 0
    zone = text[at + 1 :]
    minutes = zone[2:].removeprefix(":") if len(zone) > 2 else "00"
    ahead = two(zone[:2], 23) * 60 + two(minutes, 59)
    return text[:at], -ahead if text[at] == "-" else ahead


def digits(text: str) -> str:
    """Text that consists of digits."""
    if not text.isdigit():
        raise NoValueError("wrong_type")
    return text


def two(text: str, most: int) -> int:
    """A number of two digits."""
    if len(digits(text)) != 2 or int(text) > most:
        raise NoValueError("wrong_type")
    return int(text)


def year_within(instant_us: int) -> int:
    """An instant of the years 1 to 9999."""
    if not us(datetime.min.replace(tzinfo=UTC)) <= instant_us <= us(datetime.max.replace(tzinfo=UTC)):
        raise NoValueError("wrong_type")
    return instant_us


def day(given: Given) -> int:
    """Days since 1970-01-01."""
    if isinstance(given, Moment) and given.us % DAY_US == 0:
        return year_within(given.us) // DAY_US
    if isinstance(given, str):
        if [len(digits(part)) for part in given.split("-")] != [4, 2, 2]:
            raise NoValueError("wrong_type")
        given = date(*map(int, given.split("-")))
    if not isinstance(given, date):
        raise NoValueError("wrong_type")
    return (given - EPOCH.date()).days


_READERS = {"integer": integer, "double": double, "boolean": boolean, "timestamp": timestamp, "date": day}


# Records


def json_record(line: bytes) -> dict[str, Given]:
    """The members of a line that is one JSON object (RFC 8259, and NaN and Infinity); nested ones as ``[]``."""
    text = line.decode()
    tokens = list(_tokens(text))
    if len(tokens) < 3 or tokens[0] != "{":
        raise BrokenError
    found, end = _object(tokens, 0, 1)
    if end != len(tokens) or not found:
        raise BrokenError
    for one in (*found, *found.values()):
        if isinstance(one, str):
            one.encode()  # half of a surrogate pair is no text
    return found


_TOKEN = re.compile(
    r'[ \t\r\n]*(?:(?P<sign>[{}\[\],:])|"(?P<text>(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*)"'
    r"|(?P<word>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null|NaN|-?Infinity))"
)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def _tokens(text: str) -> Iterator[Any]:
    """Signs as they are, words as `Written`, texts as a list of one."""
    at, end = 0, len(text.rstrip(" \t\r\n"))
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise BrokenError
        at = match.end()
        if match["sign"]:
            yield match["sign"]
        else:
            yield [_unescaped(match["text"])] if match["word"] is None else Written(match["word"])


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        letter = match[1]
        return chr(int(letter[1:], 16)) if letter[0] == "u" else _ESCAPES.get(letter, letter)

    plain = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", one, text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") if "\\u" in text else plain


def _object(tokens: list[Any], at: int, level: int) -> tuple[dict[str, Given], int]:
    found: dict[str, Given] = {}
    at += 1
    while tokens[at : at + 1] != ["}"] or found:
        key, colon = (tokens[at : at + 2] + [None, None])[:2]
        if not isinstance(key, list) or colon != ":" or key[0] in found:
            raise BrokenError
        found[key[0]], at = _value(tokens, at + 2, level)
        if tokens[at : at + 1] == ["}"]:
            break
        if tokens[at : at + 1] != [","]:
            raise BrokenError
        at += 1
    return found, at + 1


def _value(tokens: list[Any], at: int, level: int) -> tuple[Given, int]:
    token = tokens[at] if at < len(tokens) else None
    if token in ("{", "[") and level == MOST_LEVELS:
        raise BrokenError
    if token == "{":
        return [], _object(tokens, at, level + 1)[1]
    if token == "[":
        at += 1
        if tokens[at : at + 1] == ["]"]:
            return [], at + 1
        while True:
            _, at = _value(tokens, at, level + 1)
            if tokens[at : at + 1] == ["]"]:
                return [], at + 1
            if tokens[at : at + 1] != [","]:
                raise BrokenError
            at += 1
    if isinstance(token, list):
        return token[0], at + 1
    if isinstance(token, Written):
        return {"true": True, "false": False, "null": None}.get(token, token), at + 1
    raise BrokenError


def csv_cells(line: bytes) -> list[str | None]:
    """RFC 4180 with a comma: the cells of a line, None for one without content."""
    text = line.decode()
    if "\0" in text:
        raise BrokenError
    cells: list[str | None] = []
    cell, state = "", "start"
    for sign in [*text, "end"]:
        if state in ("start", "plain", "closed") and sign in (",", "end"):
            cells.append(cell if cell or state == "closed" else None)
            cell, state = "", "start"
        elif state == "start" and sign == '"':
            state = "quoted"
        elif state == "quoted":
            state, cell = ("closed", cell) if sign == '"' else ("quoted", cell + sign)
            if sign == "end":
                raise BrokenError
        elif state == "closed" and sign == '"':
            cell, state = cell + '"', "quoted"
        elif state == "closed":
            raise BrokenError
        else:
            cell, state = cell + sign, "plain"
    return cells


def lines_of(content: bytes) -> list[bytes]:
    """The lines that are not blank; LF, CR and CRLF end one."""
    return [line for line in re.split(rb"[\r\n]", content) if line.strip(b" \t")]


def unpacked(name: str, content: bytes) -> bytes:
    """The content of a text file by its name; of zstd, as it was packed (there is no second reader of it)."""
    if name.endswith(".gz"):
        whole = b""
        while content:
            reader = zlib.decompressobj(31)
            try:
                whole += reader.decompress(content) + reader.flush()
            except zlib.error:
                raise BrokenError from None
            if not reader.eof:
                raise BrokenError
            content = reader.unused_data.lstrip(b"\0")
        return whole
    if any(content.startswith(magic) for magic in (b"\x1f\x8b", b"(\xb5/\xfd", b"BZh", b"PAR1", b"\xfd7zXZ")):
        raise BrokenError
    return content


def text_records(stream: Stream, content: bytes) -> list[tuple[str, dict[str, Given] | None]]:
    """Each record as the quarantine shows it, with its fields, None if it is none."""
    content = content.removeprefix(b"\xef\xbb\xbf")
    lines = lines_of(content)
    header: list[str] = []
    if stream.format == "csv" and content:
        try:
            header = [(cell or "").strip() for cell in csv_cells(re.split(rb"[\r\n]", content)[0])]
        except ValueError:
            raise BrokenError from None
        if len(set(header)) != len(header) or not all(header):
            raise BrokenError
        lines = lines[1:]
    return [(line.decode(errors="backslashreplace"), _fields(line, header)) for line in lines]


def _fields(line: bytes, header: list[str]) -> dict[str, Given] | None:
    try:
        return dict(zip(header, csv_cells(line), strict=True)) if header else json_record(line)
    except ValueError:
        return None


_PER_US = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}


def parquet_records(table: pa.Table) -> list[dict[str, Given]]:
    """The rows of a table, as column → value."""
    columns = [_column(table.column(name)) for name in table.column_names]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _column(column: pa.ChunkedArray) -> Sequence[Given]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_timestamp(kind):
        times, by = _PER_US[kind.unit]
        return [None if x is None else Moment(x * times // by) for x in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_date32(kind) or pa.types.is_date64(kind):
        by = 1 if pa.types.is_date32(kind) else DAY_US // 1000
        whole = column.cast(pa.int32() if by == 1 else pa.int64()).to_pylist()
        return [None if x is None else _date(x // by) for x in whole]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        octets = column.cast(pa.binary() if pa.types.is_string(kind) else pa.large_binary()).to_pylist()
        return [None if x is None else _decoded(x) for x in octets]
    return [None if x is None else _scalar(x) for x in column.to_pylist()]


def _date(days: int) -> Given:
    return EPOCH.date() + timedelta(days=days) if -719162 <= days <= 2932896 else b"no date"


def _decoded(octets: bytes) -> Given:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets


def _scalar(given: Given) -> Given:
    return given if isinstance(given, str | bool | int | float | Decimal) else b"no scalar"


# Verdicts


@dataclass(frozen=True)
class Verdict:
    """``reason`` None: accepted, with these values, by declared column."""

    reason: str | None
    column: str | None
    values: Mapping[str, Any]


def judge(stream: Stream, period: tuple[int, int], landed_us: int, given: dict[str, Given] | None) -> Verdict:
    """One record of a file whose records arrived in [start, end), by itself: everything but duplicates."""
    if not given:
        return Verdict("broken_record", None, {})
    unknown = sorted(given.keys() - {c.name for c in stream.columns})
    if unknown:
        return Verdict("unknown_column", unknown[0], {})
    values: dict[str, Any] = {}
    for column in stream.columns:
        reason = _read(stream, column, given.get(column.name), values)
        if reason:
            return Verdict(reason, column.name, {})
    event = values[stream.event_time]
    arrival = values[stream.arrival_time] if stream.arrival_time else landed_us
    if event - arrival > stream.max_early_s * 1_000_000:
        return Verdict("too_early", stream.event_time, {})
    if arrival - event > stream.max_late_s * 1_000_000:
        return Verdict("too_late", stream.event_time, {})
    if not period[0] <= arrival < period[1]:
        return Verdict("outside_file_interval", stream.arrival_time, {})
    return Verdict(None, None, values)


def _read(stream: Stream, column: Column, given: Given, values: dict[str, Any]) -> str | None:
    try:
        values[column.name] = value(column.type, given)
    except NoValueError as error:
        return str(error)
    needed = not column.nullable or column.name in (stream.id, stream.event_time, stream.arrival_time)
    return "missing_value" if needed and values[column.name] is None else None
