"""A stranger's pipeline: a stock exchange, nothing like flights, declared by following the README alone.

Ticks of ten seconds, intervals of ten minutes. Trades come as one CSV file a minute, with an arrival time of their own;
quotes as CSV files under any name, stamped with the time at which they land. Symbols hold commas, quotes, umlauts, or
are missing. Memory does not suffice for every window, so that widths change and counts are scaled.
"""

from __future__ import annotations

import csv
import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from infra.oracle.answers import check_accuracy, check_answers, check_truth, read_rows
from infra.oracle.history import check_history, check_samples
from tests.command import run_stages

from tidegate.cli import main
from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

START, END = datetime(2024, 3, 1, 10, tzinfo=UTC), datetime(2024, 3, 1, 10, 30, tzinfo=UTC)
STAGES = ("ingest", "join_aggregate", "top_k", "sample_history", "resample_history", "calibrate")

PIPELINE = """\
name: exchange
description: Trades and quotes of a stock exchange
owner: trading
start: 2024-03-01T00:00:00Z
interval: 10 minutes
tick: 10 seconds
horizon: 10 minutes
memory_budget: 26 KiB
process_budget: 3 GiB
initial_slack: 20 seconds
rate_change: 30%
streams:
  trades:
    description: One deal, some seconds late, a few by minutes
    format: csv
    path: ${EXCHANGE_FEED:-feed}/trades/%Y%m%d-%H%M.csv
    columns:
      trade: string
      symbol: string
      price: {type: double, nullable: false}
      size: {type: integer, nullable: false}
      dealt: timestamp
      reported: timestamp
    id: trade
    event_time: dealt
    arrival_time: reported
    rate: 2 per second
    max_early: 5 seconds
    max_width: 2 minutes
    history: {leaf: 1 minute, capacity: 500, max_fraction: 50%}
  quotes:
    description: The best offers for a symbol
    format: csv
    path: ${EXCHANGE_FEED:-feed}/quotes/*.csv
    columns: {quote: string, symbol: string, bid: double, ask: double, quoted: timestamp}
    id: quote
    event_time: quoted
    arrival_time: landed
    rate: 1 per second
    max_width: 1 minute
"""

QUERIES = {
    "turnover": """\
-- How much of each symbol was dealt in the last minute, and at which mean price?
SELECT symbol, COUNT(*) AS deals, SUM(price * size) AS turnover, SUM(price * size) / SUM(size) AS mean_price
FROM trades [RANGE 60 SECONDS]
GROUP BY symbol
ERROR 50% EVERY 20 SECONDS
""",
    "spread": """\
-- For every deal of the last half minute the offers of the same time.
SELECT t.symbol, COUNT(*) AS pairs, MIN(q.ask) AS ask, MAX(q.bid) AS bid, AVG(t.price) AS price
FROM trades [30 SECONDS] AS t, quotes [20 SECONDS] AS q
WHERE t.symbol = q.symbol AND t.size >= 10 AND q.ask > q.bid
GROUP BY t.symbol HAVING COUNT(*) > 2
EVERY 20 SECONDS DURATION ['2024-03-01 10:05:00', '2024-03-01 10:20:00')
""",
    "largest": """\
-- The two largest deals in each symbol of the last half minute.
SELECT symbol, price * size AS worth, dealt FROM trades [RANGE 30 SECONDS]
GROUP BY symbol ORDER BY size DESC, price LIMIT 2 ACCURACY 80% EVERY 10 SECONDS
""",
}

SYMBOLS = ["BRK,B", 'THE "BEST"', "MÜLLER", "A", "B", "C", "D D", ""]


def generate(feed: Path) -> dict[str, int]:
    """Half an hour of trading, the same every time; returns stream → tuples that arrive within it."""
    chance = random.Random(20240301)
    (feed / "trades").mkdir(parents=True)
    (feed / "quotes").mkdir()
    counts = {"trades": 0, "quotes": 0}
    quotes: list[tuple]
    by_minute: dict[datetime, list[tuple]] = {START + timedelta(minutes=m): [] for m in range(30)}
    instant = START
    while instant < END:
        # Bursts: in every third minute trades come four times as fast.
        instant += timedelta(seconds=chance.expovariate(4.0 if instant.minute % 3 == 0 else 1.0))
        instant = instant.replace(microsecond=instant.microsecond // 1000 * 1000)
        late_s = chance.expovariate(1 / 4) if chance.random() < 0.95 else chance.uniform(30, 300)
        reported = instant + timedelta(milliseconds=round(late_s * 1000))
        if reported >= END:
            continue
        symbol = chance.choices(SYMBOLS, weights=[1 / rank for rank in range(1, len(SYMBOLS) + 1)])[0]
        price, size = round(chance.lognormvariate(3, 0.5), 2), chance.choice([1, 5, 10, 10, 50, 100])
        minute = reported.replace(second=0, microsecond=0)
        by_minute[minute].append((f"t{counts['trades']:05d}", symbol, price, size, instant, reported))
        counts["trades"] += 1
    for minute, rows in by_minute.items():
        # The columns in another order than declared: a header names them.
        write(
            feed / "trades" / f"{minute:%Y%m%d-%H%M}.csv",
            ["trade", "size", "price", "symbol", "reported", "dealt"],
            [(t, z, p, s, stamp(r), stamp(d)) for t, s, p, z, d, r in rows],
        )
    for number in range(60):
        landed = START + timedelta(seconds=30 * number + 29)
        quotes = []
        for _ in range(chance.randint(10, 40)):
            quoted = landed - timedelta(seconds=chance.randint(0, 28))
            bid = round(chance.lognormvariate(3, 0.5), 2)
            symbol = chance.choice(SYMBOLS)
            ask = round(bid + chance.uniform(-0.1, 1), 2)
            quotes.append((f"q{counts['quotes']:05d}", symbol, bid, ask, stamp(quoted)))
            counts["quotes"] += 1
        path = feed / "quotes" / f"from-desk-{chance.randrange(10**9):09d}.csv"
        write(path, ["quote", "symbol", "bid", "ask", "quoted"], quotes)
        os.utime(path, (landed.timestamp(), landed.timestamp()))
    return counts


def stamp(instant: datetime) -> str:
    """A time to the millisecond."""
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write(path: Path, header: list[str], rows: list[tuple]) -> None:
    """A CSV file."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the stranger wrote."""
    folder = tmp_path_factory.mktemp("pipelines") / "exchange"
    (folder / "queries").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(PIPELINE, encoding="utf-8")
    for name, text in QUERIES.items():
        (folder / "queries" / f"{name}.sql").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def counts(folder: Path) -> dict[str, int]:
    """The feed, beside the declaration; stream → tuples."""
    return generate(folder / "feed")


@pytest.fixture(scope="module")
def warehouse(folder: Path, counts: dict[str, int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pipeline's folder in the warehouse, after a run over half an hour."""
    root = tmp_path_factory.mktemp("warehouse")
    run_stages(folder, root, START, END, STAGES)
    return root / "exchange"


@pytest.fixture(scope="module")
def pipeline(folder: Path) -> Pipeline:
    return load_pipeline(folder)


def test_the_declaration_has_no_mistakes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(folder)]) == 0
    said = capsys.readouterr()
    assert "2 streams and 3 queries, no mistakes" in said.out and said.err == ""


@pytest.mark.parametrize("stream", ["trades", "quotes"])
def test_every_tuple_is_accepted(warehouse: Path, counts: dict[str, int], stream: str) -> None:
    assert counts[stream] > 1000
    assert len(read_rows(warehouse, f"events_{stream}")) == counts[stream]
    assert read_rows(warehouse, "quarantine") == []


def test_quotes_arrive_when_their_file_lands(warehouse: Path) -> None:
    arrivals = {row["arrival_time"] for row in read_rows(warehouse, "events_quotes")}
    assert arrivals == {START + timedelta(seconds=30 * number + 29) for number in range(60)}


def test_symbols_come_through_as_they_are(warehouse: Path) -> None:
    symbols = {row["symbol"] for row in read_rows(warehouse, "events_trades")}
    assert symbols == {symbol or None for symbol in SYMBOLS}


@pytest.mark.parametrize("query", sorted(QUERIES))
def test_answers_truth_and_accuracy_equal_brute_force(pipeline: Pipeline, warehouse: Path, query: str) -> None:
    for check in (check_answers, check_truth, check_accuracy):
        comparison = check(pipeline, pipeline.query(query), warehouse, START, END)
        assert comparison.equal, str(comparison)
        assert comparison.windows >= 20


def test_a_query_is_asked_only_within_its_duration(warehouse: Path) -> None:
    ends = [row["window_end"] for row in read_rows(warehouse, "answers_spread")]
    assert min(ends) >= datetime(2024, 3, 1, 10, 5, tzinfo=UTC)
    assert max(ends) < datetime(2024, 3, 1, 10, 20, tzinfo=UTC)


def test_the_budget_narrows_windows_and_answers_are_scaled(warehouse: Path) -> None:
    answers = read_rows(warehouse, "answers_turnover")
    narrowed = [row for row in answers if row["coverage"] < 1]
    # In the burst, memory holds neither the wait that the promise asks for nor, for some windows, what ERROR needs.
    assert "B" in {row["support_level"] for row in narrowed} <= {"B", "unsupported"}
    assert len({row["coverage"] for row in narrowed}) > 1
    # Counts over part of a range stand for all of it, rounded: what was counted is no whole number by them any more.
    counted = [row["deals"] * row["coverage"] for row in narrowed]
    assert any(abs(count - round(count)) > 1e-6 for count in counted)


def test_every_leaf_of_history_is_exact(pipeline: Pipeline, warehouse: Path) -> None:
    for check in (check_history, check_samples):
        comparison = check(pipeline, pipeline.stream("trades"), warehouse, START, END)
        assert comparison.equal, str(comparison)
        assert comparison.rows > 0


def test_partitions_are_labelled_to_the_minute(warehouse: Path) -> None:
    labels = sorted(path.name for path in (warehouse / "events_trades").glob("interval=*"))
    assert labels == ["interval=2024-03-01T1000", "interval=2024-03-01T1010", "interval=2024-03-01T1020"]
