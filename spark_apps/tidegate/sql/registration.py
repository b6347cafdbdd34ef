"""A pipeline's tables and marts in a catalog of Spark's, Hive's, Glue's or Unity's: names for the folders they are in.

Nothing is copied. A catalog that has a name already keeps it; what has been written since the last time is added.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.declarations.errors import UserError
from tidegate.store.places import ObjectPath, Place
from tidegate.store.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMES = ("s3a", "s3")
_NAME = re.compile(r"[^`.]+(\.[^`.]+)?")


@dataclass(frozen=True)
class Registered:
    """A table or mart: the name that a catalog is to know it by, and where it is."""

    schema: str
    name: str
    location: str

    @property
    def full_name(self) -> str:
        """As SQL has it, quoted."""
        return f"{quoted(self.schema)}.`{self.name}`"

    @property
    def statement(self) -> str:
        """What gives it its name unless it has it."""
        location = self.location.replace("\\", "\\\\").replace("'", "\\'")
        return f"CREATE TABLE IF NOT EXISTS {self.full_name} USING delta LOCATION '{location}'"


def tables(warehouse: Warehouse, schema: str | None = None, scheme: str = SCHEMES[0]) -> list[Registered]:
    """All tables and marts that have been written, by name; marts have names of their own, so one schema holds both.

    ``schema``: by default the pipeline's name; ``catalog.schema`` where there are several catalogs. ``scheme``: of URIs
    of an S3 store; open Spark knows ``s3a``, Databricks, EMR and Glue ``s3``.

    UserError if nothing has been written, or the schema is no name.
    """
    wanted = schema or warehouse.pipeline.name
    if not _NAME.fullmatch(wanted):
        raise UserError(f"'{wanted}' is no schema: give SCHEMA, or CATALOG.SCHEMA, without backticks")
    # Those too that stand outside of the cut, such as what has landed, and those of queries that have gone.
    names = [*(log.parent.name for log in warehouse.folder.glob("*/_delta_log")), *warehouse.marts()]
    there = [name for name in names if any((warehouse.folder / name / "_delta_log").glob("*.json"))]
    if not there:
        raise UserError(
            f"no tables of pipeline {warehouse.pipeline.name} in {warehouse.root}: run it first (tidegate run …)"
        )
    registered = {
        name.rpartition("/")[2]: Registered(wanted, name.rpartition("/")[2], location(warehouse.folder / name, scheme))
        for name in there
    }
    return [registered[name] for name in sorted(registered)]


def quoted(schema: str) -> str:
    """A schema's name as SQL has it.

    >>> quoted("main.shop")
    '`main`.`shop`'
    """
    return ".".join(f"`{part}`" for part in schema.split("."))


def location(folder: Place, scheme: str = SCHEMES[0]) -> str:
    """A folder as Spark is told of it."""
    if isinstance(folder, Path):
        return str(folder)
    assert isinstance(folder, ObjectPath)
    return str(folder).replace("s3://", f"{scheme}://", 1) if folder.root.startswith("s3:") else str(folder)


def script(registered: Sequence[Registered]) -> str:
    """The statements for a catalog that is not at hand."""
    create = f"CREATE SCHEMA IF NOT EXISTS {quoted(registered[0].schema)};\n"
    return create + "".join(f"{one.statement};\n" for one in registered)


def register(spark: SparkSession, registered: Sequence[Registered]) -> list[str]:
    """Give the tables their names; those that are new. Cost: a moment a table.

    UserError if a name stands for another folder: nothing is done to it, the others have been registered.
    """
    schema = registered[0].schema
    # Hive shows a traceback for a schema that is there, IF NOT EXISTS or not.
    if not spark.catalog.databaseExists(schema):
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
    before = {row["tableName"] for row in spark.sql(f"SHOW TABLES IN {quoted(schema)}").collect()}
    new, others = [], []
    for one in registered:
        if one.name.lower() in {name.lower() for name in before}:
            stands_for = _location_of(spark, one)
            if _plain(stands_for) != _plain(one.location):
                others.append(f"{one.full_name} is {stands_for}, not {one.location}")
        else:
            spark.sql(one.statement)
            new.append(one.name)
    if others:
        raise UserError(
            "\n  ".join(["other tables have these names (DROP TABLE …, or give another --schema):", *others])
        )
    return new


def _location_of(spark: SparkSession, one: Registered) -> str:
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {one.full_name}").collect()
    return next((str(row["data_type"]) for row in rows if row["col_name"] == "Location"), "a view")


def _plain(where: str) -> str:
    return re.sub(r"^file:/*", "/", where).rstrip("/")
