"""Values on the wire: DuckDB's types as PostgreSQL's, columns of results as bytes, and parameters as SQL.

What PostgreSQL has no type for (maps, structs, lists of lists) is sent as JSON. Integers wider than 64 bits, such as
the sum of a bigint column, are ``numeric``. Times are UTC.
"""

from __future__ import annotations

import decimal
import json
import math
import re
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Bytes = list[bytes | None]
TEXT, BINARY = 0, 1
_EPOCH_DAYS, _EPOCH_US = 10957, 946_684_800_000_000  # 2000-01-01, since 1970-01-01
_NUMERIC_DIGITS = 4
_MODIFIER_BASE = 4


@dataclass(frozen=True)
class Type:
    """A type of PostgreSQL's: its number, its size in bytes (-1: it varies), its SQL name, its array's number."""

    oid: int
    size: int
    name: str
    array: int
    category: str = "U"


BOOL = Type(16, 1, "boolean", 1000, "B")
BYTEA = Type(17, -1, "bytea", 1001)
NAME = Type(19, 64, "name", 1003, "S")
INT8 = Type(20, 8, "bigint", 1016, "N")
INT2 = Type(21, 2, "smallint", 1005, "N")
INT4 = Type(23, 4, "integer", 1007, "N")
STRING = Type(25, -1, "text", 1009, "S")
OID = Type(26, 4, "oid", 1028, "N")
JSON = Type(114, -1, "json", 199)
FLOAT4 = Type(700, 4, "real", 1021, "N")
FLOAT8 = Type(701, 8, "double precision", 1022, "N")
VARCHAR = Type(1043, -1, "character varying", 1015, "S")
DATE = Type(1082, 4, "date", 1182, "D")
TIME = Type(1083, 8, "time without time zone", 1183, "D")
TIMESTAMP = Type(1114, 8, "timestamp without time zone", 1115, "D")
TIMESTAMPTZ = Type(1184, 8, "timestamp with time zone", 1185, "D")
INTERVAL = Type(1186, 16, "interval", 1187, "T")
NUMERIC = Type(1700, -1, "numeric", 1231, "N")
UUID = Type(2950, 16, "uuid", 2951)
UNKNOWN = 705

_NUMBERS = (INT8, INT2, INT4, OID, FLOAT4, FLOAT8, NUMERIC)
_TIMES = (DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL)
TYPES = (BOOL, BYTEA, STRING, NAME, JSON, VARCHAR, UUID, *_NUMBERS, *_TIMES)
_BY_ARRAY = {one.array: one for one in TYPES}
_BY_OID = {one.oid: one for one in TYPES}
_OF_DUCKDB = {
    "BOOLEAN": BOOL,
    "TINYINT": INT2,
    "UTINYINT": INT2,
    "SMALLINT": INT2,
    "USMALLINT": INT4,
    "INTEGER": INT4,
    "UINTEGER": INT8,
    "BIGINT": INT8,
    "UBIGINT": NUMERIC,
    "HUGEINT": NUMERIC,
    "UHUGEINT": NUMERIC,
    "FLOAT": FLOAT4,
    "DOUBLE": FLOAT8,
    "DATE": DATE,
    "TIME": TIME,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_S": TIMESTAMP,
    "TIMESTAMP_MS": TIMESTAMP,
    "TIMESTAMP_NS": TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": TIMESTAMPTZ,
    "INTERVAL": INTERVAL,
    "BLOB": BYTEA,
    "UUID": UUID,
    "JSON": JSON,
}


@dataclass(frozen=True)
class ColumnType:
    """What a result's column is sent as."""

    type: Type
    is_array: bool = False
    modifier: int = -1
    """Of a numeric its precision and scale, as ``atttypmod`` has them; -1: none."""

    @property
    def oid(self) -> int:
        """The number that RowDescription has."""
        return self.type.array if self.is_array else self.type.oid

    @property
    def size(self) -> int:
        """The size that RowDescription has."""
        return -1 if self.is_array else self.type.size

    @property
    def digits(self) -> tuple[int, int] | None:
        """Of a numeric with a modifier its precision and scale.

        >>> column_type("DECIMAL(18,3)").digits, column_type("HUGEINT").digits
        ((18, 3), None)
        """
        plain = self.modifier - _MODIFIER_BASE
        return None if self.modifier < 0 else (plain >> 16, plain & 0xFFFF)


def column_type(duckdb_type: str) -> ColumnType:
    """PostgreSQL's type for a type as DuckDB writes it.

    >>> column_type("DECIMAL(18,3)").type.name, column_type("VARCHAR[]").oid, column_type("MAP(VARCHAR, DOUBLE)").oid
    ('numeric', 1009, 114)
    """
    if re.fullmatch(r"\w+( WITH TIME ZONE)?\[\]", duckdb_type):
        inner = _OF_DUCKDB.get(duckdb_type[:-2], STRING)
        return ColumnType(JSON) if inner is JSON else ColumnType(inner, is_array=True)
    if duckdb_type.endswith("]") or duckdb_type.startswith(("MAP(", "STRUCT(", "UNION(")):
        return ColumnType(JSON)
    if match := re.fullmatch(r"DECIMAL\((\d+), ?(\d+)\)", duckdb_type):
        return ColumnType(NUMERIC, modifier=(int(match[1]) << 16 | int(match[2])) + _MODIFIER_BASE)
    return ColumnType(_OF_DUCKDB.get(duckdb_type, STRING))


def encoded(column: pa.ChunkedArray | pa.Array, kind: ColumnType, form: int) -> Bytes:
    """A column's values, in the form that was asked for. Cost: about a microsecond a value, a few for lists."""
    if kind.is_array:
        one = _array_binary if form == BINARY else _array_text
        return [None if value is None else one(value, kind.type) for value in column.to_pylist()]
    if form == BINARY:
        write = _BINARY.get(kind.type.oid)
        if write is None:  # of texts and JSON, both forms are the same
            return _as_text(column, kind.type)
        return [None if value is None else write(value) for value in _numbers(column, kind.type)]
    return _as_text(column, kind.type)


def _as_text(column: Any, kind: Type) -> Bytes:
    arrow = column.type
    if kind is BOOL:
        column = pc.if_else(column, b"t", b"f")
    elif kind in (TIMESTAMP, TIMESTAMPTZ):
        column = column.cast(pa.timestamp("us", tz=arrow.tz), safe=False).cast(pa.timestamp("us")).cast(pa.string())
    elif kind not in (BYTEA, INTERVAL, FLOAT4, FLOAT8) and not pa.types.is_nested(arrow):
        column = column.cast(pa.string())
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    values = column.to_pylist()
    if kind in (TIMESTAMP, TIMESTAMPTZ):
        zone = b"+00" if kind is TIMESTAMPTZ else b""
        return [None if value is None else value.rstrip(b"0").rstrip(b".") + zone for value in values]
    if kind is BYTEA:
        return [None if value is None else b"\\x" + value.hex().encode() for value in values]
    return [None if value is None else value if isinstance(value, bytes) else _text(value).encode() for value in values]


def _text(value: Any) -> str:
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "NaN" if value != value else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, pa.MonthDayNano):
        sign, seconds = ("-" if value.nanoseconds < 0 else ""), abs(value.nanoseconds) / 1e9
        clock = f"{sign}{int(seconds // 3600):02d}:{int(seconds % 3600 // 60):02d}:{seconds % 60:09.6f}"
        return f"{value.months} mons {value.days} days {clock}"
    if isinstance(value, dict | list):
        return json.dumps(_plain(value), ensure_ascii=False, default=_text)
    return value.isoformat(" ") if isinstance(value, datetime) else str(value)


def _plain(value: Any) -> Any:
    """A value that JSON has: a map is an object, a number that JSON lacks is its name."""
    if isinstance(value, list):
        if value and all(isinstance(one, tuple) and len(one) == 2 for one in value):
            return {_text(key): _plain(held) for key, held in value}
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(held) for key, held in value.items()}
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return _text(value) if isinstance(value, float) and not math.isfinite(value) else value


def _array_text(values: Sequence[Any], kind: Type) -> bytes:
    def one(value: Any) -> str:
        if value is None:
            return "NULL"
        text = ("t" if value else "f") if kind is BOOL else _text(value)
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return ("{" + ",".join(map(one, values)) + "}").encode()


def _array_binary(values: Sequence[Any], kind: Type) -> bytes:
    write = _BINARY.get(kind.oid, lambda value: _text(value).encode())
    held = [None if value is None else write(_number(value, kind)) for value in values]
    head = struct.pack("!iii", int(bool(values)), int(None in held), kind.oid)
    if not values:
        return head
    return (
        head
        + struct.pack("!ii", len(values), 1)
        + b"".join(struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value for value in held)
    )


def _numbers(column: Any, kind: Type) -> list[Any]:
    """The values of a column as what ``_BINARY`` takes: times as microseconds and dates as days since 1970."""
    if kind in (TIMESTAMP, TIMESTAMPTZ):
        column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(pa.int64())
    elif kind is TIME:
        column = column.cast(pa.time64("us")).cast(pa.int64())
    elif kind is DATE:
        column = column.cast(pa.int32())
    return list(column.to_pylist())


def _number(value: Any, kind: Type) -> Any:
    return _numbers(pa.array([value]), kind)[0]


def _interval(value: Any) -> bytes:
    return struct.pack("!qii", value.nanoseconds // 1000, value.days, value.months)


def _numeric(value: Any) -> bytes:
    """Base 10000, most significant first. Source: PostgreSQL's ``numeric_send``."""
    value = decimal.Decimal(value)
    sign, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    text = "".join(map(str, digits)) + "0" * max(0, int(exponent))
    whole, part = (text[:-scale], text[-scale:].rjust(scale, "0")) if scale else (text, "")
    whole = whole.rjust(-(-len(whole) // _NUMERIC_DIGITS) * _NUMERIC_DIGITS, "0")
    part = part.ljust(-(-len(part) // _NUMERIC_DIGITS) * _NUMERIC_DIGITS, "0")
    groups = [int((whole + part)[n : n + _NUMERIC_DIGITS]) for n in range(0, len(whole + part), _NUMERIC_DIGITS)]
    weight = len(whole) // _NUMERIC_DIGITS - 1
    return struct.pack(f"!hhHh{len(groups)}h", len(groups), weight, 0x4000 * sign, scale, *groups)


_BINARY: dict[int, Callable[[Any], bytes]] = {
    BOOL.oid: lambda value: b"\1" if value else b"\0",
    BYTEA.oid: bytes,
    INT2.oid: struct.Struct("!h").pack,
    INT4.oid: struct.Struct("!i").pack,
    INT8.oid: struct.Struct("!q").pack,
    OID.oid: struct.Struct("!I").pack,
    FLOAT4.oid: struct.Struct("!f").pack,
    FLOAT8.oid: struct.Struct("!d").pack,
    NUMERIC.oid: _numeric,
    DATE.oid: lambda days: struct.pack("!i", days - _EPOCH_DAYS),
    TIME.oid: struct.Struct("!q").pack,
    TIMESTAMP.oid: lambda us: struct.pack("!q", us - _EPOCH_US),
    TIMESTAMPTZ.oid: lambda us: struct.pack("!q", us - _EPOCH_US),
    INTERVAL.oid: _interval,
    UUID.oid: lambda text: uuid.UUID(str(text)).bytes,
}


class BadValue(Exception):
    """A parameter that is not what its type says."""


def parameter(value: bytes | None, oid: int, form: int) -> str:
    """A parameter as an expression of SQL: a literal, cast if its type is known and is not a text. Raises BadValue.

    >>> parameter(b"it's", 0, TEXT), parameter(bytes(7) + bytes([5]), INT8.oid, BINARY), parameter(None, 0, TEXT)
    ("'it''s'", "CAST('5' AS bigint)", 'NULL')
    """
    if oid in _BY_ARRAY:
        return _array_parameter(value, _BY_ARRAY[oid], form)
    kind = _BY_OID.get(oid, STRING)
    cast = "{}" if kind in (STRING, NAME, VARCHAR, JSON) else f"CAST({{}} AS {_IN_DUCKDB.get(kind, kind.name)})"
    if value is None:
        return cast.format("NULL")
    try:
        text = _READ[oid](value) if form == BINARY and oid in _READ else value.decode()
    except (UnicodeDecodeError, struct.error, ValueError, OverflowError, IndexError):
        raise BadValue(f"a parameter is no {kind.name}") from None
    if "\0" in text:
        raise BadValue("a text cannot have a zero byte")
    return cast.format("'" + text.replace("'", "''") + "'")


def list_of(text: str) -> list[str | None]:
    """The values of a list of one dimension as PostgreSQL writes it. Raises BadValue.

    >>> list_of('{a,NULL,"b, \\\\"c"}')
    ['a', None, 'b, "c']
    """
    if not re.fullmatch(rf"\s*\{{\s*({_ITEM}(\s*,\s*{_ITEM})*)?\s*\}}\s*", text):
        raise BadValue("a list is not written as {a,b,c}")
    items = [found[0] for found in re.finditer(_ITEM, text.strip()[1:-1])]
    return [
        re.sub(r"\\(.)", r"\1", item[1:-1]) if item.startswith('"') else None if item.upper() == "NULL" else item
        for item in items
    ]


def _array_parameter(value: bytes | None, kind: Type, form: int) -> str:
    if value is None:
        return f"CAST(NULL AS {_IN_DUCKDB.get(kind, kind.name)}[])"
    if form == TEXT:
        held = [None if item is None else item.encode() for item in list_of(_decoded(value))]
    else:
        held = []
        dimensions, _, _ = struct.unpack("!iii", value[:12])
        at = 12 + 8 * dimensions
        while at < len(value):
            (length,) = struct.unpack("!i", value[at : at + 4])
            held.append(None if length < 0 else value[at + 4 : at + 4 + length])
            at += 4 + max(0, length)
    return f"[{', '.join(parameter(item, kind.oid, form) for item in held)}]"


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise BadValue("a text is not UTF-8") from None


def _unpacked(form: str) -> Callable[[bytes], str]:
    return lambda value: repr(struct.unpack(form, value)[0])


def _read_numeric(value: bytes) -> str:
    count, weight, sign, scale = struct.unpack("!hhHh", value[:8])
    if sign not in (0, 0x4000):
        return "NaN"
    groups = struct.unpack(f"!{count}h", value[8:])
    total = sum(decimal.Decimal(g).scaleb(_NUMERIC_DIGITS * (weight - n)) for n, g in enumerate(groups))
    return f"{-total if sign else total:.{scale}f}"


def _read_time(us: int, zone: str = "") -> str:
    return (datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)).strftime("%Y-%m-%d %H:%M:%S.%f") + zone


_ITEM = r'(?:"(?:[^"\\]|\\.)*"|[^\s",{}\\]+(?: [^\s",{}\\]+)*)'
_IN_DUCKDB = {BYTEA: "blob", OID: "bigint", NUMERIC: "decimal(38, 9)", TIME: "time", TIMESTAMP: "timestamp"}
_IN_DUCKDB |= {TIMESTAMPTZ: "timestamptz"}
_READ: dict[int, Callable[[bytes], str]] = {
    BOOL.oid: lambda value: "true" if value == b"\1" else "false",
    BYTEA.oid: lambda value: "".join(f"\\x{byte:02X}" for byte in value),
    INT2.oid: _unpacked("!h"),
    INT4.oid: _unpacked("!i"),
    INT8.oid: _unpacked("!q"),
    OID.oid: _unpacked("!I"),
    FLOAT4.oid: _unpacked("!f"),
    FLOAT8.oid: _unpacked("!d"),
    NUMERIC.oid: _read_numeric,
    DATE.oid: lambda value: (date(2000, 1, 1) + timedelta(days=struct.unpack("!i", value)[0])).isoformat(),
    TIMESTAMP.oid: lambda value: _read_time(struct.unpack("!q", value)[0]),
    TIMESTAMPTZ.oid: lambda value: _read_time(struct.unpack("!q", value)[0], "+00"),
    UUID.oid: lambda value: str(uuid.UUID(bytes=value)),
}
