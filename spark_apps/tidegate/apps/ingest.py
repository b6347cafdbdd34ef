"""Ingest: the tuples that arrived in an interval, valid or quarantined; rates; every window plan that took effect.

Files are read by Structured Streaming (``availableNow``), exactly once: every run has a checkpoint and a transactional
sink of its own, and the result is moved in as a whole. Micro-batch boundaries influence
nothing: duplicates, rates and triggers are decided afterwards, from all tuples in order of arrival.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tidegate.apps.launcher import launch
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, Stream, from_us
from tidegate.hosts import planner
from tidegate.hosts.context import RunContext, StageRun
from tidegate.hosts.intervals import Interval, interval_at, interval_holding, interval_labelled, label_format
from tidegate.hosts.records import parse, read_files
from tidegate.hosts.session import suit_to_size
from tidegate.hosts.sources import SourceFile, expected_files, header_of, modified_at

STAGE = "ingest"
_GROWTH_LOOKBACK_INTERVALS = 24
_LEAST_RECORD_BYTES = 50
_JAVA_LABELS = {"%Y-%m-%dT%H": "yyyy-MM-dd'T'HH", "%Y-%m-%dT%H%M": "yyyy-MM-dd'T'HHmm"}


@dataclass
class _Listing:
    """What a stream's files looked like when the run began."""

    stream: Stream
    files: list[SourceFile] = field(default_factory=list)
    by_header: dict[Any, list[SourceFile]] = field(default_factory=lambda: defaultdict(list))
    rows: list[dict[str, Any]] = field(default_factory=list)  # of source_files, with `_us` saying which interval
    broken: list[dict[str, Any]] = field(default_factory=list)  # of quarantine, likewise


def run(context: RunContext, intervals: Sequence[Interval]) -> None:
    """Read the intervals' tuples, then plan their windows."""
    read(context, intervals)
    plan(context, intervals)


def plan(context: RunContext, intervals: Sequence[Interval]) -> None:
    """Write the rates and every plan that took effect in the intervals, with what had been learnt before each."""
    with context.stage("plan_windows", intervals) as stage:
        planner.plan(context, stage, intervals)


def read(context: RunContext, intervals: Sequence[Interval]) -> None:
    """Ingest the intervals, all in one pass; each one's partitions are the same as if it were run alone."""
    pipeline = context.pipeline
    context.require_predecessor("source_files", intervals, STAGE)
    with context.stage(STAGE, intervals) as stage:
        listings = [_list(stream, intervals) for stream in pipeline.streams]
        spark = context.spark
        for listing in listings:
            landed = sum(file.bytes for file in listing.files)
            context.progress(f"ingest: {listing.stream.name}: {len(listing.files)} files, {landed} bytes")
        suit_to_size(spark, sum(f.bytes for listing in listings for f in listing.files) // _LEAST_RECORD_BYTES)
        with ThreadPoolExecutor(max_workers=len(listings)) as threads:
            parsed = list(threads.map(lambda listing: _read(spark, listing, stage), listings))
        _refuse_growing(listings)
        judged = {
            listing.stream.name: _judge(context, listing, frame, intervals).persist()
            for listing, frame in zip(listings, parsed, strict=True)
        }
        _write_source_files(context, stage, listings, intervals, judged)
        _write_quarantine(context, stage, listings, judged, intervals)
        for stream in pipeline.streams:
            good = judged[stream.name].where("_reason IS NULL")
            stage.commit.put_spark(f"events_{stream.name}", good, intervals, ("arrival_time", "event_id"))
        planner.put_arrivals(context, stage, intervals, _count(pipeline, judged, stage, intervals))
        context.progress(f"ingest: {stage.total('rows_out')} tuples, {stage.total('rows_quarantined')} quarantined")
        for frame in judged.values():
            frame.unpersist()


def _list(stream: Stream, intervals: Sequence[Interval]) -> _Listing:
    listing = _Listing(stream)
    for expected in expected_files(stream, intervals):
        if not expected.files:
            listing.rows.append(_file_row(stream, expected.pattern, "missing", expected.period_start_us))
        for file in expected.files:
            at_us = file.modified_us if file.period_start_us is None else file.period_start_us
            row = _file_row(stream, str(file.path), "ok", at_us)
            row |= {"bytes": file.bytes, "modified": modified_at(file)}
            listing.rows.append(row)
            try:
                header = header_of(stream, file)
            except ValueError as error:
                row |= {"status": "unreadable", "rows": 0}
                reason = {"stream": stream.name, "arrival_time": None, "reason": "broken_file", "column": None}
                listing.broken.append({**reason, "record": f"{file.path}: {error}", "_us": at_us})
                continue
            if header is None:
                row |= {"status": "empty", "rows": 0}
                continue
            listing.files.append(file)
            # A Spark path glob stands for the files of one folder.
            listing.by_header[header, file.path.parent].append(file)
    return listing


def _file_row(stream: Stream, path: str, status: str, at_us: int | None) -> dict[str, Any]:
    empty = {"bytes": None, "modified": None, "rows": None}
    return {"stream": stream.name, "path": path, "status": status, **empty, "_us": at_us}


def _read(spark: SparkSession, listing: _Listing, stage: StageRun) -> DataFrame | None:
    """Every record of the stream's files, parsed, as the streaming queries wrote them aside; None without files."""
    folder = stage.commit.folder / "parsed" / listing.stream.name
    for number, ((header, _), files) in enumerate(listing.by_header.items()):
        query = (
            parse(listing.stream, read_files(spark.readStream, listing.stream, files, header))
            .writeStream.format("parquet")
            .option("path", str(folder / str(number)))
            .option("checkpointLocation", str(stage.commit.folder / "checkpoints" / listing.stream.name / str(number)))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    # The sink's own log says which files are whole: what a failed task left behind is not read.
    parts = [spark.read.parquet(str(folder / str(number))) for number in range(len(listing.by_header))]
    return reduce(DataFrame.unionByName, parts) if parts else None


def _refuse_growing(listings: Sequence[_Listing]) -> None:
    growing = [str(f.path) for listing in listings for f in listing.files if f.changed()]
    if growing:
        raise UserError(
            f"{growing[0]} changed while it was read ({len(growing)} such files): nothing was ingested; "
            "run the interval again once the file is complete"
        )


def _judge(
    context: RunContext, listing: _Listing, parsed: DataFrame | None, intervals: Sequence[Interval]
) -> DataFrame:
    """The records of the intervals, with the reasons that need more than the record itself to be seen."""
    spark, pipeline, stream = context.spark, context.pipeline, listing.stream
    table = f"events_{stream.name}"
    empty = context.warehouse.read_spark(spark, table, [])
    if parsed is None:
        extra = {"_reason": "string", "_column": "string", "_record": "string", "_file": "string"}
        return empty.withColumns({name: F.lit(None).cast(kind) for name, kind in extra.items()})
    start_us, end_us = intervals[0].start_us, intervals[-1].end_us
    periods = _periods(spark, listing.files)
    frame = parsed.join(F.broadcast(periods), "_file", "left")
    arrival_us = F.unix_micros("arrival_time")
    outside = (arrival_us < F.col("_from_us")) | (arrival_us >= F.col("_to_us"))
    frame = frame.withColumns(
        {
            "_column": F.when(F.col("_reason").isNull() & outside, stream.arrival_time).otherwise(F.col("_column")),
            "_reason": F.when(F.col("_reason").isNull() & outside, "outside_file_interval").otherwise(F.col("_reason")),
        }
    )
    # A record whose arrival cannot be trusted belongs to the interval in which its file's period begins.
    own_us = F.coalesce("_from_us", "_modified_us")
    read_us = F.when(arrival_us.isNull() | outside, own_us).otherwise(arrival_us)
    frame = frame.withColumn("_read_us", read_us).where((F.col("_read_us") >= start_us) & (F.col("_read_us") < end_us))
    frame = frame.withColumn("interval", _label(F.col("_read_us"), pipeline))
    return _mark_duplicates(context, stream, frame, intervals)


def _periods(spark: SparkSession, files: Sequence[SourceFile]) -> DataFrame:
    rows = [(str(file.path), file.period_start_us, file.period_end_us) for file in files]
    return spark.createDataFrame(rows, "_file string, _from_us bigint, _to_us bigint")


def _label(instant_us: SparkColumn, pipeline: Pipeline) -> SparkColumn:
    """The label of the interval that holds an instant."""
    length_us = pipeline.interval_s * 1_000_000
    java = _JAVA_LABELS.get(label_format(pipeline), "yyyy-MM-dd'T'HHmmss")
    return F.date_format(F.timestamp_micros(F.floor(instant_us / length_us) * length_us), java)


def _mark_duplicates(context: RunContext, stream: Stream, frame: DataFrame, intervals: Sequence[Interval]) -> DataFrame:
    """Refuse a tuple whose id an accepted tuple bore that arrived in the last ``max_late`` before (by intervals).

    The first to arrive is accepted; ties go to the earlier event time, then to the record's text. The bound keeps the
    memory of ids finite, and counts whole intervals, so that a run over many decides as many runs of one would.
    """
    pipeline = context.pipeline
    length_us = pipeline.interval_s * 1_000_000
    memory_us = -(-stream.max_late_s * 1_000_000 // length_us) * length_us
    first = intervals[0].start_us - memory_us
    labels = [interval_at(pipeline, from_us(us)).label for us in range(first, intervals[0].start_us, length_us)]
    known = context.warehouse.read_spark(context.spark, f"events_{stream.name}", labels)
    # Only ids that come again matter: without that filter every run would carry the memory's ids along.
    wanted = frame.where("_reason IS NULL").select("event_id").distinct()
    known = known.join(wanted, "event_id", "left_semi")
    known = known.select(
        "event_id", "event_time", "arrival_time", F.unix_micros("arrival_time").alias("_read_us"), "interval"
    )
    known = known.withColumn("_known", F.lit(True))
    together = frame.withColumn("_known", F.lit(False)).unionByName(known, allowMissingColumns=True)
    # Refused records neither shadow an id nor are shadowed: each stands for itself.
    own = F.when(F.col("_reason").isNotNull(), F.monotonically_increasing_id()).otherwise(F.lit(-1))
    together = together.withColumn("_own", own)
    by_id = Window.partitionBy("event_id", "_own")
    in_order = by_id.orderBy("arrival_time", "event_time", F.coalesce("_record", F.lit("")))
    begin_us = F.floor(F.col("_read_us") / length_us) * length_us
    together = together.withColumn("_turn", F.row_number().over(in_order))
    seen = F.array_sort(F.collect_list(F.struct("_turn", begin_us.alias("begin_us"))).over(by_id))
    together = together.withColumn("_seen", seen)
    # Fold over the id's tuples in order: one is accepted iff the last accepted one is out of memory.
    accepted = F.expr(
        "aggregate(_seen, named_struct('last', CAST(NULL AS BIGINT), 'turns', CAST(array() AS ARRAY<INT>)),"
        f" (acc, x) -> IF(acc.last IS NULL OR acc.last < x.begin_us - {memory_us},"
        " named_struct('last', x.begin_us, 'turns', array_append(acc.turns, x._turn)), acc)).turns"
    )
    duplicate = F.col("_reason").isNull() & ~F.array_contains(accepted, F.col("_turn"))
    marked = together.withColumns(
        {
            "_column": F.when(duplicate, stream.id).otherwise(F.col("_column")),
            "_reason": F.when(duplicate, "duplicate_id").otherwise(F.col("_reason")),
        }
    )
    return marked.where(~F.col("_known")).drop("_known", "_own", "_turn", "_seen")


def _tell_of_files(context: RunContext, listing: _Listing) -> None:
    """A line for the missing files of a stream, unless it ignores them, and one for those that cannot be read."""
    for status in ("missing", "unreadable"):
        paths = [row["path"] for row in listing.rows if row["status"] == status]
        if not paths or (status == "missing" and listing.stream.missing_file == "ignore"):
            continue
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        context.progress(f"ingest: {listing.stream.name}: {status} file {paths[0]}{more}")


def _write_source_files(
    context: RunContext,
    stage: StageRun,
    listings: Sequence[_Listing],
    intervals: Sequence[Interval],
    judged: dict[str, DataFrame],
) -> None:
    counts: dict[str, int] = {}
    for frame in judged.values():
        counts |= {row["_file"]: row["count"] for row in frame.groupBy("_file").count().collect()}
    rows = [row for listing in listings for row in listing.rows]
    by_interval: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["status"] == "ok":
            row["rows"] = counts.get(row["path"], 0)
        at_us = intervals[0].start_us if row["_us"] is None else row["_us"]
        # A file that holds more than one interval is reported in the interval in which its period starts, or in the
        # run's first.
        label = interval_holding(context.pipeline, max(at_us, intervals[0].start_us)).label
        by_interval[label].append(row)
    for listing in listings:
        _tell_of_files(context, listing)
    by_interval[intervals[0].label] += _changed_since(context, intervals[0])
    for interval in intervals:
        data = pa.Table.from_pylist(by_interval[interval.label], schema=context.warehouse.schema("source_files"))
        stage.commit.put_arrow("source_files", interval, data.sort_by([("stream", "ascending"), ("path", "ascending")]))


def _changed_since(context: RunContext, first: Interval) -> list[dict[str, Any]]:
    """Files of the last intervals that are others now than when they were ingested: to be ingested again."""
    labels = [x for x in context.warehouse.labels("source_files") if x < first.label][-_GROWTH_LOOKBACK_INTERVALS:]
    changed = []
    for row in context.warehouse.read_arrow("source_files", labels).to_pylist():
        if row["status"] not in ("ok", "empty"):
            continue
        modified_us = int(row["modified"].timestamp() * 1_000_000 + 0.5)
        file = SourceFile(Path(row["path"]), row["bytes"], modified_us, None, None)
        if file.path.exists() and file.changed():
            status = file.path.stat()
            context.progress(
                f"ingest: {row['stream']}: {file.path} has changed since interval {row['interval']} was ingested "
                f"({row['bytes']} bytes then, {status.st_size} now): run that interval again"
            )
            now = {"bytes": status.st_size, "modified": from_us(status.st_mtime_ns // 1000), "rows": None}
            changed.append({"stream": row["stream"], "path": row["path"], "status": "changed", **now})
    return changed


def _write_quarantine(
    context: RunContext,
    stage: StageRun,
    listings: Sequence[_Listing],
    judged: dict[str, DataFrame],
    intervals: Sequence[Interval],
) -> None:
    refused = None
    for name, frame in judged.items():
        part = frame.where("_reason IS NOT NULL").select(
            F.lit(name).alias("stream"),
            "arrival_time",
            F.col("_reason").alias("reason"),
            F.col("_column").alias("column"),
            F.col("_record").alias("record"),
            "interval",
        )
        refused = part if refused is None else refused.unionByName(part)
    assert refused is not None
    files = [
        (b["stream"], None, b["reason"], b["column"], b["record"], interval_holding(context.pipeline, b["_us"]).label)
        for listing in listings
        for b in listing.broken
    ]
    if files:
        kind = "stream string, arrival_time timestamp, reason string, column string, record string, interval string"
        refused = refused.unionByName(context.spark.createDataFrame(files, kind))
        for file in files:
            stage.record(interval_labelled(context.pipeline, file[5]), rows_in=1, rows_quarantined=1)
    stage.commit.put_spark("quarantine", refused, intervals, ("stream", "arrival_time", "reason", "record"))


def _count(
    pipeline: Pipeline, judged: dict[str, DataFrame], stage: StageRun, intervals: Sequence[Interval]
) -> pa.Table:
    """What arrived, per tick of arrival and pane of event time (`planner.ARRIVALS_SCHEMA`); also the run's account."""
    tick_us = pipeline.tick_s * 1_000_000
    together = None
    for stream in pipeline.streams:
        frame = judged[stream.name]
        good = F.col("_reason").isNull()
        part = frame.select(
            F.lit(stream.name).alias("stream"),
            "interval",
            good.alias("good"),
            F.when(good, _floor(F.unix_micros("arrival_time"), tick_us)).alias("slot_us"),
            F.when(good, _floor(F.unix_micros("event_time"), tick_us)).alias("pane_us"),
            (F.unix_micros("arrival_time") > F.unix_micros("event_time")).alias("late"),
            planner.tuple_bytes(pipeline, stream).alias("bytes"),
        )
        together = part if together is None else together.unionByName(part)
    assert together is not None
    counted = together.groupBy("stream", "interval", "good", "slot_us", "pane_us").agg(
        F.count("*").alias("tuples"),
        F.sum("bytes").cast("double").alias("bytes"),
        F.sum(F.col("late").cast("bigint")).alias("late"),
    )
    rows = counted.toArrow()
    by_label = {interval.label: interval for interval in intervals}
    totals = rows.group_by(["interval", "good"]).aggregate([("tuples", "sum"), ("late", "sum")])
    for row in totals.to_pylist():
        interval, tuples = by_label[row["interval"]], row["tuples_sum"]
        if row["good"]:
            stage.record(interval, rows_in=tuples, rows_out=tuples, rows_late=row["late_sum"] or 0)
        else:
            stage.record(interval, rows_in=tuples, rows_quarantined=tuples)
    return rows.filter(rows.column("good")).select(planner.ARRIVALS_SCHEMA.names).cast(planner.ARRIVALS_SCHEMA)


def _floor(us: SparkColumn, step_us: int) -> SparkColumn:
    return (F.floor(us / step_us) * step_us).cast("bigint")


if __name__ == "__main__":
    launch(STAGE, run)
