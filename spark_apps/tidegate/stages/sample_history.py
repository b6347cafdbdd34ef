"""The tuples that enter history in an interval: exact aggregates of all, a sample of some.

A tuple enters once, at the first instant at which it has both arrived and left its window: the latest of its arrival,
its event time, and the first tick at which the effective lower bound of its stream's window lies beyond its event time.
It belongs to the leaf of its event time, however late it comes. It is sampled iff its priority u is below the fraction
at which its interval entered (``bands.initial_levels``) and below that at which a recorded pass holds the interval. So
a partition is a function of the tuples and the recorded passes, whenever and however often it is written.

Intervals are worked on in slices: by this process while there is one, else as tasks of one Spark job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import History, Stream
from tidegate.declarations.tables import TIMESTAMP, has_groups
from tidegate.engine import Slice
from tidegate.engine import run as run_slices
from tidegate.engine.context import RunContext, StageRun, previous_label
from tidegate.history.store import ROOM, recorded_fractions, samples_table, write_bands
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
from tidegate.store import parquet
from tidegate.store.intervals import Interval, interval_holding
from tidegate.store.places import place
from tidegate.store.warehouse import Warehouse

STAGE = "sample_history"
Result = TypeVar("Result")
# One process reads, hashes and adds up about a million tuples a second; the samples of a slice stay in its memory.
MOST_TUPLES_AT_ONCE = 20_000_000
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

    ``parts``: indices of those that are asked for. ``entered_at`` and ``held_at``, one an interval: the fraction at
    which its tuples enter, and the one in force.
    """

    stream: Stream
    bounds: EffectiveBounds
    tick_us: int
    from_us: int
    interval_us: int
    parts: range
    passes: tuple[Pass, ...]
    entered_at: Float64s | None = None
    held_at: Float64s | None = None

    def part(self, event_us: Int64s, arrival_us: Int64s) -> Int64s:
        """Index of the interval in which each tuple enters; −1 if in none of ``parts``."""
        leave_us = self.bounds.leave_tick_us(event_us, self.tick_us)
        part = (np.maximum(np.maximum(arrival_us, event_us), leave_us) - self.from_us) // self.interval_us
        return np.where((part >= self.parts.start) & (part < self.parts.stop), part, np.int64(-1))

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
        range(len(intervals)),
        recorded_passes(warehouse, stream.name),
    )
    slices = _slices(warehouse, entering, plans, intervals)
    history = _history(stream)
    aggregator = LeafAggregator(stream.numeric_columns, history.group_by)
    for partial in _run(context, aggregated, slices):
        aggregator.merge(partial)
    found = aggregator.to_arrow()
    tuples = np.zeros(len(intervals), np.int64)
    np.add.at(tuples, found.column("part").to_numpy(), found.column("tuples").to_numpy())
    entered_at, room = _entry_fractions(context, stream, intervals, tuples)
    recorded = recorded_fractions(warehouse, stream.name)
    held_at = np.minimum(entered_at, [recorded.get(interval.start_us, np.inf) for interval in intervals])
    entering = replace(entering, entered_at=entered_at, held_at=held_at)

    _put_samples(context, stage, entering, slices, intervals)
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
            starts = instants_us(parquet.opened(file).read(columns=["leaf_start"]).column("leaf_start"))
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


@dataclass(frozen=True, eq=False)
class _Slice:
    """Some of the intervals, and the files of all tuples that may enter in them.

    ``to``: where their samples go, of the schema ``samples``, in files of ``run``.
    """

    paths: tuple[str, ...]
    schema: pa.Schema
    entering: Entering
    samples: pa.Schema | None = None
    to: tuple[str, ...] = ()
    run: str = ""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The tuples as the files have them."""
        if self.paths:
            yield from parquet.dataset(self.paths, self.schema).to_batches(batch_size=_BATCH_ROWS)


def _slices(
    warehouse: Warehouse, entering: Entering, plans: PlanHistory, intervals: Sequence[Interval]
) -> list[_Slice]:
    """The intervals, as many in a slice as one process can read at once, at least one.

    What had arrived before, and was still in its window at the last tick before a slice, may enter in it.
    """
    stream, table = entering.stream, f"events_{entering.stream.name}"
    rows = {label: warehouse.rows(table, label) for label in warehouse.labels(table)}

    def labels(first: int, last: int) -> list[str]:
        last_tick_us = (intervals[first].start_us - 1) // entering.tick_us * entering.tick_us
        lower_us = int(plans.lower_us(stream.name, np.array([last_tick_us]))[0]) - stream.max_early_s * 1_000_000
        oldest = interval_holding(warehouse.pipeline, min(lower_us, intervals[first].start_us)).label
        return [label for label in rows if oldest <= label <= intervals[last - 1].label]

    cuts = [0]
    for last in range(2, len(intervals) + 1):
        if sum(rows[label] for label in labels(cuts[-1], last)) > MOST_TUPLES_AT_ONCE:
            cuts.append(last - 1)
    return [
        _Slice(
            warehouse.files(table, labels(first, last)),
            warehouse.schema(table),
            replace(entering, parts=range(first, last)),
        )
        for first, last in zip(cuts, [*cuts[1:], len(intervals)], strict=True)
    ]


def aggregated(one: Slice) -> pa.Table:
    """The partial aggregates of the tuples that enter in a slice's intervals."""
    part: _Slice = one.of
    schema = partial_schema(part.entering.stream.numeric_columns)
    return pa.Table.from_batches(list(_aggregate(part.entering)(part.batches())), schema=schema)


def write_samples(one: Slice) -> None:
    """Write the samples of a slice's intervals, a file a band. **Memory**: the samples."""
    part: _Slice = one.of
    assert part.samples is not None
    bands, placed = Bands.of(_history(part.entering.stream)), _with_place(part.samples)
    found = pa.Table.from_batches(list(_sample(part.entering, part.samples)(part.batches())), schema=placed)
    entered = found.column("_part").to_numpy()
    for index, folder in zip(part.entering.parts, part.to, strict=True):
        own = found.filter(pa.array(entered == index)).select(part.samples.names)
        write_bands(own, bands, place(folder), part.run)


def _put_samples(
    context: RunContext, stage: StageRun, entering: Entering, slices: Sequence[_Slice], intervals: Sequence[Interval]
) -> None:
    """Replace the intervals' partitions by the samples that enter in them."""
    table, commit = samples_table(entering.stream.name), stage.commit
    schema = context.warehouse.schema(table)
    to = tuple(str(commit.stage_folder(table, interval.label)) for interval in intervals)
    asked = []
    for one in slices:
        parts = one.entering.parts
        own = replace(entering, parts=parts)
        asked.append(replace(one, entering=own, samples=schema, to=to[parts.start : parts.stop], run=commit.id))
    _run(context, write_samples, asked)
    for interval in intervals:
        if not commit.written(table, interval.label):
            commit.put_arrow(table, interval, schema.empty_table())


def _run(context: RunContext, work: Callable[[Slice], Result], slices: Sequence[_Slice]) -> list[Result]:
    return run_slices([Slice(number, one) for number, one in enumerate(slices)], work, lambda: context.spark)


BatchMap = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


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


if __name__ == "__main__":
    launch(STAGE, run)
