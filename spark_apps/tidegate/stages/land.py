"""Land: what the sources of streams that come through Spark have now goes into their landed tables.

It stands outside of intervals: what has landed is put into intervals by the rule of :mod:`tidegate.store.watermarks`.
An interval that is run again needs nothing of the source: all that arrived in it is there already.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Stream
from tidegate.engine.context import RunContext
from tidegate.landing.query import Landed, LandingQuery
from tidegate.stages.landed_intervals import announced
from tidegate.stages.launcher import launch
from tidegate.store.intervals import Interval
from tidegate.store.landed import Landings
from tidegate.store.watermarks import Watermarks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STAGE = "land"
_LOOK_S = 0.1


def run(context: RunContext, intervals: Sequence[Interval]) -> None:
    """Land what there is, unless everything up to the end of the intervals is known already.

    Raises:
        UserError: an interval is not over yet, or a source cannot be read.
    """
    if not context.pipeline.landed_streams:
        return
    last = intervals[-1]
    if last.end_us > time.time_ns() // 1000:
        raise UserError(
            f"interval {last.label} is not over yet: streams that come through Spark are closed by the clock; "
            "run it after its end"
        )
    if announced(context, last.end_us):
        context.progress(
            f"land: all up to {last.end:%Y-%m-%dT%H:%M:%SZ} has landed before; nothing is asked of sources"
        )
        return
    with context.stage(STAGE, intervals) as stage:
        for landed in land_all(context, context.pipeline.landed_streams).values():
            stage.record(last, rows_in=landed.records, rows_out=landed.records)
    context.end_landing()


def land_all(context: RunContext, streams: Sequence[Stream], every_s: float | None = None) -> dict[str, Landed]:
    """Land what the sources of streams have now, all at once; with ``every_s``, go on until the process is stopped.

    Raises:
        UserError: a source cannot be read; the others' streams have landed.
    """
    stopped = threading.Event()

    def say(message: str) -> None:
        context.progress(f"land: {message}")

    @cache
    def session() -> SparkSession:
        # Of somebody's notebook nothing is changed.
        for query in queries.values() if context.beside is None else ():
            for name, value in query.settings.items():
                context.spark.conf.set(name, value)
        return context.spark

    queries = {s.name: LandingQuery(context.pipeline, context.warehouse, s, session, say) for s in streams}
    done: dict[str, Landed] = {}
    failed: UserError | None = None
    with _signals(stopped) if every_s is not None else nullcontext():
        landings = {name: query.run(every_s, stopped.is_set) for name, query in queries.items()}
        while landings:
            for name, landing in list(landings.items()):
                try:
                    next(landing)
                except StopIteration as end:
                    done[name] = end.value
                except UserError as error:
                    failed = failed or error
                    if every_s is not None:
                        stopped.set()
                else:
                    continue
                del landings[name]
            time.sleep(_LOOK_S)
    if failed is not None:
        raise failed
    return done


def begin_anew(context: RunContext, stream: Stream) -> str:
    """Begin a new epoch of a stream's announcements; what there is to say of it."""
    newest = Landings(context.warehouse.folder).newest().get(stream.name)
    Watermarks(context.warehouse.folder).begin_anew(stream.name, -1 if newest is None else newest.batch)
    stale = context.warehouse.labels("source_files")
    if not stale:
        return f"{stream.name}: no interval is closed any more; none had been ingested"
    return (
        f"{stream.name}: no interval is closed any more; these have been ingested and may be others now: "
        f"{stale[0]} to {stale[-1]} ({len(stale)}): run them again, in order"
    )


@contextmanager
def _signals(stopped: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM end landing after the batch that is under way."""
    before = {n: signal.signal(n, lambda *_: stopped.set()) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    launch(STAGE)
