"""What an analyst can ask by SQL: the warehouse's tables and the published marts, with their meanings.

Names are dbt's (``warehouse.<table>``, ``tidegate.<mart>``), columns are the declared ones, comments are the models'
descriptions as dbt resolved them when it published last. Nothing is inferred from files, so a table without a partition
is there and empty, and a partition from before a column was added has nulls in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidegate.declarations.errors import UserError
from tidegate.stages.dbt_project import spark_type
from tidegate.store.warehouse import MARTS as STORED
from tidegate.store.warehouse import Warehouse

TABLES, MARTS = "warehouse", "tidegate"
_OF_THE_STORE = """-- The files are in an object store. DuckDB reads it by its extension httpfs (a download), with keys:
--   CREATE SECRET (TYPE s3, PROVIDER credential_chain);
-- In Python it needs no download: connection.register_filesystem() takes a file system of fsspec.
"""


@dataclass(frozen=True)
class Column:
    """A column: its name, its type in Spark SQL, what it means."""

    name: str
    type: str
    comment: str


@dataclass(frozen=True)
class Relation:
    """A table or mart: columns without the partition ``interval``, and what the warehouse calls it (``table``).

    ``newest``: the table has versions of each window; the relation has the one that was known last.
    ``updates``: a table with further answers; the relation has the newest revision of each row, told apart by ``keys``.
    """

    schema: str
    name: str
    columns: tuple[Column, ...]
    comment: str
    table: str
    newest: bool = False
    updates: str | None = None
    keys: tuple[str, ...] = ()

    def all_columns(self) -> tuple[Column, ...]:
        """The columns as a client sees them: the declared ones, and the partition."""
        return (*self.columns, Column("interval", "string", "The interval that the row belongs to: its start, UTC."))

    def duckdb_ddl(self, files: Sequence[str]) -> str:
        """CREATE VIEW over some files, with the declared columns, whichever of them a file has."""
        name = f'{self.schema}."{self.name}"'
        kinds = [(c.name, duckdb_type(c.type)) for c in self.all_columns()]
        declared = ", ".join(f'NULL::{kind} AS "{column}"' for column, kind in kinds)
        source = f"SELECT {declared} WHERE false"
        if files:
            listed = ", ".join(_duckdb_text(_duckdb_pattern(file)) for file in files)
            partitions = "hive_partitioning = true, hive_types_autocast = false, union_by_name = true"
            source += f" UNION ALL BY NAME SELECT * FROM read_parquet([{listed}], {partitions})"
        if self.newest:
            source = f"SELECT * FROM ({source}) QUALIFY known_at = max(known_at) OVER (PARTITION BY query, window_end)"
        if self.updates is not None:
            source = self._latest(source)
        return f"CREATE OR REPLACE VIEW {name} AS {source};\nCOMMENT ON VIEW {name} IS {_duckdb_text(self.comment)};\n"

    def _latest(self, source: str) -> str:
        """The newest revision of each row, but of those that have left. Of answers it is 1."""
        of_answers = {"revision": 'coalesce(revision, 1) AS "revision"', "kind": "coalesce(kind, 'answer') AS \"kind\""}
        selected = ", ".join(of_answers.get(c.name, f'"{c.name}"') for c in self.all_columns())
        keys = ", ".join(f'"{name}"' for name in self.keys)
        return (
            f"SELECT {selected} FROM (SELECT * FROM "
            f"(SELECT NULL::BOOLEAN AS deleted WHERE false UNION ALL BY NAME SELECT * FROM ({source})) "
            f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY coalesce(revision, 1) DESC) = 1) "
            "WHERE NOT coalesce(deleted, false)"
        )


_DUCKDB = {
    "string": "VARCHAR",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMPTZ",
    "date": "DATE",
}


def duckdb_type(spark: str) -> str:
    """DuckDB's name of a column's type.

    >>> duckdb_type("bigint"), duckdb_type("decimal(10,2)"), duckdb_type("map<string,double>")
    ('BIGINT', 'DECIMAL(10,2)', 'MAP(VARCHAR, DOUBLE)')
    """
    if spark.startswith("decimal("):
        return spark.upper()
    return _DUCKDB.get(spark, "MAP(VARCHAR, DOUBLE)")


def manifest_path(warehouse: Warehouse) -> Path:
    """Where dbt left what it knows of the models when the stage publish ran last."""
    return warehouse.local / "_dbt" / "target" / "manifest.json"


def relations(warehouse: Warehouse, published: bool = True) -> list[Relation]:
    """Every table that the pipeline declares, and every mart of the last publication (none before the first).

    JSONDecodeError while dbt writes what it published; without ``published`` there are the tables alone.
    """
    path = manifest_path(warehouse)
    manifest = json.loads(path.read_text()) if published and path.is_file() else {"sources": {}, "nodes": {}}
    described = {source["name"]: source for source in manifest["sources"].values()}
    tables = [_table(warehouse, TABLES, table, described.get(table)) for table in warehouse.tables()]
    marts = [
        _mart(warehouse, node)
        for node in manifest["nodes"].values()
        if node["resource_type"] == "model" and "marts" in node["fqn"]
    ]
    return [*tables, *sorted((mart for mart in marts if mart is not None), key=lambda mart: mart.name)]


def require_tables(warehouse: Warehouse) -> None:
    """UserError if nothing of the pipeline is there: a slip in --warehouse would otherwise show empty tables."""
    if not warehouse.folder.is_dir():
        raise UserError(
            f"no tables of pipeline {warehouse.pipeline.name} in {warehouse.root}: run it first (tidegate run …)"
        )


def files_of(warehouse: Warehouse, relation: Relation) -> tuple[str, ...]:
    """Paths of the relation's live files, in the cut that the warehouse reads."""
    tables = [relation.table, *([relation.updates] if relation.updates is not None else [])]
    return tuple(path for table in tables for path in warehouse.files(table, warehouse.labels(table)))


def duckdb_script(warehouse: Warehouse) -> str:
    """SQL that gives DuckDB a view over every table and mart. UserError if there is no warehouse."""
    require_tables(warehouse)
    store = [] if isinstance(warehouse.folder, Path) else [_OF_THE_STORE]
    views = [relation.duckdb_ddl(files_of(warehouse, relation)) for relation in relations(warehouse)]
    return "\n".join([*store, f"CREATE SCHEMA IF NOT EXISTS {TABLES};\nCREATE SCHEMA IF NOT EXISTS {MARTS};\n", *views])


def _table(warehouse: Warehouse, schema: str, table: str, node: dict[str, Any] | None) -> Relation:
    meanings = _meanings(node)
    columns = [Column(f.name, spark_type(f.type), meanings.get(f.name, "")) for f in warehouse.schema(table)]
    return Relation(schema, table, tuple(columns), _comment(node), table)


def _mart(warehouse: Warehouse, node: dict[str, Any]) -> Relation | None:
    """A built mart has files of its own; a view is over another mart's, or the table of its name if there is one."""
    name = node["name"]
    latest = node["config"]["meta"].get("latest_of")
    if latest is not None:
        if f"updates_{latest}" not in warehouse.tables():
            return None
        columns, keys = _without_interval(node["columns"].values()), tuple(node["config"]["meta"]["keys"])
        updates = f"updates_{latest}"
        return Relation(MARTS, name, columns, _comment(node), f"answers_{latest}", updates=updates, keys=keys)
    versions = node["config"]["meta"].get("newest_of")
    if versions is None and node["config"]["materialized"] != "table":
        # Of a query ON MISS OMIT the answers that kept the promise.
        kept = f"kept_{name.removeprefix('answers_')}"
        found = _table(warehouse, MARTS, name, node) if name in warehouse.tables() else None
        return replace(found, table=kept) if found is not None and kept in warehouse.tables() else found
    columns = _without_interval(node["columns"].values())
    return Relation(MARTS, name, columns, _comment(node), f"{STORED}/{versions or name}", versions is not None)


def _without_interval(columns: Iterable[dict[str, Any]]) -> tuple[Column, ...]:
    return tuple(
        Column(c["name"], c["data_type"], c["description"].strip()) for c in columns if c["name"] != "interval"
    )


def _meanings(node: dict[str, Any] | None) -> dict[str, str]:
    return {} if node is None else {name: c["description"].strip() for name, c in node["columns"].items()}


def _comment(node: dict[str, Any] | None) -> str:
    return "" if node is None else node["description"].strip()


def _duckdb_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _duckdb_pattern(file: str) -> str:
    """A file as a pattern that matches it alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in file)
