"""Files as strangers have them, small and made by rule: `FILES` has one maker each, and what is to be seen in it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

START = datetime(2026, 1, 5, 8, tzinfo=UTC)
ISO = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class Strangers:
    """One feed: ``make`` writes its files into a folder, the rest is what `tidegate init --from` is to propose.

    ``columns``: path as ``from`` has it → type, or type and format, or type, format and zone; those not named may be
    declared or not. ``absent``: paths that are not declared.
    """

    make: Callable[[Path], object]
    format: str
    event: str
    arrival: str
    id: tuple[str, ...]
    columns: dict[str, str | tuple[str, ...]]
    csv: dict[str, Any] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    path: str = ""
    query: str = ""


def at(seconds: float) -> datetime:
    """An instant so long after the first."""
    return START + timedelta(seconds=seconds)


def jsonl(rows: Iterable[Any]) -> str:
    """One JSON value a line."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def csv(rows: Iterable[Sequence[Any]], delimiter: str = ",") -> str:
    """Cells between delimiters."""
    return "".join(delimiter.join(map(str, row)) + "\n" for row in rows)


def put(folder: Path, name: str, content: str | bytes) -> None:
    """Write a file."""
    data = content.encode() if isinstance(content, str) else content
    if name.endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    if name.endswith(".zst"):
        data = pa.compress(data, codec="zstd", asbytes=True)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def github(folder: Path) -> None:
    """GH Archive: a file an hour, packed, hours without a zero ahead."""
    kinds = ["PushEvent", "WatchEvent", "IssuesEvent"]
    for hour in (8, 9):
        rows = [
            {
                "id": str(45_000_000_000 + 1000 * hour + n),
                "type": kinds[n % 3],
                "actor": {"id": n % 9, "login": f"user{n % 9}", "gravatar_id": "", "url": f"https://x/{n % 9}"},
                "repo": {"id": n % 4, "name": f"a/r{n % 4}"},
                "payload": {"size": n, "commits": [{"sha": f"{n:040x}", "message": "m" * 80 + str(n)}]}
                if n % 3 == 0
                else {},
                "public": True,
                "created_at": at((hour - 8) * 3600 + n * 17).strftime(ISO),
            }
            for n in range(200)
        ]
        put(folder, f"2026-01-05-{hour}.json.gz", jsonl(rows))


def candles(folder: Path) -> None:
    """An exchange's trades: one JSON list of objects, on many lines; a time in microseconds as text."""
    rows = [
        {
            "trade_id": 7_000 + n,
            "price": f"{100 + n / 4:.2f}",
            "qty": f"{n % 7}.5",
            "ts": str(1767600000000000 + n * 250_000),
        }
        for n in range(400)
    ]
    put(folder, "trades.json", json.dumps(rows, indent=2))


def nginx(folder: Path) -> None:
    """An access log of nginx as JSON, its time in Apache's notation."""
    rows = [
        {
            "time_local": at(n * 3).astimezone(UTC).strftime("%d/%b/%Y:%H:%M:%S +0000"),
            "remote_addr": f"10.0.0.{n % 30}",
            "request": f"GET /item/{n} HTTP/1.1",
            "status": [200, 200, 404][n % 3],
            "body_bytes_sent": 100 + n,
            "request_time": n / 1000,
            "http_user_agent": "Mozilla/5.0 " + "x" * 70 + str(n),
        }
        for n in range(300)
    ]
    put(folder, "access.log", jsonl(rows))


def sensors(folder: Path) -> None:
    """Readings of devices without a header: a count of seconds with a fraction, a device, two numbers."""
    rows = [(f"{1767600000 + n * 5}.5", f"dev-{n % 6}", f"{20 + n % 5}.25", n % 90) for n in range(300)]
    put(folder, "iot.csv", csv(rows))


def taxi(folder: Path) -> None:
    """New York's taxis as pandas writes them: twenty columns, local times without a zone, doubles with NULLs."""
    count = 300
    pickup = pd.date_range("2026-01-05 08:00", periods=count, freq="37s")
    frame = pd.DataFrame(
        {
            "VendorID": [1 + n % 2 for n in range(count)],
            "tpep_pickup_datetime": pickup,
            "tpep_dropoff_datetime": pickup
            + pd.to_timedelta([300 + 7 * (n * 13 % 101) for n in range(count)], unit="s"),
            "passenger_count": [None if n % 50 == 0 else float(n % 4) for n in range(count)],
            "trip_distance": [n % 40 / 10 for n in range(count)],
            "RatecodeID": [1.0 + n % 2 for n in range(count)],
            "store_and_fwd_flag": ["N" if n % 9 else "Y" for n in range(count)],
            "PULocationID": [n * 7 % 263 for n in range(count)],
            "DOLocationID": [n * 11 % 263 for n in range(count)],
            "payment_type": [n % 4 for n in range(count)],
            "fare_amount": [n % 30 + 0.5 for n in range(count)],
            **{
                name: [float(n % 3) for n in range(count)]
                for name in ("extra", "mta_tax", "tip_amount", "tolls_amount")
            },
            "improvement_surcharge": 1.0,
            "total_amount": [n % 30 + 4.5 for n in range(count)],
            "congestion_surcharge": [2.5 * (n % 2) for n in range(count)],
            "airport_fee": [1.75 * (n % 5 == 0) for n in range(count)],
            "cbd_fee": [0.75 * (n % 2) for n in range(count)],
        }
    )
    frame.to_parquet(folder / "yellow_tripdata_2026-01.parquet")


def vehicles(folder: Path) -> None:
    """Positions of buses, nested as GTFS-realtime has them."""
    rows = [
        {
            "vehicle": {
                "trip": {"trip_id": f"t{n % 5}", "route_id": f"{n % 3}"},
                "position": {"latitude": 52.0 + n / 1000, "longitude": 13.0 + n / 1000, "speed": n % 20 / 2},
                "timestamp": 1767600000 + n // 10 * 15,
                "vehicle": {"id": f"bus{n % 10}"},
            }
        }
        for n in range(300)
    ]
    put(folder, "positions.jsonl.zst", jsonl(rows))


def debezium(folder: Path) -> None:
    """Change records of a database: when the row changed, and when the connector saw it."""
    rows = [
        {
            "op": "cu"[n % 2],
            "ts_ms": 1767600000300 + n * 1000 + n % 7 * 10,
            "before": None if n % 2 == 0 else {"id": n, "amount": "1.00"},
            "after": {"id": n, "amount": f"{n}.50", "customer": f"c{n % 8}"},
            "source": {"ts_ms": 1767600000000 + n * 1000, "lsn": 24_023_128 + n, "table": "orders", "db": "shop"},
        }
        for n in range(250)
    ]
    put(folder, "changes.jsonl", jsonl(rows))


def mongo(folder: Path) -> None:
    """mongoexport: ids, dates and long numbers as objects of one member."""
    rows = [
        {
            "_id": {"$oid": f"{n:024x}"},
            "createdAt": {"$date": at(n * 20).strftime("%Y-%m-%dT%H:%M:%S.000Z")},
            "views": {"$numberLong": str(n * 3)},
            "tags": ["a", "b"],
            "user": {"name": f"u{n % 5}"},
        }
        for n in range(220)
    ]
    put(folder, "events.json", jsonl(rows))


def excel(folder: Path) -> None:
    """A sheet saved by a German Excel: cp1252, semicolons, decimal commas, days first, a name twice."""
    rows = [
        (
            4000 + n,
            at(n * 60).strftime("%d.%m.%Y %H:%M"),
            "Köln" if n % 2 else "Müllheim",
            f"{n % 50},5",
            "-" if n % 9 else "7",
        )
        for n in range(260)
    ]
    head = ("Beleg-Nr", "Datum", "Ort", "Betrag (€)", "Rabatt")
    put(folder, "Umsätze.csv", csv([head, *rows], ";").replace("\n", "\r\n").encode("cp1252"))


def mysql(folder: Path) -> None:
    """A dump of MySQL: tabs, \\N for NULL, packed."""
    rows = [
        (n // 3, n % 3 + 1, at(n * 30).strftime("%Y-%m-%d %H:%M:%S"), f"{n % 20}.99", "\\N" if n % 4 else "SALE", n % 5)
        for n in range(240)
    ]
    put(folder, "order_lines.tsv.gz", csv([("order_id", "line_no", "created", "price", "coupon", "qty"), *rows], "\t"))


def bids(folder: Path) -> None:
    """NEXMark's bids, out of order."""
    rows = [
        {"auction": 1000 + n % 9, "bidder": 2000 + n % 30, "price": 10 + n, "channel": ["web", "app"][n % 2],
         "dateTime": 1767600000000 + n * 100 - n % 11 * 700, "ingestTime": 1767600000050 + n * 100}
        for n in range(500)
    ]  # fmt: skip
    put(folder, "bids.jsonl", jsonl(rows))


def ticks(folder: Path) -> None:
    """Prices of currencies: nanoseconds since 1970, a line number in the feed."""
    rows = [
        (1767600000000000000 + n * 10_000_000, ["EURUSD", "GBPUSD"][n % 2], 1.1 + n / 10_000, 1.2 + n / 10_000, n + 1)
        for n in range(400)
    ]
    put(folder, "fx.csv", csv([("ts_ns", "symbol", "bid", "ask", "seq"), *rows]))


def american(folder: Path) -> None:
    """Months first, and a clock of twelve hours; two columns of times, one of which says its zone."""
    rows = [
        (f"W{n:06d}", (at(n * 300) - timedelta(hours=5)).strftime("%m/%d/%Y %I:%M:%S %p"),
         at(n * 300 + 20).strftime(ISO), n % 7)
        for n in range(600)
    ]  # fmt: skip
    put(folder, "calls.csv", csv([("call_id", "call_time", "received", "priority"), *rows]))


def hourly(folder: Path) -> None:
    """A file for each hour of arrival, as it is named."""
    for hour in range(3):
        rows = [
            {"order_id": hour * 1000 + n, "placed_at": at(hour * 3600 + n * 30 - n % 5 * 100).strftime(ISO),
             "received_at": at(hour * 3600 + n * 30).strftime(ISO), "country": ["DE", "FR"][n % 2], "items": n % 4}
            for n in range(120)
        ]  # fmt: skip
        put(folder, f"orders-{at(hour * 3600):%Y%m%dT%H}.jsonl", jsonl(rows))


def decimals(folder: Path) -> None:
    """Parquet with decimals, a dictionary, a list and an object, in a zone of its own."""
    table = pa.table(
        {
            "VendorID": pa.array([str(n % 2) for n in range(40)]).dictionary_encode(),
            "trip": pa.array(range(40), pa.int64()),
            "picked_up": pa.array([at(n * 60) for n in range(40)], pa.timestamp("ns", "America/New_York")),
            "fare": pa.array([Decimal("12.35")] * 40, pa.decimal128(10, 2)),
            "stops": pa.array([["a", "b"]] * 40),
            "extra": pa.array([{"x": 1}] * 40),
        }
    )
    pq.write_table(table, folder / "a.parquet")


def trades(folder: Path) -> None:
    """Trades of Binance: names of one letter."""
    rows = [
        {"e": "trade", "E": 1767600000005 + n * 60_000, "s": "ABCUSD", "t": 90000000000000001 + n,
         "p": f"{100 + n / 4:.8f}",
         "q": "0.5", "T": 1767600000000 + n * 60_000, "m": n % 2 == 0, "M": True}
        for n in range(40)
    ]  # fmt: skip
    put(folder, "a.jsonl", jsonl(rows))


def one_is_broken(folder: Path) -> None:
    """Seconds with a fraction, once a word."""
    rows: list[dict[str, Any]] = [{"id": n, "ts": 1767600000.25 + n * 60, "v": 1} for n in range(30)]
    put(folder, "a.jsonl", jsonl([*rows, {"id": 99, "ts": "yesterday", "v": 1}]))


def order_lines(folder: Path) -> None:
    """Lines of orders, one of which comes again; a name that is a word of SQL."""
    rows = [{"order": n // 3, "line": n % 3, "at": at(n * 60).strftime(ISO), "qty": 1} for n in range(39)]
    put(folder, "a.jsonl", jsonl([*rows, {**rows[0], "at": at(2400).strftime(ISO)}]))


def without_ids(folder: Path) -> None:
    """A log whose lines repeat."""
    rows = [
        {"at": at(n // 2 * 60).strftime(ISO), "level": "INFO" if n % 5 else "ERROR", "text": "the same"}
        for n in range(60)
    ]
    put(folder, "a.jsonl", jsonl(rows))


def later(folder: Path) -> None:
    """Fields that come later."""
    rows = [{"id": n, "at": at(n * 60).strftime(ISO), "v": n} for n in range(40)]
    for n in range(20, 40):
        rows[n]["w"] = 2 * n
    put(folder, "a.jsonl", jsonl(rows[:25]))
    put(folder, "b.jsonl", jsonl({**row, "new": {"deep": [1]}} for row in rows[25:]))


def semicolons(folder: Path) -> None:
    """A byte-order mark, semicolons, decimal commas."""
    rows = [
        (n, at(3600 + n * 60).strftime("%d.%m.%Y %H:%M:%S"), f"{20 + n / 2:.1f}".replace(".", ","), "Köln")
        for n in range(30)
    ]
    put(folder, "a.csv", "\ufeff" + csv([("Nr", "Zeit", "Temperatur", "Ort"), *rows], ";"))


FILES = {
    "github": Strangers(
        github, "jsonl", "created_at", "created_at", ("id",),
        {"id": "string", "type": "string", "actor.login": "string", "repo.name": "string", "payload.size": "integer",
         "payload.commits[0].sha": "string", "created_at": "timestamp"},
        absent=("public", "payload.commits[0].message"), path="*.json.gz", query="SUM(payload_size)",
    ),
    "candles": Strangers(
        candles, "json", "ts", "ts", ("trade_id",),
        {"trade_id": "integer", "price": "decimal(10,2)", "qty": "double", "ts": ("timestamp", "epoch_us")},
    ),
    "nginx": Strangers(
        nginx, "jsonl", "time_local", "time_local", (),
        {"time_local": ("timestamp", "%d/%b/%Y:%H:%M:%S %z"), "remote_addr": "string", "status": "integer",
         "body_bytes_sent": "integer", "request_time": "double", "request": "string"},
        absent=("http_user_agent",),
    ),
    "sensors": Strangers(
        sensors, "csv", "[0]", "[0]", (),
        {"[0]": ("timestamp", "epoch_s"), "[1]": "string", "[2]": "double", "[3]": "integer"}, {"header": False},
    ),
    "taxi": Strangers(
        taxi, "parquet", "tpep_pickup_datetime", "tpep_pickup_datetime", (),
        {"tpep_pickup_datetime": "timestamp", "tpep_dropoff_datetime": "timestamp", "VendorID": "integer",
         "passenger_count": "double", "fare_amount": "double", "store_and_fwd_flag": "string"},
        absent=("improvement_surcharge",), query="SUM(total_amount)",
    ),
    "vehicles": Strangers(
        vehicles, "jsonl", "vehicle.timestamp", "vehicle.timestamp", ("vehicle.vehicle.id", "vehicle.timestamp"),
        {"vehicle.timestamp": ("timestamp", "epoch_s"), "vehicle.position.latitude": "double",
         "vehicle.trip.trip_id": "string", "vehicle.vehicle.id": "string"},
        path="*.jsonl.zst", query="AVG(vehicle_position_speed)",
    ),
    "debezium": Strangers(
        debezium, "jsonl", "source.ts_ms", "ts_ms", ("after.id",),
        {"ts_ms": ("timestamp", "epoch_ms"), "source.ts_ms": ("timestamp", "epoch_ms"), "after.amount": "decimal(10,2)",
         "op": "string", "before.id": "integer"},
        absent=("source.db",),
    ),
    "mongo": Strangers(
        mongo, "jsonl", "createdAt.$date", "createdAt.$date", ("_id.$oid",),
        {"_id.$oid": "string", "createdAt.$date": "timestamp", "views.$numberLong": "integer", "user.name": "string"},
        absent=("tags",),
    ),
    "excel": Strangers(
        excel, "csv", "Datum", "Datum", ("Beleg-Nr",),
        {"Datum": ("timestamp", "%d.%m.%Y %H:%M"), "Betrag (€)": "decimal(10,2)", "Ort": "string", "Rabatt": "integer"},
        {"delimiter": ";", "decimal": ",", "encoding": "cp1252", "nulls": ("", "-")},
    ),
    "mysql": Strangers(
        mysql, "csv", "created", "created", ("order_id", "line_no"),
        {"created": "timestamp", "price": "decimal(10,2)", "qty": "integer"}, {"delimiter": "\t", "nulls": ("", "\\N")},
        path="*.tsv.gz",
    ),
    "bids": Strangers(
        bids, "jsonl", "dateTime", "ingestTime", (),
        {"dateTime": ("timestamp", "epoch_ms"), "ingestTime": ("timestamp", "epoch_ms"), "price": "integer",
         "auction": "integer", "channel": "string"},
        query="AVG(price)",
    ),
    "ticks": Strangers(
        ticks, "csv", "ts_ns", "ts_ns", ("seq",),
        {"ts_ns": ("timestamp", "epoch_ns"), "symbol": "string", "bid": "double", "ask": "double"}, query="AVG(bid)",
    ),
    "american": Strangers(
        american, "csv", "call_time", "received", ("call_id",),
        {"call_time": ("timestamp", "%m/%d/%Y %I:%M:%S %p", "Etc/GMT+5"), "received": "timestamp", "call_id": "string"},
    ),
    "hourly": Strangers(
        hourly, "jsonl", "placed_at", "received_at", ("order_id",),
        {"order_id": "integer", "placed_at": "timestamp", "country": "string", "items": "integer"},
        path="orders-%Y%m%dT%H.jsonl", query="ERROR 10%",
    ),
    "decimals": Strangers(
        decimals, "parquet", "picked_up", "picked_up", ("trip",),
        {"VendorID": "string", "trip": "integer", "picked_up": "timestamp", "fare": "decimal(10,2)",
         "extra.x": "integer"},
        absent=("stops",), path="*.parquet",
    ),
    "trades": Strangers(
        trades, "jsonl", "T", "E", ("t",),
        {"t": "integer", "p": "double", "T": ("timestamp", "epoch_ms"), "E": ("timestamp", "epoch_ms"), "m": "boolean"},
        absent=("e", "M"),
    ),
    "one_is_broken": Strangers(
        one_is_broken, "jsonl", "ts", "ts", ("id",), {"id": "integer", "ts": ("timestamp", "epoch_s"), "v": "integer"}
    ),
    "order_lines": Strangers(
        order_lines, "jsonl", "at", "at", ("order", "line"),
        {"order": "integer", "line": "integer", "at": "timestamp", "qty": "integer"},
    ),
    "without_ids": Strangers(without_ids, "jsonl", "at", "at", (), {"at": "timestamp", "level": "string"}),
    "later": Strangers(
        later, "jsonl", "at", "at", ("id",), {"id": "integer", "at": "timestamp", "v": "integer", "w": "integer"},
        absent=("new.deep",),
    ),
    "semicolons": Strangers(
        semicolons, "csv", "Zeit", "Zeit", ("Nr",),
        {"Nr": "integer", "Zeit": ("timestamp", "%d.%m.%Y %H:%M:%S"), "Temperatur": "double", "Ort": "string"},
        {"delimiter": ";", "decimal": ","},
    ),
}  # fmt: skip
