"""``tidegate sql``: every table and mart behind one Thrift end point, for what speaks JDBC, ODBC or HiveServer2.

One Spark session of its own, with a catalog in memory: no metastore, nothing shared with dbt or the stages, nothing
left behind. Partitions that come or go are noticed within seconds; files are listed anew by each query, so a partition
that was replaced is read as it is now.

It reads. Whatever would write files fails: the session has no protocol to commit them with. That keeps mishaps from
the warehouse, not malice: Thrift asks for no password, so it listens on loopback alone, and everyone on the machine may
ask.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from tidegate.apps.sql_relations import MARTS, TABLES, Relation, manifest_path, relations, require_tables
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline
from tidegate.hosts.pyspark_files import require_whole_pyspark
from tidegate.hosts.session import configure_quietly
from tidegate.store.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOST = "127.0.0.1"
_LOOK_EVERY_S = 5.0
# Abstract: whoever would write files with it fails before the first one.
_NO_WRITER = "org.apache.spark.internal.io.FileCommitProtocol"
# Hive sends its clients whole stack traces with an error's message, and has no setting for it. Spark looks into traces
# itself (without any, errors of running tasks become "tail of empty array"), so each keeps two lines.
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:-UsePerfData -XX:MaxJavaStackTraceDepth=2 -Duser.timezone=UTC"


class Catalog:
    """The catalog of a session, kept equal to what lies on disk."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse):
        self._spark = spark
        self._warehouse = warehouse
        self._manifest_time = -1
        self._relations: list[Relation] = []
        self._attached: dict[Relation, set[str]] = {}

    def refresh(self) -> int:
        """Attach what has come, drop what has gone; the number of changed relations.

        Cost: a listing of one folder a relation, and one statement a relation that changed.
        """
        self._read_models()
        for schema in (TABLES, MARTS):
            self._spark.sql(f"create schema if not exists {schema}")
            there = {row.tableName for row in self._spark.sql(f"show tables in {schema}").collect()}
            for dropped in [r for r in self._attached if r.schema == schema and r.name.lower() not in there]:
                del self._attached[dropped]
        return sum(self._follow(relation) for relation in self._relations)

    def _read_models(self) -> None:
        path = manifest_path(self._warehouse)
        changed = path.stat().st_mtime_ns if path.is_file() else 0
        if changed == self._manifest_time:
            return
        try:
            self._relations = relations(self._warehouse)
        except json.JSONDecodeError:
            return  # dbt is writing it: what was known still holds
        for gone in set(self._attached) - set(self._relations):
            self._spark.sql(f"drop table if exists {gone.schema}.`{gone.name}`")
            del self._attached[gone]
        self._manifest_time = changed

    def _follow(self, relation: Relation) -> bool:
        name = f"{relation.schema}.`{relation.name}`"
        if relation not in self._attached:
            self._spark.sql(f"drop table if exists {name}")
            self._spark.sql(relation.spark_ddl())
            self._attached[relation] = set()
            created = True
        else:
            created = False
        labels, attached = relation.labels(), self._attached[relation]
        for verb, partitions, separator in (
            ("add if not exists", labels - attached, " "),
            ("drop if exists", attached - labels, ", "),
        ):
            if partitions:
                named = separator.join(f"partition (`interval` = '{label}')" for label in sorted(partitions))
                self._spark.sql(f"alter table {name} {verb} {named}")
        self._attached[relation] = labels
        return created or labels != attached


def serve(
    pipeline: Pipeline, root: Path, port: int, say: Callable[[str], None] = print, look_every_s: float = _LOOK_EVERY_S
) -> None:
    """Serve until interrupted or terminated. UserError if there is no warehouse, or the port is taken."""
    warehouse = Warehouse(root, pipeline)
    require_tables(warehouse)
    _require_free(port)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    scratch = Path(tempfile.mkdtemp(prefix="tidegate-sql-"))
    spark = None
    try:
        say(f"sql: starting Spark for the tables of {pipeline.name}")
        spark = _start(pipeline, port, scratch)
        catalog = Catalog(spark, warehouse)
        catalog.refresh()
        jvm: Any = spark.sparkContext._jvm
        jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2.startWithContext(spark._jsparkSession.sqlContext())
        if not manifest_path(warehouse).is_file():
            say("sql: there are no marts yet: run the stage publish; they appear here without a restart")
        say(
            f"sql: ready at jdbc:hive2://{HOST}:{port}/{MARTS} (schemas {MARTS}: marts, {TABLES}: tables); Ctrl-C stops"
        )
        # From here on a signal waits for the statement under way.
        stopping = Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopping.set())
        while not stopping.wait(look_every_s):
            if spark.sparkContext._gateway.proc.poll() is not None:  # type: ignore[union-attr]
                raise RuntimeError("the Spark process of the SQL server ended unexpectedly")
            catalog.refresh()
        say("sql: stopped")
    finally:
        if spark is not None:
            _stop(spark)
        shutil.rmtree(scratch, ignore_errors=True)


def _start(pipeline: Pipeline, port: int, scratch: Path) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", HOST)
    configure_quietly()
    require_whole_pyspark()
    from pyspark.sql import SparkSession

    own_scratch = f"-Djava.io.tmpdir={scratch} -Dderby.system.home={scratch}"
    spark = SparkSession.builder.config(
        map={
            "spark.master": os.environ.get("TIDEGATE_SPARK_MASTER", "local[2]"),
            "spark.app.name": f"tidegate-{pipeline.name}-sql",
            "spark.driver.memory": "1g",
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.driver.extraJavaOptions": f"{_JAVA_OPTIONS} {own_scratch}",
            "spark.local.dir": str(scratch),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.warehouse.dir": str(scratch / "own"),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": str(pipeline.partitions),
            "spark.sql.sources.commitProtocolClass": _NO_WRITER,
            "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
            # Partitions are replaced under the same name: a remembered listing would name files that are gone.
            "spark.sql.hive.filesourcePartitionFileCacheSize": "0",
            # A client that fetches a large table gets it piece by piece; the JVM need not hold it whole.
            "spark.sql.thriftServer.incrementalCollect": "true",
            "spark.hadoop.hive.server2.thrift.bind.host": HOST,
            "spark.hadoop.hive.server2.thrift.port": str(port),
            "spark.hadoop.hive.server2.logging.operation.enabled": "false",
            "spark.hadoop.hive.exec.scratchdir": str(scratch / "hive"),
            "spark.hadoop.hive.exec.local.scratchdir": str(scratch / "hive-local"),
            "spark.hadoop.hive.downloaded.resources.dir": str(scratch / "hive-resources"),
        }
    ).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _stop(spark: SparkSession) -> None:
    """End the JVM at once: it holds nothing worth keeping, and the Thrift server takes half a minute to say goodbye."""
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    process.kill()
    process.wait()


def _require_free(port: int) -> None:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OverflowError:
            raise UserError(f"{port} is not a port; choose one from 1 to 65535 with --port") from None
        except OSError:
            raise UserError(f"port {port} is in use on {HOST}; choose another with --port") from None
