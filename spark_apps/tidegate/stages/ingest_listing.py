"""What a stream's files looked like when an ingest began, and what ``source_files`` says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Stream, from_us, to_us
from tidegate.engine.context import RunContext
from tidegate.sources.files import Expected, Piece, SourceFile, modified_at, pattern_unit
from tidegate.sources.settle import Sighting
from tidegate.sources.source import Source, source_of
from tidegate.stages.ingest_account import FileFacts
from tidegate.stages.landed_intervals import closed
from tidegate.store.gathered import Gathered
from tidegate.store.intervals import Interval, interval_labelled
from tidegate.store.landed import landed_name
from tidegate.store.places import place
from tidegate.store.watermarks import Announcements

_GROWTH_LOOKBACK_INTERVALS = 24


@dataclass(frozen=True)
class Listing:
    """A stream's files, and the pieces that they are cut into."""

    stream: Stream
    source: Source
    expected: tuple[Expected, ...]
    pieces: tuple[Piece, ...]

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """All files."""
        return tuple(file for one in self.expected for file in one.files)


def listed(
    stream: Stream,
    source: Source,
    intervals: Sequence[Interval],
    slice_bytes: int,
    whole: frozenset[str] = frozenset(),
) -> Listing:
    """What is there for the intervals; the files ``whole`` are a piece each."""
    start, end = intervals[0].start, intervals[-1].end
    expected = tuple(source.expected(start, end))
    pieces: list[Piece] = []
    for file in (file for one in expected for file in one.files):
        if file.name in whole:
            pieces.append(Piece(stream, file, cost=file.bytes))
        else:
            pieces += source.pieces(file, start, end, slice_bytes)
    return Listing(stream, source, expected, tuple(pieces))


def sources(context: RunContext, intervals: Sequence[Interval]) -> dict[str, Source]:
    """Stream → where its records come from. For streams that come through Spark the end of the intervals is announced.

    Raises:
        UserError: such a stream has not been read up to there, and nobody is landing it.
    """
    announced = closed(context, intervals[-1]) if context.pipeline.landed_streams else {}
    folder = context.warehouse.folder
    nothing = Announcements()
    return {s.name: source_of(s, folder, announced.get(s.name, nothing)) for s in context.pipeline.streams}


def seen_before(context: RunContext, listings: Sequence[Listing]) -> dict[str, list[Sighting]]:
    """File whose name says no interval → how long it was when which interval (its start) saw it so first."""
    streams = [listing.stream for listing in listings if listing.stream.source is None]
    if all(pattern_unit(stream.path) is not None for stream in streams):
        return {}
    known = Gathered(context.warehouse.local / "_gathered" / "files_seen.parquet", keep=_with_since)
    rows = known.read(context.warehouse, "source_files", context.warehouse.labels("source_files"))
    seen: dict[str, list[Sighting]] = {}
    older: dict[str, list[Sighting]] = {}
    for row in rows.to_pylist():
        if row["since"] is not None:
            arrivals = [to_us(row[name]) for name in ("first_arrival", "last_arrival") if row[name] is not None]
            seen.setdefault(row["path"], []).append(Sighting(row["since_bytes"], to_us(row["since"]), *arrivals))
        elif row["bytes"] is not None:
            start_us = interval_labelled(context.pipeline, row["interval"]).start_us
            older.setdefault(row["path"], [Sighting(row["bytes"], start_us)])
    return older | {path: sorted(sightings) for path, sightings in seen.items()}


def _with_since(rows: pa.Table) -> pa.Table:
    """Rows that say since when a file is known, and those of versions that did not say it."""
    return rows.filter(pc.or_(rows.column("since").is_valid(), rows.column("since_bytes").is_null()))


def refuse_changed(listings: Sequence[Listing]) -> None:
    """UserError if a file is another now than when it was listed: what was read of it is neither."""
    growing = [f.name for listing in listings for f in listing.source.changed(listing.files)]
    if growing:
        raise UserError(
            f"{growing[0]} changed while it was read ({len(growing)} such files): nothing was ingested; "
            "run the interval again once the file is complete"
        )


def file_rows(
    listing: Listing, facts: FileFacts, by_file: Counter[tuple[str, int]], interval: Interval, number: int
) -> Iterator[dict[str, Any]]:
    """Rows of ``source_files``: the files that may hold records of the interval, and how many each does hold.

    Of files whose names say no time: those that do hold some, that landed in the interval, that cannot be read, or
    whose refused records belong to the interval since it was the first to see them.
    """
    stream = listing.stream
    if stream.source is not None:
        rows = facts.arrived[stream.name][number]
        status = "ok" if rows else "missing"
        yield {"stream": stream.name, "path": landed_name(stream), "status": status, "rows": rows, "since_bytes": 0}
        return
    unit = pattern_unit(stream.path)
    for one in listing.expected:
        if one.period_start_us is not None and unit is not None:
            end_us = one.period_start_us + unit // (from_us(1) - from_us(0))
            if end_us <= interval.start_us or one.period_start_us >= interval.end_us:
                continue
        if not one.files:
            yield {"stream": stream.name, "path": one.pattern, "status": "missing", "since_bytes": 0}
        for file in one.files:
            rows = facts.by_file[file.name, number] + by_file[file.name, number]
            status = facts.status[file.name]
            here = interval.start_us <= file.modified_us < interval.end_us
            since = facts.since(file, interval)
            if one.period_start_us is not None or rows or here or "since" in since or status == "unreadable":
                row = {"stream": stream.name, "path": file.name, "status": status, "rows": rows}
                yield {**row, "bytes": file.bytes, "modified": modified_at(file), **since}


def changed_since(context: RunContext, first: Interval) -> list[dict[str, Any]]:
    """Files of the last intervals that are others now than when they were ingested: to be ingested again."""
    labels = [x for x in context.warehouse.labels("source_files") if x < first.label][-_GROWTH_LOOKBACK_INTERVALS:]
    changed = []
    for row in context.warehouse.read_arrow("source_files", labels).to_pylist():
        if row["status"] not in ("ok", "empty") or row["modified"] is None:
            continue
        modified_us = int(row["modified"].timestamp() * 1_000_000 + 0.5)
        file = SourceFile(place(row["path"]), row["bytes"], modified_us, None, None)
        if file.path.exists() and file.changed():
            status = file.path.stat()
            context.progress(
                f"ingest: {row['stream']}: {file.path} has changed since interval {row['interval']} was ingested "
                f"({row['bytes']} bytes then, {status.st_size} now): run that interval again"
            )
            now: dict[str, Any] = {"bytes": status.st_size, "modified": from_us(status.st_mtime_ns // 1000)}
            now["since_bytes"] = 0
            changed.append({"stream": row["stream"], "path": row["path"], "status": "changed", **now})
    return changed
