"""DuckDB for one client: it reads one pipeline's tables, within limits, and can do nothing else."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from tidegate.sql import catalog, objects, values
from tidegate.sql.guard import Guard, Judged, Refused, first_line
from tidegate.sql.relations import MARTS, TABLES, files_of, manifest_path, relations
from tidegate.sql.wire import data_rows
from tidegate.store.warehouse import Warehouse

_MIB = 1 << 20
_BATCH_ROWS = 2048
_ATTEMPTS = 3
_GRACE_S = 5.0
# What DuckDB and pyarrow take beside what DuckDB counts.
_OVERHEAD_BYTES = 512 * _MIB


@dataclass(frozen=True)
class Limits:
    """What one client may use. ``seconds`` and ``rows`` are a statement's."""

    seconds: float = 60.0
    rows: int = 1_000_000
    memory_bytes: int = 512 * _MIB
    clients: int = 16

    @property
    def process_bytes(self) -> int:
        """What a client's process may take."""
        return self.memory_bytes + _OVERHEAD_BYTES


@dataclass(frozen=True)
class Column:
    """A column of a result."""

    name: str
    type: values.ColumnType


class Engine:
    """The tables as views, and one statement at a time."""

    def __init__(self, warehouse: Warehouse, limits: Limits):
        self._warehouse = warehouse
        self._limits = limits
        self._connection = duckdb.connect(":memory:")
        objects.give(self._connection, warehouse.folder)
        for setting in self._configuration():
            self._connection.execute(f"SET {setting}")
        self._views: dict[tuple[str, str], str] = {}
        self._manifest_time: int | None = None
        self._running: duckdb.DuckDBPyConnection | None = None
        self._stopped = ""
        self.refresh()

    def _configuration(self) -> list[str]:
        folder = str(self._warehouse.folder).replace("'", "''")
        return [
            f"memory_limit = '{self._limits.memory_bytes // _MIB}MiB'",
            "threads = 2",
            "TimeZone = 'UTC'",
            "temp_directory = ''",
            "max_temp_directory_size = '0KiB'",
            "autoinstall_known_extensions = false",
            "autoload_known_extensions = false",
            "allow_community_extensions = false",
            "python_enable_replacements = false",
            f"allowed_directories = ['{folder}/']",
            "enable_external_access = false",
            "lock_configuration = true",
        ]

    def refresh(self) -> None:
        """Learn which relations there are, if a publication has changed them. Cost: a look at one file."""
        path = manifest_path(self._warehouse)
        changed = path.stat().st_mtime_ns if path.is_file() else 0
        if changed == self._manifest_time:
            return
        try:
            found = relations(self._warehouse)
        except ValueError:  # dbt is writing it: what was known still holds
            if self._manifest_time is not None:
                return
            found, changed = relations(self._warehouse, published=False), -1
        schemas = (MARTS, TABLES, "pg", "info")
        self._connection.execute("".join(f"DROP SCHEMA IF EXISTS {schema} CASCADE;" for schema in schemas))
        self._connection.execute(f"CREATE SCHEMA {MARTS}; CREATE SCHEMA {TABLES}")
        name = self._warehouse.pipeline.name
        self._oids = catalog.create(self._connection, name, os.getpid(), found)
        self._relations = {(r.schema, r.name.lower()): r for r in found}
        self._views.clear()
        self._manifest_time = changed

    def guard(self, settings: dict[str, str], search_path: Sequence[str]) -> Guard:
        """Who judges a statement under a client's settings."""
        return Guard(self._connection, self._oids, self._warehouse.pipeline.name, settings, search_path)

    def columns(self, judged: Judged) -> list[Column]:
        """The columns of a statement's result, without running it. Raises Refused."""
        return self._bound(judged)[1]

    def run(self, judged: Judged) -> Rows:
        """Start a statement. If upkeep removes a file that it is about to read, it starts again. Raises Refused."""
        for _ in range(_ATTEMPTS):
            relation, columns = self._bound(judged)
            try:
                reader = relation.to_arrow_reader(_BATCH_ROWS)
                return Rows(self, columns, reader, next(reader, None))
            except READING as error:
                if not _vanished(error):
                    raise self.told(error) from None
        raise Refused("40001", "a table was replaced while it was read: run it again")

    def _bound(self, judged: Judged) -> tuple[duckdb.DuckDBPyRelation, list[Column]]:
        cursor = self._connection.cursor()
        self._running = cursor
        try:
            self._attach(judged)
            relation = cursor.sql(judged.text)
        except duckdb.Error as error:
            raise self.told(error) from None
        kinds = [values.column_type(str(kind)) for kind in relation.types]
        return relation, [Column(name, kind) for name, kind in zip(relation.columns, kinds, strict=True)]

    def _attach(self, judged: Judged) -> None:
        """Make the views that a statement reads show what is committed now, all of them the same cut."""
        self._warehouse.refresh()
        for key in judged.reads:
            relation = self._relations[key]
            ddl = relation.duckdb_ddl(files_of(self._warehouse, relation))
            if self._views.get(key) != ddl:
                self._connection.execute(ddl)
                self._views[key] = ddl

    @contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """Interrupt what runs in here after ``seconds``; the kernel ends the process if it does not heed that."""
        self._stopped = ""
        timer = threading.Timer(seconds, self.stop, ["canceling statement due to statement timeout"])
        timer.daemon = True
        signal.setitimer(signal.ITIMER_REAL, seconds + _GRACE_S)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._running = None

    def stop(self, why: str) -> None:
        """Interrupt the statement that runs, from another thread."""
        running = self._running
        if running is not None:
            self._stopped = why
            running.interrupt()

    def check(self) -> None:
        """Raise Refused if the statement was stopped."""
        if self._stopped:
            raise Refused("57014", self._stopped)

    def told(self, error: Exception) -> Refused:
        """What a client sees of an error of DuckDB: no path, no trace."""
        if self._stopped or isinstance(error, duckdb.InterruptException) or "INTERRUPT" in str(error):
            return Refused("57014", self._stopped or "canceling statement")
        message = first_line(error).replace(str(self._warehouse.folder), "…")
        return Refused(next((code for kind, code in _CODES if isinstance(error, kind)), "XX000"), message)


class Rows:
    """A result under way: rows as messages, as many at a time as are asked for."""

    def __init__(
        self, engine: Engine, columns: list[Column], reader: pa.RecordBatchReader, first: pa.RecordBatch | None
    ):
        self.columns = columns
        self.sent = 0
        self.suspended = False
        self._engine = engine
        self._reader = reader
        self._batch = first
        self._ready: list[bytes] = []

    def take(self, most: int, formats: Sequence[int], limit: int) -> Iterator[bytes]:
        """At most ``most`` rows (0: all), never more than ``limit`` in total; afterwards, ``suspended`` says whether
        there may be more. Raises Refused.
        """
        taken = 0
        self.suspended = False
        while self._ready or self._fill(formats):
            room = len(self._ready) if not most else min(len(self._ready), most - taken)
            if self.sent + room > limit:
                raise Refused("54000", f"the result has more than {limit:,} rows: add LIMIT or a condition")
            yield b"".join(self._ready[:room])
            del self._ready[:room]
            taken += room
            self.sent += room
            if taken == most:
                self.suspended = True
                return

    def _fill(self, formats: Sequence[int]) -> bool:
        while self._batch is not None and not self._ready:
            self._engine.check()
            parts = zip(self._batch.columns, self.columns, formats, strict=True)
            self._ready = list(data_rows([values.encoded(part, c.type, form) for part, c, form in parts]))
            try:
                self._batch = next(self._reader, None)
            except READING as error:
                raise self._engine.told(error) from None
        return bool(self._ready)


def _vanished(error: Exception) -> bool:
    """Whether a file went away between the listing and the reading."""
    return isinstance(error, duckdb.IOException | OSError) or "IO Error" in str(error)


READING = (duckdb.Error, pa.ArrowException, OSError)
_CODES: tuple[tuple[type[duckdb.Error], str], ...] = (
    (duckdb.ParserException, "42601"),
    (duckdb.CatalogException, "42704"),
    (duckdb.BinderException, "42P10"),
    (duckdb.ConversionException, "22P02"),
    (duckdb.OutOfRangeException, "22003"),
    (duckdb.OutOfMemoryException, "53200"),
    (duckdb.InvalidInputException, "22023"),
    (duckdb.NotImplementedException, "0A000"),
    (duckdb.PermissionException, "42501"),
)
