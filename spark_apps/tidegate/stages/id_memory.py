"""Which ids are remembered: those of the tuples accepted in the last ``max_late``, as hashes beside the tables."""

from __future__ import annotations

from tidegate.declarations.models import Pipeline, Stream, from_us
from tidegate.sources.settle import Remembered
from tidegate.store.intervals import interval_at, interval_holding
from tidegate.store.warehouse import Warehouse


def state_of(stream: Stream) -> str:
    """Name of the state that holds the hashes of a stream's ids, interval by interval."""
    return f"id_hashes_{stream.name}"


def memory_us(pipeline: Pipeline, stream: Stream) -> int:
    """How long an id is remembered: ``max_late``, in whole intervals."""
    length_us = pipeline.interval_s * 1_000_000
    return -(-stream.max_late_s * 1_000_000 // length_us) * length_us


def remembered(warehouse: Warehouse, stream: Stream, start_us: int) -> tuple[Remembered, ...]:
    """What the intervals before ``start_us`` accepted, as far back as ids are remembered; oldest first.

    Hashes are only used where the commit that wrote the tuples wrote them too; it is in the files' names.
    """
    pipeline = warehouse.pipeline
    length_us = pipeline.interval_s * 1_000_000
    first_us = interval_holding(pipeline, start_us).start_us - memory_us(pipeline, stream)
    past = []
    for begin_us in range(first_us, start_us, length_us):
        label = interval_at(pipeline, from_us(begin_us)).label
        tuples = warehouse.files(f"events_{stream.name}", [label])
        if not tuples:
            continue
        own = tuple(map(str, warehouse.state_files(state_of(stream), label)))
        same = [_name(file) for file in own] == [_name(file) for file in tuples]
        past.append(Remembered(begin_us, tuples, own if same else ()))
    return tuple(past)


def _name(file: str) -> str:
    return file.rpartition("/")[2]
