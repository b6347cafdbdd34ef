"""``tidegate migrate``: a warehouse that an older version has written becomes one of this version's format.

The tables of version 0.1, folders of Parquet, become Delta tables where they are.

No row is read or written: the files get a second name that ends in the migration's run, the tables' logs name them,
and one commit makes them visible. Only then do the old names go. A kill at any moment leaves the old tables or the new
ones; run it again.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.declarations.errors import UserError
from tidegate.store.commit import STATE
from tidegate.store.delta import LiveFile, ReplacedBy, flush_logs, live_file, run_of
from tidegate.store.durable import flush
from tidegate.store.format import FORMAT
from tidegate.store.warehouse import BEFORE_DELTA, MARTS, Warehouse

STAGE = "migrate"
_OLD_MARTS = "_dbt/marts"


def migrate(warehouse: Warehouse, say: Callable[[str], None] = lambda _: None) -> int:
    """Make Delta tables of folders of Parquet, how many, and raise the format; UserError if there is nothing to do."""
    folder = warehouse.folder
    if not isinstance(folder, Path) or not (folder / BEFORE_DELTA).is_dir():
        there = warehouse.commits.format
        if there is None or there == FORMAT:
            raise UserError(f"{folder} holds no tables of an older version: there is nothing to migrate")
        warehouse.commits.begin()
        say(f"migrate: format {there} → {FORMAT}")
        return 0
    _carry_out_journals(folder)
    warehouse.commits.begin()
    committed = [one for one in warehouse.commits.refresh().values() if one.stage == STAGE]
    run = committed[0].run if committed else f"{STAGE}{uuid.uuid4().hex[:12]}"
    here = {name: folder / name for name in warehouse.tables()}
    here |= {f"{MARTS}/{old.name}": old for old in (folder / _OLD_MARTS).glob("*")}
    found = {table: old for table, old in here.items() if any(old.glob("interval=*/*.parquet"))}
    if not committed:
        versions, labels = {}, set[str]()
        _link_all(folder / STATE, run)
        for table, old in found.items():
            _link_all(old, run, folder / table)
        flush(
            (path for place in (folder / STATE, *here.values()) for path in place.glob(f"**/*-{run}.parquet")), folder
        )
        for table in found:
            say(f"migrate: {table}")
            files = _named(folder / table, run)
            log = warehouse.log(table)
            if table.startswith(MARTS):
                log.schema = _schema_of(folder / table, files)
            labels |= {file.label for file in files}
            versions[table] = log.replace(files, ReplacedBy(file.label for file in files))
        flush_logs([warehouse.log(table) for table in versions], folder)
        warehouse.commits.append(STAGE, run, sorted(labels), versions, frozenset(), frozenset())
    _remove_old(folder, [folder / STATE, *(folder / table for table in found)], run)
    return len(found)


def _link_all(old: Path, run: str, new: Path | None = None) -> None:
    """Give every file a second name that ends in the run, in the same partition (of ``new``)."""
    for file in sorted(old.glob("**/interval=*/*.parquet")):
        if run_of(file.name).startswith(STAGE):
            file.unlink()  # of a migration that was killed
            continue
        target = (new or old) / file.parent.relative_to(old) / f"{file.stem}-{run}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(file, target)


def _named(table: Path, run: str) -> list[LiveFile]:
    files = sorted(table.glob(f"interval=*/*-{run}.parquet"))
    return [live_file(file, file.parent.name.removeprefix("interval=")) for file in files]


def _schema_of(mart: Path, files: Sequence[LiveFile]) -> pa.Schema:
    newest = pq.read_schema(mart / max(files).path)
    return pa.schema([pa.field(f.name, f.type) for f in newest])


def _remove_old(folder: Path, tables: Sequence[Path], run: str) -> None:
    for table in tables:
        for file in table.glob("**/interval=*/*.parquet"):
            if run_of(file.name) != run:
                file.unlink()
    for name in ("_live", "_staging", "_sifted", _OLD_MARTS, f"{STATE}/history_index", BEFORE_DELTA):
        shutil.rmtree(folder / name, ignore_errors=True)


def _carry_out_journals(folder: Path) -> None:
    """Move in what killed runs of the older version had decided."""
    for journal in sorted((folder / "_staging").glob("*/journal.json")):
        for move in json.loads(journal.read_text())["moves"]:
            source, target = journal.parent / move, folder / move.partition("/")[2]
            if source.is_dir() and any(source.iterdir()):
                shutil.rmtree(target, ignore_errors=True)
            if source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(source, target)
        journal.unlink()
