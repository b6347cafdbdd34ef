"""Which parsed records are tuples: as ingest judges, without Spark, for the few records of a step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tidegate.declarations.models import Pipeline, Stream, from_us
from tidegate.hosts.intervals import interval_at, interval_holding
from tidegate.hosts.live_clock import Landed
from tidegate.hosts.live_warehouse import LiveWarehouse

_ORDER = [(name, "ascending") for name in ("arrival_time", "event_id")]


def judged(
    warehouse: LiveWarehouse, stream: Stream, files: Sequence[Landed], parsed: pa.Table, start_us: int, end_us: int
) -> tuple[pa.Table, int]:
    """The accepted tuples that arrived in [start, end), in the order of their table; how many records were refused.

    What arrived before ``start_us`` is in the warehouse. ``parsed``: the records of the files, as ``records.parse``
    has them; columns that are not of the table and do not begin with ``_`` are none of its business.
    """
    index = pc.index_in(parsed.column("_file"), pa.array([f.path for f in files], pa.string()))
    begin_us = pa.array([f.period_start_us for f in files], pa.int64()).take(index)
    until_us = pa.array([f.period_end_us for f in files], pa.int64()).take(index)
    arrival_us = parsed.column("arrival_time").cast(pa.int64())
    outside = pc.or_(pc.less(arrival_us, begin_us), pc.greater_equal(arrival_us, until_us)).fill_null(False)
    # A record whose arrival cannot be trusted belongs to the instant at which its file's period begins.
    own_us = pc.coalesce(begin_us, parsed.column("_modified_us"))
    read_us = pc.if_else(pc.or_(pc.is_null(arrival_us), outside), own_us, arrival_us)
    # The batches hold other files too, of which this step does not know yet or any more.
    within = pc.and_(pc.greater_equal(read_us, start_us), pc.less(read_us, end_us))
    within = pc.and_(within, pc.is_valid(index)).fill_null(False)
    good = pc.and_(pc.is_null(parsed.column("_reason")), pc.invert(outside))
    records = int(pc.sum(within).as_py() or 0)
    rows = parsed.filter(pc.and_(within, good))
    rows = rows.filter(pa.array(_accepted(warehouse, stream, rows, start_us)))
    return rows.sort_by(_ORDER), records - rows.num_rows


def _accepted(warehouse: LiveWarehouse, stream: Stream, rows: pa.Table, start_us: int) -> np.ndarray:
    """Whether each tuple's id is new: bool[n]; see ``ingest._mark_duplicates``, of which this is the same fold.

    A tuple is refused if an accepted one bore its id that arrived in the last ``max_late`` before, by intervals. The
    first to arrive is accepted; ties go to the earlier event time, then to the record's text.
    """
    accepted = np.ones(rows.num_rows, dtype=bool)
    if rows.num_rows == 0:
        return accepted
    pipeline = warehouse.pipeline
    length_us = pipeline.interval_s * 1_000_000
    memory_us = -(-stream.max_late_s * 1_000_000 // length_us) * length_us
    ids = rows.column("event_id").combine_chunks()
    last_us = _last_accepted(warehouse, stream, ids, start_us, memory_us)
    counts = pc.value_counts(ids)
    again = counts.field("values").filter(pc.greater(counts.field("counts"), 1)).to_pylist()
    wanted = pa.array(sorted({*again, *last_us}), pa.string())
    places = np.flatnonzero(pc.is_in(ids, value_set=wanted).to_numpy(zero_copy_only=False))
    suspects = rows.select(["event_id", "arrival_time", "event_time", "_record"]).take(pa.array(places))
    turns: dict[str, list[tuple[int, int, str, int]]] = defaultdict(list)
    for place, event_id, arrival, event, record in zip(
        places.tolist(),
        suspects.column("event_id").to_pylist(),
        suspects.column("arrival_time").cast(pa.int64()).to_pylist(),
        suspects.column("event_time").cast(pa.int64()).to_pylist(),
        suspects.column("_record").to_pylist(),
        strict=True,
    ):
        turns[event_id].append((arrival, event, record or "", place))
    for event_id, of_id in turns.items():
        last = last_us.get(event_id)
        for arrival, _, _, place in sorted(of_id):
            begin_us = arrival // length_us * length_us
            accepted[place] = last is None or last < begin_us - memory_us
            if accepted[place]:
                last = begin_us
    return accepted


def _last_accepted(
    warehouse: LiveWarehouse, stream: Stream, ids: pa.Array, start_us: int, memory_us: int
) -> dict[str, int]:
    """Id → start of the interval in which it was last accepted before ``start_us``, of those that can matter."""
    pipeline = warehouse.pipeline
    length_us = pipeline.interval_s * 1_000_000
    last: dict[str, int] = {}
    table = f"events_{stream.name}"
    for label, begin_us in _remembered(pipeline, start_us, memory_us):
        files = warehouse.files(table, [label])
        if not files:
            continue
        source = ds.dataset(list(files), schema=warehouse.schema(table), format="parquet")
        found = source.to_table(columns=["event_id"], filter=pc.field("event_id").isin(ids))
        last |= dict.fromkeys(found.column("event_id").to_pylist(), begin_us // length_us * length_us)
    return last


def _remembered(pipeline: Pipeline, start_us: int, memory_us: int) -> list[tuple[str, int]]:
    """Label and start of the intervals whose ids are remembered at ``start_us``, oldest first."""
    length_us = pipeline.interval_s * 1_000_000
    first_us = interval_holding(pipeline, start_us).start_us - memory_us
    return [(interval_at(pipeline, from_us(us)).label, us) for us in range(first_us, start_us, length_us)]
