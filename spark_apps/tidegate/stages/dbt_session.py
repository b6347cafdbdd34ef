"""dbt on a Spark session of its own, without a metastore.

dbt-spark's ``session`` method uses whatever Spark session its process has. This module starts one whose catalog is in
memory, makes the pipeline's tables known to it by path (the run's partitions alone), and runs dbt in the same process:
one JVM for the build and the docs page, no Derby, no lock that a killed run leaves behind. It is a process of its own
because a stage's session may be at work in the caller's, with other settings (dbt-spark turns ANSI mode off).

    python -m tidegate.stages.dbt_session SESSION.json                      build what it says once a line comes in
    python -m tidegate.stages.dbt_session SESSION.json show --inline "…"    any dbt command, over the published marts
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegate.engine.context import on_this_machine, spark_master
from tidegate.engine.jvm_scratch import jvm_scratch
from tidegate.engine.session import JAVA_OPTIONS, NOT_COMPILED
from tidegate.stages.dbt_statements import SourceTable, Statements, quoted
from tidegate.store.delta import DeltaLog
from tidegate.store.places import place

if TYPE_CHECKING:
    from dbt.cli.main import dbtRunnerResult
    from pyspark.sql import SparkSession

# How its lines begin: one for the user, and the name of a mart that is there.
SAID, BUILT = "dbt: ", "built: "
_LINES_EVERY = 20
# Client code only warms up slowly; these JVMs live for half a minute, most of which is loading Spark's own classes:
# without verifying them, and without a collection at every few megabytes of them.
_JVM_FLAGS = (
    f"{JAVA_OPTIONS} -Xmn320m -XX:MetaspaceSize=256m -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


@dataclass(frozen=True)
class Session:
    """What a dbt process needs to know; written by ``publish``, read by this module.

    ``slice`` is where marts are built, ``marts`` where they are published, ``docs_page`` the page to write (None: leave
    it), ``result`` where to say how it went, ``home`` a folder for logs, parsed state and scratch. ``changed``: the
    tables from which comes what is to be built and tested (None: all is). ``much``: whether compiling queries is worth
    it, for so many rows.
    """

    project: str
    home: str
    slice: str
    marts: str
    docs_page: str | None
    result: str
    tables: list[SourceTable]
    changed: list[str] | None = None
    much: bool = False

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1))

    @staticmethod
    def load(path: Path) -> Session:
        """Read what ``save`` wrote."""
        content = json.loads(path.read_text())
        return Session(**{**content, "tables": [SourceTable(**table) for table in content["tables"]]})


def start_spark(home: Path) -> SparkSession:
    """The one Spark session of this process, for little data; dbt's connections find it by themselves."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.config(
        map={
            # Wherever slices run: the files that it reads and writes are this machine's.
            "spark.master": spark_master() if on_this_machine() else "local[2]",
            "spark.app.name": "tidegate-dbt",
            "spark.driver.memory": "1g",
            "spark.driver.host": "localhost",
            "spark.driver.extraJavaOptions": f"{_JVM_FLAGS} -Djava.io.tmpdir={jvm_scratch()}",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.warehouse.dir": str(home / "scratch"),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
            # A table's partitions are the folders that are there: those of the run. To choose among them by what a join
            # finds saves nothing, and fails in queries that are not compiled (ArrayIndexOutOfBoundsException).
            "spark.sql.hive.manageFilesourcePartitions": "false",
            "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
            # Many small files: list them here rather than by a Spark job, and read many in one task.
            "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
            "spark.sql.files.openCostInBytes": "65536",
            # A hundred different queries over little data: compiling each would cost more than it saves.
            **NOT_COMPILED,
        }
    ).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _suit_to_much(spark: SparkSession) -> None:
    """Compile queries, and cut what they shuffle: there are rows that make it worth it."""
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    for key in NOT_COMPILED:
        spark.conf.unset(key)


def _whole(table: SourceTable) -> SourceTable:
    """The table with all that it holds now."""
    log = DeltaLog(place(table.path), pa.schema([]))
    log.refresh()
    live = log.live()
    return replace(table, files=[file.path for file in live], gathered=None)


def _build(home: Path) -> int:
    """Be ready, and once a line comes in build what the session says; 0 if dbt ran. Without a line there is nothing."""
    from dbt.cli.main import dbtRunner

    _tell_dbt_where(home / "slice")
    with ThreadPoolExecutor(1) as pool:
        # The JVM starts while dbt parses.
        starting = pool.submit(start_spark, home)
        parsed = dbtRunner().invoke(["parse", *_flags(home / "project", home)])
        spark = starting.result()
    _say(f"{SAID}parsed")
    if os.read(0, 1):
        session = Session.load(home / "session.json")
        outcome = build(session, spark, parsed.result) if parsed.success else _failure("parse", parsed)
        Path(session.result).write_text(json.dumps(outcome))
    spark.stop()
    return 0


def build(session: Session, spark: SparkSession, manifest: Any) -> dict[str, Any]:
    """Build and test every model, then write the docs page; what happened, as JSON-able figures."""
    from dbt.cli.main import dbtRunner

    if session.much:
        _suit_to_much(spark)
    flags = _flags(Path(session.project), Path(session.home))
    statements = Statements(spark, Path(session.home) / "sources", built=Path(session.slice))
    _route(spark, statements)
    statements.attach("warehouse", session.tables)
    # Tests of the code itself say nothing about the run's data.
    data_only = ["--exclude-resource-type", "unit_test", "--exclude", "tag:macro"]
    coming, needed = _coming_from(manifest, session.changed)
    marts = _marts(manifest, coming)
    runner = dbtRunner(manifest=manifest, callbacks=[_progress(manifest), _built(marts)])
    selected = [] if session.changed is None else ["--indirect-selection", "empty", "--select", *needed]
    built = runner.invoke(["build", "--no-write-json", *selected, *data_only, *flags])
    results = getattr(built.result, "results", None)
    if results is None:
        return _failure("build", built)
    outcome = _outcome(results, marts)
    if session.docs_page and not outcome["failures"]:
        _say(f"{SAID}writing the docs page")
        statements.make_all()
        documented = dbtRunner(manifest=manifest).invoke(["docs", "generate", "--static", "--no-compile", *flags])
        if not documented.success:
            return _failure("docs", documented)
        page = Path(session.docs_page)
        page.parent.mkdir(parents=True, exist_ok=True)
        os.replace(Path(session.home) / "target" / "static_index.html", page)
    return outcome


def _coming_from(manifest: Any, tables: Sequence[str] | None) -> tuple[set[str], list[str]]:
    """Ids of the models and tests that come from these tables (None: any), and the names of all that they need."""
    above = {key: node.depends_on.nodes for key, node in manifest.nodes.items() if hasattr(node, "depends_on")}
    if tables is None:
        return set(above), []
    coming = {key for key, source in manifest.sources.items() if source.name in tables}
    reached = -1
    while reached < len(coming):
        reached = len(coming)
        coming |= {key for key, parents in above.items() if coming & set(parents)}
    needed, todo = set(), sorted(coming & above.keys())
    while todo:
        key = todo.pop()
        if key not in needed and key in above:
            needed.add(key)
            todo += above[key]
    return coming, sorted(manifest.nodes[key].name for key in needed)


def end_with_parent() -> None:
    """End this process soon after the one that started it, however that ends; the JVM ends with it."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _outcome(results: Sequence[Any], marts: Mapping[str, str]) -> dict[str, Any]:
    """How every model and test went; ``marts``: the names of those among these that were built."""
    return {
        "failures": [
            {"name": r.node.name, "status": str(r.status), "message": " ".join((r.message or "").split())}
            for r in results
            if r.status in ("error", "fail", "runtime error")
        ],
        "skipped": sum(1 for r in results if r.status == "skipped"),
        "models": sum(1 for r in results if r.node.resource_type == "model"),
        "tests": sum(1 for r in results if r.node.resource_type == "test"),
        "marts": [r.node.name for r in results if r.node.unique_id in marts],
        "seconds": {r.node.name: round(r.execution_time, 3) for r in results},
    }


def _failure(step: str, result: dbtRunnerResult) -> dict[str, Any]:
    reason = str(result.exception or "dbt failed; its log says why")
    return {"failures": [{"name": step, "status": "error", "message": reason}]}


def main(arguments: Sequence[str]) -> int:
    """Run what the command line says; 0 if dbt ran (the result file says how it went)."""
    end_with_parent()
    path = Path(arguments[0])
    if len(arguments) == 1:
        return _build(path.parent)
    from dbt.cli.main import dbtRunner

    session = Session.load(path)
    # Apart from what a run of the stage may be at work on.
    home = Path(session.home) / "by_hand"
    shutil.rmtree(home / "slice", ignore_errors=True)
    _tell_dbt_where(home / "slice")
    spark = start_spark(home)
    if session.much:
        _suit_to_much(spark)
    # How fresh a source is, all of its partitions say; everything else is about the last run's.
    every = arguments[1] == "source"
    tables = [_whole(table) for table in session.tables] if every else session.tables
    marts = sorted(log.parent for log in place(session.marts).glob("*/_delta_log"))
    statements = Statements(spark, home / "attached")
    _route(spark, statements)
    statements.attach("warehouse", tables)
    statements.attach("past", [_whole(table) for table in session.tables if table.name.startswith("history_")])
    statements.attach("tidegate", [_whole(SourceTable(mart.name, {}, str(mart), [])) for mart in marts])
    return 0 if dbtRunner().invoke([*arguments[1:], *_flags(Path(session.project), home, quiet=False)]).success else 1


def _route(spark: SparkSession, statements: Statements) -> None:
    """dbt-spark finds the session by itself, and sends every statement through its ``sql``."""
    setattr(spark, "sql", statements.sql)  # noqa: B010 - a method of this one session


def _tell_dbt_where(folder: Path) -> None:
    """The folder in which marts are built; dbt-spark puts it between quotes as it stands."""
    os.environ["TIDEGATE_DBT_SLICE"] = quoted(folder)


def _flags(project: Path, home: Path, quiet: bool = True) -> list[str]:
    flags = ["--project-dir", str(project), "--profiles-dir", str(project)]
    flags += ["--target-path", str(home / "target"), "--log-path", str(home / "logs"), "--no-version-check"]
    return [*flags, "--log-level", "none", "--log-level-file", "info"] if quiet else flags


def _progress(manifest: Any) -> Callable[[Any], None]:
    """Says every now and then how many models and tests are done."""
    counted = ("model", "test")
    total = sum(1 for node in manifest.nodes.values() if node.resource_type in counted)
    done = 0

    def count(event: Any) -> None:
        nonlocal done
        if event.info.name == "NodeFinished" and event.data.node_info.resource_type in counted:
            done += 1
            if done % _LINES_EVERY == 0:
                _say(f"{SAID}{done} of {total} models and tests")

    return count


def _marts(manifest: Any, coming: Collection[str]) -> dict[str, str]:
    """Id → name of the models with ids among these that are to be published."""
    models = {key: node for key, node in manifest.nodes.items() if key in coming and node.resource_type == "model"}
    return {k: n.name for k, n in models.items() if n.fqn[1] == "marts" and n.config.materialized == "table"}


def _built(marts: Mapping[str, str]) -> Callable[[Any], None]:
    """Says which of the marts (id → name) has been built."""

    def tell(event: Any) -> None:
        if event.info.name == "NodeFinished":
            node = event.data.node_info
            if node.unique_id in marts and node.node_status == "success":
                _say(f"{BUILT}{marts[node.unique_id]}")

    return tell


def _say(message: str) -> None:
    # dbt's threads speak at once; print would write a line's end apart from it.
    os.write(sys.stdout.fileno(), f"{message}\n".encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
