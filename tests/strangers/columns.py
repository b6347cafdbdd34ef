"""Random columns and values: every type, odd but legal names, NULLs, unicode."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

NAMES = {
    "string": "country carrier City symbol user_name kind stream record reason every duration table text index status "
    "Ort value key",
    "integer": "amount n side event_us window_index tuples count sum rank size row priority level year a0 g0 flight "
    "windows quantity",
    "double": "price arrival_us Wind_Speed accuracy error ratio avg min max x temperature delay total slack_seconds",
    "boolean": "ok is_member flag valid late truth",
    "timestamp": "seen_before promised_at timestamp expires tick start",
    "date": "day date birthday due",
}
IDS = ["id", "event_id", "Id", "order_id", "no", "key_1", "u_id", "uuid", "x1", "record_no", "ID_2"]
EVENT_TIMES = ["event_time", "placed_at", "at", "ts", "happened", "time", "Zeit"]
ARRIVAL_TIMES = ["arrival_time", "received_at", "seen", "logged", "landed", "ingested_at", "t2"]

POOLS = [
    ["A", "B", "C", "D"],
    ["EWR", "JFK", "LGA", "ORD", "LAX", "SFO", "BOS", "ATL", "DFW", "DEN", "MIA", "SEA"],
    ["München", "Kraków", "東京", "São Paulo", "Ελλάδα", "Москва", "القاهرة", "🚀 rocket", "e\u0301", "é", "ﬀ", "ß"],
    ["a,b", 'say "hi"', "it's", "back\\slash", "tab\there", "semi;colon", "{x}", "100%", "_", "%s", "--", "#1"],
    ["null", "NULL", "nan", "true", "0", "-1", "1e3", "2024-01-01", "N/A", "None", "inf", "x"],
    [" lead", "trail ", "  both  ", "in side", "UPPER", "upper", "Upper", "ünder_score", "a" * 200, "z", "Z", "0x1F"],
]


@dataclass(frozen=True)
class Values:
    """How a column's values are made: a type, the share of NULLs, and a law of the type's own."""

    name: str
    type: str
    nullable: bool
    nulls: float
    law: tuple[Any, ...]

    def draw(self, chance: Random, at: datetime) -> Any:
        """A value of a tuple that happened at an instant."""
        if self.nullable and chance.random() < self.nulls:
            return None
        return _DRAW[self.type.partition("(")[0]](chance, at, *self.law)


def _string(chance: Random, at: datetime, pool: list[str], skew: float) -> str:
    weights = [1 / (rank + 1) ** skew for rank in range(len(pool))]
    return chance.choices(pool, weights)[0]


def _integer(chance: Random, at: datetime, low: int, high: int) -> int:
    return chance.randint(low, high)


def _double(chance: Random, at: datetime, kind: str, scale: float) -> float:
    if kind == "uniform":
        return round(chance.uniform(-scale, scale), 3)
    if kind == "heavy":
        return round(scale * chance.paretovariate(1.2), 2)
    if kind == "whole":
        return float(chance.randint(0, int(scale) + 1))
    return scale * chance.lognormvariate(0, 1)


def _boolean(chance: Random, at: datetime, share: float) -> bool:
    return chance.random() < share


def _timestamp(chance: Random, at: datetime, spread_s: int) -> datetime:
    moved = at + timedelta(seconds=chance.uniform(-spread_s, spread_s))
    return moved.replace(microsecond=chance.choice([0, 0, moved.microsecond // 1000 * 1000, moved.microsecond]))


def _date(chance: Random, at: datetime, spread_d: int) -> date:
    return (at + timedelta(days=chance.randint(-spread_d, spread_d))).date()


def _decimal(chance: Random, at: datetime, scale: int, low: int, high: int) -> Decimal:
    return Decimal(chance.randint(low, high)).scaleb(-scale)


_DRAW = {
    "decimal": _decimal,
    "string": _string,
    "integer": _integer,
    "double": _double,
    "boolean": _boolean,
    "timestamp": _timestamp,
    "date": _date,
}


def random_values(chance: Random, name: str, kind: str) -> Values:
    """A column of a type with random habits."""
    nullable = chance.random() < 0.7
    nulls = chance.choice([0.0, 0.05, 0.05, 0.5, 1.0])
    law: tuple[Any, ...]
    if kind == "string":
        pool = chance.choice(POOLS)
        law = (pool[: chance.randint(1, len(pool))], chance.choice([0.0, 1.0, 2.5]))
    elif kind == "integer":
        law = chance.choice([(0, 5), (-3, 3), (0, 1000), (-(10**9), 10**9), (2**53 - 3, 2**53 + 3), (0, 0)])
    elif kind == "double":
        law = (chance.choice(["uniform", "heavy", "whole", "lognormal"]), chance.choice([1.0, 100.0, 1e-6, 1e9]))
    elif kind == "boolean":
        law = (chance.choice([0.5, 0.1, 1.0]),)
    elif kind == "timestamp":
        law = (chance.choice([0, 3600, 86_400 * 40]),)
    else:
        law = (chance.choice([0, 1, 400]),)
    return Values(name, kind, nullable, nulls, law)


def random_columns(chance: Random, taken: set[str]) -> list[Values]:
    """The columns beside id and times; names that no other column of the stream has, in any letter case."""
    kinds = chance.choices(list(NAMES), weights=[3, 3, 3, 1, 1, 1], k=chance.randint(0, 6))
    if chance.random() < 0.8:
        kinds = ["string", "double", *kinds]  # most streams have a key and a number
    columns = []
    for kind in kinds:
        free = [name for name in NAMES[kind].split() if name.lower() not in taken]
        if not free:
            continue
        name = chance.choice(free)
        taken.add(name.lower())
        columns.append(random_values(chance, name, kind))
    return columns


def instant(text: str) -> datetime:
    """A UTC instant."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
