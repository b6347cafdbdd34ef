"""A pipeline's tables: Delta Lake tables, read in consistent cuts and written a run at a time.

A stage's slices write data files where they stay, under names that end in the run's id. When the stage is done, each
table gets one new version that names them, and then the run its row in ``_commits``: from then on whoever begins to
read sees all of it. A kill -9 at any moment leaves files that nobody sees; daily upkeep removes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline
from tidegate.declarations.names import CORRECTED
from tidegate.declarations.tables import required_columns, schema, tables, tables_of
from tidegate.store import parquet
from tidegate.store.commit import STATE, Commit
from tidegate.store.commits import Commits
from tidegate.store.cut import Cut, read_file
from tidegate.store.delta import DeltaLog, Listing, LiveFile, run_of
from tidegate.store.intervals import Interval
from tidegate.store.places import Place, local_folder, place
from tidegate.store.withdraw import withdraw_dead

MARTS = "marts"
"""Folder of the marts; each is a table ``marts/<mart>``."""
BEFORE_DELTA = "_locks"


class Warehouse:
    """The tables of one pipeline under ``<root>/<pipeline name>``.

    What it reads is a cut: everything committed when it was first asked, and what it has committed itself since;
    ``refresh`` takes the newest. ``as_of``: the cut after that run, or at that instant, for readers only.

    ``root`` is a path or a URI. ``folder`` holds the tables, and what runs share; ``local``, the same if it is local,
    what only this machine needs: pages, logs, what dbt works with, copies that are made again when missing.
    """

    def __init__(self, root: str | Place, pipeline: Pipeline, as_of: str | datetime | None = None):
        self.root = place(root).absolute()
        self.pipeline = pipeline
        self.folder = self.root / pipeline.name
        self.local = local_folder(self.folder)
        self.as_of = as_of
        self.commits = Commits(self.folder)
        self._logs = _Logs(self)
        self._cut: Cut | None = None
        self._kept: dict[str, frozenset[str]] = {}

    @property
    def cut(self) -> Cut:
        """What this warehouse reads."""
        if self._cut is None:
            self.refresh()
        assert self._cut is not None
        return self._cut

    def refresh(self) -> None:
        """Read the newest cut from now on; one with ``as_of`` stays where it is."""
        self._require_delta()
        runs = self.commits.refresh()
        if self.as_of is not None:
            until_us = self.commits.until(self.as_of)
            runs = {run: one for run, one in runs.items() if one.at_us <= until_us}
        if self._cut is None or (self._cut.runs is not runs and self._cut.runs.keys() != runs.keys()):
            self._cut = Cut(self._logs, runs)

    @property
    def logs(self) -> Mapping[str, DeltaLog]:
        """The versions of the tables, by name; one is opened when it is first asked for."""
        return self._logs

    def log(self, table: str) -> DeltaLog:
        """The versions of one table."""
        return self._logs[table]

    def tables(self) -> list[str]:
        """Names of all tables that the pipeline declares, written or not."""
        return list(tables(self.pipeline))

    def marts(self) -> list[str]:
        """Names of the marts that have been published, as tables: ``marts/<mart>``."""
        return sorted(f"{MARTS}/{log.parent.name}" for log in (self.folder / MARTS).glob("*/_delta_log"))

    def schema(self, table: str) -> pa.Schema:
        """The table's Arrow schema, without ``interval``: as declared, but for columns that were doubles before.

        COUNT and SUM of integers were doubles once; where a query has answers from then its columns stay doubles.
        """
        declared = schema(self.pipeline, table)
        kept = self._doubles_kept(table) if any(pa.types.is_int64(field.type) for field in declared) else frozenset()
        return pa.schema([f.with_type(pa.float64()) if f.name in kept else f for f in declared])

    def _doubles_kept(self, table: str) -> frozenset[str]:
        """The columns of a query's table that are integers as declared and doubles in its answers."""
        query = next((q for q in self.pipeline.queries if table in tables_of(q)), None)
        if query is None or not any(o.type == "integer" for o in query.outputs):
            return frozenset()
        if query.id not in self._kept:
            there = DeltaLog(self.folder / f"answers_{query.id}", pa.schema([])).stored_schema()
            doubles = {field.name for field in there or () if pa.types.is_float64(field.type)}
            names = [o.name for o in query.outputs if o.type == "integer" and o.name in doubles]
            names += [pattern.format(name) for name in names for pattern in CORRECTED]
            self._kept[query.id] = frozenset(names)
        return self._kept[query.id]

    def labels(self, table: str) -> list[str]:
        """Labels of the partitions that are there, ascending."""
        return list(self.cut.table(table))

    def filled(self, table: str) -> list[str]:
        """Labels of the partitions that have rows, or may have, ascending."""
        partitions = self.cut.table(table)
        return partitions.filled if isinstance(partitions, Listing) else list(partitions)

    def rows(self, table: str, label: str) -> int:
        """Number of rows of one partition, as the log has it."""
        return sum(file.rows for file in self.live(table, label))

    def live(self, table: str, label: str) -> tuple[LiveFile, ...]:
        """The files of one partition, by name; none if it is not there."""
        return self.cut.table(table).get(label, ())

    def files(self, table: str, labels: Sequence[str]) -> tuple[str, ...]:
        """Paths of the named partitions' files, in the order of the labels."""
        folder = self.folder / table
        return tuple(f"{folder}/{file.path}" for label in labels for file in self.live(table, label))

    def require(self, table: str, labels: Sequence[str], stage: str) -> None:
        """UserError that names the missing partitions of ``table`` and the command that makes them."""
        missing = sorted(set(labels) - set(self.labels(table)))
        if missing:
            shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            raise UserError(
                f"table {table} of pipeline {self.pipeline.name} has no partition for {shown}: "
                f"run the stage {stage} for it first (tidegate run … --stage {stage})"
            )

    def read_arrow(
        self, table: str, labels: Sequence[str] | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows of the named partitions (None: of all) with a column ``interval``; absent partitions have none.

        Cost: a third of a millisecond a file that has rows, by the log; others are not opened.
        """
        wanted = self.schema(table)
        if columns is not None:
            wanted = pa.schema([wanted.field(c) for c in columns])
        required = required_columns(table)
        parts = [
            _labelled(read_file(path, wanted, required), label)
            for label in (self.filled(table) if labels is None else labels)
            for path, file in zip(self.files(table, [label]), self.live(table, label), strict=True)
            if file.rows
        ]
        if not parts:
            return wanted.append(pa.field("interval", pa.string())).empty_table()
        return pa.concat_tables(parts)

    def read_state(self, name: str, label: str) -> pa.Table | None:
        """State that a run for the interval ``label`` left for the next, or None if there is none."""
        files = self.state_files(name, label)
        return read_whole(files[0]) if files else None

    def state_files(self, name: str, label: str) -> list[Place]:
        """The files of a state as the newest committed run for the interval left them, by name."""
        found = self.committed((self.folder / STATE / name / f"interval={label}").glob("*.parquet"))
        return sorted(file for file in found if run_of(file.name) == run_of(found[-1].name))

    def committed(self, files: Iterable[Place]) -> list[Place]:
        """Those of some files beside the tables whose runs the cut holds, in the order of the commits."""
        runs = self.cut.runs
        return sorted((f for f in files if run_of(f.name) in runs), key=lambda file: runs[run_of(file.name)])

    def state_labels(self, name: str) -> list[str]:
        """Labels of the intervals that have left this state, ascending."""
        folders = (self.folder / STATE / name).glob("interval=*")
        labels = sorted(folder.name.removeprefix("interval=") for folder in folders)
        return [label for label in labels if self.state_files(name, label)]

    @contextmanager
    def commit(self, stage: str, intervals: Iterable[Interval], begun: Set[str] | None = None) -> Iterator[Commit]:
        """Write partitions; on leaving without an error, they become visible together.

        UserError if another run of the stage has committed one of the intervals meanwhile (``begun``: the runs that
        were committed when this one began, by default now); then nothing becomes visible. Runs for other intervals,
        and of other stages, are not in each other's way.
        """
        self.refresh()
        withdraw_dead(self.folder, self._logs, self.commits)
        labels = [interval.label for interval in intervals]
        commit = Commit(self, stage, labels, self.cut.runs.keys() if begun is None else begun)
        try:
            try:
                yield commit
            except BaseException:
                commit.discard()
                raise
            commit.publish()
        finally:
            commit.close()
        # Taken when it is asked for: what fails from here on does not say that the commit has.
        self._cut = None

    def _require_delta(self) -> None:
        if isinstance(self.folder, Path) and (self.folder / BEFORE_DELTA).is_dir():
            raise UserError(
                f"the tables of pipeline {self.pipeline.name} in {self.root} are of an older version: "
                f"tidegate migrate {self.pipeline.folder} --warehouse {self.root} makes them Delta tables"
            )


class _Logs(dict[str, DeltaLog]):
    """Opens a table's log when it is first asked for."""

    def __init__(self, warehouse: Warehouse):
        super().__init__()
        self._warehouse = warehouse

    def __missing__(self, table: str) -> DeltaLog:
        # A mart's columns are what dbt has built; whoever writes one says which.
        own = pa.schema([]) if table.startswith(f"{MARTS}/") else self._warehouse.schema(table)
        self[table] = DeltaLog(self._warehouse.folder / table, own)
        return self[table]


def read_whole(path: Place) -> pa.Table:
    """All rows of a state's file."""
    try:
        return parquet.opened(path).read()
    except pa.ArrowInvalid as error:
        raise UserError(
            f"{path} is damaged ({str(error).splitlines()[0][:200]}): run that interval's stage again"
        ) from None


def _labelled(rows: pa.Table, label: str) -> pa.Table:
    return rows.append_column("interval", pa.repeat(pa.scalar(label, pa.string()), rows.num_rows))
