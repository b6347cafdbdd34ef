"""`tidegate init`, then the command that it prints, as a newcomer would: answers on screen, and right.

Each example is made in a folder of its own and run from another one. What is right is computed here, from the landed
files alone, by a few lines of Python a query.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shlex
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from tests.command import ROOT
from tests.live_files import live_rows

from tidegate.cli.init import EXAMPLES
from tidegate.declarations import load_pipeline
from tidegate.declarations.promises import newest_of_each

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

Row = dict[str, Any]
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@dataclass(frozen=True)
class Example:
    """An example that was run. ``said``: what `init` printed. ``shown``: what `run` printed, without its progress."""

    name: str
    folder: Path
    said: str
    shown: str

    def rows(self, table: str) -> list[Row]:
        """All rows of a table of the warehouse."""
        return live_rows(self.folder / "warehouse" / self.folder.name / table).drop_columns("interval").to_pylist()

    def landed(self, stream: str) -> list[Row]:
        """The records of a stream's files as they are, a line that is no record as {"line": …}."""
        found = sorted((self.folder / "landing" / stream).iterdir())
        return [record for file in found for record in READERS[file.suffix](file)]


def shell(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A line that a user types, by the installed command."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "COLUMNS")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(["bash", "-c", command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    return done


# Those whose data is sent to a broker are run in tests/kafka.
@pytest.fixture(scope="module", params=sorted(name for name in EXAMPLES if not EXAMPLES[name].topic))
def example(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Example:
    stand = tmp_path_factory.mktemp("stand")
    folder = stand / "Größe und Maß" / request.param
    said = shell(f"tidegate init {shlex.quote(str(folder.relative_to(stand)))} --example {request.param}", stand).stdout
    assert shell(f"tidegate validate {shlex.quote(str(folder))}", Path("/")).stdout.endswith("no mistakes\n")
    ran = shell(said.splitlines()[-1], stand)
    shown = "".join(line for line in ran.stdout.splitlines(keepends=True) if not line.startswith("{"))
    assert sorted(path.name for path in stand.iterdir()) == ["Größe und Maß"]
    return Example(request.param, folder, said, shown)


def lines_of(file: Path) -> list[Row]:
    """JSON lines."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            found.append({"line": line})
    return found


def cells_of(file: Path) -> list[Row]:
    """CSV."""
    with open(file, newline="", encoding="utf-8") as opened:
        header, *lines = list(csv.reader(opened))
    return [dict(zip(header, line, strict=True)) if len(line) == len(header) else {"line": line} for line in lines]


READERS: dict[str, Callable[[Path], list[Row]]] = {
    ".jsonl": lines_of,
    ".csv": cells_of,
    ".parquet": lambda file: pq.ParquetFile(file).read().to_pylist(),
}


def at(text: Any) -> datetime:
    """A time as JSON and CSV have it."""
    return text if isinstance(text, datetime) else datetime.fromisoformat(text)


def judged(
    records: Iterable[Row], fault: Callable[[Row], str | None], key: str, arrival: str
) -> tuple[list[Row], Counter[str]]:
    """The accepted records and how many each reason refuses; of two with one id the second to arrive is refused."""
    accepted, reasons, ids = [], Counter(), set()
    whole = []
    for record in records:
        reason = "broken_record" if "line" in record else fault(record)
        if reason:
            reasons[reason] += 1
        else:
            whole.append(record)
    for record in sorted(whole, key=lambda record: at(record[arrival])):
        if record[key] in ids:
            reasons["duplicate_id"] += 1
        else:
            ids.add(record[key])
            accepted.append(record)
    return accepted, reasons


def faulty_order(order: Row) -> str | None:
    if order["order_id"] is None:
        return "missing_value"
    if not isinstance(order["amount"], float):
        return "wrong_type"
    ahead = at(order["placed_at"]) - at(order["received_at"])
    return "too_early" if ahead > MINUTE else "too_late" if -ahead > timedelta(days=1) else None


def faulty_reading(reading: Row) -> str | None:
    if reading["machine"] is None:
        return "missing_value"
    if math.isnan(reading["vibration"]):
        return "non_finite"
    ahead = reading["measured_at"] - reading["received_at"]
    return "too_early" if ahead > timedelta(seconds=5) else "too_late" if -ahead > HOUR else None


def faulty_alarm(alarm: Row) -> str | None:
    return None if alarm["severity"].isdigit() else "wrong_type"


def sound(record: Row) -> None:
    """The flights have no faults."""


STREAMS: dict[str, dict[str, tuple[Callable[[Row], str | None], str, str, str]]] = {
    "shop": {"orders": (faulty_order, "order_id", "placed_at", "received_at")},
    "sensors": {
        "readings": (faulty_reading, "reading_id", "measured_at", "received_at"),
        "alarms": (faulty_alarm, "alarm_id", "raised_at", "received_at"),
    },
    "flights": {
        "departures": (sound, "flight_id", "scheduled", "departed"),
        "landings": (sound, "flight_id", "landed", "reported"),
        "weather": (sound, "observation_id", "observed", "published"),
    },
}


def test_what_was_broken_on_purpose_is_in_quarantine(example: Example) -> None:
    told: Counter[tuple[str, str]] = Counter()
    total = 0
    for stream, (fault, key, _, arrival) in STREAMS[example.name].items():
        records = example.landed(stream)
        accepted, reasons = judged(records, fault, key, arrival)
        assert len(example.rows(f"events_{stream}")) == len(accepted)
        told.update({(stream, reason): count for reason, count in reasons.items()})
        total += len(records)
        if reasons:
            # What the generator says that it broke, of each stream, or of the only one.
            said = " ".join(example.said.split())
            own = re.split(r" \d+ records of (?=[a-z])", said.split(f"records of {stream} ")[-1])[0]
            assert dict(re.findall(r"([a-z]+_[a-z]+) (\d+)", own)) == {reason: str(n) for reason, n in reasons.items()}
    assert Counter((row["stream"], row["reason"]) for row in example.rows("quarantine")) == told
    assert bool(told) == (example.name != "flights")
    first = example.shown.replace("\n", " ")
    assert f"files, {total:,} records read, {total - told.total():,} accepted" in first


class Feed:
    """The accepted records of a stream, and which of them a window holds that is answered at an instant."""

    def __init__(self, example: Example, stream: str):
        fault, key, self.event, self.arrival = STREAMS[example.name][stream]
        self.key = key
        self.records, _ = judged(example.landed(stream), fault, key, self.arrival)

    def window(self, answer: Row, length: timedelta) -> list[Row]:
        """What the window of that length held when the answer was given."""
        end = answer["window_end"]
        asked = end + timedelta(seconds=answer["slack_s"])
        return [r for r in self.records if end - length <= at(r[self.event]) < end and at(r[self.arrival]) <= asked]


def grouped(records: Iterable[Row], column: str) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = defaultdict(list)
    for record in records:
        groups[record[column]].append(record)
    return groups


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


Window = Callable[[str, timedelta], list[Row]]


def best(records: Iterable[Row], score: str, event: str, key: str, k: int) -> list[Row]:
    """The k with the largest scores; ties by event time, then by id."""
    return sorted(records, key=lambda r: (-float(r[score]), at(r[event]), r[key]))[:k]


def revenue(window: Window) -> set[tuple]:
    groups = grouped(window("orders", HOUR), "country")
    return {(country, len(own), sum(r["amount"] for r in own)) for country, own in groups.items()}


def best_sellers(window: Window) -> set[tuple]:
    groups = grouped(window("orders", 30 * MINUTE), "product")
    sums = sorted(
        ((name, sum(r["amount"] for r in own), len(own)) for name, own in groups.items()), key=lambda g: -g[1]
    )
    return {(rank, *group) for rank, group in enumerate(sums[:3], 1)}


def customers(window: Window) -> set[tuple]:
    groups = grouped(window("orders", 30 * MINUTE), "country")
    return {(country, len({r["customer"] for r in own}), median_order(own)) for country, own in groups.items()}


def median_order(orders: list[Row]) -> float:
    """The middle of the bucket that PERCENTILE_APPROX counts the lower median in: within 1/10000 of it."""
    exact = sorted(r["amount"] for r in orders)[math.ceil(len(orders) / 2) - 1]
    factor = 1 + 2 / (10_000 - 1)
    middle = factor ** math.ceil(math.log(exact) / math.log(factor)) * 2 / (factor + 1)
    assert math.isclose(middle, exact, rel_tol=1 / 10_000)
    return middle


def selling_fast(window: Window) -> set[tuple]:
    groups = grouped(window("orders", 10 * MINUTE), "product")
    return {(name, len(own), mean(r["amount"] for r in own)) for name, own in groups.items() if len(own) >= 10}


def largest_orders(window: Window) -> set[tuple]:
    found = best(window("orders", 30 * MINUTE), "amount", "placed_at", "order_id", 5)
    return {(i + 1, r["order_id"], r["country"], r["product"], r["amount"]) for i, r in enumerate(found)}


def temperatures(window: Window) -> set[tuple]:
    groups = grouped(window("readings", 10 * MINUTE), "machine")
    values = {machine: [r["temperature"] for r in own] for machine, own in groups.items()}
    return {(machine, len(own), mean(own), max(own)) for machine, own in values.items()}


def strongest_vibrations(window: Window) -> set[tuple]:
    groups = grouped(window("readings", 5 * MINUTE), "hall")
    found = {hall: best(own, "vibration", "measured_at", "reading_id", 2) for hall, own in groups.items()}
    return {(hall, i + 1, r["machine"], r["vibration"]) for hall, own in found.items() for i, r in enumerate(own)}


def hot_and_alarming(window: Window) -> set[tuple]:
    alarms = grouped((a for a in window("alarms", 15 * MINUTE) if int(a["severity"]) >= 2), "machine")
    readings = grouped(window("readings", 5 * MINUTE), "machine")
    found = set()
    for machine in alarms.keys() & readings.keys():
        hottest = max(r["temperature"] for r in readings[machine])
        if hottest > 65:
            worst = max(int(a["severity"]) for a in alarms[machine])
            found.add((machine, len(alarms[machine]) * len(readings[machine]), hottest, worst))
    return found


def departures_by_airport(window: Window) -> set[tuple]:
    return {(origin, len(own)) for origin, own in grouped(window("departures", HOUR), "origin").items()}


def most_delayed(window: Window) -> set[tuple]:
    found = best(window("departures", HOUR), "dep_delay", "scheduled", "flight_id", 10)
    return {(i + 1, r["carrier"], r["flight"], r["dep_delay"]) for i, r in enumerate(found)}


def ground_speed(window: Window) -> set[tuple]:
    flights = [r for r in window("landings", 6 * HOUR) if r["air_time"]]
    if not flights:
        return {(None,)}
    return {(mean(float(r["distance"]) for r in flights) / mean(float(r["air_time"]) for r in flights) * 60,)}


def bad_weather(window: Window) -> set[tuple]:
    winds = grouped((w for w in window("weather", HOUR) if (w["wind_speed"] or 0) >= 20), "origin")
    flights = grouped(window("departures", HOUR), "origin")
    found = set()
    for origin in winds.keys() & flights.keys():
        delays, speeds = [r["dep_delay"] for r in flights[origin]], [w["wind_speed"] for w in winds[origin]]
        found.add((origin, len(delays) * len(speeds), mean(delays), max(delays), max(speeds)))
    return found


# Query → its right answer, and the columns in which it stands.
QUERIES: dict[str, dict[str, tuple[Callable[[Window], set[tuple]], tuple[str, ...]]]] = {
    "shop": {
        "best_sellers": (best_sellers, ("rank", "product", "revenue", "orders")),
        "customers": (customers, ("country", "customers", "median_order")),
        "revenue": (revenue, ("country", "orders", "revenue")),
        "selling_fast": (selling_fast, ("product", "orders", "mean_amount")),
        "largest_orders": (largest_orders, ("rank", "order_id", "country", "product", "amount")),
    },
    "sensors": {
        "temperatures": (temperatures, ("machine", "readings", "mean_temperature", "hottest")),
        "strongest_vibrations": (strongest_vibrations, ("hall", "rank", "machine", "vibration")),
        "hot_and_alarming": (hot_and_alarming, ("machine", "pairs", "hottest", "worst_alarm")),
    },
    "flights": {
        "departures_by_airport": (departures_by_airport, ("origin", "departures")),
        "most_delayed": (most_delayed, ("rank", "carrier", "flight", "dep_delay")),
        "ground_speed": (ground_speed, ("mph",)),
        "bad_weather": (bad_weather, ("origin", "departures", "mean_delay", "longest_delay", "wind")),
    },
}


def rounded(row: Iterable[Any]) -> tuple[Any, ...]:
    """Numbers to nine digits: sums may be formed in another order."""
    return tuple(float(f"{v:.9g}") if isinstance(v, int | float) else v for v in row)


def test_every_answer_is_the_brute_force_one(example: Example) -> None:
    pipeline = load_pipeline(example.folder)
    feeds = {stream: Feed(example, stream) for stream in STREAMS[example.name]}
    assert {query.id for query in pipeline.queries} == set(QUERIES[example.name])
    for query in pipeline.queries:
        right, columns = QUERIES[example.name][query.id]
        windows = grouped(example.rows(f"answers_{query.id}"), "window_end")
        end, last = min(windows), max(windows)
        while end <= last:
            rows = windows.get(end, [])
            # A window that nothing qualifies for has no row; here only queries without a promise, which do not wait.
            asked = rows[0] if rows else {"window_end": end, "slack_s": 0.0}
            assert rows or query.promised is None
            assert all(row["coverage"] == 1 and row["support_level"] == "A" for row in rows)
            expected = right(lambda stream, length, asked=asked: feeds[stream].window(asked, length))
            assert {rounded(row[c] for c in columns) for row in rows} == {rounded(row) for row in expected}, query.id
            end += timedelta(seconds=query.every_s)
        assert len(windows) > 20, query.id


def cell(value: Any) -> str:
    """A value as a pattern for the screen, which shows two decimals, or none where no row of the column has any."""
    if isinstance(value, float):
        return rf"{value:.0f}(\.00)?" if value.is_integer() else re.escape(f"{value:.2f}")
    return re.escape(str(value))


def test_the_screen_shows_each_querys_newest_answer(example: Example) -> None:
    parts = example.shown.split("\n\n")
    assert len(parts) == 1 + len(QUERIES[example.name])
    for query, (_, columns) in QUERIES[example.name].items():
        part = next(part for part in parts if part.startswith(f"{query}: "))
        rows = grouped(example.rows(f"answers_{query}"), "window_end")
        newest = max(rows)
        assert f"window ending {newest:%Y-%m-%d %H:%M} UTC, answered" in part
        lines = part.split("held in full\n")[1].splitlines()
        assert len(lines) == 1 + len(rows[newest])
        for row in rows[newest]:
            cells = [rf"(^|\s){cell(row[column])}(\s|$)" for column in columns]
            assert any(all(re.search(pattern, line) for pattern in cells) for line in lines), row


def test_the_screen_is_plain_text_of_eighty_columns(example: Example) -> None:
    assert "\x1b" not in example.shown and "\t" not in example.shown
    assert max(map(len, example.shown.splitlines())) <= 80


def test_the_promises_are_kept(example: Example) -> None:
    if example.name == "flights":
        return  # the day of the storm is the first that the pipeline sees; its README says so
    judged = [row for row in newest_of_each(example.rows("promise_periods")) if row["windows"]]
    promised = {query.id for query in load_pipeline(example.folder).queries if query.promised is not None}
    assert {row["query"] for row in judged} == promised
    for row in judged:
        assert row["measured"] >= row["promised"], row


def test_the_other_commands_of_the_readme_work(example: Example) -> None:
    text = (example.folder / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.findall(r"^    (tidegate .*)$|^\| `(tidegate [^`]*)`", text, re.MULTILINE)
    commands = ["".join(both) for both in found]
    # The stages ran already; live runs and all stages have tests of their own.
    commands = [command for command in commands if not command.startswith("tidegate run ")]
    assert {command.split()[1] for command in commands} == {"explain", "report", "history", "fill", "sql"}
    for command in commands:
        said = shell(command, example.folder).stdout
        assert said or ">" in command
    views = (example.folder / "views.sql").read_text(encoding="utf-8")
    with duckdb.connect() as client:
        client.execute(views)
        for query in QUERIES[example.name]:
            rows = client.execute(f"SELECT COUNT(*) FROM warehouse.answers_{query}").fetchone()
            assert rows is not None and rows[0] == len(example.rows(f"answers_{query}"))


def test_the_documentation_shows_the_shops_screen(example: Example) -> None:
    if example.name != "shop":
        return
    parts = example.shown.strip("\n").split("\n\n")
    told = example.said.replace(str(Path("Größe und Maß", "shop")), "shop").split("\n\n")
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    blocks = [
        b for p in pages for b in re.findall(r"^```text\n(.*?)^```$", p.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    ]
    screens = [block for block in blocks if "records read" in block]
    assert screens and all(part in parts for block in screens for part in block.strip("\n").split("\n\n"))
    inits = [block for block in blocks if block.startswith("shop: orders")]
    assert inits and all(part in told for block in inits for part in block.strip("\n").split("\n\n"))
