"""NEXMark's questions on Spark Structured Streaming, from the same files of JSON lines, each in append mode.

Two of them cannot be asked there: streaming aggregates count no distinct values.
"""

from __future__ import annotations

from pathlib import Path

from infra.benchmarks.rivals.spark_session import session_in
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_SCHEMAS = {
    "persons": "id STRING, date_time TIMESTAMP, arrived TIMESTAMP, person LONG, name STRING, city STRING",
    "auctions": "id STRING, date_time TIMESTAMP, arrived TIMESTAMP, auction LONG, seller LONG, category LONG",
    "bids": "id STRING, date_time TIMESTAMP, arrived TIMESTAMP, auction LONG, bidder LONG, price LONG, channel STRING",
}
NOT_ASKED = ("q15_bidding_statistics", "q16_statistics_of_channels")


def answer(folder: Path, scratch: Path) -> dict[str, int]:
    """Query → how many rows its answers have. A file behind the others closes their windows: late by two hours."""
    session = session_in(str(scratch / "spark"))
    streams = {}
    for name, schema in _SCHEMAS.items():
        source = scratch / name
        source.mkdir(parents=True)
        (source / f"{name}.jsonl").symlink_to(folder / f"{name}.jsonl")
        streams[name] = session.readStream.schema(schema).json(str(source)).withWatermark("date_time", "10 minutes")
    counts = {}
    for name, answers in _answers(streams).items():
        rows: list[int] = []
        query = answers.writeStream.outputMode("append").option("checkpointLocation", str(scratch / f"at-{name}"))
        query = query.foreachBatch(lambda frame, number, rows=rows: rows.append(frame.toArrow().num_rows))
        query.trigger(availableNow=True).start().awaitTermination()
        counts[name] = sum(rows)
    return counts


def _answers(streams: dict[str, DataFrame]) -> dict[str, DataFrame]:
    persons, auctions, bids = streams["persons"], streams["auctions"], streams["bids"]

    def window(span: str, slide: str | None = None, column: str = "date_time"):  # type: ignore[no-untyped-def]
        return F.window(column, span, slide).alias("w")

    def bands(name: str) -> list[object]:
        price = F.col("price")
        where = (price < 10_000, (price >= 10_000) & (price < 1_000_000), price >= 1_000_000)
        return [F.count_if(one).alias(f"rank{number}_{name}") for number, one in enumerate(where, 1)]

    counted = bids.groupBy(window("10 seconds", "2 seconds"), "auction").agg(F.count("*").alias("num"))
    hot = counted.select(F.window_time("w").alias("at"), "auction", "num").groupBy(F.window("at", "2 seconds"))
    sellers = persons.alias("p").join(
        auctions.alias("a").withWatermark("a.date_time", "10 minutes"),
        F.expr("""p.person = a.seller AND window(p.date_time, '10 seconds') = window(a.date_time, '10 seconds')
            AND a.date_time BETWEEN p.date_time - INTERVAL 10 SECONDS AND p.date_time + INTERVAL 10 SECONDS"""),
    )
    by_auction = bids.groupBy(window("1 minute"), "auction").agg(F.count("*").alias("n"), F.max("price").alias("most"))
    of_category = by_auction.select(F.window_time("w").alias("at"), "auction", "n", "most").alias("b")
    category = auctions.where("category = 1").alias("a")
    return {
        "q5_hot_items": hot.agg(F.max_by(F.struct("auction", "num"), "num").alias("best")),
        "q7_highest_bid": bids.groupBy(window("10 seconds")).agg(
            F.max_by(F.struct("auction", "bidder", "price"), "price")
        ),
        "q8_new_sellers": sellers.groupBy(F.window("p.date_time", "10 seconds"), "p.person", "p.name").count(),
        "q12_bids_of_bidders": bids.groupBy(window("10 seconds"), "bidder").count(),
        "q17_auction_statistics": bids.groupBy(window("10 minutes"), "auction").agg(
            F.count("*"), *bands("bids"), F.min("price"), F.max("price"), F.avg("price"), F.sum("price")
        ),
        "q18_last_bid": bids.groupBy(window("10 minutes"), "bidder", "auction").agg(
            F.max_by(F.struct("price", "date_time"), "date_time")
        ),
        "q19_ten_best_bids": bids.groupBy(window("10 minutes"), "auction").agg(
            F.max_by(F.struct("bidder", "price"), "price", 10)
        ),
        "q20_bids_of_a_category": of_category.join(
            category,
            F.expr("""b.auction = a.auction AND window(b.at, '1 minute') = window(a.date_time, '1 minute')
                AND a.date_time BETWEEN b.at - INTERVAL 1 MINUTE AND b.at + INTERVAL 1 MINUTE"""),
        ).select("b.auction", "a.seller", "b.n", "b.most"),
    }
