"""Work cut into slices: the same function runs them as the tasks of one Spark job, or here."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.engine.metrics import ProcessMeter, executor_root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")
_ROWS = "number bigint, result binary, executor_bytes bigint"


@dataclass(frozen=True)
class Slice:
    """One task's work. ``number``: its place among its kind. ``of``: what to do, frozen and picklable."""

    number: int
    of: Any


@dataclass(frozen=True)
class Done:
    """What the tasks gave, in the order of the slices.

    ``executor_bytes``: the most that an executor and its Python workers took together; 0 if it was not measured.
    """

    results: list[Any]
    executor_bytes: int = 0


def run(slices: Sequence[Slice], work: Callable[[Slice], Result]) -> list[Result]:
    """What ``work`` returns for each slice, in the order of the slices, by this process.

    Args:
        slices: what there is to do.
        work: a pure function of a slice, known by its module and name. It writes files of its own and returns what is
            to be committed: counts and names, not rows.
    """
    return [work(one) for one in slices]


def run_as_tasks(
    slices: Sequence[Slice], work: Callable[[Slice], Any], spark: SparkSession, measured: bool = False
) -> Done:
    """The same by one Spark job, a slice a task; of the session nothing is used that Spark Connect does not have.

    A task that is lost with its executor is run again elsewhere, so ``work`` may run more than once for a slice, even
    twice at a time; what it writes must be the same.

    Args:
        slices: what there is to do.
        work: as for :func:`run`.
        spark: the session.
        measured: whether each task measures its executor; on the driver's machine the driver does.

    Raises:
        UserError: as ``work`` raised it.
    """
    # Each apart: a task makes objects of its own one only.
    packed = [pickle.dumps(one) for one in slices]
    tasks = spark.range(0, len(packed), 1, len(packed)).mapInArrow(_task(packed, work, measured), _ROWS).toArrow()
    numbers, results = (tasks.column(name).to_pylist() for name in ("number", "result"))
    done = {number: pickle.loads(result) for number, result in zip(numbers, results, strict=True)}
    for result in done.values():
        if isinstance(result, UserError):
            raise result
    most = max(tasks.column("executor_bytes").to_pylist(), default=0)
    return Done([done[number] for number in range(len(slices))], most)


def _task(
    packed: Sequence[bytes], work: Callable[[Slice], Any], measured: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run_one(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                with ProcessMeter(executor_root()) if measured else nullcontext() as meter:
                    try:
                        result: Any = work(pickle.loads(packed[number]))
                    except UserError as error:
                        result = error
                taken = 0 if meter is None else meter.peak_bytes
                row = {"number": [number], "result": [pickle.dumps(result)], "executor_bytes": [taken]}
                yield pa.RecordBatch.from_pydict(row)

    return run_one
