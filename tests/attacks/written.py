"""Good values of records, and how they may be written: as texts, JSON tokens, CSV cells."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

from tests.attacks.odd import JSON_TOKENS, TEXTS

from tidegate.declarations.models import Column, CsvDialect

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = datetime(2024, 3, 1, 10, tzinfo=UTC)
PER_SECOND = {"epoch_s": 1, "epoch_ms": 1_000, "epoch_us": 1_000_000, "epoch_ns": 1_000_000_000}
KINDS = [
    *["a", "", " a ", "ä,b", 'say "x"', "🚀", "e\u0301", "x" * 300, "null", "\u2028", "\\", "two\nlines", "a\r\nb\n"],
    *["NA", "-", "#", "'quoted'", '"', "a;b", "tab\there"],
]


def good(chance: Random, serial: int) -> dict[str, Any]:
    """The values of a record without a fault, by column; a column that is not among them is written as NULL."""
    seen = HOUR + timedelta(microseconds=chance.randrange(3_600_000_000))
    if chance.random() < 0.2:
        seen = seen.replace(microsecond=0)
    return {
        "id": serial,
        "line": serial % 3,
        "tenant": chance.choice(["a", 'ä"b', "\\", "🚀"]),
        "at": seen - timedelta(seconds=chance.randrange(-600, 7200)),
        "seen": seen,
        "n": chance.choice([None, chance.randrange(-9, 9), 2**63 - 1, -(2**63), 10**12]),
        "x": chance.choice([0.0, -0.0, 1.5, 5e-324, 1.7976931348623157e308, chance.random()]),
        "price": chance.choice(
            [None, Decimal(0), Decimal(chance.randrange(-(10**9), 10**9)) / 1000, Decimal("-0.001")]
        ),
        "ok": chance.choice([None, True, False]),
        "day": date(chance.randrange(1000, 9999), 2, 28),
        "kind": chance.choice(KINDS),
    }


def text_of(chance: Random, column: Column, value: Any) -> str | None:
    """A value as text in one of the notations that its column takes."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return time_text(chance, column, value)
    if isinstance(value, date):
        local = datetime(value.year, value.month, value.day, tzinfo=ZoneInfo(column.zone))
        return value.isoformat() if column.format == "iso" else time_text(chance, column, local)
    if isinstance(value, bool):
        return chance.choice(["true", "TRUE", "1"]) if value else chance.choice(["false", "False", "0"])
    if isinstance(value, Decimal):
        return chance.choice(
            [f"{value:f}", f"{value:f}", f"{value:e}", f"{value:f}" + ("0" if "." in f"{value:f}" else "")]
        )
    return str(value)


def time_text(chance: Random, column: Column, at: datetime) -> str:
    """An instant by its column's format and zone."""
    local = at.astimezone(ZoneInfo(column.zone))
    if column.format == "iso":
        bare = chance.choice(["T", " "]).join(local.replace(tzinfo=None).isoformat().split("T"))
        return chance.choice([at.astimezone(UTC).isoformat(), at.astimezone(UTC).isoformat()[:-6] + "Z", bare, bare])
    if column.format not in PER_SECOND:
        return local.strftime(column.format)
    us = (at - EPOCH) // timedelta(microseconds=1)
    count = Decimal(us) * PER_SECOND[column.format] / 1_000_000
    return chance.choice([f"{count:f}", f"{count:f}", f"{count:e}", f"+{count:f}"]).replace(
        "e+", chance.choice(["e", "E+"])
    )


def token_of(chance: Random, column: Column, value: Any) -> str:
    """A value as a JSON token; numbers as such or in quotes."""
    text = text_of(chance, column, value)
    if text is None:
        return "null"
    if isinstance(value, bool) and chance.random() < 0.7:
        return "true" if value else "false"
    number = isinstance(value, int | float | Decimal) or column.format in PER_SECOND
    if number and not text.startswith("+") and column.type != "string" and chance.random() < 0.7:
        return text
    return json.dumps(text, ensure_ascii=chance.random() < 0.5)


def odd_token(chance: Random) -> str:
    """A token that is none, or is something else than what it is taken for."""
    depth = chance.choice([1, 60, 3000])
    choices = [chance.choice(JSON_TOKENS), json.dumps(chance.choice(TEXTS)), "[" * depth + "]" * depth]
    return chance.choice([*choices, random_number(chance), json.dumps(random_number(chance))])


def random_number(chance: Random) -> str:
    """Something like a number, a time or a day."""
    if chance.random() < 0.5:
        signs = "0123456789.+-eE"
        return "".join(chance.choice(signs) for _ in range(chance.randrange(1, 25)))
    texts = ["2024-03-01T10:05:06.123456+01:00", "2024-03-01 10:05", "2024-02-29", "123456.0", "1709287200.5"]
    texts += ["01.03.2024 11:00:00", "29/Feb/2024:10:00:00 +0000", "31.03.2024 02:30:00", "-1e-3", "12,50"]
    text = chance.choice(texts)
    at = chance.randrange(len(text))
    return text[:at] + chance.choice(["", *"0123456789:-+TZ. ,/"]) + text[at + chance.randrange(2) :]


def cell_of(chance: Random, column: Column, value: Any, dialect: CsvDialect) -> str | None:
    """A value as the text of a CSV cell."""
    text = text_of(chance, column, value)
    numeric = column.type in ("integer", "double") or column.type.startswith("decimal") or column.format in PER_SECOND
    return text.replace(".", ",") if text is not None and numeric and dialect.decimal == "," else text


def quoted(chance: Random, cell: str | None, dialect: CsvDialect) -> str:
    """A cell as it stands in its line."""
    if cell is None:
        return chance.choice(dialect.nulls)
    special = {dialect.delimiter, "\r", "\n"}
    if not dialect.quote:
        return "".join(sign for sign in cell if sign not in special)
    needed = (
        bool(set(cell) & {*special, dialect.quote}) or cell in dialect.nulls or cell.startswith(dialect.comment or "\0")
    )
    if not needed and chance.randrange(9):
        return cell
    return dialect.quote + cell.replace(dialect.quote, dialect.quote * 2) + dialect.quote
