"""NEXMark's events as files of JSON, and a pipeline of its queries that reads them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
from infra.benchmarks.generator import Faults, LogNormal, Nexmark, Timing
from infra.benchmarks.nexmark.questions import QUESTIONS

START = datetime(2013, 1, 1, tzinfo=UTC)
CHANNELS = ("Apple", "Google", "Facebook", "Baidu")
# Of duplicates, and of events whose clock is off, no more than a deduplicating reader of files would meet.
_FAULTS = Faults(duplicates=0.002)
_PIPELINE = """\
name: {name}
owner: benchmarks
start: 2013-01-01T00:00:00Z
interval: 10 minutes
tick: 1 second
horizon: 10 minutes
memory_budget: {memory_mib} MiB
process_budget: 4 GiB
streams:
{streams}"""
_STREAM = """\
  {name}:
    format: jsonl
    path: {folder}/{name}.jsonl
    columns: {{{columns}}}
    id: id
    event_time: date_time
    arrival_time: arrived
    rate: {rate} per second
    max_late: 10 minutes
"""
_TIMES = "id: string, date_time: timestamp, arrived: timestamp"
_COLUMNS = {
    "persons": _TIMES + ", person: integer, name: string, city: string",
    "auctions": _TIMES + ", auction: integer, seller: integer, category: integer, initial_bid: double",
    "bids": _TIMES + ", auction: integer, bidder: integer, price: integer, channel: string",
}
# How the generator's columns become those.
_MORE = {
    "persons": "person, 'person ' || person AS name, city",
    "auctions": "auction, seller, category, initial_bid",
    "bids": "auction, bidder, (price * 100)::BIGINT AS price, ['"
    + "', '".join(CHANNELS)
    + "'][1 + event_id % 4] AS channel",
}


def write_events(folder: Path, events: int, rate: float, seed: int) -> int:
    """Write the three streams as JSON lines, in order of arrival, a median of two seconds late; how many records."""
    timing = Timing(seconds=events / rate, start=START, lateness=LogNormal(median_s=2.0, sigma=1.0), faults=_FAULTS)
    records = 0
    for name, table in Nexmark(rate, timing).tables(seed).items():
        records += len(table)
        _write(table, folder / f"{name}.jsonl", _MORE[name])
    return records


def _write(events: pa.Table, file: Path, more: str) -> None:
    instant = "strftime(timezone('UTC', {}), '%Y-%m-%dT%H:%M:%S.%fZ')"
    times = f"{instant.format('event_time')} AS date_time, {instant.format('arrival_time')} AS arrived"
    with duckdb.connect() as database:
        database.register("events", events)
        database.execute(f"COPY (SELECT 'e' || event_id AS id, {times}, {more} FROM events) TO '{file}' (FORMAT JSON)")


def write_pipeline(folder: Path, events: Path, rate: float, memory_mib: int = 512) -> None:
    """Write a pipeline with all questions of NEXMark; its name is the folder's."""
    (folder / "queries").mkdir(parents=True)
    rates = {"persons": rate / 50, "auctions": 3 * rate / 50, "bids": 46 * rate / 50}
    streams = "".join(
        _STREAM.format(name=name, folder=events, columns=_COLUMNS[name], rate=max(round(rates[name]), 1))
        for name in _COLUMNS
    )
    text = _PIPELINE.format(name=folder.name, memory_mib=memory_mib, streams=streams)
    (folder / "pipeline.yml").write_text(text)
    for name, question in QUESTIONS.items():
        (folder / "queries" / f"{name}.sql").write_text(question.text + "\n")
