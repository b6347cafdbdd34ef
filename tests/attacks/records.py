"""Mutated records in files of three formats: each in exactly one table, none unlike the independent reading."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.attacks import reading
from tests.attacks.odd import ARROW, JSON_TOKENS, TEXTS

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline, Stream
from tidegate.engine.context import RunContext
from tidegate.stages import ingest
from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse

HOUR = datetime(2024, 3, 1, 10, tzinfo=UTC)
PERIOD = reading.us(HOUR), reading.us(HOUR + timedelta(hours=1))
FORMATS = ("jsonl", "csv", "parquet")
KEYS = (("string", "seen"), ("integer", "seen"), ("string", "landed"))
RECORDS = 100
_PIPELINE = """\
name: attacked
owner: nobody
start: 2024-03-01
interval: 1 hour
tick: 5 minutes
horizon: 1 hour
memory_budget: 1 MiB
process_budget: 3 GiB
streams:
"""
_STREAM = """\
  {format}_{id}_{arrival}:
    format: {format}
    path: feed/{format}_{id}_{arrival}/%Y-%m-%dT%H*
    columns:
      id: {id}
      at: timestamp
      seen: timestamp
      n: integer
      x: {{type: double, nullable: false}}
      ok: boolean
      day: date
      kind: {{type: string, nullable: false}}
    id: id
    event_time: at
    arrival_time: {arrival}
    rate: 10 per hour
    max_early: 10 minutes
    max_late: 2 hours
"""


@dataclass(frozen=True)
class Attack:
    """A file: its stream, name and octets; ``broken``: it was cut off where no reader but the product's can tell."""

    stream: str
    name: str
    content: bytes
    broken: bool = False
    landed_us: int = 0


def good(chance: Random, serial: int, ids: str) -> dict[str, Any]:
    """A record without a fault."""
    seen = HOUR + timedelta(microseconds=chance.randrange(3_600_000_000))
    at = seen - timedelta(seconds=chance.randrange(-600, 7200))
    return {
        "id": serial if ids == "integer" else f"r{serial}",
        "at": _shown(chance, at),
        "seen": _shown(chance, seen),
        "n": chance.choice([None, chance.randrange(-9, 9), 2**63 - 1, -(2**63), 10**12]),
        "x": chance.choice([0.0, -0.0, 1.5, 5e-324, 1.7976931348623157e308, chance.random()]),
        "ok": chance.choice([None, True, False]),
        "day": f"{chance.randrange(1, 9999):04}-02-28",
        "kind": chance.choice(["a", "", " a ", "ä,b", 'say "x"', "🚀", "e\u0301", "x" * 300, "null", "\u2028", "\\"]),
    }


def _shown(chance: Random, at: datetime) -> str:
    if chance.random() < 0.2:
        at = at.replace(microsecond=0)
    return chance.choice([at.isoformat(), at.isoformat().replace("+00:00", "Z"), str(at.replace(tzinfo=None))])


def mutated(chance: Random, line: bytes) -> bytes:
    """Mostly as it is; else octets are changed, lost or put in, or two lines become one."""
    at = chance.randrange(len(line) + 1)
    octet = chance.choice([b"\0", b"\xff", b'"', b",", b"{", b"}", b" ", b"\r", b"\xc3", b"\\", b"\xe2\x80\xa8", b":"])
    how = chance.choice([*["as it is"] * 14, "twice", "cut", "put", "change", "swap", "blank", "nul"])
    other = chance.randrange(len(line) + 1)
    return {
        "as it is": line,
        "twice": line + chance.choice([b"", b" ", b",", b"\x0b"]) + line,
        "cut": line[:at],
        "put": line[:at] + octet + line[at:],
        "change": line[:at] + octet + line[at + 1 :],
        "swap": line[: min(at, other)] + line[max(at, other) :],
        "blank": chance.choice([b"", b" ", b"\t", b"\r", b"\x0b"]),
        "nul": b"\0" * chance.randrange(1, 40),
    }[how]


def json_line(chance: Random, serial: int, ids: str) -> bytes:
    """A line of JSON, some members of which are none, or odd, or another record's."""
    record = {name: json.dumps(v, ensure_ascii=chance.random() < 0.5) for name, v in good(chance, serial, ids).items()}
    for _ in range(chance.choice([0, 0, 0, 1, 1, 2])):
        name = chance.choice([*record, "colour", "ID", "_file", ""])
        depth = chance.choice([1, 98, 99, 100, 3000])
        odd = [
            chance.choice(JSON_TOKENS),
            json.dumps(chance.choice(TEXTS)),
            "[" * depth + "]" * depth,
            random_number(chance),
        ]
        record[name] = chance.choice(odd)
    members = [f'"{name}"{chance.choice(["", " "])}: {token}' for name, token in record.items() if chance.randrange(40)]
    chance.shuffle(members)
    if chance.randrange(30) == 0:
        members.append(members[0] if members else '"id": "b"')
    return mutated(chance, ("{" + ", ".join(members) + "}").encode(errors="surrogatepass"))


def random_number(chance: Random) -> str:
    """Something like a number, a time or a day."""
    if chance.random() < 0.5:
        signs = "0123456789.+-eE"
        return "".join(chance.choice(signs) for _ in range(chance.randrange(1, 25)))
    text = chance.choice(["2024-03-01T10:05:06.123456+01:00", "2024-03-01 10:05", "2024-02-29", "123456.0"])
    at = chance.randrange(len(text))
    return text[:at] + chance.choice(["", *"0123456789:-+TZ. ,"]) + text[at + chance.randrange(2) :]


def csv_line(chance: Random, serial: int, ids: str, names: list[str]) -> bytes:
    """A line of CSV by a header."""
    record = good(chance, serial, ids)
    cells = ["" if record.get(name) is None else str(record[name]) for name in names]
    for _ in range(chance.choice([0, 0, 0, 1, 1, 2])):
        cells[chance.randrange(len(cells))] = chance.choice([chance.choice(TEXTS), random_number(chance)])
    quoted = [
        f'"{c.replace(chr(34), chr(34) * 2)}"' if set(c) & set(',"') or not chance.randrange(9) else c for c in cells
    ]
    return mutated(chance, ",".join(quoted).encode())


def text_file(chance: Random, stream: Stream, serial: int) -> Attack:
    """A file of lines, packed or not, whole or damaged."""
    ids = stream.column("id").type
    ends = chance.choice([[b"\n"], [b"\n"], [b"\r\n"], [b"\n", b"\r\n"], [b"\r"], [b"\n", b"\r"]])
    if stream.format == "jsonl":
        lines = [json_line(chance, serial + i, ids) for i in range(RECORDS)]
    else:
        names = [c.name for c in stream.columns]
        if chance.randrange(4) == 0:
            chance.shuffle(names)
        if chance.randrange(8) == 0:
            names[chance.randrange(len(names))] = chance.choice(["ID", "_corrupt", "`a`", "", "id", " n ", "ä"])
        lines = [csv_line(chance, serial + i, ids, names) for i in range(RECORDS)]
        lines.insert(0, ",".join(names).encode() if chance.randrange(20) else mutated(chance, ",".join(names).encode()))
    if chance.randrange(3) == 0:  # whole blocks are good, so they are read as a whole
        fine = good(chance, serial + RECORDS, ids)
        fine |= {"n": 7, "ok": True}
        lines[1:1] = [json.dumps(fine).encode() if stream.format == "jsonl" else lines[-1]] * 60
    content = b"".join(line + chance.choice(ends) for line in lines)
    content = chance.choice([content, content, content.rstrip(b"\r\n"), b"\xef\xbb\xbf" + content])
    return packed(chance, stream.name, f"{serial}.{stream.format}", content)


def packed(chance: Random, stream: str, name: str, content: bytes) -> Attack:
    """Often as it is, else compressed, and then perhaps damaged."""
    how = chance.choice([*["plain"] * 6, "gz", "gz", "gz damaged", "zst", "zst cut", "named gz", "gz unnamed"])
    if how == "plain":
        return Attack(stream, name, content)
    if how in ("zst", "zst cut"):
        whole = pa.compress(content, "zstd", asbytes=True)
        cut = whole[: chance.randrange(1, len(whole))]
        return Attack(stream, name + ".zst", whole if how == "zst" else cut, how == "zst cut")
    half = content.find(b"\n", len(content) // 2) + 1
    whole = gzip.compress(content[:half], mtime=0) + gzip.compress(content[half:], mtime=0)
    if how == "gz damaged":
        at = chance.randrange(len(whole))
        whole = chance.choice([whole[:at], whole[:at] + bytes([chance.randrange(256)]) + whole[at + 1 :], whole + b"x"])
    if how == "named gz":
        whole = content
    return Attack(stream, name + ("" if how == "gz unnamed" else ".gz"), whole)


def parquet_file(chance: Random, stream: Stream, serial: int) -> Attack:
    """A file of Parquet: columns of the declared types, of others that hold the same, and odd ones; or damaged."""
    records = [good(chance, serial + i, stream.column("id").type) for i in range(RECORDS)]
    columns = {
        c.name: column(chance, c.type, [r[c.name] for r in records]) for c in stream.columns if chance.randrange(60)
    }
    if chance.randrange(4) == 0:
        odd = chance.choice([array for array in ARROW if array.type != pa.timestamp("s")])
        name = chance.choice([*columns, "ID", "_file"])
        columns[name] = pa.concat_arrays([odd] * RECORDS)[:RECORDS]
    table = pa.table(columns)
    sink, version = io.BytesIO(), chance.choice(["1.0", "2.4", "2.6", "2.6"])
    pq.write_table(
        table,
        sink,
        compression=chance.choice(["snappy", "gzip", "zstd", "none"]),
        row_group_size=chance.choice([RECORDS, 7]),
        version=version,
        data_page_version=chance.choice(["1.0", "2.0"]),
        coerce_timestamps=None if version == "2.6" else "us",
        allow_truncated_timestamps=True,
    )
    content = sink.getvalue()
    if chance.randrange(6):
        return Attack(stream.name, f"{serial}.parquet", content)
    at = chance.randrange(len(content))
    octets = bytes(chance.randrange(256) for _ in range(chance.choice([1, 1, 8])))
    return Attack(
        stream.name,
        f"{serial}.parquet",
        chance.choice([content[:at], content[:at] + octets + content[at + len(octets) :]]),
    )


def column(chance: Random, kind: str, values: list[Any]) -> pa.Array:
    """The values in one of the forms in which a column of Parquet may hold them, some of them odd."""
    if kind in ("string", "timestamp", "date") or chance.randrange(4) == 0:
        values = [v if v is None or isinstance(v, str) else json.dumps(v) for v in values]
        if chance.randrange(2):
            values = [v if chance.randrange(12) else chance.choice([*TEXTS, random_number(chance)]) for v in values]
        texts = pa.array(values, pa.string())
        if kind not in ("timestamp", "date") or chance.randrange(3) == 0:
            return chance.choice(
                [texts, texts.cast(pa.large_string()), texts.dictionary_encode(), texts.cast(pa.string_view())]
            )
        return times(chance, [None if v is None else _instant(kind, v) for v in values])
    values = [v if chance.randrange(20) else None for v in values]
    if kind == "integer":
        small = [None if v is None else v % 100 for v in values]
        return chance.choice([pa.array(values, pa.int64()), pa.array(small, pa.int8()), pa.array(small, pa.uint32()),
                              pa.array([v if v is None else Decimal(v) for v in values], pa.decimal128(25, 2)),
                              pa.array([v if v is None else float(v) for v in small])])  # fmt: skip
    if kind == "double":
        odd = [v if chance.randrange(20) else chance.choice([float("nan"), float("inf"), None]) for v in values]
        narrow = np.array([v if v is not None and v < 9 else 0.0 for v in values]).astype(np.float32)
        return chance.choice([pa.array(odd, pa.float64()), pa.array(narrow), pa.array(narrow.astype(np.float16))])
    return chance.choice(
        [pa.array(values, pa.bool_()), pa.array([None if v is None else int(v) for v in values], pa.int8())]
    )


def _instant(kind: str, text: str) -> int | None:
    try:
        found = reading.value(kind, text)
        return found * (reading.DAY_US if kind == "date" else 1)
    except reading.NoValueError:
        return None


def times(chance: Random, instants: list[int | None]) -> pa.Array:
    """Instants as a column of timestamps or dates of some unit and zone."""
    unit = chance.choice(["s", "ms", "us", "us", "ns"])
    by = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}[unit]
    times = 1_000 if unit == "ns" else 1
    whole = [None if us is None or abs(us * times) >= 2**63 else us * times // by for us in instants]
    if chance.randrange(5) == 0:
        return pa.array([None if us is None else us // reading.DAY_US for us in instants], pa.int32()).cast(pa.date32())
    return pa.array(whole, pa.int64()).cast(pa.timestamp(unit, chance.choice([None, "UTC", "Europe/Berlin"])))


def files(seed: int, pipeline: Pipeline, count: int) -> list[Attack]:
    """Files at random, equal for equal seeds."""
    chance = Random(f"records {seed}")
    made = []
    for number in range(count):
        stream = pipeline.streams[number % len(pipeline.streams)]
        make = parquet_file if stream.format == "parquet" else text_file
        landed_us = PERIOD[0] + chance.choice([*[chance.randrange(3_600_000_000)] * 6, -1, 3_600_000_000])
        made.append(replace(make(chance, stream, (number + 1) * 1000), landed_us=landed_us))
    return made


# The check


def attack(seed: int, folder: Path, count: int = 60) -> tuple[int, list[str]]:
    """Ingest ``count`` files of a seed in an empty folder; records read, and what came out unlike the reading."""
    home = folder / "attacked"
    (home / "queries").mkdir(parents=True)
    streams = "".join(_STREAM.format(format=f, id=i, arrival=a) for f in FORMATS for i, a in KEYS)
    (home / "pipeline.yml").write_text(_PIPELINE + streams)
    (home / "queries" / "q.sql").write_text("SELECT COUNT(*) AS n FROM csv_string_seen [1 HOUR] EVERY 5 MINUTES\n")
    pipeline = load_pipeline(home)
    attacks = files(seed, pipeline, count)
    for one in attacks:
        path = home / "feed" / one.stream / f"{HOUR:%Y-%m-%dT%H}-{one.name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(one.content)
        os.utime(path, ns=(one.landed_us * 1000, one.landed_us * 1000))
    with RunContext(pipeline, folder / "warehouse", output=io.StringIO(), here=True) as context:
        ingest.read(context, intervals_between(pipeline, HOUR, HOUR + timedelta(hours=1)))
    warehouse = Warehouse(folder / "warehouse", pipeline)
    quarantine = warehouse.read_arrow("quarantine").to_pylist()
    records, faults = 0, []
    for stream in pipeline.streams:
        own = [one for one in attacks if one.stream == stream.name]
        accepted, refused, read = expected(stream, own)
        records += read
        faults += unlike(f"seed {seed}, events_{stream.name}", accepted, tuples(warehouse, stream))
        rows = Counter((r["reason"], r["column"], _text(r)) for r in quarantine if r["stream"] == stream.name)
        faults += unlike(f"seed {seed}, quarantine of {stream.name}", refused, rows)
    return records, faults


def expected(stream: Stream, attacks: list[Attack]) -> tuple[Counter[Any], Counter[Any], int]:
    """The tuples and the refused records that there must be, and how many records were read."""
    candidates, refused, records = [], Counter[Any](), 0
    for one in sorted(attacks, key=lambda a: f"{HOUR:%Y-%m-%dT%H}-{a.name}"):
        try:
            given = _read(stream, one)
        except reading.BrokenError:
            refused["broken_file", None, f"{HOUR:%Y-%m-%dT%H}-{one.name}"] += 1
            continue
        records += len(given)
        for place, (text, fields) in enumerate(given):
            verdict = reading.judge(stream, PERIOD, one.landed_us, fields)
            if verdict.reason:
                refused[verdict.reason, verdict.column, text] += 1
            else:
                arrival_us = verdict.values["seen"] if stream.arrival_time else one.landed_us
                turn = arrival_us, verdict.values["at"], one.name, place
                candidates.append((turn, verdict.values, text))
    accepted, ids = Counter[Any](), set()
    for _, values, text in sorted(candidates, key=lambda c: c[0]):
        if str(values["id"]) in ids:
            refused["duplicate_id", "id", text] += 1
        else:
            ids.add(str(values["id"]))
            accepted[tuple(map(repr, ({**values, "id": str(values["id"])}).values()))] += 1
    return accepted, refused, records


def _read(stream: Stream, one: Attack) -> list[tuple[str, dict[str, Any] | None]]:
    if stream.format != "parquet":
        if one.broken:
            raise reading.BrokenError
        if one.name.endswith(".zst"):
            return reading.text_records(stream, pa.input_stream(io.BytesIO(one.content), compression="zstd").read())
        return reading.text_records(stream, reading.unpacked(one.name, one.content))
    try:
        rows = reading.parquet_records(pq.read_table(io.BytesIO(one.content), use_threads=False))
    except (pa.ArrowException, OSError, ValueError, NotImplementedError):
        raise reading.BrokenError from None
    return [("", fields) for fields in rows]  # how the quarantine shows a row is not read here


def _text(row: dict[str, Any]) -> str:
    """The record as the independent reading has it: of Parquet nothing, of a broken file its name."""
    text = str(row["record"])
    if row["reason"] == "broken_file":
        return Path(text.split(": ", maxsplit=1)[0]).name
    return "" if row["stream"].startswith("parquet") else text


def tuples(warehouse: Warehouse, stream: Stream) -> Counter[Any]:
    """The rows of a stream's table, in the order of the declared columns, as text that tells −0.0 from 0.0."""
    table = warehouse.read_arrow(f"events_{stream.name}")
    role = {stream.id: "event_id", stream.event_time: "event_time", stream.arrival_time: "arrival_time"}
    columns = [table.column(role.get(c.name, c.name)) for c in stream.columns]
    plain = [
        c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c.cast(pa.int32()) if pa.types.is_date(c.type) else c
        for c in columns
    ]
    return Counter(tuple(map(repr, row)) for row in zip(*(c.to_pylist() for c in plain), strict=True))


def unlike(where: str, wanted: Counter[Any], found: Counter[Any]) -> list[str]:
    """What is missing and what is too much."""
    missing, more = wanted - found, found - wanted
    return [
        f"{where}: {what} {row!r} ({n})"
        for what, rows in (("missing", missing), ("not expected", more))
        for row, n in rows.items()
    ]
