"""Which engine runs a statement of dbt's: Spark, but DuckDB for tests; relations are made when they are first named.

A run of little data pays for Spark's planning, not for its rows: for every table attached, every view, every test. So a
table of the warehouse, or a view that dbt creates, is only noted until a statement names it; and tests, which read a
relation once and count, are translated for DuckDB, which reads the same files. What DuckDB does not understand or fails
at is left to Spark, so every error is Spark's.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from tidegate.store.places import fetch, place

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame, SparkSession

# dbt says in a comment for which node a statement is.
_TEST = re.compile(r'/\* [^\n]*"node_id": "test\.[^\n]*\*/\s*(?:select|with)\b', flags=re.IGNORECASE)
_VIEW = re.compile(r"(?:/\*[^\n]*\*/)?\s*create or replace view\s+(\S+)\s+as\s+(.*)", flags=re.DOTALL)
_NAME = re.compile(r"[\w`]+\.[\w`]+")
_DUCKDB: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "1GB",
    "threads": 2,
    "autoinstall_known_extensions": "false",
}

# DuckDB's time grows with the square of their number.
_FILES_AT_ONCE = 1000


@dataclass(frozen=True)
class SourceTable:
    """A table of Parquet files: its columns and their types in Spark SQL, its folder, those of its files that are seen.

    Without columns, those of the files. ``gathered``: where the rows of all files stand in one.
    """

    name: str
    columns: dict[str, str]
    path: str
    files: list[str]
    gathered: str | None = None

    def link(self, folder: Path) -> None:
        """Link the files into a folder of partitions, or fetch them: Spark cannot read s3://."""
        folder.mkdir(parents=True)
        for file in self.files:
            target = folder / file
            target.parent.mkdir(exist_ok=True)
            fetch(place(self.path) / file, target)

    def spark_columns(self) -> str:
        """What a statement that creates the table says of its columns."""
        if not self.columns:
            return "using parquet"
        columns = ", ".join(f"`{name}` {kind}" for name, kind in self.columns.items())
        return f"({columns}, `interval` string) using parquet" + (
            "" if self.gathered else " partitioned by (`interval`)"
        )

    def gather(self, there: Sequence[str] = ()) -> None:
        """Write the rows of all files, which are on this machine, into one, or some of many rows.

        ``there``: files whose rows an earlier time has written; if one of them has been replaced since, all are again.
        """
        import duckdb

        assert self.gathered is not None
        folder, there = Path(self.gathered), there if set(self.files).issuperset(there) else ()
        folder.mkdir(parents=True, exist_ok=True)
        for part in folder.iterdir():
            if part.name >= _part(len(there)):
                part.unlink()
        known = set(there)
        missing = [file for file in self.files if file not in known]
        columns = ", ".join('"' + name.replace('"', '""') + '"' for name in (*self.columns, "interval"))
        with duckdb.connect(config=_DUCKDB) as connection:
            connection.execute("set TimeZone = 'UTC'")
            for first in range(0, len(missing), _FILES_AT_ONCE):
                files = [Path(self.path) / file for file in missing[first : first + _FILES_AT_ONCE]]
                to = f"{_text(folder / _part(len(there) + first))} (format parquet)"
                try:
                    connection.execute(f"copy (select {columns} from {_read(files, alike=True)}) to {to}")
                except duckdb.Error:
                    # Some were written before a column was declared: to look at the columns of all takes longer.
                    connection.execute(f"copy (select * from {_read(files)}) to {to}")

    def nothing(self) -> str:
        """A query in Spark SQL that has the table's columns, and no row."""
        columns = {**self.columns, "interval": "string"}
        return f"select {', '.join(f'cast(null as {kind}) as `{name}`' for name, kind in columns.items())} where false"


@dataclass(frozen=True)
class Counted:
    """DuckDB's answer to a test, with as much of a DataFrame as dbt-spark asks for."""

    names: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()

    @property
    def schema(self) -> Any:
        """The names of the columns; dbt takes their types from the values."""
        from pyspark.sql.types import NullType, StructField, StructType

        return StructType([StructField(name, NullType()) for name in self.names])

    def collect(self) -> list[tuple[Any, ...]]:
        """All rows."""
        return list(self.rows)


class Statements:
    """Takes the place of a Spark session's ``sql``; safe for dbt's threads.

    ``links``: a folder that is emptied, and in which each table's files stand apart from those of other versions.
    ``built``: the folder in which dbt builds tables; without it, tests too run on Spark.
    """

    def __init__(self, spark: SparkSession, links: Path, built: Path | None = None) -> None:
        shutil.rmtree(links, ignore_errors=True)
        self.tests_on_spark = 0
        self._spark_sql = spark.sql
        self._links, self._built = links, built
        self._tables: dict[str, SourceTable] = {}
        # Name → the statement that creates the view, and its query.
        self._views: dict[str, tuple[str, str]] = {}
        self._in_spark: set[str] = set()
        self._in_duckdb: set[str] = set()
        self._duckdb: DuckDBPyConnection | None = None
        self._lock = RLock()

    def attach(self, schema: str, tables: Iterable[SourceTable]) -> None:
        """Make tables known by name; no look at their files before a statement names them."""
        self._spark_sql(f"create schema if not exists {schema}")
        self._tables |= {f"{schema}.{table.name}": table for table in tables}

    def make_all(self) -> None:
        """Make what was only noted, for who lists the catalog."""
        for name in [*self._tables, *self._views]:
            self._make(name)

    def sql(self, statement: str) -> DataFrame | Counted:
        """What the statement gives; all that it names exists by then."""
        if view := _VIEW.fullmatch(statement):
            name = view[1].replace("`", "")
            with self._lock:
                self._views[name] = (statement, view[2])
                self._in_spark.discard(name)
                self._in_duckdb.discard(name)
            return Counted()
        if self._built and _TEST.match(statement) and (counted := self._counted(statement)):
            return counted
        for name in _names(statement):
            self._make(name)
        return self._spark_sql(statement)

    def _make(self, name: str) -> None:
        with self._lock:
            if name in self._in_spark:
                return
            if name in self._views:
                statement, query = self._views[name]
                for other in _names(query):
                    self._make(other)
                self._spark_sql(statement)
            elif table := self._tables.get(name):
                location = quoted(self._linked(name, table))
                self._spark_sql(f"create table {name} {table.spark_columns()} location '{location}'")
            self._in_spark.add(name)

    def _counted(self, test: str) -> Counted | None:
        """The test by DuckDB; None if it does not understand it."""
        import duckdb
        from sqlglot.errors import SqlglotError

        with self._lock:
            try:
                return self._by_duckdb(test)
            except (duckdb.Error, SqlglotError):
                self.tests_on_spark += 1
                return None

    def _by_duckdb(self, test: str) -> Counted:
        import duckdb

        if self._duckdb is None:
            self._duckdb = duckdb.connect(config={**_DUCKDB, "temp_directory": str(self._links)})
            self._duckdb.execute("set TimeZone = 'UTC'")
        for name in _names(test):
            self._make_in_duckdb(self._duckdb, name)
        cursor = self._duckdb.execute(_for_duckdb(test))
        return Counted(tuple(column[0] for column in cursor.description or ()), tuple(cursor.fetchall()))

    def _make_in_duckdb(self, connection: DuckDBPyConnection, name: str) -> None:
        if name in self._in_duckdb:
            return
        schema, _, own = name.partition(".")
        if name in self._views:
            for other in _names(self._views[name][1]):
                self._make_in_duckdb(connection, other)
            query = _for_duckdb(self._views[name][1])
        elif table := self._tables.get(name):
            # A file without a column that the table has got since: DuckDB misses it, and Spark tests.
            query = _files_for_duckdb(self._linked(name, table)) or _for_duckdb(table.nothing())
        elif self._built and (files := _files_for_duckdb(self._built / own)):
            query = files
        else:
            return
        connection.execute(f'create schema if not exists "{schema}"')
        connection.execute(f'create or replace view "{schema}"."{own}" as {query}')
        self._in_duckdb.add(name)

    def _linked(self, name: str, table: SourceTable) -> Path:
        if table.gathered is not None:
            return Path(table.gathered)
        folder = self._links / name
        if not folder.exists():
            table.link(folder)
        return folder


def _part(files_before: int) -> str:
    """Name of a file of gathered rows: by how many files' rows stand in those before it."""
    return f"part-{files_before:08d}.parquet"


def quoted(path: Path) -> str:
    """A path between the quotes of Spark SQL."""
    return str(path).replace("\\", "\\\\").replace("'", "\\'")


def _names(sql: str) -> Iterator[str]:
    """What may be names of relations in it.

    >>> list(_names("select a.x from warehouse.`accuracy` as a"))
    ['a.x', 'warehouse.accuracy']
    """
    return (name.replace("`", "") for name in _NAME.findall(sql))


def _for_duckdb(sql: str) -> str:
    import sqlglot

    return str(sqlglot.transpile(sql, read="spark", write="duckdb")[0])


def _files_for_duckdb(folder: Path) -> str | None:
    """A query over the Parquet files of a table, partitions and all; None if there are none."""
    files = sorted(folder.rglob("*.parquet"))
    return f"select * from {_read(files)}" if files else None


def _read(files: Iterable[Path], alike: bool = False) -> str:
    """Files of partitions; ``alike``: an error if one lacks a column that the first has."""
    options = f"hive_partitioning = true, hive_types_autocast = false, union_by_name = {str(not alike).lower()}"
    return f"read_parquet([{', '.join(map(_text, files))}], {options})"


def _text(path: Path) -> str:
    """A path between the quotes of DuckDB."""
    return "'" + str(path).replace("'", "''") + "'"
