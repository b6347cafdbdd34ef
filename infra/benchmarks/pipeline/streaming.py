"""The pipeline's three queries on Spark Structured Streaming, from the same files, each in the best form that we know.

Answers alone: nothing is refused, named or counted, no id is looked for twice, no width, truth or history is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from infra.benchmarks.pipeline.landed import COLUMNS, deliver
from infra.benchmarks.rivals.spark_session import session_in
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

WATERMARK = "10 minutes"
"""How long windows wait for late tuples. The state grows with it."""


def structured_streaming(folder: Path, kind: str, hour: int) -> Iterator[tuple[str, int]]:
    """An hour's files, all at once (``availableNow``), from the checkpoint that the hour before left."""
    home = folder / f"streaming-{kind}"
    session = session_in(str(home / "scratch"))
    session.conf.set("spark.sql.streaming.statefulOperator.checkCorrectness.enabled", "true")
    deliver(folder / kind, home, hour)
    streams = {name: _stream(session, home / name, kind, name) for name in COLUMNS}
    tuples = 0
    for query, answers in _answers(streams).items():
        parts: list[pa.Table] = []
        started = (
            answers.writeStream.outputMode("append")
            .option("checkpointLocation", str(home / f"checkpoint-{query}"))
            .trigger(availableNow=True)
            .foreachBatch(lambda frame, number, own=parts: own.append(frame.toArrow()))
            .start()
        )
        started.awaitTermination()
        tuples = max(tuples, sum(progress["numInputRows"] for progress in started.recentProgress))
        pq.write_table(pa.concat_tables(parts), home / f"{query}-{hour}.parquet")
    yield "three queries", tuples


def _stream(session: SparkSession, folder: Path, kind: str, name: str) -> DataFrame:
    told = ", ".join(f"{column} {type_}" for column, type_ in COLUMNS[name].items())
    reader = session.readStream.schema(told).option("header", kind == "csv")
    frame = {"jsonl": reader.json, "csv": reader.csv, "parquet": reader.parquet}[kind](str(folder))
    return frame.withWatermark({"orders": "placed_at", "payments": "paid_at"}[name], WATERMARK)


def _answers(streams: dict[str, DataFrame]) -> dict[str, DataFrame]:
    """Query → its answers: aggregates by way of panes of a minute, the join by way of totals per key and window."""
    orders, payments = streams["orders"], streams["payments"]
    minute = F.window("placed_at", "1 minute").alias("pane")
    panes = orders.groupBy(minute, "country").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
    panes = panes.select(F.window_time("pane").alias("at"), "country", "n", "total")
    ten = F.window("at", "10 minutes", "1 minute").alias("w")
    sales = panes.groupBy(ten, "country").agg(F.sum("n").alias("orders"), F.sum("total").alias("sales"))

    key, none = F.col("order_id").alias("key"), F.lit(None)
    one, zero = F.lit(1), F.lit(0)
    both = orders.select(F.col("placed_at").alias("at"), key, "country", one.alias("o"), zero.alias("p"),
                         F.lit(0.0).alias("fee"))  # fmt: skip
    paid = payments.select(F.col("paid_at").alias("at"), F.col("order_ref").alias("key"),
                           none.cast("string").alias("country"), zero.alias("o"), one.alias("p"), "fee")  # fmt: skip
    five = F.window("at", "5 minutes", "1 minute").alias("w")
    totals = both.unionAll(paid).groupBy(five, "key").agg(
        F.sum("o").alias("o"), F.sum("p").alias("p"), F.sum("fee").alias("fee"), F.max("country").alias("country")
    )  # fmt: skip
    pairs = totals.where("o > 0 AND p > 0").select("w", "country", F.expr("o * p AS n"), F.expr("o * fee AS fees"))
    joined = pairs.groupBy("w", "country").agg(F.sum("n").alias("paid"), F.sum("fees").alias("fees"))

    best = F.max_by(F.struct("order_id", "customer", "amount"), "amount", 10).alias("best")
    tops = orders.groupBy(minute).agg(best).select(F.window_time("pane").alias("at"), F.explode("best").alias("t"))
    largest = tops.select("at", "t.*").groupBy(ten).agg(best)
    return {
        "sales": sales.select("w.end", "country", "orders", "sales"),
        "paid": joined.select("w.end", "country", "paid", "fees"),
        "largest": largest.select("w.end", F.inline("best")),
    }
