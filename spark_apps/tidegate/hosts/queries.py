"""Queries on Spark: tuples to hash partitions, partitions through an operator, partial answers to answers.

Per alias, Spark prunes partitions and columns, filters, and computes the slots; the aliases' tuples are hashed by a
shared join key, sorted by arrival, and streamed as Arrow batches through the operator (``mapInArrow``), which holds
only what its windows need. Partial answers are combined by Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import AccumulatorParam, TaskContext
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tidegate.declarations.models import Aggregate, Query
from tidegate.declarations.tables import ARROW_TYPES
from tidegate.operators import join_aggregate, top_k
from tidegate.operators.schedule import Schedule

_KEYS = ("side", "event_us", "arrival_us")
SPARK_TYPES = {
    "string": "string",
    "integer": "bigint",
    "double": "double",
    "boolean": "boolean",
    "timestamp": "timestamp",
    "date": "date",
}


class _PeakPerPartition(AccumulatorParam):
    """Partition → largest number reported; a task that runs twice counts once."""

    def zero(self, value: dict[int, int]) -> dict[int, int]:
        return {}

    def addInPlace(self, value1: dict[int, int], value2: dict[int, int]) -> dict[int, int]:
        for partition, number in value2.items():
            value1[partition] = max(value1.get(partition, 0), number)
        return value1


@dataclass(frozen=True)
class Answered:
    """The answers of a schedule's windows: the query's output columns beside ``window_index``; for top-k also
    ``rank``, ``event_id`` and ``arrival_us``. ``state_peaks`` is filled once the frame has been computed."""

    frame: DataFrame
    state_peaks: object

    @property
    def peak_state_bytes(self) -> int:
        """Bytes that the operators of all partitions held at most, together."""
        return sum(self.state_peaks.value.values())  # type: ignore[attr-defined]


def answer(
    spark: SparkSession,
    query: Query,
    schedule: Schedule,
    coverage: np.ndarray,
    events: Mapping[str, DataFrame],
    partitions: int,
    pane_us: int,
) -> Answered:
    """Answer the schedule's windows from the tuples of each stream.

    Args:
        schedule: which windows, when, from which event times on; not empty.
        coverage: float64[n], share of the ranges that each window holds; COUNT and SUM are divided by it.
        events: stream → its tuples (``events_<stream>`` columns).
        partitions: how many hash partitions a shared key is spread over.
        pane_us: the pipeline's tick, which divides every bound of the schedule.
    """
    peaks = spark.sparkContext.accumulator({}, _PeakPerPartition())
    if query.kind == "top_k":
        return Answered(_top_k(query, schedule, events, partitions, pane_us, peaks), peaks)
    return Answered(_aggregate(spark, query, schedule, coverage, events, partitions, peaks), peaks)


def _tuples(query: Query, alias: str, stream: str, schedule: Schedule, frame: DataFrame) -> DataFrame:
    """The tuples of one alias that any window can need, with their two clocks in microseconds."""
    first_us, end_us = int(schedule.lower_us[alias].min()), int(schedule.window_end_us.max())
    # An open end: a stream without a lower bound has no instant to compare with.
    kept = frame.where(F.col("event_time") < F.timestamp_micros(F.lit(end_us)))
    kept = kept.where(F.col("event_time") >= F.timestamp_micros(F.lit(max(first_us, -(2**55)))))
    kept = kept.where(F.col("arrival_time") <= F.timestamp_micros(F.lit(int(schedule.emit_us.max()))))
    if query.predicates.get(alias):
        kept = kept.where(F.expr(query.predicates[alias]))
    event_us = F.unix_micros("event_time")
    arrival_us = F.greatest(F.unix_micros("arrival_time"), event_us)
    return kept.withColumns({"event_us": event_us, "arrival_us": arrival_us})


def _aggregate(
    spark: SparkSession,
    query: Query,
    schedule: Schedule,
    coverage: np.ndarray,
    events: Mapping[str, DataFrame],
    partitions: int,
    peaks: object,
) -> DataFrame:
    spec = aggregate_spec(query)
    sides = [
        _side(query, index, spec, _tuples(query, w.alias, w.stream, schedule, events[w.stream]))
        for index, w in enumerate(query.windows)
    ]
    together = sides[0]
    for side in sides[1:]:
        together = together.unionByName(side)
    shared = [c for c in spec.classes if all(c in side.classes for side in spec.sides)]
    keys = shared or (list(spec.groups) if len(query.windows) == 1 else [])
    spread = together.repartition(partitions, *keys) if keys else together.coalesce(1)
    partials = spread.sortWithinPartitions("arrival_us").mapInArrow(
        _through(join_aggregate, spec, schedule, peaks, join_aggregate.rebatched),
        _spark_schema(spec.output_schema, bucket=True),
    )
    combined = _combined(partials, spec, query)
    windows = spark.createDataFrame(
        pa.table({"window_index": np.arange(len(schedule)), "_coverage": np.asarray(coverage, dtype=np.float64)})
    )
    if query.group_by:
        joined = combined.join(F.broadcast(windows), "window_index")
    else:
        joined = windows.join(combined, "window_index", "left")
    slots = {a.slot: _value(a) for a in query.aggregates}
    valued = joined.select("window_index", *(g.slot for g in query.group_by), *(c.alias(s) for s, c in slots.items()))
    if query.having:
        valued = valued.where(F.expr(query.having))
    outputs = (F.expr(o.expression).cast(SPARK_TYPES[o.type]).alias(o.name) for o in query.outputs)
    return valued.select("window_index", *outputs)


def aggregate_spec(query: Query) -> join_aggregate.Spec:
    """The operator's view of an aggregate query."""
    columns = [(j.slot, ARROW_TYPES[j.type]) for j in query.join_classes]
    columns += [(g.slot, ARROW_TYPES[g.type]) for g in query.group_by]
    columns += [(a.slot, _measured_type(a)) for a in query.aggregates if a.alias is not None]
    sides = tuple(
        join_aggregate.Side(
            w.alias,
            tuple(j.slot for j in query.join_classes if any(alias == w.alias for alias, _ in j.columns)),
            tuple(g.slot for g in query.group_by if g.alias == w.alias),
        )
        for w in query.windows
    )
    measures = tuple(join_aggregate.Measure(a.slot, a.function, a.alias) for a in query.aggregates)
    return join_aggregate.Spec(sides, measures, pa.schema(columns))


def _measured_type(aggregate: Aggregate) -> pa.DataType:
    """What the operator is given: doubles to add up, a flag to count, the value itself for an extreme."""
    if aggregate.function == "count":
        return pa.bool_()
    return pa.float64() if aggregate.function in ("sum", "avg") else ARROW_TYPES[aggregate.type]


def _side(query: Query, index: int, spec: join_aggregate.Spec, tuples: DataFrame) -> DataFrame:
    alias = query.windows[index].alias
    for join in query.join_classes:
        own = [c for a, c in join.columns if a == alias]
        for other in own[1:]:
            tuples = tuples.where(F.col(f"`{own[0]}`") == F.col(f"`{other}`"))
    slots = _side_slots(query, alias)
    missing = {f.name: F.lit(None).cast(_spark_type(f.type)) for f in spec.input_schema if f.name not in slots}
    return tuples.select(
        F.lit(index).cast("tinyint").alias("side"),
        "event_us",
        "arrival_us",
        *((slots | missing)[f.name].alias(f.name) for f in spec.input_schema if f.name not in _KEYS),
    )


def _side_slots(query: Query, alias: str) -> dict[str, SparkColumn]:
    """Slot → value, for the slots that an alias of an aggregate query fills."""
    slots: dict[str, SparkColumn] = {}
    for join in query.join_classes:
        own = [c for a, c in join.columns if a == alias]
        if own:
            slots[join.slot] = F.col(f"`{own[0]}`").cast(SPARK_TYPES[join.type])
    for group in query.group_by:
        if group.alias == alias:
            slots[group.slot] = F.col(f"`{group.column}`").cast(SPARK_TYPES[group.type])
    for aggregate in query.aggregates:
        if aggregate.expression is None or aggregate.alias != alias:
            continue
        value = F.expr(aggregate.expression)
        if aggregate.function == "count":
            slots[aggregate.slot] = F.when(value.isNotNull(), F.lit(True)).cast("boolean")
        else:
            kind = "double" if aggregate.function in ("sum", "avg") else SPARK_TYPES[aggregate.type]
            slots[aggregate.slot] = value.cast(kind)
    return slots


def _top_k_slots(query: Query) -> dict[str, SparkColumn]:
    """Slot → value, for the order and the outputs of a top-k query."""
    slots = {o.slot: F.expr(o.expression).cast(SPARK_TYPES[o.type]) for o in query.order_by}
    return slots | {f"p{i}": F.expr(o.expression).cast(SPARK_TYPES[o.type]) for i, o in enumerate(query.outputs)}


def tuple_bytes(query: Query, alias: str) -> SparkColumn:
    """Bytes that a tuple of the alias' stream takes in the query's operator; 0 if the query's predicate refuses it.

    Arrow's layout, as the operators account for what they hold: fixed widths, strings with their length and an offset,
    a bit of validity a value.
    """
    if query.kind == "top_k":
        slots = {"event_id": F.col("event_id")} | _top_k_slots(query)
        schema = top_k_spec(query, 1).input_schema
    else:
        slots = _side_slots(query, alias)
        schema = aggregate_spec(query).side_schema([w.alias for w in query.windows].index(alias))
    fixed, lengths = -(-len(schema) // 8), []
    for field in schema:
        if pa.types.is_string(field.type):
            fixed += 4
            lengths.append(F.coalesce(F.octet_length(slots[field.name]), F.lit(0)))
        else:
            fixed += -(-field.type.bit_width // 8)
    total = F.lit(fixed).cast("bigint")
    for length in lengths:
        total = total + length
    predicate = query.predicates.get(alias)
    return F.when(F.expr(predicate), total).otherwise(F.lit(0)) if predicate else total


def _through(operator, spec, schedule: Schedule, peaks, regroup=iter):  # type: ignore[no-untyped-def]
    """The function that streams one partition's batches through the operator.

    ``regroup``: how the operator likes its batches; larger ones than Spark's cost it less a tuple.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        bucket = context.partitionId() if context is not None else 0
        state = operator.start(spec, schedule)
        for batch in regroup(batches):
            state, partial = operator.step(state, batch)
            yield from _bucketed(partial, bucket)
        state, partial = operator.finish(state)
        yield from _bucketed(partial, bucket)
        peaks.add({bucket: int(state.peak_bytes)})

    return run


def _bucketed(partial: pa.Table, bucket: int) -> Iterator[pa.RecordBatch]:
    table = partial.append_column("bucket", pa.repeat(pa.scalar(bucket, pa.int64()), partial.num_rows))
    yield from table.to_batches()


def _spark_type(kind: pa.DataType):  # type: ignore[no-untyped-def]
    return from_arrow_schema(pa.schema([("value", kind)]))[0].dataType


def _spark_schema(schema: pa.Schema, bucket: bool):  # type: ignore[no-untyped-def]
    extended = schema.append(pa.field("bucket", pa.int64())) if bucket else schema
    return from_arrow_schema(extended)


def _combined(partials: DataFrame, spec: join_aggregate.Spec, query: Query) -> DataFrame:
    """One row per window and group. Sums of doubles are added in the order of the buckets, so always alike."""
    sums: list[SparkColumn] = [F.sum("pairs").alias("pairs")]
    for measure in spec.aggregates:
        sums.append(F.sum(f"{measure.slot}_count").alias(f"{measure.slot}_count"))
        if measure.function in ("sum", "avg"):
            name = f"{measure.slot}_sum"
            ordered = F.array_sort(F.collect_list(F.when(F.col(name).isNotNull(), F.struct("bucket", name))))
            added = F.aggregate(ordered.getField(name), F.lit(0.0), lambda total, part: total + part)
            sums.append(F.when(F.size(ordered) > 0, added).alias(name))
        elif measure.function in ("min", "max"):
            name = f"{measure.slot}_{measure.function}"
            sums.append((F.min if measure.function == "min" else F.max)(name).alias(name))
    return partials.groupBy("window_index", *(g.slot for g in query.group_by)).agg(*sums)


def _value(aggregate: Aggregate) -> SparkColumn:
    """An aggregate's value as emitted: COUNT and SUM scaled up to the whole range."""
    count = F.coalesce(F.col(f"{aggregate.slot}_count"), F.lit(0)).cast("double")
    # A window that holds nothing of its range says nothing of it: NULL, not a division by zero.
    coverage = F.nullif(F.col("_coverage"), F.lit(0.0))
    if aggregate.function == "count":
        return count / coverage
    if aggregate.function == "sum":
        return F.col(f"{aggregate.slot}_sum") / coverage
    if aggregate.function == "avg":
        return F.when(count > 0, F.col(f"{aggregate.slot}_sum") / count)
    return F.col(f"{aggregate.slot}_{aggregate.function}")


def _top_k(
    query: Query,
    schedule: Schedule,
    events: Mapping[str, DataFrame],
    partitions: int,
    pane_us: int,
    peaks: object,
) -> DataFrame:
    window = query.windows[0]
    spec = top_k_spec(query, pane_us)
    tuples = _tuples(query, window.alias, window.stream, schedule, events[window.stream])
    rows = tuples.select("event_us", "event_id", "arrival_us", *(c.alias(s) for s, c in _top_k_slots(query).items()))
    partials = (
        rows.repartition(partitions, "event_id")
        .sortWithinPartitions("arrival_us")
        .mapInArrow(_through(top_k, spec, schedule, peaks), _spark_schema(spec.output_schema, bucket=True))
    )
    terms = [F.desc_nulls_last(o.slot) if o.descending else F.asc_nulls_last(o.slot) for o in query.order_by]
    by_rank = Window.partitionBy("window_index").orderBy(*terms, "event_us", "event_id")
    ranked = partials.withColumn("rank", F.row_number().over(by_rank).cast("bigint"))
    named = (F.col(f"p{i}").alias(o.name) for i, o in enumerate(query.outputs))
    keys = ["window_index", "rank", "arrival_us"]
    if "event_id" not in {o.name for o in query.outputs}:
        keys.append("event_id")
    return ranked.where(F.col("rank") <= spec.k).select(*keys, F.col("event_id").alias("_event_id"), *named)


def top_k_spec(query: Query, pane_us: int) -> top_k.Spec:
    """The operator's view of a top-k query; its outputs travel as p0, p1 …, since names may clash with the keys."""
    assert query.limit is not None
    columns = [(o.slot, ARROW_TYPES[o.type]) for o in query.order_by]
    columns += [(f"p{i}", ARROW_TYPES[o.type]) for i, o in enumerate(query.outputs)]
    terms = tuple(top_k.Term(o.slot, o.descending) for o in query.order_by)
    return top_k.Spec(query.limit, terms, pa.schema(columns), pane_us, query.windows[0].alias)
