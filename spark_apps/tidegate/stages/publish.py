"""Stage ``publish``: the dbt marts of the run's intervals, built, tested, and only then put in place.

Write, audit, publish: dbt builds every mart for the run's intervals alone, into a folder that nobody reads, and runs
its tests there. Meanwhile each mart that is built is cut by interval; if the tests pass, the rows replace the
intervals' partitions of the Delta table ``<warehouse>/<pipeline>/marts/<mart>``, all marts in one commit. So a re-run
leaves the same rows, an interval that has become empty leaves an empty partition (dbt's own dynamic
``insert_overwrite`` would leave the old rows), and nobody ever sees a row that failed a test. What is there already as
it would come out is neither built nor tested: intervals whose tables have not changed, and of the others the models
that none of the changed tables leads to.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.errors import UserError
from tidegate.engine.context import RunContext
from tidegate.stages.dbt_process import Dbt
from tidegate.stages.dbt_project import render_project, spark_type
from tidegate.stages.dbt_session import Session
from tidegate.stages.dbt_statements import SourceTable
from tidegate.stages.extras import require_stage
from tidegate.stages.launcher import launch
from tidegate.stages.machine_errors import of_the_machine
from tidegate.stages.publish_account import Changes, changes, checked_beside
from tidegate.store import parquet
from tidegate.store.commit import Commit
from tidegate.store.intervals import Interval
from tidegate.store.warehouse import MARTS, Warehouse
from tidegate.values.types import TIMESTAMP

STAGE = "publish"
_PUBLISHED = "published.json"
"""What the last run has published, in the folder ``_dbt``: ``fingerprint`` of the project, ``starts`` of its intervals.

``tidegate_dags.publishing`` reads it.
"""
_PAGE = Path("_docs", "dbt", "index.html")
_GATHERED = "gathered"
_FILES_APART = 64
_SMALL_FILE_BYTES = 1 << 18
_AT_ONCE = 2
_MANY_ROWS = 200_000
_NAMED_FAILURES = 10
_MOST_BESIDE = 95
_MESSAGE_CHARACTERS = 400


def run(context: RunContext, intervals: Sequence[Interval], with_checked: bool = False) -> None:
    """Build, test and publish the marts of these intervals that would differ; the docs page too, if the models changed.

    ``with_checked``: together with those of the intervals next to them that have been checked and wait to be published,
    if these pass too. It costs little more: most of a run is what a query costs, however few its rows are.

    UserError that names the tests that failed; then nothing is published.
    """
    with turn(context) as one:
        one.run(intervals, with_checked)


@contextmanager
def turn(context: RunContext) -> Iterator[Turn]:
    """Wait for other runs of this stage to end; then it is this one's turn."""
    require_stage(STAGE)
    home = context.warehouse.local / "_dbt"
    with _lock(context, home) as lock, ExitStack() as started:
        yield Turn(context, home, lock, render_project(context.warehouse, home / "project"), started)


@dataclass(eq=False)
class Turn:
    """The one run of this stage that is at work. ``started`` ends what it has started."""

    context: RunContext
    home: Path
    lock: int
    fingerprint: str
    started: ExitStack
    dbt: Dbt | None = None
    gathered: Sequence[SourceTable] = ()

    def start(self, intervals: Sequence[Interval]) -> None:
        """Begin with what needs not wait for the stages that are still at work on these intervals beside this process.

        dbt parses, its Spark starts, and one file is made of the many that a table has so far.
        """
        warehouse = self.context.warehouse
        todo = changes(warehouse, intervals, self.fingerprint)
        if not todo.intervals:
            return
        self.dbt = self._dbt()
        self.gathered = _source_tables(warehouse, todo.intervals)
        _gather(self.gathered)

    def run(self, intervals: Sequence[Interval], with_checked: bool = False) -> None:
        """See ``publish.run``."""
        context, fingerprint, warehouse = self.context, self.fingerprint, self.context.warehouse
        last = _last_fingerprint(self.home)
        if last not in ("", fingerprint):
            context.progress("publish: the models changed; intervals published before follow when they are run again")
        # The page shows the last build's catalog: where it is missing, all is built.
        documented = (warehouse.local / _PAGE).is_file() and last == fingerprint
        todo = changes(warehouse, intervals, fingerprint, everything=not documented)
        if stand := len(intervals) - len(todo.intervals):
            of = f"{stand} of {len(intervals)} intervals"
            context.progress(f"publish: nothing has changed in {of} since their marts were built and tested")
        if not todo.intervals:
            return
        beside = checked_beside(warehouse, intervals, _MOST_BESIDE) if with_checked else []
        together = todo
        if beside:
            context.progress(f"publish: with {len(beside)} more, checked: {beside[0].label} to {beside[-1].label}")
            together = changes(warehouse, sorted({*intervals, *beside}), fingerprint, everything=not documented)
        try:
            self._publish(together, documented)
        except UserError as error:
            if not beside:
                raise
            context.progress(f"publish: together they failed, so without the others: {error}")
            together = todo
            self._publish(together, documented)
        starts = [interval.start.isoformat() for interval in together.intervals]
        # A run that is killed here leaves the old file, not half of a new one.
        partial = self.home / f".{_PUBLISHED}"
        partial.write_text(json.dumps({"fingerprint": fingerprint, "starts": starts}))
        os.replace(partial, self.home / _PUBLISHED)

    def _publish(self, todo: Changes, documented: bool) -> None:
        """Build, test, and put in place."""
        context = self.context
        with context.stage(STAGE, todo.intervals) as stage:
            dbt, self.dbt = self.dbt or self._dbt(), None
            session = prepare_session(context.warehouse, todo, documented, self.gathered)
            marts = []

            def cut(mart: str) -> None:
                marts.append(mart)
                built = publish_mart(stage.commit, mart, Path(session.slice) / mart, todo.intervals)
                for interval, rows in built.items():
                    stage.record(interval, rows_out=rows)

            # What fails a test is cut all the same, but not committed; what was not heard of is cut at the end.
            outcome = dbt.build(session, lambda line: context.progress(f"publish: {line}"), cut)
            if outcome["failures"]:
                raise _failure(outcome, self.home)
            for mart in outcome["marts"]:
                if mart not in marts:
                    cut(mart)
            context.progress(f"publish: {outcome['models']} models built, {outcome['tests']} tests passed")
            for interval in todo.intervals:
                todo.keep(stage.commit, interval, marts)
        shutil.rmtree(session.slice, ignore_errors=True)
        shutil.rmtree(self.home / _GATHERED, ignore_errors=True)

    def _dbt(self) -> Dbt:
        # What pyarrow starts for an object store survives no fork.
        forked = "TIDEGATE_WARM" in os.environ and isinstance(self.context.warehouse.folder, Path)
        return self.started.enter_context(Dbt(self.home, self.lock, forked))


def prepare_session(
    warehouse: Warehouse, todo: Changes, documented: bool, gathered: Sequence[SourceTable] = ()
) -> Session:
    """What dbt is told of a run; makes one file of a table's many, but for those that are ``gathered``."""
    home = warehouse.local / "_dbt"
    labels = [interval.label for interval in todo.intervals]
    tables = _source_tables(warehouse, todo.intervals)
    _gather(tables, gathered)
    rows = sum(warehouse.rows(table, label) for table in warehouse.tables() for label in labels)
    return Session(
        project=str(home / "project"),
        home=str(home),
        slice=str(home / "slice"),
        marts=str(warehouse.folder / MARTS),
        docs_page=None if documented else str(warehouse.local / _PAGE),
        result=str(home / "result.json"),
        tables=tables,
        changed=None if todo.tables is None else sorted(todo.tables),
        much=rows > _MANY_ROWS,
    )


def publish_mart(commit: Commit, mart: str, built: Path, intervals: Sequence[Interval]) -> dict[Interval, int]:
    """Cut a built mart by interval and put every interval's partition aside for the commit; interval → rows.

    Rows are sorted by all columns that can be, in their order, so equal rows give equal files.
    """
    data = pa.concat_tables([parquet.opened(file).read() for file in sorted(built.glob("*.parquet"))])
    unknown = set(pc.unique(data["interval"]).to_pylist()) - {i.label for i in intervals}
    if unknown:
        raise RuntimeError(f"mart {mart} has rows of intervals that this run is not about: {sorted(unknown)}")
    keys = [f.name for f in data.schema if not pa.types.is_nested(f.type) and f.name != "interval"]
    data = data.sort_by([(name, "ascending") for name in ("interval", *keys)])
    data = data.combine_chunks().replace_schema_metadata(None)
    data = data.cast(_delta_schema(data.schema))
    rows, table = {}, f"{MARTS}/{mart}"
    labels, own = data["interval"].to_pylist(), data.drop_columns(["interval"])
    commit.warehouse.log(table).schema = own.schema
    for interval in intervals:
        first, last = bisect_left(labels, interval.label), bisect_right(labels, interval.label)
        part = own.slice(first, last - first)
        commit.put_rows(table, interval, part)
        rows[interval] = part.num_rows
    return rows


def _delta_schema(built: pa.Schema) -> pa.Schema:
    """Instants in UTC to the microsecond, everything nullable: what Delta tables have."""

    def kind(type_: pa.DataType) -> pa.DataType:
        return TIMESTAMP if pa.types.is_timestamp(type_) else type_

    return pa.schema([pa.field(field.name, kind(field.type)) for field in built])


def _last_fingerprint(home: Path) -> str:
    """The fingerprint of the project that was published last; empty before the first time."""
    path = home / _PUBLISHED
    fingerprint: str = json.loads(path.read_text())["fingerprint"] if path.is_file() else ""
    return fingerprint


@contextmanager
def _lock(context: RunContext, home: Path) -> Iterator[int]:
    """Wait for the lock; its descriptor. It dies with its holders, however they end."""
    home.mkdir(parents=True, exist_ok=True)
    with open(home / "lock", "a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            context.progress(f"publish: waiting for another run of this stage to end (process {holder})")
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield lock.fileno()


def _source_tables(warehouse: Warehouse, intervals: Sequence[Interval]) -> list[SourceTable]:
    labels = [interval.label for interval in intervals]
    return [_source_table(warehouse, table, labels) for table in warehouse.tables()]


def _source_table(warehouse: Warehouse, table: str, labels: Sequence[str]) -> SourceTable:
    columns = {field.name: spark_type(field.type) for field in warehouse.schema(table)}
    there = [file for label in labels for file in warehouse.live(table, label)]
    # One without a row has the columns all the same; to open more of them costs as much as those with rows.
    files = [file for file in there if file.rows] or there[:1]
    # Where files are small, each costs more than its rows, every time that the table is read.
    many = len(files) > _FILES_APART and sum(file.size for file in files) <= len(files) * _SMALL_FILE_BYTES
    gathered = (
        str(warehouse.local / "_dbt" / _GATHERED / table) if many and isinstance(warehouse.folder, Path) else None
    )
    return SourceTable(table, columns, str(warehouse.folder / table), [file.path for file in files], gathered)


def _gather(tables: Sequence[SourceTable], before: Sequence[SourceTable] = ()) -> None:
    """Make one file of each that has many; of those that it had ``before`` there is one."""
    there = {table.name: table.files for table in before if table.gathered}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda table: table.gather(there.get(table.name, ())), [t for t in tables if t.gathered]))


def _failure(outcome: dict[str, Any], home: Path) -> Exception:
    """What is raised: of many models that failed because a disk is full, the disk is told."""
    told = RuntimeError("\n".join(failure["message"] for failure in outcome["failures"]))
    return told if of_the_machine(told) else UserError(_failure_message(outcome, home))


def _failure_message(outcome: dict[str, Any], home: Path) -> str:
    failures = outcome["failures"]
    lines = [f"  {f['name']} ({f['status']}): {f['message'][:_MESSAGE_CHARACTERS]}" for f in failures[:_NAMED_FAILURES]]
    more = [f"  and {len(failures) - _NAMED_FAILURES} more"] if len(failures) > _NAMED_FAILURES else []
    skipped = f", {outcome['skipped']} models and tests that depend on them skipped" if outcome.get("skipped") else ""
    head = f"dbt: {len(failures)} of the models and tests failed{skipped}; nothing was published"
    where = f"  log: {home / 'logs' / 'dbt.log'}; compiled SQL: {home / 'target' / 'compiled'}"
    return "\n".join([head, *lines, *more, where])


if __name__ == "__main__":
    launch(STAGE)
