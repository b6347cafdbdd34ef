"""dbt on a Spark session of its own, without a metastore.

dbt-spark's ``session`` method uses whatever Spark session its process has. This module starts one whose catalog is in
memory, makes the pipeline's tables known to it by path (the run's partitions alone), and runs dbt in the same process:
one JVM for the build and the docs page, no Derby, no lock that a killed run leaves behind. It is a process of its own
because a stage's session may be at work in the caller's, with other settings (dbt-spark turns ANSI mode off).

    python -m tidegate.stages.dbt_session SESSION.json                      build, and the docs page if one is named
    python -m tidegate.stages.dbt_session SESSION.json show --inline "…"    any dbt command, over the published marts
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegate.engine.jvm_scratch import jvm_scratch
from tidegate.engine.session import JAVA_OPTIONS, NOT_COMPILED
from tidegate.stages.dbt_statements import SourceTable, Statements, quoted
from tidegate.store.delta import DeltaLog
from tidegate.store.places import place

if TYPE_CHECKING:
    from dbt.cli.main import dbtRunnerResult
    from pyspark.sql import SparkSession

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
    it, for so many rows. ``gathered``: a file that is there once the one file of each table of many is; ``publish``
    makes them meanwhile.
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
    gathered: str | None = None

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1))

    @staticmethod
    def load(path: Path) -> Session:
        """Read what ``save`` wrote."""
        content = json.loads(path.read_text())
        return Session(**{**content, "tables": [SourceTable(**table) for table in content["tables"]]})


def start_spark(session: Session) -> SparkSession:
    """The one Spark session of this process; dbt's connections find it by themselves."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.config(
        map={
            "spark.master": os.environ.get("TIDEGATE_SPARK_MASTER", "local[2]"),
            "spark.app.name": "tidegate-dbt",
            "spark.driver.memory": "1g",
            "spark.driver.host": "localhost",
            "spark.driver.extraJavaOptions": f"{_JVM_FLAGS} -Djava.io.tmpdir={jvm_scratch()}",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.warehouse.dir": str(Path(session.home) / "scratch"),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2" if session.much else "1",
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
            **({} if session.much else NOT_COMPILED),
        }
    ).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _whole(table: SourceTable) -> SourceTable:
    """The table with all that it holds now."""
    log = DeltaLog(place(table.path), pa.schema([]))
    log.refresh()
    live = log.live()
    return replace(table, files=[file.path for file in live], gathered=None)


def build(session: Session) -> dict[str, Any]:
    """Parse, build and test every model, then write the docs page; what happened, as JSON-able figures."""
    from dbt.cli.main import dbtRunner

    with ThreadPoolExecutor(1) as pool:
        # The JVM starts while dbt parses.
        starting = pool.submit(start_spark, session)
        parsed = dbtRunner().invoke(["parse", *_flags(session)])
        spark = starting.result()
    if not parsed.success:
        return _failure("parse", parsed)
    _say("dbt: parsed")
    _wait_for(session)

    statements = Statements(spark, Path(session.home) / "sources", built=Path(session.slice))
    _route(spark, statements)
    statements.attach("warehouse", session.tables)
    manifest: Any = parsed.result
    runner = dbtRunner(manifest=manifest, callbacks=[_progress(manifest)])
    # Tests of the code itself say nothing about the run's data.
    data_only = ["--exclude-resource-type", "unit_test", "--exclude", "tag:macro"]
    coming, needed = _coming_from(manifest, session.changed)
    selected = [] if session.changed is None else ["--indirect-selection", "empty", "--select", *needed]
    built = runner.invoke(["build", "--no-write-json", *selected, *data_only, *_flags(session)])
    results = getattr(built.result, "results", None)
    if results is None:
        return _failure("build", built)
    outcome = _outcome(results, coming)
    if session.docs_page and not outcome["failures"]:
        _say("dbt: writing the docs page")
        statements.make_all()
        flags = ["--static", "--no-compile", *_flags(session)]
        documented = dbtRunner(manifest=manifest).invoke(["docs", "generate", *flags])
        if not documented.success:
            return _failure("docs", documented)
        page = Path(session.docs_page)
        page.parent.mkdir(parents=True, exist_ok=True)
        os.replace(Path(session.home) / "target" / "static_index.html", page)
    # Its JVM may outlive this process: that of a warm host does.
    spark.stop()
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


def _wait_for(session: Session) -> None:
    """Until the tables' files are there."""
    while session.gathered and not Path(session.gathered).exists():
        time.sleep(0.05)


def end_with_parent() -> None:
    """End this process soon after the one that started it, however that ends; the JVM ends with it."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _outcome(results: Sequence[Any], coming: Collection[str]) -> dict[str, Any]:
    """How every model and test went; ``marts`` are those of the ids ``coming`` that were built to be published."""
    return {
        "failures": [
            {"name": r.node.name, "status": str(r.status), "message": " ".join((r.message or "").split())}
            for r in results
            if r.status in ("error", "fail", "runtime error")
        ],
        "skipped": sum(1 for r in results if r.status == "skipped"),
        "models": sum(1 for r in results if r.node.resource_type == "model"),
        "tests": sum(1 for r in results if r.node.resource_type == "test"),
        "marts": [
            r.node.name
            for r in results
            if r.node.unique_id in coming and r.node.fqn[1] == "marts" and r.node.config.materialized == "table"
        ],
        "seconds": {r.node.name: round(r.execution_time, 3) for r in results},
    }


def _failure(step: str, result: dbtRunnerResult) -> dict[str, Any]:
    reason = str(result.exception or "dbt failed; its log says why")
    return {"failures": [{"name": step, "status": "error", "message": reason}]}


def main(arguments: Sequence[str]) -> int:
    """Run what the command line says; 0 if dbt ran (the result file says how it went)."""
    end_with_parent()
    session = Session.load(Path(arguments[0]))
    if len(arguments) == 1:
        _tell_dbt_where(session)
        Path(session.result).write_text(json.dumps(build(session)))
        return 0
    from dbt.cli.main import dbtRunner

    # Apart from what a run of the stage may be at work on.
    home = Path(session.home) / "by_hand"
    session = replace(session, home=str(home), slice=str(home / "slice"))
    shutil.rmtree(home / "slice", ignore_errors=True)
    _tell_dbt_where(session)
    spark = start_spark(session)
    # How fresh a source is, all of its partitions say; everything else is about the last run's.
    every = arguments[1] == "source"
    tables = [_whole(table) for table in session.tables] if every else session.tables
    marts = sorted(log.parent for log in place(session.marts).glob("*/_delta_log"))
    statements = Statements(spark, home / "attached")
    _route(spark, statements)
    statements.attach("warehouse", tables)
    statements.attach("past", [_whole(table) for table in session.tables if table.name.startswith("history_")])
    statements.attach("tidegate", [_whole(SourceTable(mart.name, {}, str(mart), [])) for mart in marts])
    return 0 if dbtRunner().invoke([*arguments[1:], *_flags(session, quiet=False)]).success else 1


def _route(spark: SparkSession, statements: Statements) -> None:
    """dbt-spark finds the session by itself, and sends every statement through its ``sql``."""
    setattr(spark, "sql", statements.sql)  # noqa: B010 - a method of this one session


def _tell_dbt_where(session: Session) -> None:
    """The folder in which marts are built; dbt-spark puts it between quotes as it stands."""
    os.environ["TIDEGATE_DBT_SLICE"] = quoted(Path(session.slice))


def _flags(session: Session, quiet: bool = True) -> list[str]:
    home = Path(session.home)
    flags = ["--project-dir", session.project, "--profiles-dir", session.project]
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
                _say(f"dbt: {done} of {total} models and tests")

    return count


def _say(message: str) -> None:
    print(message, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
