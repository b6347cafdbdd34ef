"""Queries on Spark: tuples through an operator, partial answers to answers.

There are two ways to the operator, with the same answers. Where the tuples are in the warehouse's files and pyarrow
computes what the query asks of them as Spark does, one task reads the files itself (``scan``). Else Spark prunes
partitions and columns, filters, and computes the slots; the aliases' tuples are hashed by a shared join key, sorted by
arrival, and streamed as Arrow batches through the operator (``mapInArrow``). Either way it holds only what its windows
need. Partial answers of several partitions are put together unrounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tidegate.declarations.models import Aggregate, Query
from tidegate.declarations.tables import ARROW_TYPES
from tidegate.hosts import scan, tasks
from tidegate.hosts.expressions import as_arrow
from tidegate.hosts.sieves import Sieve
from tidegate.operators import join_aggregate, top_k
from tidegate.operators.schedule import Schedule

_KEYS = ("side", "event_us", "arrival_us")
_ROWS_READ_HERE = 1 << 18
SPARK_TYPES = {
    "string": "string",
    "integer": "bigint",
    "double": "double",
    "boolean": "boolean",
    "timestamp": "timestamp",
    "date": "date",
}


@dataclass(frozen=True)
class Answered:
    """The answers of a schedule's windows: the query's output columns beside ``_window_index``; for top-k also
    ``rank``, ``_event_id`` and ``_arrival_us``. An output may bear any name that begins with a letter.
    ``state_peaks`` is filled once the frame has been computed."""

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
    events: Mapping[str, DataFrame | scan.EventFiles],
    partitions: int,
    pane_us: int,
    about: pa.Table | None = None,
) -> Answered:
    """Answer the schedule's windows from the tuples of each stream.

    Args:
        schedule: which windows, when, from which event times on; not empty.
        coverage: float64[n], share of the ranges that each window holds; COUNT and SUM are divided by it.
        events: stream → its tuples (``events_<stream>`` columns), as files where one task may read them.
        partitions: how many hash partitions a shared key is spread over.
        pane_us: the pipeline's tick, which divides every bound of the schedule.
        about: a row a window; its columns come along with each of the window's answers.
    """
    about = pa.table({"window_index": np.arange(len(schedule))}) if about is None else about
    peaks = spark.sparkContext.accumulator({}, tasks.PeakPerPartition())
    if query.kind == "top_k":
        return Answered(_top_k(spark, query, schedule, events, partitions, pane_us, about, peaks), peaks)
    return Answered(_aggregate(spark, query, schedule, coverage, events, partitions, about, peaks), peaks)


def _bounds_us(schedule: Schedule, alias: str) -> tuple[int, int, int]:
    """Of the tuples of an alias that any window can need: least event time, end of event time, last arrival."""
    # An open end: a stream without a lower bound has no instant to compare with.
    first_us = max(int(schedule.lower_us[alias].min()), -(2**55))
    return first_us, int(schedule.window_end_us.max()), int(schedule.emit_us.max())


def _tuples(
    spark: SparkSession,
    query: Query,
    alias: str,
    stream: str,
    schedule: Schedule,
    events: Mapping[str, DataFrame | scan.EventFiles],
) -> DataFrame:
    """The tuples of one alias that any window can need, with their two clocks in microseconds."""
    first_us, end_us, last_us = _bounds_us(schedule, alias)
    own = events[stream]
    frame = own.frame(spark) if isinstance(own, scan.EventFiles) else own
    kept = frame.where(F.col("event_time") < F.timestamp_micros(F.lit(end_us)))
    kept = kept.where(F.col("event_time") >= F.timestamp_micros(F.lit(first_us)))
    kept = kept.where(F.col("arrival_time") <= F.timestamp_micros(F.lit(last_us)))
    for slot, sql, _ in _asked(query, alias):
        if slot is None:
            kept = kept.where(F.expr(sql))
    # A declared column may be called event_us, but none begins with an underscore.
    event_us = F.unix_micros("event_time")
    arrival_us = F.greatest(F.unix_micros("arrival_time"), event_us)
    return kept.withColumns({"_event_us": event_us, "_arrival_us": arrival_us})


def _aggregate(
    spark: SparkSession,
    query: Query,
    schedule: Schedule,
    coverage: np.ndarray,
    events: Mapping[str, DataFrame | scan.EventFiles],
    partitions: int,
    about: pa.Table,
    peaks: object,
) -> DataFrame:
    spec = aggregate_spec(query)
    windows = about.append_column("_coverage", pa.array(coverage, pa.float64()))
    scans = _scans(query, schedule, events)
    if scans is not None:
        feed, finished = tasks.reading(scans, spec.input_schema), tasks.telling(windows, not query.group_by)
        through = tasks.through(join_aggregate, spec, schedule, peaks, feed, finished)
        told = spark.range(0, 1, 1, 1).mapInArrow(through, _told_schema(spec.output_schema, windows))
    else:
        sides = [
            _side(query, index, spec, _tuples(spark, query, w.alias, w.stream, schedule, events))
            for index, w in enumerate(query.windows)
        ]
        together = sides[0]
        for side in sides[1:]:
            together = together.unionByName(side)
        shared = [c for c in spec.classes if all(c in side.classes for side in spec.sides)]
        keys = shared or (list(spec.groups) if len(query.windows) == 1 else [])
        spread = together.repartition(partitions, *keys) if keys else together.coalesce(1)
        split_up = replace(spec, in_parts=True)
        through = tasks.through(join_aggregate, split_up, schedule, peaks, join_aggregate.rebatched)
        partials = spread.sortWithinPartitions("arrival_us").mapInArrow(
            through, from_arrow_schema(split_up.output_schema)
        )
        by_window = partials.repartition(partitions, "window_index")
        combined = by_window.mapInArrow(tasks.combining(split_up), from_arrow_schema(spec.output_schema))
        each = F.broadcast(spark.createDataFrame(windows))
        told = each.join(combined, "window_index", "inner" if query.group_by else "left")
    slots = {a.slot: _value(a) for a in query.aggregates}
    groups = (g.slot for g in query.group_by)
    valued = told.select(*about.column_names, *groups, *(c.alias(s) for s, c in slots.items()))
    if query.having:
        valued = valued.where(F.expr(query.having))
    outputs = (F.expr(o.expression).cast(SPARK_TYPES[o.type]).alias(o.name) for o in query.outputs)
    return valued.select(*_about(about), *outputs)


def aggregate_spec(query: Query) -> join_aggregate.Spec:
    """The operator's view of an aggregate query."""
    keys = _groups_of_keys(query)
    columns = [(j.slot, ARROW_TYPES[j.type]) for j in query.join_classes]
    columns += [(g.slot, ARROW_TYPES[g.type]) for g in query.group_by if g.slot not in keys]
    columns += [(a.slot, _measured_type(a)) for a in query.aggregates if a.alias is not None]
    sides = tuple(
        join_aggregate.Side(
            w.alias,
            tuple(j.slot for j in query.join_classes if any(alias == w.alias for alias, _ in j.columns)),
            tuple(g.slot for g in query.group_by if g.alias == w.alias and g.slot not in keys),
        )
        for w in query.windows
    )
    measures = tuple(join_aggregate.Measure(a.slot, a.function, a.alias) for a in query.aggregates)
    return join_aggregate.Spec(sides, measures, pa.schema(columns), tuple(keys.items()))


def _groups_of_keys(query: Query) -> dict[str, str]:
    """Group slot → class slot, for the groups that are join keys: the operator needs no column of theirs."""
    classes = {(column, join.type): join.slot for join in query.join_classes for column in join.columns}
    known = {g.slot: classes.get(((g.alias, g.column), g.type)) for g in query.group_by}
    return {slot: found for slot, found in known.items() if found is not None}


def _measured_type(aggregate: Aggregate) -> pa.DataType:
    """What the operator is given: doubles to add up, a flag to count, the value itself for an extreme."""
    if aggregate.function == "count":
        return pa.bool_()
    return pa.float64() if aggregate.function in ("sum", "avg") else ARROW_TYPES[aggregate.type]


def _side(query: Query, index: int, spec: join_aggregate.Spec, tuples: DataFrame) -> DataFrame:
    alias = query.windows[index].alias
    slots = _slots(query, alias)
    missing = {f.name: F.lit(None).cast(_spark_type(f.type)) for f in spec.input_schema if f.name not in slots}
    return tuples.select(
        F.lit(index).cast("tinyint").alias("side"),
        F.col("_event_us").alias("event_us"),
        F.col("_arrival_us").alias("arrival_us"),
        *((slots | missing)[f.name].alias(f.name) for f in spec.input_schema if f.name not in _KEYS),
    )


def _slots(query: Query, alias: str) -> dict[str, SparkColumn]:
    """Slot → value, for the slots that an alias fills, as Spark computes them."""
    counted = _counted(query)
    slots: dict[str, SparkColumn] = {}
    for slot, sql, kind in _asked(query, alias):
        if slot in counted:
            slots[slot] = F.when(F.expr(sql).isNotNull(), F.lit(True)).cast("boolean")
        elif slot is not None:
            slots[slot] = F.expr(sql).cast(_spark_type(kind))
    return slots


def _counted(query: Query) -> set[str]:
    """Slots of which it only matters whether there is a value."""
    return {aggregate.slot for aggregate in query.aggregates if aggregate.function == "count"}


def only_spark_computes(query: Query, schemas: Mapping[str, pa.Schema]) -> list[str]:
    """The expressions for which it must be Spark that reads the query's tuples; without any, one task reads the files.

    ``schemas``: stream → the tuples' columns.
    """
    return [
        sql
        for window in query.windows
        for _, sql, kind in _asked(query, window.alias)
        if as_arrow(sql, schemas[window.stream], kind) is None
    ]


def _scans(
    query: Query, schedule: Schedule, events: Mapping[str, DataFrame | scan.EventFiles]
) -> list[scan.Side] | None:
    """What one task that reads the files itself has to read, an entry an alias; None if it must be Spark that reads."""
    sides = []
    for index, window in enumerate(query.windows):
        files = events[window.stream]
        if not isinstance(files, scan.EventFiles):
            return None
        asked = _arrow_side(query, window.alias, files.schema)
        if asked is None:
            return None
        conditions, columns = asked
        kept = reduce(and_, conditions) if conditions else None
        bounds_us = _bounds_us(schedule, window.alias)
        sides.append(scan.Side(files, bounds_us, kept, columns, {"side": pa.scalar(index, pa.int8())}))
    return sides


def _arrow_side(
    query: Query, alias: str, schema: pa.Schema
) -> tuple[list[pc.Expression], dict[str, pc.Expression]] | None:
    """What an alias' tuples must satisfy, and their slots' values; None if pyarrow computes otherwise than Spark."""
    counted = _counted(query)
    conditions: list[pc.Expression] = []
    slots: dict[str, pc.Expression] = {}
    for slot, sql, kind in _asked(query, alias):
        value = as_arrow(sql, schema, kind)
        if value is None:
            return None
        if slot is None:
            conditions.append(value)
        else:
            slots[slot] = _true_or_null(value) if slot in counted else value
    return conditions, slots


def _asked(query: Query, alias: str) -> list[tuple[str | None, str, pa.DataType | None]]:
    """(slot, SQL, type) of all that is computed from an alias' tuples, by whomever; conditions have no slot."""
    asked: list[tuple[str | None, str, pa.DataType | None]] = []
    if query.predicates.get(alias):
        asked.append((None, query.predicates[alias], pa.bool_()))
    if query.kind == "top_k":
        asked += [(o.slot, o.expression, ARROW_TYPES[o.type]) for o in query.order_by]
        asked += [(f"p{i}", o.expression, ARROW_TYPES[o.type]) for i, o in enumerate(query.outputs)]
        return [*asked, ("event_id", "`event_id`", pa.string())]
    for join, own in zip(query.join_classes, _own_columns(query, alias), strict=True):
        asked += [(None, f"`{own[0]}` = `{other}`", pa.bool_()) for other in own[1:]]
        asked += [(join.slot, f"`{name}`", ARROW_TYPES[join.type]) for name in own[:1]]
    keys = _groups_of_keys(query)
    groups = [g for g in query.group_by if g.alias == alias and g.slot not in keys]
    asked += [(g.slot, f"`{g.column}`", ARROW_TYPES[g.type]) for g in groups]
    for aggregate in query.aggregates:
        if aggregate.expression is not None and aggregate.alias == alias:
            kind = None if aggregate.function == "count" else _measured_type(aggregate)
            asked.append((aggregate.slot, aggregate.expression, kind))
    return asked


def _own_columns(query: Query, alias: str) -> list[list[str]]:
    """Of each join class, the columns of the alias; the first one is the slot's, the others equal it."""
    return [[c for a, c in join.columns if a == alias] for join in query.join_classes]


def _true_or_null(value: pc.Expression) -> pc.Expression:
    return pc.if_else(pc.is_valid(value), pc.scalar(True), pc.scalar(pa.scalar(None, pa.bool_())))


def tuple_bytes(query: Query, alias: str) -> SparkColumn:
    """Bytes that a tuple of the alias' stream takes in the query's operator; 0 if the query's predicate refuses it.

    Arrow's layout, as the operators account for what they hold: fixed widths, strings with their length and an offset,
    a bit of validity a value.
    """
    if query.kind == "top_k":
        schema = top_k_spec(query, 1).input_schema
    else:
        schema = aggregate_spec(query).side_schema([w.alias for w in query.windows].index(alias))
    slots = _slots(query, alias)
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


def _spark_type(kind: pa.DataType):  # type: ignore[no-untyped-def]
    return from_arrow_schema(pa.schema([("value", kind)]))[0].dataType


def _told_schema(schema: pa.Schema, about: pa.Table):  # type: ignore[no-untyped-def]
    return from_arrow_schema(tasks.told_schema(schema, about.schema))


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
    spark: SparkSession,
    query: Query,
    schedule: Schedule,
    events: Mapping[str, DataFrame | scan.EventFiles],
    partitions: int,
    pane_us: int,
    about: pa.Table,
    peaks: object,
) -> DataFrame:
    window = query.windows[0]
    spec = top_k_spec(query, pane_us)
    scans = _top_k_scans(query, spec, schedule, events)
    if scans is not None:
        feed, finished = tasks.reading(scans, spec.input_schema), tasks.telling(about, False)
        through = tasks.through(top_k, spec, schedule, peaks, feed, finished)
        ranked = spark.range(0, 1, 1, 1).mapInArrow(through, _told_schema(spec.output_schema, about))
    else:
        tuples = _tuples(spark, query, window.alias, window.stream, schedule, events)
        slots = (column.alias(slot) for slot, column in _slots(query, window.alias).items())
        rows = tuples.select(F.col("_event_us").alias("event_us"), F.col("_arrival_us").alias("arrival_us"), *slots)
        spread = rows.repartition(partitions, "event_id").sortWithinPartitions("arrival_us")
        through = tasks.through(top_k, spec, schedule, peaks, join_aggregate.rebatched)
        partials = spread.mapInArrow(through, from_arrow_schema(spec.output_schema))
        terms = [F.desc_nulls_last(o.slot) if o.descending else F.asc_nulls_last(o.slot) for o in query.order_by]
        by_rank = Window.partitionBy("window_index", *spec.groups).orderBy(*terms, "event_us", "event_id")
        best = partials.withColumn("rank", F.row_number().over(by_rank).cast("bigint")).where(F.col("rank") <= spec.k)
        ranked = best.join(F.broadcast(spark.createDataFrame(about)), "window_index")
    named = (F.col(slot).alias(name) for slot, name in _top_k_columns(query))
    return ranked.select(*_about(about), *named)


def _about(about: pa.Table) -> list[SparkColumn]:
    """The columns that come along with an answer; the window's index by a name that no output can have."""
    return [F.col(name).alias("_window_index" if name == "window_index" else name) for name in about.column_names]


def _top_k_columns(query: Query) -> list[tuple[str, str]]:
    """Of the operator's columns, those that answers have, and by which names."""
    keys = ["rank", *([] if "event_id" in {o.name for o in query.outputs} else ["event_id"])]
    outputs = [(f"p{i}", o.name) for i, o in enumerate(query.outputs)]
    return [*((key, key) for key in keys), ("event_id", "_event_id"), ("arrival_us", "_arrival_us"), *outputs]


def _top_k_scans(
    query: Query, spec: top_k.Spec, schedule: Schedule, events: Mapping[str, DataFrame | scan.EventFiles]
) -> list[scan.Side] | None:
    scans = _scans(query, schedule, events)
    if scans is None or scans[0].files.kept_in is None:
        return scans
    sieve = Sieve.of(scans[0].files.kept_in, query.id, spec, _asked(query, query.windows[0].alias))
    return [replace(scans[0], sieve=sieve)]


def top_k_here(
    query: Query, schedule: Schedule, events: Mapping[str, DataFrame | scan.EventFiles], pane_us: int
) -> pa.Table | None:
    """A top-k query's answers (as ``answer`` gives them) by this process, if few tuples are to be read; None else.

    A job of Spark's costs more than they do.
    """
    spec = top_k_spec(query, pane_us)
    scans = _top_k_scans(query, spec, schedule, events)
    if scans is None or scans[0].rows_to_read() > _ROWS_READ_HERE:
        return None
    state, parts = top_k.start(spec, schedule), []
    for batch in scan.in_order_of_arrival(scans, spec.input_schema):
        state, partial = top_k.step(state, batch)
        parts.append(partial)
    answers = pa.concat_tables([*parts, top_k.finish(state)[1]])
    slots, names = zip(("window_index", "_window_index"), *_top_k_columns(query), strict=True)
    return answers.select(slots).rename_columns(names)


def top_k_spec(query: Query, pane_us: int) -> top_k.Spec:
    """The operator's view of a top-k query; its outputs travel as p0, p1 …, since names may clash with the keys.

    A group's values are those of the output that shows it.
    """
    assert query.limit is not None
    columns = [(o.slot, ARROW_TYPES[o.type]) for o in query.order_by]
    columns += [(f"p{i}", ARROW_TYPES[o.type]) for i, o in enumerate(query.outputs)]
    terms = tuple(top_k.Term(o.slot, o.descending) for o in query.order_by)
    slots = {o.name: f"p{i}" for i, o in enumerate(query.outputs)}
    groups = tuple(slots[name] for name in query.group_outputs if name is not None)
    return top_k.Spec(query.limit, terms, pa.schema(columns), pane_us, query.windows[0].alias, groups)
