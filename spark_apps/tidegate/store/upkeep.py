"""Daily upkeep of the tables: what killed runs have left goes, small files of ``_commits`` become one.

Nothing here changes what a reader sees, and a kill between any two steps leaves less to be done the next day.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tidegate.store.commit import STATE
from tidegate.store.cut import changed_rows
from tidegate.store.delta import RETENTION_HOURS
from tidegate.store.landed import Landings
from tidegate.store.landed_upkeep import tidy_landed
from tidegate.store.places import ObjectPath, Place, remove_tree
from tidegate.store.warehouse import Warehouse
from tidegate.store.watermarks import Watermarks
from tidegate.store.withdraw import put_back

ORPHAN_HOURS = 24
"""A run that has not been committed by then is dead: no stage runs so long."""

# Of a daily upkeep that was missed once.
_LOOKED_BACK_S = 3 * 24 * 3600


@dataclass(frozen=True)
class Tidied:
    """What upkeep did: partitions put back as they were before a killed run or another program's merging, files and
    folders removed.
    """

    restored: int
    files: int
    folders: int


def tidy(warehouse: Warehouse, retention_hours: int = RETENTION_HOURS, orphan_hours: int = ORPHAN_HOURS) -> Tidied:
    """Restore, vacuum, merge and clear one pipeline's tables; UserError if another program has removed rows.

    Args:
        warehouse: the tables.
        retention_hours: how long superseded files stay, for readers that began before and for ``--as-of``.
        orphan_hours: after how long an uncommitted run is taken for dead.
    """
    warehouse.refresh()
    restored = files = 0
    for table in [*warehouse.tables(), *warehouse.marts()]:
        log = warehouse.log(table)
        if log.refresh() >= 0:
            if by := log.bereft_by_others(time.time() - _LOOKED_BACK_S):
                raise changed_rows(table, log, by)
            restored += _restore(warehouse, table, orphan_hours)
            files += log.vacuum(retention_hours)
    files += tidy_landed(warehouse, retention_hours)
    for small in (Watermarks(warehouse.folder).table, Landings(warehouse.folder).table):
        small.merge()
        files += small.vacuum(retention_hours)
    warehouse.commits.merge()
    files += warehouse.commits.vacuum(retention_hours)
    files += _clear_states(warehouse, retention_hours)
    return Tidied(restored, files, _clear_staging(warehouse, orphan_hours))


def _restore(warehouse: Warehouse, table: str, orphan_hours: int) -> int:
    """Put back what killed runs, and programs that merge files, have replaced in the log.

    So no reader has to look behind it, now or ever. What another program has merged goes at once: the files before it
    are vacuumed when they have been superseded for long.
    """
    log, commits = warehouse.log(table), warehouse.commits
    if log.listing().all_of(warehouse.cut.runs):
        return 0
    before = time.time() - orphan_hours * 3600
    open_runs = [file for file in log.live() if file.run not in warehouse.cut.runs and not file.foreign]
    runs = {file.run for file in open_runs if _written(log.folder / file.path) < before}
    dead = {run for run in runs if commits.renounce(run)}
    return put_back(warehouse.logs, commits, table, lambda file: file.foreign or file.run in dead)


def _clear_states(warehouse: Warehouse, hours: int) -> int:
    """Remove the states of runs that others have followed, or that died; of each the newest stays."""
    before, removed = time.time() - hours * 3600, 0
    for folder in (warehouse.folder / STATE).glob("*/interval=*"):
        files: list[Place] = [*folder.glob("*.parquet")]
        if len(warehouse.committed(files)) == len(files) == 1:
            continue
        kept = set(warehouse.state_files(folder.parent.name, folder.name.removeprefix("interval=")))
        for file in files:
            if file not in kept and _written(file) < before:
                file.unlink(missing_ok=True)
                removed += 1
    return removed


def _clear_staging(warehouse: Warehouse, hours: int) -> int:
    before, removed = time.time() - hours * 3600, 0
    for folder in (warehouse.folder / "_staging").glob("*"):
        if _touched(folder) < before:
            remove_tree(folder)
            removed += 1
    return removed


def _written(path: Place) -> float:
    """When a file was written; now, if it has just gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return time.time()


def _touched(folder: Place) -> float:
    """When something was last put into a folder."""
    return folder.touched() if isinstance(folder, ObjectPath) else _written(folder)
