"""``python -m tests.cases.make``: writes the landed files and the expectations of the cases that it lists.

What is expected is counted here while the records are made, by hand; no reader has a part in it. Declarations and
queries are written by hand.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
START = datetime(2026, 1, 5, 8, tzinfo=UTC)
END = "2026-01-05T09:00:00Z"


def at(minute: int, zone: str = "UTC") -> datetime:
    """The instant of a record, on a zone's clock."""
    return (START + timedelta(minutes=minute)).astimezone(ZoneInfo(zone))


def land(case: str, name: str, content: bytes) -> None:
    """Write a landed file."""
    path = HERE / case / "landing" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def expect(
    case: str,
    accepted: int,
    refused: dict[str, int],
    query: str,
    columns: str,
    rows: Sequence[Any],
    **unknown: int,
) -> None:
    """Write what must come of a case; decimals are texts. ``unknown``: accepted records by column not declared."""
    answer = {"window_end": END, "columns": columns.split(), "rows": [list(row) for row in rows]}
    expected = {"from": "2026-01-05T08", "to": "2026-01-05T11", "accepted": accepted, "refused": refused}
    text = json.dumps({**expected, "unknown": unknown, "answers": {query: answer}}, indent=1, ensure_ascii=False)
    (HERE / case / "expected.json").write_text(text + "\n", encoding="utf-8")


def trades_in_one_array() -> None:
    """An exchange's trades as one array on one line; one element is null."""
    groups: dict[str, list[Any]] = {"buy": [0, Decimal(0), Decimal(0)], "sell": [0, Decimal(0), Decimal(0)]}
    trades: list[Any] = []
    for n in range(40):
        side, price, size = ("buy", "sell")[n % 2], Decimal(10025 + n) / 100, Decimal(n + 1) / 10**8
        trades.append({"time": f"{at(n):%Y-%m-%dT%H:%M:%S}.{n:06d}Z", "trade_id": 7_000_000 + n, "price": f"{price:f}"})
        trades[-1] |= {"size": f"{size:f}", "side": side, "maker": {"note": "a ] and a }, not the end"}}
        group = groups[side]
        group[:] = [group[0] + 1, group[1] + size, max(group[2], price)]
    trades.insert(11, None)
    land("trades_in_one_array", "trades", json.dumps(trades, separators=(",", ":")).encode())
    rows = [(side, n, f"{size:.8f}", f"{price:.2f}") for side, (n, size, price) in groups.items()]
    expect("trades_in_one_array", 40, {"broken_record": 1}, "sides", "side n size dearest", rows, maker=40)


def printed_documents() -> None:
    """Documents over many lines, several in a file, with lists and objects that a query groups by as text."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for name, numbers in (("a.json", range(18)), ("b.json", range(18, 36))):
        documents: list[Any] = []
        for n in numbers:
            items = [{"sku": f"{{{n % 2}", "qty": n % 2 + 1}]
            documents.append(
                {"no": n, "user": {"name": f"u{n % 2}"}, "items": items, "when": f"{at(n):%Y-%m-%dT%H:%MZ}"}
            )
            counts[f"u{n % 2}", json.dumps(items, separators=(",", ":"))] += n % 2 + 1
        documents.insert(
            3, {"no": 100 + numbers[0], "user": {"name": "u0"}, "items": [{"qty": "many"}], "when": "2026-01-05"}
        )
        documents.insert(5, {})
        land("printed_documents", name, "\n\n".join(json.dumps(d, indent=2) for d in documents).encode() + b"\n")
    rows = [(user, items, 18, quantity) for (user, items), quantity in counts.items()]
    expect("printed_documents", 36, {"wrong_type": 2, "broken_record": 2}, "users", "who items n quantity", rows)


def access_log() -> None:
    """Times as Apache writes them, ``-`` for no bytes, no ids, packed."""
    totals: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["host", "time", "request", "status", "bytes"])
    for n in range(50):
        status, size = (200, 1000 + n) if n % 5 else (304, None)
        when = f"{at(n, 'America/Los_Angeles'):%d/%b/%Y:%H:%M:%S %z}"
        writer.writerow(["10.0.0.1", when, 'GET "/" HTTP/1.1, twice', status, "-" if size is None else size])
        totals[status] = [
            totals[status][0] + 1,
            totals[status][1] + (size or 0),
            totals[status][2] + (size is not None),
        ]
    out.write('10.0.0.2,yesterday,"GET /",200,1\n')
    land("access_log", "access.csv.gz", gzip.compress(out.getvalue().encode(), mtime=0))
    rows = [(status, n, size or None, sized) for status, (n, size, sized) in sorted(totals.items())]
    expect("access_log", 50, {"wrong_type": 1}, "statuses", "status n octets sized", rows, request=50)


def copied_tables() -> None:
    """What COPY writes: tabs, no header, ``\\N`` for NULL, quotes that mean nothing; one line is too short."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    lines = []
    for n in range(45):
        note = ('say "hi"', "\\N", '"')[n % 3]
        total = str(n) if n % 4 else "\\N"
        lines.append(f"{n}\t{at(n):%Y-%m-%d %H:%M:%S}+00\t{note}\tt\t{total}")
        group = totals[note]
        group[:] = [group[0] + 1, group[1] + (n if n % 4 else 0), group[2] + (n % 4 > 0)]
    lines.insert(20, "500\t2026-01-05 08:00:00+00\tcut")
    land("copied_tables", "copy.tsv", "".join(line + "\n" for line in lines).encode())
    rows = [(None if note == "\\N" else note, n, total, valued) for note, (n, total, valued) in totals.items()]
    expect("copied_tables", 45, {"broken_record": 1}, "notes", "note n total valued", rows, **{"[3]": 45})


def spreadsheet() -> None:
    """A spreadsheet's export: cp1252, semicolons, commas in numbers, CRLF, cells over several lines."""
    totals: dict[str, list[Any]] = defaultdict(lambda: [0, Decimal(0)])
    lines = ["Nr;Größe;Zeit;Bemerkung;Preis (€)"]
    for n in range(30):
        size, price = ("groß", "klein")[n % 2], Decimal(1000 + n) / 8
        note = '"Zeile 1\r\nZeile ""2""; und\r\n\r\n3"' if n % 3 == 0 else ""
        lines.append(f"{n};{size};{at(n, 'Europe/Berlin'):%d.%m.%Y %H:%M};{note};{str(price).replace('.', ',')}")
        totals[size] = [totals[size][0] + 1, totals[size][1] + price]
    lines.insert(9, "90;groß;05.01.2026 09:10;;1.234,50")
    lines.insert(17, "91;klein;05.01.2026 09:10;mit 3 Stellen;1,0625")
    land("spreadsheet", "export.csv", "".join(line + "\r\n" for line in lines).encode("cp1252"))
    rows = [(size, n, f"{price:.3f}", 5) for size, (n, price) in totals.items()]
    expect("spreadsheet", 30, {"wrong_type": 2}, "sizes", "size n price noted", rows)


def change_records() -> None:
    """Changes of a table, before and after; deletes have nothing after, and are followed by null."""
    totals: dict[str, list[Any]] = {"c": [0, Decimal(0)], "u": [0, Decimal(0)]}
    lines = []
    for n in range(40):
        op, amount, us = "cu"[n % 2], Decimal(n * 25) / 100, int(at(n).timestamp()) * 1_000_000 + n
        after = {"id": n, "amount": f"{amount:.2f}", "updated_at": us}
        before = {**after, "amount": "0.01"} if op == "u" else None
        lines.append(
            json.dumps({"before": before, "after": after, "op": op, "ts_ms": us // 1000 + 1, "source": {"lsn": n}})
        )
        totals[op] = [totals[op][0] + 1, totals[op][1] + amount]
        if n % 10 == 9:
            lines.append(json.dumps({"before": after, "after": None, "op": "d", "ts_ms": us // 1000 + 2}))
            lines.append("null")
    land("change_records", "orders.public.jsonl", "".join(line + "\n" for line in lines).encode())
    rows = [(op, n, f"{amount:.2f}") for op, (n, amount) in totals.items()]
    expect(
        "change_records",
        40,
        {"missing_value": 4, "broken_record": 4},
        "changes",
        "op n amount",
        rows,
        source=40,
        before=20,
    )


def exported_documents() -> None:
    """A document store's export: ``$oid``, ``$date``, ``$numberLong``; one time is a count in an object."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    lines = []
    for n in range(36):
        tags = ["a", "b"][: n % 3]
        document = {"_id": {"$oid": f"{n:024x}"}, "at": {"$date": f"{at(n):%Y-%m-%dT%H:%M:%S}.5Z"}, "tags": tags}
        lines.append(json.dumps({**document, "n": {"$numberLong": str(2**40 + n)}, "a.b": n % 2}))
        totals[f"{json.dumps(tags, separators=(',', ':'))}"][0] += 1
        totals[f"{json.dumps(tags, separators=(',', ':'))}"][1] += n % 2
    when = {"$date": {"$numberLong": "1767600000000"}}
    lines.append(json.dumps({"_id": {"$oid": "f" * 24}, "at": when, "n": {"$numberLong": "1"}}))
    lines.append(json.dumps({"_id": "f" * 24, "at": {"$date": "2026-01-05T08:00:00Z"}}))
    land("exported_documents", "export.json", "".join(line + "\n" for line in lines).encode())
    rows = [(tags, n, total, 2**40 + n - 1 + 2 * (n - 1) + i) for i, (tags, (n, total)) in enumerate(totals.items())]
    expect("exported_documents", 36, {"wrong_type": 2}, "tags", "tags n total largest", rows)


def containers() -> None:
    """Avro: decimals, logical times, enumerations, records in records, a union with null; deflated."""
    import fastavro

    logical: Callable[..., dict[str, Any]] = lambda kind, name, **more: {"type": kind, "logicalType": name, **more}  # noqa: E731
    money = logical("bytes", "decimal", precision=12, scale=2)
    place = {"type": "record", "name": "place", "fields": [{"name": "city", "type": ["null", "string"]}]}
    colour = {"type": "enum", "name": "colour", "symbols": ["RED", "BLUE"]}
    fields = {"key": logical("string", "uuid"), "at": logical("long", "timestamp-micros"), "amount": ["null", money]}
    fields |= {"day": logical("int", "date"), "place": ["null", place], "colour": colour}
    fields |= {"parts": {"type": "array", "items": "long"}, "local": logical("long", "local-timestamp-millis")}
    schema = {"type": "record", "name": "event", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    totals: dict[str, list[Any]] = {"RED": [0, Decimal(0), 0, 0], "BLUE": [0, Decimal(0), 0, 0]}
    rows = []
    for n in range(44):
        amount, city = (Decimal(n * 7) / 100 if n % 4 else None), ("Köln" if n % 3 == 0 else None)
        row = {"key": f"00000000-0000-0000-0000-{n:012x}", "at": at(n) + timedelta(microseconds=n), "amount": amount}
        row |= {"day": at(n).date(), "place": {"city": city} if n % 6 else None, "colour": ["RED", "BLUE"][n % 2]}
        rows.append({**row, "parts": [n, n + 1], "local": at(n, "America/New_York").replace(tzinfo=None)})
        group = totals[["RED", "BLUE"][n % 2]]
        there = n % 6 > 0 and city is not None
        group[:] = [group[0] + 1, group[1] + (amount or 0), group[2] + there, group[3] + n + 1]
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), rows, codec="deflate", sync_interval=500)
    land("containers", "events.avro", out.getvalue())
    shown = [(colour, n, f"{amount:.2f}", cities, parts) for colour, (n, amount, cities, parts) in totals.items()]
    expect("containers", 44, {}, "colours", "colour n amount cities parts", shown)


def nested_columns() -> None:
    """Parquet: structs, lists, dictionaries, times of a local clock, a name with a dot in it, odd number types."""
    zone, count = "America/New_York", 40
    minutes = list(range(count))
    local = [at(n, zone).replace(tzinfo=None) for n in minutes]
    columns = {
        "ride": pa.array(minutes, pa.uint16()),
        "at": pa.array(local, pa.timestamp("ms")),
        "driver": pa.array([{"name": f"d{n % 2}", "stars": [float(n), 4.5]} if n % 5 else None for n in minutes]),
        "stops": pa.array([[{"lat": n / 4}] * (n % 3) for n in minutes]),
        "account.plan": pa.array(["free", "paid"] * (count // 2)).dictionary_encode(),
        "fare": pa.array([n / 8 for n in minutes], pa.float32()),
        "seats": pa.array([None if n % 4 else Decimal(n) for n in minutes], pa.decimal128(10, 3)),
    }
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, version="2.6", row_group_size=16)
    land("nested_columns", "rides", out.getvalue())
    rows = []
    for plan, odd in (("free", 0), ("paid", 1)):
        mine = [n for n in minutes if n % 2 == odd]
        # Fares are eighths, rounded half to even to two digits.
        fares = sum((round(Decimal(n) / 8, 2) for n in mine), Decimal(0))
        stars = sum(float(n) for n in mine if n % 5)
        lat = sum(n / 4 for n in mine if n % 3)
        rows.append(
            (plan, len(mine), f"{fares:.2f}", stars, lat, sum(n for n in mine if n % 4 == 0) if not odd else None)
        )
    expect("nested_columns", count, {}, "plans", "plan n fares stars lat seats", rows)


def unicode_text() -> None:
    """A spreadsheet's Unicode text: UTF-16 with its mark, tabs, CRLF; Japanese names; a header with blanks."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    lines = ["番号\t 時刻 \t都市\t値"]
    for n in range(32):
        city = ("東京", "大阪", "🚀")[n % 3]
        lines.append(f"{n}\t{at(n, 'Asia/Tokyo'):%Y/%m/%d %H:%M:%S}\t{city}\t{n}")
        counts[city] = [counts[city][0] + 1, counts[city][1] + n]
    lines.insert(4, "99\t2026/13/05 17:00:00\t東京\t1")
    land("unicode_text", "cities.txt", "".join(line + "\r\n" for line in lines).encode("utf-16"))
    rows = [(city, n, total) for city, (n, total) in counts.items()]
    expect("unicode_text", 32, {"wrong_type": 1}, "cities", "city n total", rows)


def packed_without_a_suffix() -> None:
    """Packed files whose names do not say so: gzip in two members, and zstd."""
    lines = [
        json.dumps({"id": f"r{n}", "at": f"{at(n):%Y-%m-%dT%H:%M:%SZ}", "v": n}).encode() + b"\n" for n in range(48)
    ]
    first = gzip.compress(b"".join(lines[:10]), mtime=0) + gzip.compress(b"".join(lines[10:24]), mtime=0)
    land("packed_without_a_suffix", "part-0000", first)
    land("packed_without_a_suffix", "part-0001", pa.compress(b"".join(lines[24:]), "zstd", asbytes=True))
    expect("packed_without_a_suffix", 48, {}, "sums", "n v", [(48, sum(range(48)))])


def ids_of_three_columns() -> None:
    """Ids of a text, a day and a number: two of three may agree; one part is missing once."""
    lines, accepted, repeated = [], 0, 0
    for n in range(42):
        tenant, day, number = ("a", 'ä"b')[n % 2], f"2026-01-0{1 + n // 2 % 3}", n // 6
        repeats = n in (13, 30)
        lines.append({"tenant": tenant, "day": day, "no": number, "at": f"{at(n):%Y-%m-%dT%H:%M:%SZ}", "v": n})
        if repeats:
            lines[-1] |= {key: lines[-3][key] for key in ("tenant", "day", "no")}
        accepted, repeated = accepted + (not repeats), repeated + repeats
    lines.append({"tenant": "a", "day": None, "no": 1, "at": "2026-01-05T08:50:00Z", "v": 1})
    land("ids_of_three_columns", "a.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())
    total = sum(n for n in range(42) if n not in (13, 30))
    refused = {"duplicate_id": repeated, "missing_value": 1}
    expect("ids_of_three_columns", accepted, refused, "lines", "n v", [(accepted, total)])


def commented_text() -> None:
    """Comments before the header and among the records, blank lines, empty texts, quotes that do not close."""
    lines = ["# station data", "", "# retrieved: 2026-01-05", "site,at,value,code", "  ,", "# x,y,z,w"]
    for n in range(24):
        code = ('""', "", "NA", '"NA"')[n % 4]
        lines.append(f"s{n % 2},{at(n):%Y-%m-%dT%H:%M},{n if n % 6 else 'NA'},{code}")
        lines += ["", "#"] if n % 8 == 0 else []
    lines[4] = "   \t"
    lines.insert(12, 's0,2026-01-05T08:00,"1" ,A')
    lines.insert(17, 's1,2026-01-05T08:00,1,"never closed')
    land("commented_text", "sites.csv", "\n".join(lines).encode())
    rows = []
    for site in (0, 1):
        mine = [n for n in range(24) if n % 2 == site]
        coded = [n for n in mine if n % 4 in (0, 3)]
        rows.append((f"s{site}", len(mine), sum(n for n in mine if n % 6), len(coded)))
    expect("commented_text", 24, {"broken_record": 2}, "sites", "site n total coded", rows)


def strict_columns() -> None:
    """Columns that are not declared refuse the records of the file that has them."""
    header = "id,at,v"
    lines = [f"{n},{int(at(n).timestamp())}.25,{n}" for n in range(30)]
    land("strict_columns", "a.csv", "\n".join([header, *lines]).encode())
    land(
        "strict_columns",
        "b.csv",
        "\n".join([header + ",new", *(f"{100 + n},1767600000,1,x" for n in range(5))]).encode(),
    )
    expect("strict_columns", 30, {"unknown_column": 5}, "sums", "n v", [(30, sum(range(30)))])


CASES = (
    *(trades_in_one_array, printed_documents, access_log, copied_tables, spreadsheet, change_records),
    *(exported_documents, containers, nested_columns, unicode_text, packed_without_a_suffix, ids_of_three_columns),
    *(commented_text, strict_columns),
)

if __name__ == "__main__":
    for make in CASES:
        make()
