"""The tuples that enter history in an interval: exact aggregates of all, a sample of some.

A tuple enters once, at the first instant at which it has both arrived and left its window: the latest of its arrival,
its event time, and the first tick at which the effective lower bound of its stream's window lies beyond its event time.
It belongs to the leaf of its event time, however late it comes. It is sampled iff its priority u is below the fraction
at which its interval entered (``bands.initial_levels``) and below that at which a recorded pass holds the interval. So
a partition is a function of the tuples and the recorded passes, whenever and however often it is written.

Three jobs of slices: exact aggregates of what enters, from which the fractions follow; the samples of each slice's
files; each interval's samples in order, a file a band.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import History, Stream
from tidegate.declarations.tables import has_groups
from tidegate.engine import Slice
from tidegate.engine.context import RunContext, StageRun, previous_label
from tidegate.history.store import ROOM, put_bands, recorded_fractions, samples_table
from tidegate.operators.history.bands import Bands, initial_levels, room_between_passes
from tidegate.operators.history.laws import Float64s, Int64s
from tidegate.operators.history.leaves import LeafAggregator
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
from tidegate.queries.scan import EventFiles
from tidegate.queries.slices import ROWS_OF_A_SLICE, Staged
from tidegate.stages.launcher import launch
from tidegate.stages.resample_history import DAY_US, recorded_passes
from tidegate.store.intervals import Interval
from tidegate.store.places import mapped, output, place
from tidegate.values.types import TIMESTAMP

STAGE = "sample_history"
_PART = "_part"  # no declared column begins with an underscore
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
        sources = [_source(context, stream, plans, intervals) for stream in streams]
        decided = [
            _decided(context, source, aggregator, intervals)
            for source, aggregator in zip(sources, _added_up(context, sources), strict=True)
        ]
        sampled = _write_samples(context, stage, decided, intervals)
        written = [_written(context, one, counts, intervals) for one, counts in zip(decided, sampled, strict=True)]
        # In the order in which a pass writes them, so that a partition's bytes do not tell who wrote it last.
        leaves = _sorted([leaves for leaves, _ in written], LEAF_KEYS)
        groups = _sorted([groups for _, groups in written], GROUP_KEYS) if has_groups(context.pipeline) else None
        for index, interval in enumerate(intervals):
            own = leaves.filter(pc.equal(leaves.column("interval"), interval.label))
            stage.commit.put_arrow("history_leaves", interval, own)
            if groups is not None:
                of_it = groups.filter(pc.equal(groups.column("interval"), interval.label))
                stage.commit.put_arrow("history_groups", interval, of_it)
            rooms = [one.room[index] for one in decided]
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

    @property
    def history(self) -> History:
        """The stream's settings."""
        assert self.stream.history is not None
        return self.stream.history

    def part(self, event_us: Int64s, arrival_us: Int64s) -> Int64s:
        """Index of the interval in which each tuple enters; −1 if in none of them."""
        leave_us = self.bounds.leave_tick_us(event_us, self.tick_us)
        part = (np.maximum(np.maximum(arrival_us, event_us), leave_us) - self.from_us) // self.interval_us
        return np.where((part >= 0) & (part < self.count), part, np.int64(-1))

    def leaf_start_us(self, event_us: Int64s) -> Int64s:
        """Start of each tuple's leaf before any pass."""
        leaf_us = self.history.leaf_s * 1_000_000
        return event_us // leaf_us * leaf_us

    def sampled(self, event_ids: pa.Array, part: Int64s) -> tuple[npt.NDArray[np.bool_], Float64s]:
        """Which tuples the sample keeps, and the priorities of all."""
        assert self.held_at is not None
        u = priority(self.stream.name, event_ids, self.history.seed)
        return thin(u, self.held_at[part]), u


@dataclass(frozen=True)
class Source:
    """A stream's tuples that may enter in the intervals, and which do."""

    entering: Entering
    events: EventFiles


@dataclass(frozen=True, eq=False)
class Decided(Source):
    """The same once it is known how many enter: their exact aggregates, and what each interval leaves of the room."""

    aggregator: LeafAggregator
    room: list[dict[str, object]]


def _source(context: RunContext, stream: Stream, plans: PlanHistory, intervals: Sequence[Interval]) -> Source:
    """Where the tuples are that may enter in the intervals."""
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
    lower_us = min(lower_us, intervals[0].start_us + stream.max_early_s * 1_000_000)
    labels = warehouse.labels(f"events_{stream.name}")
    return Source(entering, EventFiles.between(warehouse, stream, labels, lower_us, intervals[-1].end_us - 1))


def _added_up(context: RunContext, sources: Sequence[Source]) -> list[LeafAggregator]:
    """The exact aggregates of the tuples of each source that enter."""
    found = [LeafAggregator(s.entering.stream.numeric_columns, s.entering.history.group_by) for s in sources]
    parts = [(owner, part) for owner, s in enumerate(sources) for part in _cut(s)]
    rows = sum(source.events.rows() for source in sources)
    done = context.run_slices(added_up, [part for _, part in parts], rows)
    for (owner, _), partials in zip(parts, done, strict=True):
        found[owner].merge(partials)
    return found


def _cut(source: Source) -> list[Source]:
    return [Source(source.entering, events) for events in source.events.cut(ROWS_OF_A_SLICE)]


def _decided(context: RunContext, source: Source, aggregator: LeafAggregator, intervals: Sequence[Interval]) -> Decided:
    """Decide the fractions at which the intervals' tuples enter, and are held."""
    stream = source.entering.stream
    found = aggregator.to_arrow()
    tuples = np.zeros(len(intervals), np.int64)
    np.add.at(tuples, found.column("part").to_numpy(), found.column("tuples").to_numpy())
    entered_at, room = _entry_fractions(context, stream, intervals, tuples)
    recorded = recorded_fractions(context.warehouse, stream.name)
    held_at = np.minimum(entered_at, [recorded.get(interval.start_us, np.inf) for interval in intervals])
    entering = replace(source.entering, entered_at=entered_at, held_at=held_at)
    return Decided(entering, source.events, aggregator, room)


def _write_samples(
    context: RunContext, stage: StageRun, sources: Sequence[Source], intervals: Sequence[Interval]
) -> list[LeafCounts]:
    """Write the samples of each source; how many there are by leaf.

    First every slice keeps what it samples, then each interval's are put together and sorted.
    """
    folder = stage.commit.scratch / "samples"
    folder.mkdir()
    sampling = [
        (owner, Sampling(part, context.warehouse.schema(samples_table(part.entering.stream.name)), str(folder)))
        for owner, source in enumerate(sources)
        for part in _cut(source)
    ]
    rows = sum(source.events.rows() for source in sources)
    kept = context.run_slices(sampled, [part for _, part in sampling], rows)
    found: list[LeafCounts] = []
    banding: list[tuple[int, Banding]] = []
    tables = [Staged(stage.commit, samples_table(s.entering.stream.name), intervals) for s in sources]
    for owner, (source, table) in enumerate(zip(sources, tables, strict=True)):
        own = [one for (of, _), one in zip(sampling, kept, strict=True) if of == owner and one.rows]
        schema, bands = context.warehouse.schema(table.table), Bands.of(source.entering.history)
        number = sum((Counter(one.rows) for one in own), Counter[int]())
        files = {i: table.file(interval.label, "band") for i, interval in enumerate(intervals) if number[i]}
        for some in _packed(files, number):
            paths = tuple(one.path for one in own if some.keys() & one.rows.keys())
            banding.append((owner, Banding(paths, some, schema, bands)))
        found.append({})
    rows = sum(sum(one.rows.values()) for one in kept)
    for (owner, _), counts in zip(
        banding, context.run_slices(banded, [part for _, part in banding], rows), strict=True
    ):
        found[owner] |= counts
    for owner, table in enumerate(tables):
        own = [one for (of, _), one in zip(sampling, kept, strict=True) if of == owner]
        labels = [interval.label for interval in intervals]
        table.settle([{labels[i]: rows for i, rows in one.rows.items()} for one in own])
    return found


def _packed(files: Mapping[int, str], rows: Mapping[int, int]) -> list[dict[int, str]]:
    """The files in groups of about ``ROWS_OF_A_SLICE`` rows."""
    groups: list[dict[int, str]] = []
    gathered = ROWS_OF_A_SLICE
    for index, file in files.items():
        if gathered >= ROWS_OF_A_SLICE:
            groups.append({})
            gathered = 0
        groups[-1][index] = file
        gathered += rows[index]
    return groups


def _written(
    context: RunContext, decided: Decided, counts: LeafCounts, intervals: Sequence[Interval]
) -> tuple[pa.Table, pa.Table | None]:
    """The stream's rows of ``history_leaves`` and of ``history_groups``."""
    warehouse, labels = context.warehouse, [i.label for i in intervals]
    found, entering = decided.aggregator, decided.entering
    leaves = leaf_rows(found.to_arrow(), counts, entering, labels, warehouse.schema("history_leaves"))
    if not has_groups(context.pipeline):
        return leaves, None
    grouped, schema = found.to_arrow(grouped=True), warehouse.schema("history_groups")
    return leaves, leaf_rows(grouped, {}, entering, labels, schema, GROUP_KEYS)


def _entry_fractions(
    context: RunContext, stream: Stream, intervals: Sequence[Interval], tuples: Int64s
) -> tuple[Float64s, list[dict[str, object]]]:
    """The fraction at which each interval's tuples enter, and the room that it leaves to those after it."""
    spec = stream.history
    assert spec is not None
    bands = Bands.of(spec)
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
    start_us, part = found.column("leaf_start_us").to_numpy(), found.column("part").to_numpy()
    kept = [sampled.get(key, 0) for key in zip(part.tolist(), start_us.tolist(), strict=True)]
    given = {
        "stream": pa.repeat(pa.scalar(entering.stream.name), found.num_rows),
        "leaf_start": pa.array(start_us).cast(TIMESTAMP),
        "leaf_end": pa.array(start_us + entering.history.leaf_s * 1_000_000).cast(TIMESTAMP),
        "sampled": pa.array(kept, pa.int64()),
        "fraction": pa.array(entering.held_at[part]),
    }
    columns, own = {}, {name.lower(): index for index, name in enumerate(found.schema.names)}
    for field in schema:
        if field.name in given:
            columns[field.name] = given[field.name]
        elif field.name.lower() in own:
            columns[field.name] = found.column(own[field.name.lower()])
        else:
            columns[field.name] = pa.nulls(found.num_rows, field.type)
    columns["interval"] = pa.array(np.array(labels, dtype=object)[part], pa.string())
    rows = pa.table(columns, schema=schema.append(pa.field("interval", pa.string())))
    for decided in entering.passes:
        rows = relabel_rows(rows, decided, keys)
    return rows


def added_up(part: Slice) -> pa.Table:
    """The exact aggregates of those of a :class:`Source`'s tuples that enter, to be merged.

    **Memory**: a batch, and the leaves.
    """
    own: Source = part.of
    entering = own.entering
    stream = entering.stream
    aggregator = LeafAggregator(stream.numeric_columns, entering.history.group_by)
    names = dict.fromkeys(["event_time", "arrival_time", *aggregator.group_by, *aggregator.columns])
    for batch in own.events.batches(list(names)):
        part_of, entered = _entered(entering, batch)
        event_us = instants_us(entered.column("event_time"))
        values = {name: entered.column(name) for name in (*aggregator.columns, *aggregator.group_by)}
        aggregator.add(part_of, entering.leaf_start_us(event_us), event_us, values)
    return aggregator.partials()


@dataclass(frozen=True, eq=False)
class Sampling:
    """Tuples to be sampled, into a file of the task's own in ``folder``; ``schema``: of the table of samples."""

    source: Source
    schema: pa.Schema
    folder: str


@dataclass(frozen=True)
class Kept:
    """The file of a slice's samples, with ``_part``; index of the interval → how many there are, if any."""

    path: str
    rows: Mapping[int, int]


def sampled(part: Slice) -> Kept:
    """Keep the sampled tuples of a :class:`Sampling`, with priority, fraction and weight. **Memory**: a batch."""
    own: Sampling = part.of
    wanted = own.schema.append(pa.field(_PART, pa.int64()))
    path, rows = f"{own.folder}/{uuid.uuid4().hex}.arrow", Counter[int]()
    with output(place(path)) as file, pa.ipc.new_file(file, wanted) as out:
        for batch in own.source.events.batches(own.source.events.schema.names):
            tuples = _sample(own.source.entering, batch, wanted)
            if tuples.num_rows:
                out.write_batch(tuples)
                rows.update(tuples.column(_PART).to_pylist())
    return Kept(path, dict(rows))


@dataclass(frozen=True, eq=False)
class Banding:
    """Samples to be put in order.

    ``paths``: files with them. ``files``: index of an interval → the path of its samples (see ``put_bands``).
    """

    paths: tuple[str, ...]
    files: Mapping[int, str]
    schema: pa.Schema
    bands: Bands


LeafCounts = dict[tuple[int, int], int]
"""(Index of the interval, start of the leaf in µs) → sampled tuples."""


def banded(part: Slice) -> LeafCounts:
    """Write the samples of the intervals of a :class:`Banding`, sorted, a file a band; how many there are by leaf.

    **Memory**: the samples of the intervals.
    """
    own: Banding = part.of
    wanted = pa.array(list(own.files), pa.int64())
    tables = []
    for path in own.paths:
        with mapped(place(path)) as file:
            table = pa.ipc.open_file(file).read_all()
            tables.append(table.filter(pc.is_in(table.column(_PART), wanted)))
    samples, counts = pa.concat_tables(tables), LeafCounts()
    for index, file in own.files.items():
        mine = samples.filter(pc.equal(samples.column(_PART), index)).drop_columns(_PART)
        put_bands(file, mine, own.bands)
        starts = np.unique(instants_us(mine.column("leaf_start")), return_counts=True)
        counts |= {(index, start): count for start, count in zip(*(a.tolist() for a in starts), strict=True)}
    return counts


def _sample(entering: Entering, batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Those of a batch that the sample keeps."""
    assert entering.entered_at is not None
    part, entered = _entered(entering, batch)
    kept, u = entering.sampled(entered.column("event_id"), part)
    tuples = entered.filter(pa.array(kept))
    fraction = entering.entered_at[part[kept]]
    leaf_us = entering.leaf_start_us(instants_us(tuples.column("event_time")))
    own = {
        "leaf_start": pa.array(leaf_us).cast(TIMESTAMP),
        "u": pa.array(u[kept]),
        "fraction": pa.array(fraction),
        "weight": pa.array(1 / fraction),
        _PART: pa.array(part[kept]),
    }
    columns = [own[f.name] if f.name in own else tuples.column(f.name).cast(f.type) for f in wanted]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _entered(entering: Entering, batch: pa.RecordBatch) -> tuple[Int64s, pa.RecordBatch]:
    part = entering.part(instants_us(batch.column("event_time")), instants_us(batch.column("arrival_time")))
    return part[part >= 0], batch.filter(pa.array(part >= 0))


if __name__ == "__main__":
    launch(STAGE)
