"""Random tuples of two streams, in files as a warehouse has them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.declarations.scope import StreamSchema
from tidegate.queries.scan import EventFiles
from tidegate.values.types import arrow_type

BEGIN = datetime(2026, 3, 28, tzinfo=UTC)  # clocks of Europe change on the 29th
MINUTES = 30
COLUMNS = {"k": "string", "n": "integer", "v": "double", "d": "decimal(12,2)", "b": "boolean", "t": "timestamp"}
SCHEMA = pa.schema(
    [
        ("event_id", pa.string()),
        ("event_time", arrow_type("timestamp")),
        ("arrival_time", arrow_type("timestamp")),
        *((name, arrow_type(kind)) for name, kind in COLUMNS.items()),
    ]
)
STREAMS = {name: StreamSchema(name, {"event_time": "timestamp", **COLUMNS}) for name in "xy"}
_TEXTS = ["a", "b", "B", "é", "", "a%b", "x_y", "日本", "NULL", "zz" * 20]
_EXTREMES = {
    "n": [2**62, -(2**62), 2**63 - 1, -(2**63), 2**53 + 1],
    "v": [1e15, -1e15, 1e-300, 1e300, 0.1, -0.0],
    "d": [Decimal("9999999999.99"), Decimal("-9999999999.99")],
}


def draw_streams(
    chance: random.Random, folder: Path, tuples: int | None = None, slower: int = 1
) -> dict[str, EventFiles]:
    """Write both streams, of so many tuples or from none to three hundred: with NULLs, ties and, in some, extremes.

    ``slower``: how many times longer all times and delays are.
    """
    files = {}
    for stream in STREAMS:
        count = chance.choice([0, 1, 5, 40, 40, 120, 300]) if tuples is None else tuples
        extreme, nulls = chance.random() < 0.25, chance.choice([0.0, 0.1, 0.5])
        rows = [_tuple(chance, number, extreme, nulls, slower) for number in range(count)]
        path = folder / f"events_{stream}" / "interval=1" / "1.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA).sort_by("arrival_time"), path)
        files[stream] = EventFiles((str(path),), SCHEMA)
    return files


def _tuple(chance: random.Random, number: int, extreme: bool, nulls: float, slower: int) -> dict[str, Any]:
    seconds = slower * chance.randrange(60 * MINUTES)
    at = BEGIN + timedelta(seconds=seconds, milliseconds=chance.choice([0, 0, 0, 1, 999]))
    late = slower * chance.choice([0, 0, 1, 30, 90, 600])
    values: dict[str, Any] = {
        "k": chance.choice(_TEXTS[: chance.choice([2, 4, 10])]),
        "n": chance.choice([chance.randint(-3, 3), chance.randint(-1000, 1000)]),
        "v": chance.choice([chance.randint(-8, 8) / 8, round(chance.uniform(-100, 100), 3)]),
        "d": Decimal(chance.randint(-9999, 9999)).scaleb(-2),
        "b": chance.random() < 0.5,
        "t": at - timedelta(hours=chance.randint(-3, 50)),
    }
    if extreme and chance.random() < 0.1:
        values |= {name: chance.choice(some) for name, some in _EXTREMES.items() if chance.random() < 0.5}
    values = {name: None if chance.random() < nulls else value for name, value in values.items()}
    return {"event_id": f"e{number}", "event_time": at, "arrival_time": at + timedelta(seconds=late), **values}
