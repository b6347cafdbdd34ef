"""How a stranger's records are laid out: paths, notations of times, dialects of CSV, ids, columns that nobody declares.

Everything here is drawn by chances of its own: a stream without a shape is what it was before there were any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.strangers.columns import Values

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo"]
FINE = ["epoch_us", "epoch_ns", "epoch_s", "%d.%m.%Y %H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S.%f%z", "%d/%b/%Y:%H:%M:%S.%f %z"]
COARSE = [
    "epoch_ms",
    "%d.%m.%Y %H:%M:%S",
    "%d/%b/%Y:%H:%M:%S %z",
    "%Y%m%d%H%M%S",
    "%m/%d/%Y %I:%M:%S %p",
    "%Y-%j %H:%M",
]
DAYS = ["%d.%m.%Y", "%Y%m%d", "%b %d, %Y", "%Y-%j", "epoch_s"]
LINES = ["two\nlines", 'a "b"\r\nc', "one", "tab\tand\nline\n", ", ;|", ""]
DECIMAL_NAMES = ["fee", "tax", "balance", "Betrag", "discount"]
SHARE = 0.6
"""How many streams have a shape at all."""


@dataclass(frozen=True)
class Shape:
    """Keys of a stream, and of its columns, beside those that every stream has.

    ``format``: instead of jsonl (json) or parquet (avro). ``ids``: the columns of the id; empty: none; None: the one
    that every stream has. ``others``: columns that nobody declares, with the values that they may have.
    """

    format: str | None = None
    keys: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    ids: tuple[str, ...] | None = None
    others: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    packed: str = ""
    grows: bool = False


def format_of(seed: int, name: str, plain: str) -> str:
    """The format of a stream that would have a plain one."""
    chance = Random(f"{seed}/format/{name}")
    if chance.random() >= SHARE * 0.5:
        return plain
    return {"jsonl": "json", "parquet": "avro"}.get(plain, plain)


def decimals(seed: int, name: str, used: set[str]) -> list[Values]:
    """Columns of decimals, mostly none."""
    chance = Random(f"{seed}/decimals/{name}")
    columns = []
    for _ in range(chance.choice([0, 0, 0, 1, 2])):
        chosen = chance.choice([n for n in DECIMAL_NAMES if n.lower() not in used])
        used.add(chosen.lower())
        precision, scale = chance.choice([(10, 2), (5, 0), (4, 4), (18, 6), (12, 3), (30, 8)])
        most = min(10**precision - 1, chance.choice([5, 10**4, 10**9]))
        nulls = chance.choice([0.0, 0.05, 0.5])
        columns.append(
            Values(chosen, f"decimal({precision},{scale})", chance.random() < 0.7, nulls, (scale, -most, most))
        )
    return columns


def with_lines(seed: int, name: str, columns: Sequence[Values]) -> list[Values]:
    """The columns, some texts of which have several lines."""
    chance = Random(f"{seed}/lines/{name}")
    return [
        Values(c.name, c.type, c.nullable, c.nulls, (LINES, *c.law[1:]))
        if c.type == "string" and chance.random() < 0.15
        else c
        for c in columns
    ]


def shape(seed: int, name: str, kind: str, roles: Sequence[str], columns: Sequence[Values], timed: bool) -> Shape:
    """The shape of a stream.

    ``kind``: its format. ``roles``: id, event time and, if it is a column, arrival time. ``columns``: the others.
    ``timed``: whether its files' names say their interval.
    """
    chance = Random(f"{seed}/shape/{name}")
    if chance.random() >= SHARE:
        # As before there were shapes: what is not declared refuses a record.
        return Shape(keys={"other_columns": "refuse"} if chance.random() < 0.7 else {})
    keys: dict[str, Any] = {}
    if kind == "csv":
        keys["csv"] = dialect(chance)
    headless = kind == "csv" and keys["csv"].get("header") == "false"
    chosen: dict[str, dict[str, Any]] = {}
    for column in (*roles, *(c.name for c in columns)):
        chosen[column] = {} if headless else place(chance, kind, column)
    times = [*roles[1:], *(c.name for c in columns if c.type == "timestamp")]
    for column in times:
        chosen[column] |= notation(chance, FINE if column in roles[2:] else [*FINE, *COARSE])
    for day in (c.name for c in columns if c.type == "date"):
        chosen[day] |= notation(chance, DAYS, 0.4, always_zone=True)
    ids = identity(chance, roles, columns)
    others = {} if headless else undeclared(chance, kind)
    if chance.random() < (0.25 if others else 0.5):
        keys["other_columns"] = chance.choice(["ignore", "refuse"])
    if chance.random() < 0.3:
        keys["source"] = True
    text = kind in ("jsonl", "json", "csv")
    packed = chance.choice(["", "", "", "gz", "zst"]) if text else ""
    grows = not timed and kind in ("jsonl", "csv") and len(roles) == 3 and chance.random() < 0.6
    refuses = bool(others) and keys.get("other_columns") == "refuse"
    if grows and keys.get("csv", {}).get("quote") != "none" and not refuses:
        for role in roles[1:]:  # what is cut off a time may make a record late, and this one's must all be accepted
            chosen[role] = {key: value for key, value in chosen[role].items() if key == "from"}
    else:
        grows = False
    return Shape(None, keys, chosen, ids, others, packed, grows)


def dialect(chance: Random) -> dict[str, Any]:
    """The keys of ``csv``; those that are as by default are mostly left out."""
    drawn: dict[str, Any] = {}
    delimiter = chance.choice([",", ",", ";", "tab", "|"])
    if delimiter != "," or chance.random() < 0.2:
        drawn["delimiter"] = delimiter
    if chance.random() < 0.2:
        drawn["header"] = "false"
    if delimiter != "," and chance.random() < 0.5:
        drawn["decimal"] = ","
    for key, values, share in (
        ("quote", ["'", "none"], 0.25),
        ("encoding", ["latin-1", "cp1252", "utf-16", "utf-8"], 0.35),
        ("nulls", [["NA"], ["-", "NULL"], "n/a"], 0.3),
        ("comment", ["#", "%"], 0.2),
    ):
        if chance.random() < share:
            drawn[key] = chance.choice(values)
    return drawn


def place(chance: Random, kind: str, column: str) -> dict[str, Any]:
    """Where a column is in a record: mostly under its name at the top."""
    if chance.random() < 0.5:
        return {}
    plain = f"{column}_{chance.choice(['x', 'raw', 'Value'])}"
    if kind == "csv":
        return {"from": chance.choice([plain, f"{column} (€)", f"{column}.of.it", f" {plain} "])}
    paths = [
        plain,
        f"body.{column}",
        f"body.{column}",
        f"meta_data.deep.{column}",
        f"list_{column}[0]",
        f"rows_{column}[0].x",
    ]
    if kind in ("jsonl", "json"):
        paths += [f"`a.b`.{column}", f"many_{column}[2].`x``y`", f"body.`{column} [0]`", f"$meta.{column}"]
    return {"from": chance.choice(paths)}


def notation(chance: Random, formats: Sequence[str], share: float = 0.5, always_zone: bool = False) -> dict[str, str]:
    """How a time is written."""
    drawn: dict[str, str] = {}
    if chance.random() < share:
        drawn["format"] = chance.choice(formats)
    if (always_zone or not drawn.get("format", "").startswith("epoch")) and chance.random() < 0.4:
        drawn["zone"] = chance.choice(ZONES)
    return drawn


def identity(chance: Random, roles: Sequence[str], columns: Sequence[Values]) -> tuple[str, ...] | None:
    """The columns of the id; empty: there is none; None: the one that every stream has."""
    if (
        any(role.lower() in ("event_id", "id") and role != role.lower() for role in roles[:1])
        or roles[0].lower() == "event_id"
    ):
        return None  # the table has a column of this name, which holds the id
    kinds = ("string", "integer", "boolean", "timestamp", "date")
    more = [c.name for c in columns if c.type in kinds and (c.nulls == 0 or not c.nullable)]
    more.append(roles[1])
    count = chance.choice([0, 1, 1, 2, 2, 3])
    if count == 1:
        return None
    parts = [roles[0], *chance.sample(more, min(len(more), count - 1))] if count else []
    chance.shuffle(parts)
    return tuple(parts)


def undeclared(chance: Random, kind: str) -> dict[str, tuple[Any, ...]]:
    """Columns that nobody declares, with the values that they may have; mostly none."""
    if chance.random() < 0.5:
        return {}
    names: dict[str, tuple[Any, ...]] = {"extra_note": ("x", "ü", None), "trace": ("x", "y"), "version": ("1", "2.0")}
    if kind in ("jsonl", "json"):
        names |= {"trace": ({"deep": [1, {"x": None}]}, [], {"a b": "ü"}), "version": (1, 2.5, None)}
    return {name: names[name] for name in chance.sample(list(names), chance.choice([1, 2]))}
