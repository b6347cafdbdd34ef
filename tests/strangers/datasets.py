"""Three data sets of shapes other than flights, as cases for the machine: read offline from installed packages.

* ``glucose``: five-minute readings of a glucose sensor in 2010 (PyPI ``bokeh-sampledata``, CGM), with real times. The
  arrival is modelled: the sensor uploads every hour, and at night not before seven in the morning.
* ``commits``: the times of a programmer's commits, 2012 to 2017 (PyPI ``bokeh-sampledata``, public domain), some a day
  and none for days. The arrival is modelled: commits come with the next push, hours or days later.
* ``shipments``: line items derived from TPC-H (PyPI ``tpchgen-cli``): the lateness is the data's own, an item arrives
  on its receipt date, 1 to 30 days after it was sent; all dates are whole days.
"""

from __future__ import annotations

import csv
import gzip
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
from tests.strangers.case import Case, File, Record
from tests.strangers.columns import instant


def glucose() -> Case:
    """A day and a half of a glucose sensor, by quarters of a day."""
    chance = Random("glucose")
    start, count = instant("2010-06-01T00:00:00"), 6
    end = start + timedelta(hours=6 * count)
    records: list[tuple[datetime, Record]] = []
    for number, row in enumerate(csv.DictReader(lines("CGM.csv.gz"))):
        measured = instant(row["datetime"])
        if not start - timedelta(hours=12) <= measured < end:
            continue
        uploaded = measured + timedelta(hours=1) - (measured - start) % timedelta(hours=1)
        if 1 <= measured.hour < 7:
            uploaded = measured.replace(hour=7, minute=0, second=0) + timedelta(minutes=chance.randint(0, 40))
        current = float(row["isig"]) if row["isig"].replace(".", "").isdigit() else None
        record = {"reading": number, "measured": measured, "uploaded": uploaded}
        records.append((uploaded, {**record, "current": current, "glucose": int(row["glucose"])}))
    declaration = {
        "name": "glucose",
        "owner": "patient",
        "start": "2010-06-01T00:00:00Z",
        "interval": "6 hours",
        "tick": "30 minutes",
        "horizon": "12 hours",
        "memory_budget": "3 KiB",
        "process_budget": "64 GiB",
        "initial_slack": "1 hour",
        "streams": {
            "sensor": {
                "format": "csv",
                "path": "phone/%Y-%m-%dT%H.csv",
                "columns": {
                    "reading": "integer",
                    "measured": "timestamp",
                    "uploaded": "timestamp",
                    "current": "double",
                    "glucose": "integer",
                },
                "id": "reading",
                "event_time": "measured",
                "arrival_time": "uploaded",
                "rate": "12 per hour",
                "missing_file": "ignore",
                "history": {"leaf": "1 hour", "capacity": 40},
            }
        },
    }
    queries = {
        "level": "SELECT AVG(glucose) AS level, MIN(glucose) AS low, MAX(glucose) AS high, COUNT(*) AS readings\n"
        "FROM sensor [3 HOURS] ERROR 5% EVERY 30 MINUTES",
        "lows": "SELECT measured, glucose, current FROM sensor [6 HOURS] WHERE glucose < 200\n"
        "ORDER BY glucose LIMIT 3 ACCURACY 95% EVERY 1 HOUR",
        "noise": "SELECT SUM(current * current) - SUM(current) * SUM(current) / COUNT(current) AS spread\n"
        "FROM sensor [1 HOUR] HAVING COUNT(current) > 2 EVERY 1 HOUR",
    }
    files = by_period("sensor", "phone/%Y-%m-%dT%H.csv", timedelta(hours=1), records, start, 6 * count)
    asked = (("sensor", "SELECT AVG(glucose) AS v FROM sensor", start, start + timedelta(minutes=630)),)
    return Case("glucose", declaration, queries, files, start, count, (2, 4), (3,), questions=asked)


def commits() -> Case:
    """Twelve days of a programmer's commits, by days."""
    chance = Random("commits")
    start, count = instant("2016-06-01T00:00:00"), 12
    end = start + timedelta(days=count)
    records: list[tuple[datetime, Record]] = []
    pushes = [start + timedelta(hours=chance.randint(1, 30) * 1.0) for _ in range(1)]
    while pushes[-1] < end + timedelta(days=3):
        pushes.append(pushes[-1] + timedelta(minutes=round(60 * chance.lognormvariate(2, 0.8))))
    for number, line in enumerate(lines("commits.txt.gz")):
        authored = parsedate_to_datetime(line.strip())
        at = authored.astimezone(UTC)
        if not start - timedelta(days=2) <= at < end:
            continue
        pushed = next(moment for moment in pushes if moment >= at)
        record = {"commit": f"{number:07x}", "authored": at, "pushed": pushed, "weekday": line[:3]}
        records.append((pushed, {**record, "local_hour": authored.hour, "weekend": authored.weekday() >= 5}))
    declaration = {
        "name": "commits",
        "owner": "Bokeh",
        "start": "2016-06-01T00:00:00Z",
        "interval": "1 day",
        "tick": "2 hours",
        "horizon": "2 days",
        "memory_budget": "1 MiB",
        "process_budget": "64 GiB",
        "promise_period": "3 days",
        "streams": {
            "commits": {
                "format": "jsonl",
                "path": "pushes/*.jsonl",
                "columns": {
                    "commit": "string",
                    "authored": "timestamp",
                    "pushed": "timestamp",
                    "weekday": "string",
                    "local_hour": "integer",
                    "weekend": "boolean",
                },
                "id": "commit",
                "event_time": "authored",
                "arrival_time": "pushed",
                "rate": "3 per day",
                "history": {"leaf": "1 day", "capacity": 20, "group_by": ["weekday"]},
            }
        },
    }
    queries = {
        "busy": "SELECT weekday, COUNT(*) AS commits, AVG(local_hour) AS hour FROM commits [3 DAYS]\n"
        "GROUP BY weekday ERROR 20% EVERY 12 HOURS",
        "latest": "SELECT commit, authored, weekend FROM commits [2 DAYS] ORDER BY authored DESC LIMIT 5\n"
        "ACCURACY 90% EVERY 1 DAY",
    }
    files = tuple(
        replace(file, landed=max(record["pushed"] for record in file.records if isinstance(record, dict)))
        for file in by_period("commits", "pushes/%Y%m%d.jsonl", timedelta(days=1), records, start, count)
    )
    asked = (("commits", "SELECT COUNT(*) AS v FROM commits", start, start + timedelta(hours=100)),)
    return Case("commits", declaration, queries, files, start, count, (5, 7), (8,), questions=asked)


def shipments() -> Case:
    """Three weeks of line items derived from TPC-H, by days."""
    with tempfile.TemporaryDirectory(prefix="tpch-") as folder:
        program = Path(sys.executable).with_name("tpchgen-cli")
        command = [str(program), "parquet", "-s", "0.01", "--tables=lineitem", f"--output-dir={folder}"]
        subprocess.run(command, check=True, capture_output=True)
        columns = ["l_orderkey", "l_linenumber", "l_quantity", "l_extendedprice", "l_shipdate", "l_receiptdate"]
        table = pq.read_table(Path(folder) / "lineitem.parquet", columns=[*columns, "l_shipmode", "l_returnflag"])
    start, days = instant("1995-06-17"), 21
    end = start + timedelta(days=days)
    records: list[tuple[datetime, Record]] = []
    for row in table.to_pylist():
        sent, received = (midnight(row[name]) for name in ("l_shipdate", "l_receiptdate"))
        if not start <= received < end:
            continue
        record = {"item": f"{row['l_orderkey']}/{row['l_linenumber']}", "sent": sent, "received": received}
        record |= {"mode": row["l_shipmode"], "flag": row["l_returnflag"], "quantity": int(row["l_quantity"])}
        records.append((received, {**record, "price": float(row["l_extendedprice"]), "due": row["l_shipdate"]}))
    declaration = {
        "name": "shipments",
        "owner": "derived from TPC-H",
        "start": "1995-06-17T00:00:00Z",
        "interval": "1 day",
        "tick": "1 day",
        "horizon": "10 days",
        "memory_budget": "40 KiB",
        "process_budget": "64 GiB",
        "initial_slack": "2 days",
        "promise_period": "7 days",
        "streams": {
            "items": {
                "format": "parquet",
                "path": "docks/%Y-%m-%d.parquet",
                "columns": {
                    "item": "string",
                    "sent": "timestamp",
                    "received": "timestamp",
                    "mode": "string",
                    "flag": "string",
                    "quantity": "integer",
                    "price": "double",
                    "due": "date",
                },
                "id": "item",
                "event_time": "sent",
                "arrival_time": "received",
                "rate": "25 per day",
                "max_late": "31 days",
                "history": {"leaf": "7 days", "capacity": 100, "law": "inverse_age"},
            }
        },
    }
    queries = {
        "volume": "SELECT mode, COUNT(*) AS items, SUM(price) AS value, SUM(price) / SUM(quantity) AS unit_price\n"
        "FROM items [14 DAYS] GROUP BY mode ERROR 50% EVERY 1 DAY",
        "dearest": "SELECT item, price, due FROM items [7 DAYS] ORDER BY price DESC LIMIT 10 ACCURACY 80% EVERY 1 DAY",
        "alike": "SELECT a.flag, COUNT(*) AS pairs FROM items [3 DAYS] a JOIN items [2 DAYS] b ON a.due = b.due\n"
        "WHERE a.quantity > 25 GROUP BY a.flag EVERY 2 DAYS",
    }
    files = by_period("items", "docks/%Y-%m-%d.parquet", timedelta(days=1), records, start, days)
    asked = (("items", "SELECT SUM(price) AS v FROM items", start - timedelta(days=20), start + timedelta(days=5)),)
    return Case("shipments", declaration, queries, files, start, days, (9, 12), (4,), questions=asked)


def by_period(
    stream: str, path: str, unit: timedelta, records: list[tuple[datetime, Record]], start: datetime, count: int
) -> tuple[File, ...]:
    """A file for each of the periods, with the records that arrive in it; a period without any has none."""
    groups: dict[datetime, list[Record]] = defaultdict(list)
    for at, record in sorted(records, key=lambda item: item[0]):
        if start <= at < start + unit * count:
            groups[start + (at - start) // unit * unit].append(record)
    return tuple(
        File(stream, period.strftime(path), tuple(held[0]), tuple(held))  # type: ignore[arg-type]
        for period, held in sorted(groups.items())
    )


def lines(name: str) -> Iterator[str]:
    """The lines of a file of bokeh-sampledata."""
    spec = find_spec("bokeh_sampledata")
    assert spec is not None and spec.submodule_search_locations is not None
    with gzip.open(Path(spec.submodule_search_locations[0]) / "_data" / name, "rt", encoding="utf-8") as file:
        yield from file


def midnight(day: date) -> datetime:
    """The start of a day."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


DATASETS: dict[str, Callable[[], Case]] = {"glucose": glucose, "commits": commits, "shipments": shipments}
