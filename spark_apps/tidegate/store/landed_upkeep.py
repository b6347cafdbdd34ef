"""Upkeep of landed tables: small files are put together, and what is kept no longer is removed."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa

from tidegate.declarations.models import Stream
from tidegate.store import parquet
from tidegate.store.durable import flush
from tidegate.store.intervals import interval_holding, interval_labelled
from tidegate.store.landed import PARQUET, LandedFile, LandedTable, landed_name, new_path, summarized
from tidegate.store.warehouse import Warehouse
from tidegate.store.watermarks import Announcements, Watermarks

_FEWEST = 8
_LARGEST_BYTES = 128 << 20
_ORDER = [(name, "ascending") for name in ("batch", "source", "generation", "partition", "position")]
_TRIES = 5


def tidy_landed(warehouse: Warehouse, retention_hours: int) -> int:
    """Compact the landed tables, remove what ``retention`` says, and files that no version names; how many went."""
    gone = 0
    announced = Watermarks(warehouse.folder).read() if warehouse.pipeline.landed_streams else {}
    for stream in warehouse.pipeline.landed_streams:
        table = LandedTable(warehouse.folder / landed_name(stream))
        if not table.refresh():
            continue
        compact(table, warehouse.pipeline.interval_s * 1_000_000)
        keep_s = warehouse.pipeline.retention_s.get("landed")
        if keep_s is not None:
            _remove_old(warehouse, stream, table, announced.get(stream.name, Announcements()), keep_s)
        gone += table.vacuum(retention_hours)
    return gone


def compact(table: LandedTable, interval_us: int, fewest: int = _FEWEST) -> int:
    """Put one file in the place of those of a day and an interval of arrival, where these are many and small.

    Readers find the same records: which interval each is in does not depend on files. Returns how many files went.

    **Memory**: a group's files, 128 MiB packed at most.
    """
    together: dict[tuple[str, int | None], list[LandedFile]] = defaultdict(list)
    for file in table.files():
        if file.bytes < _LARGEST_BYTES // 4:
            together[file.day, _interval_of(file, interval_us)].append(file)
    removed = 0
    for (day, _), files in together.items():
        for group in _groups_of(files):
            if len(group) >= fewest:
                removed += _merge(table, day, group)
    return removed


def _groups_of(files: Sequence[LandedFile]) -> list[list[LandedFile]]:
    groups: list[list[LandedFile]] = [[]]
    size = 0
    for file in sorted(files, key=lambda one: (one.batches, one.path)):
        if groups[-1] and size + file.bytes > _LARGEST_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.bytes
    return groups


def _interval_of(file: LandedFile, interval_us: int) -> int | None:
    """The interval of arrival that a file holds; None if it holds records that name none."""
    if file.arrivals_us is None or file.without:
        return None
    first, last = (us // interval_us for us in file.arrivals_us)
    return first if first == last else None


def _merge(table: LandedTable, day: str, files: Sequence[LandedFile]) -> int:
    rows = pa.concat_tables(
        [parquet.opened(table.folder / file.path).read() for file in files], promote_options="default"
    ).sort_by(_ORDER)
    path = new_path(day, files[0].batches[0])
    where = table.folder / path
    parquet.write(rows, where, **PARQUET)
    flush([where], table.folder.parent)
    merged = summarized(path, day, where.stat().st_size, [rows])
    for _ in range(_TRIES):
        if not {file.path for file in files} <= {file.path for file in table.files()}:
            break  # somebody else has put them together
        if table.replace([merged], files):
            table.refresh()
            return len(files)
        table.refresh()
    where.unlink(missing_ok=True)
    return 0


def _remove_old(
    warehouse: Warehouse, stream: Stream, table: LandedTable, announced: Announcements, keep_s: int
) -> None:
    """Remove files whose records are all in committed intervals and landed longer than ``keep_s`` ago."""
    labels = warehouse.labels("source_files")
    if not labels:
        return
    end_us = interval_labelled(warehouse.pipeline, labels[-1]).end_us
    last_batch = announced.batch_of(end_us)
    if last_batch is None:
        return
    before_us = time.time_ns() // 1000 - keep_s * 1_000_000
    rule = announced.up_to(end_us)
    for _ in range(_TRIES):
        gone, floor_us = [], table.state().floor_us or 0
        for file in table.files():
            _, last_us = rule.bounds_us(
                file.batches, file.arrivals_us, file.landed_us, stream.max_early_s, file.without
            )
            if file.landed_us[1] < before_us and file.batches[1] <= last_batch and last_us < end_us:
                gone.append(file)
                floor_us = max(floor_us, interval_holding(warehouse.pipeline, last_us).end_us)
        if not gone or table.replace([], gone, floor_us):
            table.refresh()
            return
        table.refresh()
