"""The files of two intervals: orders and payments, late and out of order, in three formats, and a pipeline for each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

START = datetime(2024, 3, 1, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
FORMATS = ("jsonl", "csv", "parquet")
_ROWS_A_FILE = 500_000
_PIPELINE = """\
name: {format}
owner: nobody
start: 2024-03-01T10:00:00Z
interval: 1 hour
tick: 1 minute
horizon: 1 hour
memory_budget: 4 GiB
process_budget: 4 GiB
streams:
  orders:
    format: {format}
    path: orders/%Y-%m-%dT%H-*.{format}
    columns:
      order_id: string
      placed_at: timestamp
      received_at: timestamp
      customer: string
      country: string
      amount: double
    id: order_id
    event_time: placed_at
    arrival_time: received_at
    rate: {rate} per second
    max_late: 1 day
    history: {{leaf: 5 minutes, capacity: 100000}}
  payments:
    format: {format}
    path: payments/%Y-%m-%dT%H-*.{format}
    columns:
      payment_id: string
      order_ref: string
      paid_at: timestamp
      seen_at: timestamp
      fee: double
    id: payment_id
    event_time: paid_at
    arrival_time: seen_at
    rate: {rate} per second
    max_late: 1 day
"""
_QUERIES = {
    "sales": "SELECT country, COUNT(*) AS orders, SUM(amount) AS sales FROM orders [10 MINUTES] GROUP BY country\n"
    "ERROR 5% EVERY 1 MINUTE\n",
    "paid": "SELECT o.country, COUNT(*) AS paid, SUM(p.fee) AS fees\n"
    "FROM orders [5 MINUTES] AS o, payments [5 MINUTES] AS p\n"
    "WHERE o.order_id = p.order_ref GROUP BY o.country EVERY 1 MINUTE\n",
    "largest": "SELECT order_id, customer, amount FROM orders [10 MINUTES] ORDER BY amount DESC LIMIT 10\n"
    "ACCURACY 90% EVERY 1 MINUTE\n",
}
# Stream → its columns with the types of Arrow, as the rivals are told them.
COLUMNS = {
    "orders": {
        "order_id": "string",
        "placed_at": "timestamp",
        "received_at": "timestamp",
        "customer": "string",
        "country": "string",
        "amount": "double",
    },
    "payments": {
        "payment_id": "string",
        "order_ref": "string",
        "paid_at": "timestamp",
        "seen_at": "timestamp",
        "fee": "double",
    },
}
ID = {"orders": "order_id", "payments": "payment_id"}
ARRIVAL = {"orders": "received_at", "payments": "seen_at"}


def land(
    folder: Path,
    tuples: int,
    formats: Sequence[str] = FORMATS,
    customers: int = 25_000,
    hours: int = 2,
    queries: Mapping[str, str] = _QUERIES,
) -> None:
    """Write the same tuples in each format, so many an hour: four in five are orders, the rest payments of them.

    ``queries``: name → text.
    """
    for kind in formats:
        place = folder / kind
        (place / "queries").mkdir(parents=True)
        (place / "pipeline.yml").write_text(_PIPELINE.format(format=kind, rate=max(tuples // 3600, 1)))
        for name, text in queries.items():
            (place / "queries" / f"{name}.sql").write_text(text)
        for stream in COLUMNS:
            (place / stream).mkdir()
    for hour in range(hours):
        _land(folder, hour, tuples, formats, customers)


def deliver(landed: Path, home: Path, hour: int) -> None:
    """Have an hour's files appear in a folder of their own, by hard links."""
    for stream in COLUMNS:
        (home / stream).mkdir(parents=True, exist_ok=True)
        for file in sorted((landed / stream).glob(f"{START + hour * HOUR:%Y-%m-%dT%H}-*")):
            os.link(file, home / stream / file.name)


def _land(folder: Path, hour: int, tuples: int, formats: Sequence[str], customers: int) -> None:
    chance = np.random.default_rng(hour)
    orders, payments = tuples - tuples // 5, tuples // 5
    number = np.arange(orders) + hour * orders
    at_s, late_s = np.sort(chance.uniform(0, 3600, orders)), _lateness_s(chance, orders)
    columns = {
        "order_id": _ids("o", number),
        "placed_at": _instants(hour, at_s - late_s),
        "received_at": _instants(hour, at_s),
        "customer": pl.select(pl.format("c{}", pl.Series(number % customers))).to_series(),
        "country": pl.Series(np.array(["DE", "ES", "FR", "IT", "PL"])[number % 5]),
        "amount": pl.Series(np.round(chance.lognormal(3, 1, orders), 2)),
    }
    _write(folder, "orders", hour, pl.DataFrame(columns), formats)
    of = np.sort(chance.integers(0, orders, payments))
    paid_s, late_s = np.minimum(at_s[of] - late_s[of] + 30, 3599), _lateness_s(chance, payments)
    columns = {
        "payment_id": _ids("p", np.arange(payments) + hour * payments),
        "order_ref": _ids("o", number[of]),
        "paid_at": _instants(hour, paid_s),
        "seen_at": _instants(hour, np.clip(paid_s + late_s, 0, 3599.9)),
        "fee": pl.Series(np.round(chance.lognormal(0, 1, payments), 2)),
    }
    _write(folder, "payments", hour, pl.DataFrame(columns), formats)


def _ids(letter: str, number: np.ndarray) -> pl.Series:
    return pl.select(pl.format(letter + "{}", pl.Series(number).cast(pl.String).str.zfill(9))).to_series()


def _lateness_s(chance: np.random.Generator, count: int) -> np.ndarray:
    return np.asarray(chance.lognormal(2, 1.5, count).clip(0, 20_000))


def _instants(hour: int, seconds: np.ndarray) -> pl.Series:
    start_us = int((START + hour * HOUR).timestamp()) * 1_000_000
    return pl.Series((seconds * 1e6).astype(np.int64) + start_us).cast(pl.Datetime("us", "UTC"))


def _write(folder: Path, stream: str, hour: int, whole: pl.DataFrame, formats: Sequence[str]) -> None:
    times = [pl.col(n).dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ") for n, t in COLUMNS[stream].items() if t == "timestamp"]
    for part, rows in enumerate(whole.iter_slices(_ROWS_A_FILE)):
        for kind in formats:
            own = rows if kind == "parquet" else rows.with_columns(times)
            write = {"jsonl": own.write_ndjson, "csv": own.write_csv, "parquet": own.write_parquet}[kind]
            write(folder / kind / stream / f"{START + hour * HOUR:%Y-%m-%dT%H}-{part:03d}.{kind}")
