"""NEXMark's questions on Flink SQL in streaming mode, from the same files of JSON lines: one job of them all.

Runs under an interpreter of its own: ``python flink.py FOLDER``; it says how many rows each query has. Of rows that
are equally good Flink's Top-N has one. Ids that come twice are not looked for.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from infra.benchmarks.nexmark.questions import QUESTIONS, by_auction, statistics
from infra.benchmarks.rivals import flink

_TIMES = "id STRING, date_time TIMESTAMP_LTZ(3), arrived TIMESTAMP_LTZ(3)"
_SOURCES = {
    "persons": "person BIGINT, name STRING, city STRING",
    "auctions": "auction BIGINT, seller BIGINT, category BIGINT, initial_bid DOUBLE",
    "bids": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING",
}
_TABLE = """CREATE TEMPORARY TABLE {name} ({times}, {columns},
    WATERMARK FOR date_time AS date_time - INTERVAL '10' MINUTE
) WITH ('connector' = 'filesystem', 'path' = '{folder}/{name}.jsonl', 'format' = 'json',
    'json.timestamp-format.standard' = 'ISO-8601')"""
_BOUNDS = "window_start, window_end"


def _tumble(stream: str, span: str) -> str:
    return f"TABLE(TUMBLE(TABLE {stream}, DESCRIPTOR(date_time), INTERVAL {span}))"


def _best(columns: str, within: str, order: str, span: str, limit: int) -> str:
    """The first rows of each window and partition."""
    return f"""SELECT window_end, {columns} FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY {_BOUNDS}{within} ORDER BY {order}) AS place
        FROM {_tumble("bids", span)}) WHERE place <= {limit}"""


_TEN_SECONDS, _TEN_MINUTES, _MINUTE = "'10' SECOND", "'10' MINUTE", "'1' MINUTE"
QUERIES = {
    "q5_hot_items": f"""SELECT window_end, auction, num FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY {_BOUNDS} ORDER BY num DESC) AS place FROM (
            SELECT {_BOUNDS}, auction, COUNT(*) AS num
            FROM TABLE(HOP(TABLE bids, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
            GROUP BY {_BOUNDS}, auction)) WHERE place <= 1""",
    "q7_highest_bid": _best("auction, bidder, price", "", "price DESC", _TEN_SECONDS, 1),
    "q8_new_sellers": f"""SELECT p.window_end, p.person, p.name FROM (
            SELECT {_BOUNDS}, person, name FROM {_tumble("persons", _TEN_SECONDS)} GROUP BY {_BOUNDS}, person, name) p
        JOIN (SELECT {_BOUNDS}, seller FROM {_tumble("auctions", _TEN_SECONDS)} GROUP BY {_BOUNDS}, seller) a
        ON p.person = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end""",
    "q11_sessions_of_bidders": f"""SELECT window_end, window_start, bidder, COUNT(*) FROM
        TABLE(SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL {_TEN_SECONDS}))
        GROUP BY {_BOUNDS}, bidder""",
    "q12_bids_of_bidders": f"""SELECT window_end, bidder, COUNT(*) FROM {_tumble("bids", _TEN_SECONDS)}
        GROUP BY {_BOUNDS}, bidder""",
    "q15_bidding_statistics": f"""SELECT window_end, {statistics()} FROM {_tumble("bids", _TEN_MINUTES)}
        GROUP BY {_BOUNDS}""",
    "q16_statistics_of_channels": f"""SELECT window_end, channel, {statistics()}, MAX(date_time)
        FROM {_tumble("bids", _TEN_MINUTES)} GROUP BY {_BOUNDS}, channel""",
    "q17_auction_statistics": f"""SELECT window_end, auction, {by_auction()} FROM {_tumble("bids", _TEN_MINUTES)}
        GROUP BY {_BOUNDS}, auction""",
    "q18_last_bid": _best("bidder, auction, price, date_time", ", bidder, auction", "date_time DESC", _TEN_MINUTES, 1),
    "q19_ten_best_bids": _best("auction, bidder, price", ", auction", "price DESC", _TEN_MINUTES, 10),
    "q20_bids_of_a_category": f"""SELECT b.window_end, b.auction, a.seller, b.n, b.most FROM (
            SELECT {_BOUNDS}, auction, COUNT(*) AS n, MAX(price) AS most FROM {_tumble("bids", _MINUTE)}
            GROUP BY {_BOUNDS}, auction) b
        JOIN (SELECT * FROM {_tumble("auctions", _MINUTE)} WHERE category = 1) a
        ON b.auction = a.auction AND b.window_start = a.window_start AND b.window_end = a.window_end""",
}


def answer(tables: Any, folder: str, out: Path) -> dict[str, int]:
    """Query → how many rows its answers have. All are one job, which reads each file once."""
    from pyflink.table import TableDescriptor

    for name, columns in _SOURCES.items():
        tables.execute_sql(_TABLE.format(name=name, times=_TIMES, columns=columns, folder=folder))
    every = tables.create_statement_set()
    for name in QUESTIONS:
        sink = TableDescriptor.for_connector("filesystem").option("path", str(out / name)).format("json").build()
        every.add_insert(sink, tables.sql_query(QUERIES[name]))
    every.execute().wait()
    return {name: sum(file.read_bytes().count(b"\n") for file in _files(out / name)) for name in QUESTIONS}


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith((".", "_"))]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        environment = flink.start(SimpleNamespace(scratch=scratch))  # type: ignore[arg-type]
        print("rows", answer(environment, sys.argv[1], Path(scratch) / "answers"), flush=True)
