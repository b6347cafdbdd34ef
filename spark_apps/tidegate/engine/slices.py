"""Work cut into slices: the same function runs them as the tasks of one Spark job, or here."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from tidegate.declarations.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")


@dataclass(frozen=True)
class Slice:
    """One task's work. ``number``: its place among its kind. ``of``: what to do, frozen and picklable."""

    number: int
    of: Any


def run(
    slices: Sequence[Slice], work: Callable[[Slice], Result], spark: Callable[[], SparkSession] | None = None
) -> list[Result]:
    """What ``work`` returns for each slice, in the order of the slices.

    Args:
        slices: what there is to do.
        work: a pure function of a slice, known by its module and name. It writes files of its own and returns what is
            to be committed: counts and names, not rows. It may run more than once for a slice.
        spark: gives the session that runs them, one slice a task of one job; None: this process does. It is not asked
            for where there is a single slice, which would only travel.

    Raises:
        UserError: as ``work`` raised it, whoever ran it.
    """
    if spark is None or len(slices) < 2:
        return [work(one) for one in slices]
    tasks = (
        spark().range(0, len(slices), 1, len(slices)).mapInArrow(_task(slices, work), "number bigint, result binary")
    )
    done = {number: pickle.loads(result) for number, result in zip(*_columns(tasks.toArrow()), strict=True)}
    for result in done.values():
        if isinstance(result, UserError):
            raise result
    return [done[number] for number in range(len(slices))]


def _columns(table: pa.Table) -> tuple[list[int], list[bytes]]:
    return table.column("number").to_pylist(), table.column("result").to_pylist()


def _task(
    slices: Sequence[Slice], work: Callable[[Slice], Any]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run_one(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                try:
                    result: Any = work(slices[number])
                except UserError as error:
                    result = error
                yield pa.RecordBatch.from_pydict({"number": [number], "result": [pickle.dumps(result)]})

    return run_one
