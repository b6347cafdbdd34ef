"""What runs in Spark's Python workers. Each imports this module anew, so it imports little."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark import AccumulatorParam, TaskContext

from tidegate.hosts import scan
from tidegate.operators import join_aggregate
from tidegate.operators.schedule import Schedule


class PeakPerPartition(AccumulatorParam[dict[int, int]]):
    """Partition → largest number reported; a task that runs twice counts once."""

    def zero(self, value: dict[int, int]) -> dict[int, int]:
        """Nothing reported yet."""
        return {}

    def addInPlace(self, value1: dict[int, int], value2: dict[int, int]) -> dict[int, int]:
        """Both reports."""
        for partition, number in value2.items():
            value1[partition] = max(value1.get(partition, 0), number)
        return value1


def reading(scans: Sequence[scan.Side], schema: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.Table]]:
    """Instead of what Spark sends, which only says that it is this task's turn, what the files hold."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        for _ in batches:
            yield from scan.in_order_of_arrival(scans, schema)

    return read


Finished = Callable[[pa.Table, bool], pa.Table]


def through(  # type: ignore[no-untyped-def]
    operator, spec, schedule: Schedule, peaks, regroup=iter, finished: Finished | None = None
):
    """The function that streams one partition's batches through the operator.

    ``regroup``: makes what the operator is given of the batches that Spark sends. ``finished``: answers, and whether
    they are the last ones → what is returned.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        bucket = context.partitionId() if context is not None else 0
        state = operator.start(spec, schedule)
        for batch in regroup(batches):
            state, partial = operator.step(state, batch)
            yield from (finished(partial, False) if finished else partial).to_batches()
        state, partial = operator.finish(state)
        yield from (finished(partial, True) if finished else partial).to_batches()
        peaks.add({bucket: int(state.peak_bytes)})

    return run


def combining(spec: join_aggregate.Spec) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that puts together the partial answers of the windows that fall to one task."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partials = list(batches)
        if partials:
            yield from join_aggregate.combined(spec, pa.Table.from_batches(partials)).to_batches()

    return run


def told_schema(schema: pa.Schema, about: pa.Schema) -> pa.Schema:
    """Columns of what ``telling`` returns."""
    return pa.schema([*schema, *(field for field in about if field.name not in schema.names)])


def telling(about: pa.Table, every: bool) -> Finished:
    """Answers of a single task, with what is to be said of their windows.

    Args:
        about: a row a window.
        every: windows without an answer get one of NULLs.
    """
    answered = np.zeros(len(about), dtype=bool)

    def told(partial: pa.Table, last: bool) -> pa.Table:
        index = partial.column("window_index").to_numpy()
        answered[index] = True
        if every and last:
            missing = pa.table({"window_index": pa.array(np.flatnonzero(~answered), pa.int64())})
            partial = pa.concat_tables([partial, missing], promote_options="default")
            index = partial.column("window_index").to_numpy()
        rows = about.take(pa.array(index))
        schema = told_schema(partial.schema, about.schema)
        return pa.table(
            [partial.column(f.name) if f.name in partial.schema.names else rows.column(f.name) for f in schema],
            schema=schema,
        )

    return told
