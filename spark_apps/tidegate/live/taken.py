"""What a live step takes in: of the files that have landed, the tuples that arrived in it, as ingest decides."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidegate.declarations.models import Stream
from tidegate.engine import Slice
from tidegate.engine.context import RunContext
from tidegate.live.clock import Landed
from tidegate.operators.tuple_bytes import tuple_bytes
from tidegate.queries import planner
from tidegate.sources.parse import HASH, ParseResult
from tidegate.sources.settle import Again, Sighting, Sorted, find_again, homes_us, in_table_order, kept
from tidegate.stages.id_memory import memory_us, remembered
from tidegate.store.intervals import interval_holding
from tidegate.store.references import References


def accepted(
    context: RunContext, stream: Stream, files: Sequence[Landed], taken: ParseResult, start_us: int, end_us: int
) -> tuple[pa.Table, int]:
    """The accepted tuples that arrived in [start, end), in the order of their table; how many records were refused.

    What arrived before ``start_us`` is in the warehouse. ``taken``: the parts of the batches of these files, which may
    hold other files too. Beside the table's columns: ``_bytes``, what the tuple takes in its stream's window.
    """
    pipeline = context.pipeline
    names = {file.path for file in files}
    others = frozenset(f.name for part in (*taken.tuples, *taken.refused) for f in part.files if f.name not in names)
    parts = tuple(part for part in taken.tuples if part.stream == stream.name)
    past = remembered(context.warehouse, stream, start_us)
    length_us = pipeline.interval_s * 1_000_000
    looking = Again(parts, others, past, length_us, memory_us(pipeline, stream), start_us=start_us, end_us=end_us)
    again = find_again(Slice(0, looking)) if stream.id else {}
    held = planner.held(pipeline, stream)
    tick_us, lookups = pipeline.tick_s * 1_000_000, pipeline.lookups(stream.name)
    here = [interval_holding(pipeline, start_us).label]
    references = References.of(context.warehouse, here if lookups else ())
    item = Sorted(
        stream, parts, others, again, start_us, end_us, "", "", held, tick_us, references=references, lookups=lookups
    )
    rows = in_table_order(item).drop_columns(HASH).combine_chunks()
    size = pa.array(tuple_bytes(held, item.extended(rows)))
    refused = sum(map(len, again.values())) + _refused(stream, files, taken, others, start_us, end_us)
    return rows.append_column("_bytes", size), refused


def _refused(
    stream: Stream, files: Sequence[Landed], taken: ParseResult, others: frozenset[str], start_us: int, end_us: int
) -> int:
    sightings: dict[str, tuple[Sighting, ...]] = {}
    for file in files:
        if file.first_us is not None and file.last_us is not None:
            sightings[file.path] = (Sighting(file.bytes, file.first_us, file.first_us, file.last_us),)
    count = 0
    for part in taken.refused:
        if part.stream == stream.name:
            table = part.read()
            table = table.filter(pa.array(kept(part, table, others)))
            homes = homes_us(table, part, sightings)
            count += int(((homes >= start_us) & (homes < end_us)).sum())
    return count
