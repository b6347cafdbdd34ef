"""When an interval of streams that come through Spark may be closed, and that it is: its end is announced."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, from_us
from tidegate.engine.context import RunContext
from tidegate.store.intervals import Interval
from tidegate.store.landed import LandedTable, Landings, landed_name
from tidegate.store.watermarks import Announcements, Watermarks

_LOOK_S = 0.5


def announced(context: RunContext, end_us: int) -> bool:
    """Whether everything up to an instant has been announced for all streams that come through Spark."""
    return _reach(Watermarks(context.warehouse.folder).read(), context.pipeline, end_us)


def _reach(known: Mapping[str, Announcements], pipeline: Pipeline, end_us: int) -> bool:
    nothing = Announcements()
    return all(known.get(s.name, nothing).batch_of(end_us) is not None for s in pipeline.landed_streams)


def closed(context: RunContext, last: Interval) -> dict[str, Announcements]:
    """Stream → its announcements, of which one is at the interval's end or behind it.

    Waits while a stream is being landed and has not been read up to there.

    Raises:
        UserError: nobody is landing it.
    """
    watermarks, landings = Watermarks(context.warehouse.folder), Landings(context.warehouse.folder)
    known = watermarks.read()
    if _reach(known, context.pipeline, last.end_us):
        return known
    batches: dict[str, int] = {}
    for stream in context.pipeline.landed_streams:
        waiting = False
        while True:
            newest = landings.newest().get(stream.name)
            if newest is not None and newest.read_to_us is not None and newest.read_to_us >= last.end_us:
                batches[stream.name] = newest.batch
                break
            table = LandedTable(context.warehouse.folder / landed_name(stream))
            if not (table.refresh() and table.state().is_leased):
                read_to = newest.read_to_us if newest is not None else None
                so_far = "has never been landed"
                if read_to is not None:
                    so_far = f"has been landed up to {from_us(read_to):%Y-%m-%dT%H:%M:%SZ}"
                raise UserError(
                    f"stream {stream.name} {so_far}, and the interval ends at {last.end:%Y-%m-%dT%H:%M:%SZ}: run the "
                    f"stage land first (tidegate land {context.pipeline.folder} --warehouse {context.warehouse.root})"
                )
            if not waiting:
                waiting = True
                context.progress(f"ingest: {stream.name} is being landed: waiting until it has been read to its end")
            time.sleep(_LOOK_S)
    return watermarks.announce(batches, last.end_us, last.label)
