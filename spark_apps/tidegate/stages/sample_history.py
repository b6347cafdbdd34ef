"""The tuples that enter history in an interval: exact aggregates of all, a sample of some.

A tuple enters once, at the first instant at which it has both arrived and left its window: the latest of its arrival,
its event time, and the first tick at which the effective lower bound of its stream's window lies beyond its event time.
It belongs to the leaf of its event time, however late it comes. It is sampled iff its priority u is below the fraction
at which its interval entered (``bands.initial_levels``) and below that at which a recorded pass holds the interval. So
a partition is a function of the tuples and the recorded passes, whenever and however often it is written.

Where the declared rates let one process keep up it reads the tuples from their files itself; beyond, Spark does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tidegate.declarations.models import History, Stream
from tidegate.declarations.tables import TIMESTAMP, has_groups
from tidegate.engine.context import RunContext, StageRun, previous_label
from tidegate.history.store import ROOM, SAMPLE_ORDER, put_bands, recorded_fractions, samples_table
from tidegate.operators.history.bands import Bands, initial_levels, room_between_passes
from tidegate.operators.history.laws import Float64s, Int64s
from tidegate.operators.history.leaves import LeafAggregator, partial_schema
from tidegate.operators.history.priority import priority
from tidegate.operators.history.thinning import (
    GROUP_KEYS,
    LEAF_KEYS,
    Pass,
    relabel_rows,
    thin,
)
from tidegate.operators.schedule import instants_us
from tidegate.operators.window_sizing.bounds import EffectiveBounds
from tidegate.queries.plans import PlanHistory
from tidegate.stages.launcher import launch
from tidegate.stages.resample_history import DAY_US, recorded_passes
from tidegate.store.intervals import Interval, interval_holding

STAGE = "sample_history"
# One process reads, hashes and adds up about a million tuples a second; the samples of a run stay in its memory.
MOST_TUPLES_READ_HERE = 20_000_000
_BATCH_ROWS = 1 << 17

_ROOM_SCHEMA = pa.schema(
    [("stream", pa.string()), ("entered", pa.int64()), ("today", pa.int64()), ("room", pa.float64())]
)


def run(context: RunContext, intervals: Sequence[Interval]) -> None:
    """Write ``history_leaves``, ``history_groups`` and ``history_samples_<stream>`` for consecutive intervals."""
    streams = [s for s in context.pipeline.streams if s.history is not None]
    with context.stage(STAGE, intervals) as stage:
        if not streams:
            return
        for stream in streams:
            context.warehouse.require(f"events_{stream.name}", [i.label for i in intervals], "ingest")
        plans = PlanHistory.load(context.warehouse, intervals[0].start_us)
        written = [_sample_stream(context, stage, stream, plans, intervals) for stream in streams]
        # In the order in which a pass writes them, so that a partition's bytes do not tell who wrote it last.
        leaves = _sorted([part.leaves for part in written], LEAF_KEYS)
        groups = _sorted([part.groups for part in written], GROUP_KEYS) if has_groups(context.pipeline) else None
        for index, interval in enumerate(intervals):
            own = leaves.filter(pc.equal(leaves.column("interval"), interval.label))
            stage.commit.put_arrow("history_leaves", interval, own)
            if groups is not None:
                of_it = groups.filter(pc.equal(groups.column("interval"), interval.label))
                stage.commit.put_arrow("history_groups", interval, of_it)
            rooms = [part.room[index] for part in written]
            stage.commit.put_state(ROOM, interval, pa.Table.from_pylist(rooms, schema=_ROOM_SCHEMA))
            stage.record(
                interval,
                rows_in=pc.sum(own.column("tuples")).as_py() or 0,
                rows_out=pc.sum(own.column("sampled")).as_py() or 0,
            )


def _sorted(parts: Sequence[pa.Table], keys: Sequence[str]) -> pa.Table:
    return pa.concat_tables(parts).sort_by([(key, "ascending") for key in keys])


@dataclass(frozen=True, eq=False)
class Entering:
    """Which tuples of a stream enter history in which of consecutive intervals, in which leaf, sampled or not.

    ``entered_at`` and ``held_at``, one an interval: the fraction at which its tuples enter, and the one in force.
    """

    stream: Stream
    bounds: EffectiveBounds
    tick_us: int
    from_us: int
    interval_us: int
    count: int
    passes: tuple[Pass, ...]
    entered_at: Float64s | None = None
    held_at: Float64s | None = None

    def part(self, event_us: Int64s, arrival_us: Int64s) -> Int64s:
        """Index of the interval in which each tuple enters; −1 if in none of them."""
        leave_us = self.bounds.leave_tick_us(event_us, self.tick_us)
        part = (np.maximum(np.maximum(arrival_us, event_us), leave_us) - self.from_us) // self.interval_us
        return np.where((part >= 0) & (part < self.count), part, np.int64(-1))

    def leaf_start_us(self, event_us: Int64s) -> Int64s:
        """Start of each tuple's leaf before any pass."""
        leaf_us = _history(self.stream).leaf_s * 1_000_000
        return event_us // leaf_us * leaf_us

    def sampled(self, event_ids: pa.Array, part: Int64s) -> tuple[npt.NDArray[np.bool_], Float64s]:
        """Which tuples the sample keeps, and the priorities of all."""
        assert self.held_at is not None
        u = priority(self.stream.name, event_ids, _history(self.stream).seed)
        return thin(u, self.held_at[part]), u


def _history(stream: Stream) -> History:
    assert stream.history is not None
    return stream.history


@dataclass(frozen=True, eq=False)
class _Written:
    """A stream's rows of ``history_leaves`` and ``history_groups``, and what each interval leaves of the room."""

    leaves: pa.Table
    groups: pa.Table
    room: list[dict[str, object]]


def _sample_stream(
    context: RunContext, stage: StageRun, stream: Stream, plans: PlanHistory, intervals: Sequence[Interval]
) -> _Written:
    """Write one stream's samples, then say what its leaves are."""
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
    few = stream.rate * pipeline.interval_s * len(labels) <= MOST_TUPLES_READ_HERE
    source: _Here | _Spark = _Here(context, table, labels) if few else _Spark(context, table, labels)

    history = _history(stream)
    aggregator = LeafAggregator(stream.numeric_columns, history.group_by)
    aggregator.merge(source.aggregated(entering))
    found = aggregator.to_arrow()
    tuples = np.zeros(len(intervals), np.int64)
    np.add.at(tuples, found.column("part").to_numpy(), found.column("tuples").to_numpy())
    entered_at, room = _entry_fractions(context, stream, intervals, tuples)
    recorded = recorded_fractions(warehouse, stream.name)
    held_at = np.minimum(entered_at, [recorded.get(interval.start_us, np.inf) for interval in intervals])
    entering = replace(entering, entered_at=entered_at, held_at=held_at)

    source.write_samples(stage, entering, intervals, Bands.of(history))
    sampled = _sampled_counts(stage, stream, intervals)
    labels_of = [i.label for i in intervals]
    leaves = leaf_rows(found, sampled, entering, labels_of, warehouse.schema("history_leaves"))
    groups = None
    if has_groups(pipeline):
        grouped = aggregator.to_arrow(grouped=True)
        groups = leaf_rows(grouped, {}, entering, labels_of, warehouse.schema("history_groups"), GROUP_KEYS)
    return _Written(leaves, groups, room)


def _entry_fractions(
    context: RunContext, stream: Stream, intervals: Sequence[Interval], tuples: Int64s
) -> tuple[Float64s, list[dict[str, object]]]:
    """The fraction at which each interval's tuples enter, and the room that it leaves to those after it."""
    spec, bands = _history(stream), Bands.of(_history(stream))
    before = context.warehouse.read_state(ROOM, previous_label(context.pipeline, intervals[0]))
    rows = [] if before is None else [r for r in before.to_pylist() if r["stream"] == stream.name]
    entered, today = (rows[0][name] if rows else 0 for name in ("entered", "today"))
    room = rows[0]["room"] if rows else room_between_passes(spec, 0, 0)
    fractions, rooms = np.zeros(len(intervals)), []
    for index, interval in enumerate(intervals):
        if interval.start_us % DAY_US == 0:
            room, today = room_between_passes(spec, entered, today), 0
        left = -(-(DAY_US - interval.start_us % DAY_US) // (interval.end_us - interval.start_us))
        level, after = initial_levels(tuples[index : index + 1], room, np.array([left]), bands)
        fractions[index], room = bands.fractions[level[0]], float(after[0])
        entered, today = entered + int(tuples[index]), today + int(tuples[index])
        rooms.append({"stream": stream.name, "entered": entered, "today": today, "room": room})
    return fractions, rooms


def _sampled_counts(stage: StageRun, stream: Stream, intervals: Sequence[Interval]) -> dict[tuple[int, int], int]:
    """(Index of the interval, start of the leaf) → sampled tuples, from the files that were written."""
    found: dict[tuple[int, int], int] = {}
    for index, interval in enumerate(intervals):
        for file in stage.commit.written(samples_table(stream.name), interval.label):
            starts = instants_us(pq.ParquetFile(file).read(columns=["leaf_start"]).column("leaf_start"))
            for start, count in zip(*(a.tolist() for a in np.unique(starts, return_counts=True)), strict=True):
                found[index, start] = found.get((index, start), 0) + count
    return found


def leaf_rows(
    found: pa.Table,
    sampled: dict[tuple[int, int], int],
    entering: Entering,
    labels: Sequence[str],
    schema: pa.Schema,
    keys: tuple[str, ...] = LEAF_KEYS,
) -> pa.Table:
    """The aggregated leaves as rows of ``history_leaves`` with ``interval``, after all recorded passes."""
    assert entering.held_at is not None
    history = _history(entering.stream)
    start_us, part = found.column("leaf_start_us").to_numpy(), found.column("part").to_numpy()
    kept = [sampled.get(key, 0) for key in zip(part.tolist(), start_us.tolist(), strict=True)]
    given = {
        "stream": pa.repeat(pa.scalar(entering.stream.name), found.num_rows),
        "leaf_start": pa.array(start_us).cast(TIMESTAMP),
        "leaf_end": pa.array(start_us + history.leaf_s * 1_000_000).cast(TIMESTAMP),
        "sampled": pa.array(kept, pa.int64()),
        "fraction": pa.array(entering.held_at[part]),
    }
    columns = {}
    for field in schema:
        if field.name in given:
            columns[field.name] = given[field.name]
        elif field.name in found.schema.names:
            columns[field.name] = found.column(field.name)
        else:
            columns[field.name] = pa.nulls(found.num_rows, field.type)
    columns["interval"] = pa.array(np.array(labels, dtype=object)[part], pa.string())
    rows = pa.table(columns, schema=schema.append(pa.field("interval", pa.string())))
    for decided in entering.passes:
        rows = relabel_rows(rows, decided, keys)
    return rows


BatchMap = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class _Here:
    """The tuples read by this process, batch by batch, from the files of the named partitions."""

    context: RunContext
    table: str
    labels: Sequence[str]

    def _batches(self) -> Iterator[pa.RecordBatch]:
        files = self.context.warehouse.files(self.table, self.labels)
        if files:
            source = ds.dataset(list(files), schema=self.context.warehouse.schema(self.table), format="parquet")
            yield from source.to_batches(batch_size=_BATCH_ROWS)

    def aggregated(self, entering: Entering) -> pa.Table:
        """The partial aggregates of the tuples that enter."""
        schema = partial_schema(entering.stream.numeric_columns)
        return pa.Table.from_batches(list(_aggregate(entering)(self._batches())), schema=schema)

    def write_samples(self, stage: StageRun, entering: Entering, intervals: Sequence[Interval], bands: Bands) -> None:
        """Write the samples, a file a band."""
        table = samples_table(entering.stream.name)
        schema = self.context.warehouse.schema(table)
        found = pa.Table.from_batches(list(_sample(entering, schema)(self._batches())), schema=_with_place(schema))
        part = found.column("_part").to_numpy()
        for index, interval in enumerate(intervals):
            put_bands(stage.commit, table, interval, found.filter(pa.array(part == index)), bands)


@dataclass(frozen=True)
class _Spark:
    """The same, by Spark."""

    context: RunContext
    table: str
    labels: Sequence[str]

    def aggregated(self, entering: Entering) -> pa.Table:
        """The partial aggregates of the tuples that enter."""
        stream = entering.stream
        names = [*_history(stream).group_by, *stream.numeric_columns]
        columns = list(dict.fromkeys(["event_time", "arrival_time", *names]))
        events = self.context.warehouse.read_spark(self.context.spark, self.table, self.labels)
        partials = events.select(*(f"`{c}`" for c in columns)).mapInArrow(
            _aggregate(entering), _spark_schema(partial_schema(stream.numeric_columns))
        )
        return partials.toArrow()

    def write_samples(self, stage: StageRun, entering: Entering, intervals: Sequence[Interval], bands: Bands) -> None:
        """Write the samples, a file a band."""
        table = samples_table(entering.stream.name)
        schema = self.context.warehouse.schema(table)
        events = self.context.warehouse.read_spark(self.context.spark, self.table, self.labels).drop("interval")
        labels = [i.label for i in intervals]
        placed = pa.schema([*schema, ("interval", pa.string()), ("_band", pa.int64())])

        def sample(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            names = np.array(labels, dtype=object)
            for batch in _sample(entering, schema)(batches):
                place = {
                    "interval": pa.array(names[batch.column("_part").to_numpy()], pa.string()),
                    "_band": pa.array(bands.of_priority(batch.column("u").to_numpy())),
                }
                yield pa.RecordBatch.from_arrays(
                    [place[f.name] if f.name in place else batch.column(f.name) for f in placed], schema=placed
                )

        frame = events.mapInArrow(sample, _spark_schema(placed))
        stage.commit.put_spark(table, frame, intervals, list(SAMPLE_ORDER), files_by="_band")


def _aggregate(entering: Entering) -> BatchMap:
    """Exact aggregates of the entering tuples of some batches, all leaves in one small batch."""

    def aggregate(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stream = entering.stream
        aggregator = LeafAggregator(stream.numeric_columns, _history(stream).group_by)
        for batch in batches:
            part, entered = _entered(entering, batch)
            event_us = instants_us(entered.column("event_time"))
            values = {name: entered.column(name) for name in (*aggregator.columns, *aggregator.group_by)}
            aggregator.add(part, entering.leaf_start_us(event_us), event_us, values)
        yield from aggregator.partials().to_batches()

    return aggregate


def _with_place(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field("_part", pa.int64()))  # no declared column begins with an underscore


def _sample(entering: Entering, schema: pa.Schema) -> BatchMap:
    """The sampled tuples, batch by batch, with priority, fraction, weight, and the part in which they entered."""

    def sample(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert entering.entered_at is not None
        for batch in batches:
            part, entered = _entered(entering, batch)
            kept, u = entering.sampled(entered.column("event_id"), part)
            tuples = entered.filter(pa.array(kept))
            fraction = entering.entered_at[part[kept]]
            own = {
                "leaf_start": pa.array(entering.leaf_start_us(instants_us(tuples.column("event_time")))).cast(
                    TIMESTAMP
                ),
                "u": pa.array(u[kept]),
                "fraction": pa.array(fraction),
                "weight": pa.array(1 / fraction),
                "_part": pa.array(part[kept]),
            }
            wanted = _with_place(schema)
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
