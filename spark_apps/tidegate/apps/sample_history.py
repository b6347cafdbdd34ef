"""The tuples that enter history in an interval: exact aggregates of all, a sample of some.

A tuple enters once, at the first instant at which it has both arrived and left its window: the latest of its arrival,
its event time, and the first tick at which the effective lower bound of its stream's window lies beyond its event time.
It belongs to the leaf of its event time, however late it comes. It is sampled iff its priority u is below f_max and
below the fraction at which every recorded pass (``history_passes``) holds its leaf. So a partition is a function of the
tuples and the recorded passes, whenever and however often it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.apps.launcher import launch
from tidegate.apps.resample_history import recorded_passes
from tidegate.declarations.models import History, Stream
from tidegate.declarations.tables import TIMESTAMP
from tidegate.hosts.context import RunContext, StageRun
from tidegate.hosts.intervals import Interval, interval_holding
from tidegate.hosts.plans import PlanHistory
from tidegate.operators.history.leaves import LeafAggregator, partial_schema
from tidegate.operators.history.priority import priority
from tidegate.operators.history.thinning import Float64s, Int64s, Pass, instants_us, relabel_rows, thin
from tidegate.operators.window_sizing.bounds import EffectiveBounds

STAGE = "sample_history"


def run(context: RunContext, intervals: Sequence[Interval]) -> None:
    """Write ``history_leaves`` and ``history_samples_<stream>`` for consecutive intervals."""
    streams = [s for s in context.pipeline.streams if s.history is not None]
    with context.stage(STAGE, intervals) as stage:
        if not streams:
            return
        for stream in streams:
            context.warehouse.require(f"events_{stream.name}", [i.label for i in intervals], "ingest")
        plans = PlanHistory.load(context.warehouse, intervals[0].start_us)
        leaves = [_sample_stream(context, stage, stream, plans, intervals) for stream in streams]
        rows = pa.concat_tables(leaves)
        for interval in intervals:
            own = rows.filter(pc.equal(rows.column("interval"), interval.label))
            stage.commit.put_arrow("history_leaves", interval, own)
            stage.record(
                interval,
                rows_in=pc.sum(own.column("tuples")).as_py() or 0,
                rows_out=pc.sum(own.column("sampled")).as_py() or 0,
            )


@dataclass(frozen=True, eq=False)
class Entering:
    """Which tuples of a stream enter history in which of consecutive intervals, in which leaf, sampled or not."""

    stream: Stream
    bounds: EffectiveBounds
    tick_us: int
    from_us: int
    interval_us: int
    count: int
    passes: tuple[Pass, ...]

    def part(self, event_us: Int64s, arrival_us: Int64s) -> Int64s:
        """Index of the interval in which each tuple enters; −1 if in none of them."""
        leave_us = self.bounds.leave_tick_us(event_us, self.tick_us)
        part = (np.maximum(np.maximum(arrival_us, event_us), leave_us) - self.from_us) // self.interval_us
        return np.where((part >= 0) & (part < self.count), part, np.int64(-1))

    def leaf_start_us(self, event_us: Int64s) -> Int64s:
        """Start of each tuple's leaf before any pass."""
        leaf_us = _history(self.stream).leaf_s * 1_000_000
        return event_us // leaf_us * leaf_us

    def held(self, leaf_start_us: Int64s) -> tuple[Int64s, Float64s]:
        """Start and fraction of the leaf that each first leaf belongs to after all recorded passes."""
        history = _history(self.stream)
        first, leaf_of_row = np.unique(leaf_start_us, return_inverse=True)
        start, end = first, first + history.leaf_s * 1_000_000
        fraction = np.full(len(first), history.max_fraction)
        for decided in self.passes:
            start, end, fraction = decided.relabel(start, end, fraction)
        return start[leaf_of_row], fraction[leaf_of_row]

    def sampled(self, event_ids: pa.Array, leaf_start_us: Int64s) -> tuple[npt.NDArray[np.bool_], Float64s]:
        """Which tuples the sample keeps, and the priorities of all."""
        u = priority(self.stream.name, event_ids, _history(self.stream).seed)
        return thin(u, self.held(leaf_start_us)[1]), u


def _history(stream: Stream) -> History:
    assert stream.history is not None
    return stream.history


def _sample_stream(
    context: RunContext, stage: StageRun, stream: Stream, plans: PlanHistory, intervals: Sequence[Interval]
) -> pa.Table:
    """Write one stream's samples; return its rows of ``history_leaves`` with ``interval``."""
    pipeline, warehouse = context.pipeline, context.warehouse
    tick_us = pipeline.tick_s * 1_000_000
    entering = Entering(
        stream,
        plans.bounds[stream.name],
        tick_us,
        intervals[0].start_us,
        pipeline.interval_s * 1_000_000,
        len(intervals),
        recorded_passes(warehouse, stream.name),
    )
    # What had arrived before and was still in its window at the last tick before the range may enter now.
    last_tick_us = (intervals[0].start_us - 1) // tick_us * tick_us
    lower_us = int(plans.lower_us(stream.name, np.array([last_tick_us]))[0])
    oldest = interval_holding(pipeline, min(lower_us - stream.max_early_s * 1_000_000, intervals[0].start_us)).label
    table = f"events_{stream.name}"
    labels = [label for label in warehouse.labels(table) if oldest <= label <= intervals[-1].label]
    events = warehouse.read_spark(context.spark, table, labels)

    columns = list(dict.fromkeys(["event_id", "event_time", "arrival_time", *stream.numeric_columns]))
    partials = events.select(*(f"`{c}`" for c in columns)).mapInArrow(
        _aggregate(entering), _spark_schema(partial_schema(stream.numeric_columns))
    )
    aggregator = LeafAggregator(stream.numeric_columns)
    aggregator.merge(partials.toArrow())

    names = warehouse.schema(f"history_samples_{stream.name}")
    samples = events.drop("interval").mapInArrow(
        _sample(entering, names, [i.label for i in intervals]),
        _spark_schema(names.append(pa.field("interval", pa.string()))),
    )
    stage.commit.put_spark(f"history_samples_{stream.name}", samples, intervals, ["leaf_start", "u", "event_id"])
    return leaf_rows(aggregator, entering, [i.label for i in intervals], warehouse.schema("history_leaves"))


def leaf_rows(aggregator: LeafAggregator, entering: Entering, labels: Sequence[str], schema: pa.Schema) -> pa.Table:
    """The aggregated leaves as rows of ``history_leaves`` with ``interval``, after all recorded passes."""
    history = _history(entering.stream)
    found = aggregator.to_arrow()
    start_us = found.column("leaf_start_us").to_numpy()
    given = {
        "stream": pa.repeat(pa.scalar(entering.stream.name), found.num_rows),
        "leaf_start": pa.array(start_us).cast(TIMESTAMP),
        "leaf_end": pa.array(start_us + history.leaf_s * 1_000_000).cast(TIMESTAMP),
        "fraction": pa.repeat(pa.scalar(history.max_fraction), found.num_rows),
    }
    columns = {}
    for field in schema:
        if field.name in given:
            columns[field.name] = given[field.name]
        elif field.name in found.schema.names:
            columns[field.name] = found.column(field.name)
        else:
            columns[field.name] = pa.nulls(found.num_rows, field.type)
    columns["interval"] = pa.array(np.array(labels, dtype=object)[found.column("part").to_numpy()], pa.string())
    rows = pa.table(columns, schema=schema.append(pa.field("interval", pa.string())))
    for decided in entering.passes:
        rows = relabel_rows(rows, decided)
    return rows


BatchMap = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _aggregate(entering: Entering) -> BatchMap:
    """Exact aggregates of the entering tuples of a Spark partition, all leaves in one small batch."""

    def aggregate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns = entering.stream.numeric_columns
        aggregator = LeafAggregator(columns)
        for batch in batches:
            part, entered = _entered(entering, batch)
            leaf_start_us = entering.leaf_start_us(instants_us(entered.column("event_time")))
            kept, _ = entering.sampled(entered.column("event_id"), leaf_start_us)
            aggregator.add(part, leaf_start_us, kept, {c: entered.column(c) for c in columns})
        yield from aggregator.partials().to_batches()

    return aggregate


def _sample(entering: Entering, schema: pa.Schema, labels: Sequence[str]) -> BatchMap:
    """The sampled tuples, batch by batch, with priority, fraction, weight and the interval in which they entered."""

    def sample(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = np.array(labels, dtype=object)
        for batch in batches:
            part, entered = _entered(entering, batch)
            leaf_start_us = entering.leaf_start_us(instants_us(entered.column("event_time")))
            kept, u = entering.sampled(entered.column("event_id"), leaf_start_us)
            start_us, fraction = entering.held(leaf_start_us[kept])
            tuples = entered.filter(pa.array(kept))
            own = {
                "leaf_start": pa.array(start_us).cast(TIMESTAMP),
                "u": pa.array(u[kept]),
                "fraction": pa.array(fraction),
                "weight": pa.array(1 / fraction),
                "interval": pa.array(names[part[kept]], pa.string()),
            }
            wanted = schema.append(pa.field("interval", pa.string()))
            yield pa.RecordBatch.from_arrays(
                [own[f.name] if f.name in own else tuples.column(f.name).cast(f.type) for f in wanted], schema=wanted
            )

    return sample


def _entered(entering: Entering, batch: pa.RecordBatch) -> tuple[Int64s, pa.RecordBatch]:
    part = entering.part(instants_us(batch.column("event_time")), instants_us(batch.column("arrival_time")))
    return part[part >= 0], batch.filter(pa.array(part >= 0))


def _spark_schema(schema: pa.Schema):  # type: ignore[no-untyped-def]
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


if __name__ == "__main__":
    launch(STAGE, run)
