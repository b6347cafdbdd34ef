"""Work cut into slices: the same function runs them as the tasks of one Spark job, or here."""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.engine.metrics import ProcessMeter, executor_root, process_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")
_ROWS = (
    "number bigint, result binary, host string, executor bigint, began double, ended double, bytes bigint, jvm bigint"
)
Measured = Literal["nothing", "executors", "workers"]
"""What tasks measure: nothing, where they are in this process's own tree; their executor, JVM and all, where it is this
application's alone; or their Python worker, and the JVM apart, where that serves others, too."""


@dataclass(frozen=True)
class Slice:
    """One task's work. ``number``: its place among its kind. ``of``: what to do, frozen and picklable."""

    number: int
    of: Any


@dataclass(frozen=True)
class Memory:
    """The most that was taken on one executor, in bytes; 0 where it was not measured.

    ``here``: by this application's workers on this machine, beside the client. ``elsewhere``: on any other, or by an
    executor of this application's own. ``jvm``: by a JVM that serves others, too.
    """

    here: int = 0
    elsewhere: int = 0
    jvm: int = 0

    def or_more(self, other: Memory) -> Memory:
        """The larger of each."""
        return Memory(max(self.here, other.here), max(self.elsewhere, other.elsewhere), max(self.jvm, other.jvm))


@dataclass(frozen=True)
class Done:
    """What the tasks gave, in the order of the slices, and what they took."""

    results: list[Any]
    memory: Memory = Memory()


def run(slices: Sequence[Slice], work: Callable[[Slice], Result]) -> list[Result]:
    """What ``work`` returns for each slice, in the order of the slices, by this process.

    Args:
        slices: what there is to do.
        work: a pure function of a slice, known by its module and name. It writes files of its own and returns what is
            to be committed: counts and names, not rows.
    """
    return [work(one) for one in slices]


def run_as_tasks(
    slices: Sequence[Slice], work: Callable[[Slice], Any], spark: SparkSession, measured: Measured = "nothing"
) -> Done:
    """The same by one Spark job, a slice a task; of the session nothing is used that Spark Connect does not have.

    A task that is lost with its executor is run again elsewhere, so ``work`` may run more than once for a slice, even
    twice at a time; what it writes must be the same.

    Args:
        slices: what there is to do.
        work: as for :func:`run`.
        spark: the session.
        measured: what each task measures.

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
    return Done([done[number] for number in range(len(slices))], _memory(tasks, measured))


def _memory(tasks: pa.Table, measured: Measured) -> Memory:
    """What the tasks of a job took; of workers that were at work at a time, together."""
    most_taken = Memory()
    rows = tasks.drop_columns(["number", "result"]).to_pylist()
    for host, executor in {(row["host"], row["executor"]) for row in rows}:
        tasks_there = [row for row in rows if (row["host"], row["executor"]) == (host, executor)]
        if measured == "executors":
            most_taken = most_taken.or_more(Memory(elsewhere=max(row["bytes"] for row in tasks_there)))
            continue
        most = most_at_a_time([(row["began"], row["ended"], row["bytes"]) for row in tasks_there])
        beside = host == socket.gethostname()
        jvm = max(row["jvm"] for row in tasks_there)
        most_taken = most_taken.or_more(Memory(most if beside else 0, 0 if beside else most, jvm))
    return most_taken


def most_at_a_time(spans: Sequence[tuple[float, float, int]]) -> int:
    """The largest sum over spans (start, end, amount) that overlap at some instant.

    >>> most_at_a_time([(0, 2, 5), (1, 3, 4), (2, 4, 3)])
    9
    """
    changes = [(start, amount) for start, _, amount in spans] + [(end, -amount) for _, end, amount in spans]
    # At the same instant what ends goes before what begins.
    return max(accumulate((change for _, change in sorted(changes)), initial=0))


@contextmanager
def tagged(spark: SparkSession, tags: Sequence[str]) -> Iterator[None]:
    """Within the block this thread's jobs bear these tags, by which Spark's UI and REST tell them from others."""
    for tag in tags:
        spark.addTag(tag)
    try:
        yield
    finally:
        for tag in tags:
            spark.removeTag(tag)


def _task(
    packed: Sequence[bytes], work: Callable[[Slice], Any], measured: Measured
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run_one(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                began, executor = time.time(), executor_root()
                root = executor if measured == "executors" else os.getpid()
                with nullcontext() if measured == "nothing" else ProcessMeter(root) as meter:
                    try:
                        result: Any = work(pickle.loads(packed[number]))
                    except UserError as error:
                        result = error
                row = {
                    "number": number,
                    "result": pickle.dumps(result),
                    "host": socket.gethostname(),
                    "executor": executor,
                    "began": began,
                    "ended": time.time(),
                    "bytes": 0 if meter is None else meter.peak_bytes,
                    # The kernel goes over all of its pages: once a job is enough.
                    "jvm": process_bytes(executor) if measured == "workers" and number == 0 else 0,
                }
                yield pa.RecordBatch.from_pylist([row])

    return run_one
