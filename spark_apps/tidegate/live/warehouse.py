"""The warehouse as it stands at the live clock: past intervals as they are, the present one as far as it has come."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import psutil  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.declarations.errors import UserError
from tidegate.declarations.tables import TABLE_VERSIONS, is_reference
from tidegate.store.commit import Commit
from tidegate.store.delta import LiveFile, live_file
from tidegate.store.intervals import Interval
from tidegate.store.places import ObjectPath, Place
from tidegate.store.processes import is_running
from tidegate.store.warehouse import Warehouse, read_whole

FOLDER = "_live"
_RUNNING = "_live_run.json"


@dataclass(frozen=True)
class Position:
    """Where a live run stands; written with each step, so that the next run goes on from there.

    ``taken_us``: what arrived before is in; ``answered_us``: what was to be answered before is answered.
    ``last_batch``: batches of files up to this one have been seen. ``declared``: a fingerprint of the declaration.
    ``cold_start``: whether the present interval begins anew. ``behind``: tuples of the present interval that came when
    the clock had passed them.
    """

    interval: str
    taken_us: int
    answered_us: int
    last_batch: int
    declared: str
    cold_start: bool
    behind: int = 0


class LiveWarehouse(Warehouse):
    """Reads as a warehouse whose newest interval is the present one, with what is known of it by now.

    The present interval's tuples and plans are kept under ``_live``, files that are only ever added and that count once
    their run is committed; what other intervals' partitions say is read where it stands. Partitions of the present
    interval that an earlier run may have left, and later ones, are not there.
    """

    def __init__(self, warehouse: Warehouse, interval: Interval):
        super().__init__(warehouse.root, warehouse.pipeline)
        self.interval = interval

    def labels(self, table: str) -> list[str]:
        """Labels of the partitions that are there, ascending; the present one's always is."""
        return [*(label for label in super().labels(table) if label < self.interval.label), self.interval.label]

    def filled(self, table: str) -> list[str]:
        """Labels of the partitions that have rows, and the present one's, ascending."""
        return [*(label for label in super().filled(table) if label < self.interval.label), self.interval.label]

    def live(self, table: str, label: str) -> tuple[LiveFile, ...]:
        """The files of one partition, in the order in which they were added."""
        if label != self.interval.label or _is_fixed(table):
            return super().live(table, label)
        return tuple(live_file(path, label) for path in self._visible(self._part(table)))

    def files(self, table: str, labels: Sequence[str]) -> tuple[str, ...]:
        """Paths of the named partitions' files, in the order of the labels."""
        if _is_fixed(table):
            return super().files(table, labels)
        past = super().files(table, [label for label in labels if label != self.interval.label])
        return (*past, *(map(str, self._visible(self._part(table))) if self.interval.label in labels else ()))

    def read_state(self, name: str, label: str) -> pa.Table | None:
        """State as of the clock, or as the run for an earlier interval left it."""
        if label != self.interval.label:
            return super().read_state(name, label)
        found = self.committed((self.local / self._state(name)).glob("*.parquet"))
        return read_whole(found[-1]) if found else None

    def put_part(self, commit: Commit, table: str, from_us: int, data: pa.Table) -> None:
        """Add rows to the present interval's part of a table, behind those that are there."""
        folder = commit.other_folder(self._part(table))
        pq.write_table(data.cast(self.schema(table)), folder / f"part-{from_us:020d}-{commit.id}.parquet")

    def put_state(self, commit: Commit, name: str, data: pa.Table) -> None:
        """Keep state as of the clock."""
        pq.write_table(data, commit.other_folder(self._state(name)) / f"state-{commit.id}.parquet")

    def _part(self, table: str) -> str:
        return f"{FOLDER}/{table}/interval={self.interval.label}"

    def _state(self, name: str) -> str:
        return f"{FOLDER}/_state/{name}/interval={self.interval.label}"

    def _visible(self, folder: str) -> list[Place]:
        return sorted(self.committed((self.local / folder).glob("*.parquet")))

    def forget_others(self) -> None:
        """Remove what is kept of intervals that are over, and all positions but the newest."""
        for folder in (self.local / FOLDER).glob("**/interval=*"):
            if folder.name != f"interval={self.interval.label}":
                shutil.rmtree(folder, ignore_errors=True)
        newest = _position_file(self)
        for file in (self.local / FOLDER).glob("position-*.json"):
            if file != newest:
                file.unlink(missing_ok=True)


def _is_fixed(table: str) -> bool:
    """Whether an interval's partition of a table is what it will stay when the interval begins."""
    return table == TABLE_VERSIONS or is_reference(table)


def read_position(warehouse: Warehouse) -> Position | None:
    """Where the last live run stands now, None if there was none."""
    warehouse.refresh()
    file = _position_file(warehouse)
    return None if file is None else Position(**json.loads(file.read_text()))


def put_position(commit: Commit, position: Position) -> None:
    """Keep the position together with what the commit holds."""
    (commit.other_folder(FOLDER) / f"position-{commit.id}.json").write_text(json.dumps(asdict(position)))


def _position_file(warehouse: Warehouse) -> Place | None:
    found = warehouse.committed((warehouse.local / FOLDER).glob("position-*.json"))
    return found[-1] if found else None


@contextmanager
def only_live_run(warehouse: Warehouse) -> Iterator[None]:
    """Note that this process runs the pipeline live; UserError if one that is alive has noted so.

    For a clear message at once: of two that run all the same, the commits of one are refused.
    """
    if isinstance(warehouse.folder, ObjectPath):
        raise UserError(
            f"a live run keeps what has landed on a local disk, and {warehouse.root} is an object store: give a local "
            "folder with --warehouse, or run the intervals as they end, without --live"
        )
    note, own = warehouse.local / _RUNNING, psutil.Process()
    mine = {"process": own.pid, "since": own.create_time()}
    with_it = json.loads(note.read_text()) if note.exists() else None
    if with_it is not None and with_it != mine and is_running(with_it["process"], with_it["since"]):
        raise UserError(
            f"pipeline {warehouse.pipeline.name} is already running live in {warehouse.folder} (process "
            f"{with_it['process']}): stop that run first"
        )
    note.write_text(json.dumps(mine))
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def begin_anew(warehouse: Warehouse) -> None:
    """Remove all that a live run has kept; the tables stay."""
    folder = warehouse.local / FOLDER
    if folder.exists():
        # In one step, so that a kill leaves nothing that looks whole.
        aside = folder.with_name(f"{FOLDER}.old")
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(folder, aside)
        shutil.rmtree(aside, ignore_errors=True)
