"""The Spark session whose tasks run slices: on this machine, on a cluster, or through Spark Connect."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from socketserver import BaseServer
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from urllib.request import getproxies, proxy_bypass

from tidegate.declarations.errors import UserError
from tidegate.engine.context import on_this_machine, spark_master
from tidegate.engine.jars import jars_settings
from tidegate.engine.jvm_scratch import jvm_scratch
from tidegate.engine.pyspark_files import require_whole_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.declarations.models import Pipeline

_JVM_SHARE = 1 / 3
_LEAST_JVM_BYTES = 512 * 2**20
_MOST_JVM_BYTES = 2 * 2**30
# Intervals are short: the second compiler never earns back what it costs. For heavy jobs set TIDEGATE_JAVA_OPTIONS.
# Alone, the first one's code cache is so small that a session of minutes fills it, and then nothing is compiled.
JAVA_OPTIONS = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:-UsePerfData -Duser.timezone=UTC"
)
# A thread that dies of it would leave the stage standing still.
ALWAYS = "-XX:+ExitOnOutOfMemoryError"
# A stage's plan is a range and a Python function: compiling it takes seconds and saves nothing.
NOT_COMPILED: dict[str, bool | float | int | str | None] = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
# Where Spark's masters and Connect servers listen, unless their address says so.
_PORTS = {"sc": 15002, "spark": 7077}
_PATIENCE_S = 5.0
# Some twenty seconds, by Spark's own pauses.
_RETRIES = 5
# By these settings our own Spark Connect server tells clients what its JVM may take, and on how many cores tasks run.
JVM_BYTES, CORES = "spark.tidegate.jvmBytes", "spark.tidegate.cores"
# More than a cluster has.
_MOST_CORES = 100_000
# spark-defaults.conf and log4j2.properties of one machine.
SPARK_CONF = Path(__file__).parent / "spark_conf"


def start_session(
    pipeline: Pipeline,
    app: str,
    groups: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    landing: bool = False,
) -> SparkSession:
    """A Spark session: the one there is, or a new one.

    Under spark-submit, and where Spark's own platform runs this process, the master and the resources are what they
    say. Otherwise the master is ``TIDEGATE_SPARK_MASTER`` (default ``local[2]``); ``sc://host:port`` is a Spark Connect
    server, and so is ``SPARK_REMOTE``. A third of the pipeline's process budget is for the heap of each JVM, the rest
    for what is beside it. ``groups``: of jars that a session of this process's own needs (:mod:`tidegate.engine.jars`);
    ``settings``: more of Spark's settings for it. ``landing``: records go through the JVM itself, which the second
    compiler makes twice as fast.

    Raises:
        UserError: nobody answers there.
    """
    require_answer(spark_master())
    # pyarrow warns on every start without it.
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")
    if not spark_master().startswith("sc://"):
        configure_quietly()
        require_whole_pyspark()
    from pyspark.sql import SparkSession

    if spark_master().startswith("sc://"):
        return connected(spark_master(), f"{pipeline.name}.{app}")
    builder = SparkSession.builder.appName(f"tidegate-{pipeline.name}-{app}")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.config(map={**_own_jvm(pipeline, landing), **jars_settings(groups), **(settings or {})})
    # It says at every collected object that it closes a connection, and shows a traceback for every call to a JVM that
    # has ended, of which the command says one sentence.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_py4j)
    _ignore_ended_jvm()
    return builder.config(map=NOT_COMPILED).getOrCreate()


def session_is_active() -> bool:
    """Whether this process has a session of Spark already, which :func:`start_session` would return."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active() is not None
    except PySparkRuntimeError:
        return False


def require_answer(master: str) -> None:
    """Ask at a master's or Connect server's address whether anybody listens there; of any other, nothing.

    Spark itself would try for minutes, and then say so in a page. Of ``spark://a:7077,b:7077`` one has to answer. One
    that is reached through a proxy is not asked.

    Raises:
        UserError: nobody does.
    """
    scheme, separator, rest = master.partition("://")
    if not separator or scheme not in _PORTS:
        return
    why: OSError | None = None
    for address in rest.partition("/")[0].split(","):
        host, _, port = address.rpartition(":") if address.rpartition(":")[2].isdigit() else (address, "", "")
        if getproxies().keys() & {"http", "https"} and not proxy_bypass(host):
            return
        try:
            with socket.create_connection((host.strip("[]"), int(port or _PORTS[scheme])), timeout=_PATIENCE_S):
                return
        except OSError as error:
            why = error
    what = "Spark Connect server" if scheme == "sc" else "master of Spark"
    # What follows the address may be a token.
    told = f"the {what} {master.partition(';')[0].rstrip('/')} does not answer"
    raise UserError(
        f"{told}: {why.strerror or why if why else 'it has no address'}; start it, or"
        " name another one (TIDEGATE_SPARK_MASTER, SPARK_REMOTE, or Airflow's connection spark_default)"
    )


def connected(remote: str, user: str) -> SparkSession:
    """A session of this process's own on a Spark Connect server.

    ``user``: who this is, unless the address says. Spark's UI begins a job's description with the session and its user,
    and shows no tags in its list of jobs: so this tells whose a job is.

    A server that has died is not waited for: what it did is lost with it, and is done again by who runs the stage.
    """
    from pyspark.sql import SparkSession

    if ";user_id=" not in remote:
        address, separator, parameters = remote.partition("/;")
        remote = f"{address.rstrip('/')}/;{parameters}{separator and ';'}user_id={quote(user)}"
    spark = SparkSession.builder.remote(remote).getOrCreate()
    with suppress(ImportError, AttributeError):  # a client of another version waits as long as it likes
        from pyspark.sql.connect.client.retries import DefaultPolicy

        spark.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])
    return spark


def setting(spark: SparkSession, name: str, untold: str = "") -> str:
    """One of the session's settings; empty where it is not set, ``untold`` where the platform does not tell."""
    from pyspark.errors import PySparkException

    try:
        return spark.conf.get(name, "") or ""
    except PySparkException:
        return untold


def cluster_cores(spark: SparkSession) -> int:
    """How many tasks the executors that have registered run at a time; 0 where Spark adds executors as it needs them.

    By what Spark Connect has, too: a range has as many parts as there are cores, or as ``spark.default.parallelism``
    says. Cost: two small jobs, the first of which waits until there is an executor.
    """
    from pyspark.sql.functions import spark_partition_id

    if setting(spark, "spark.dynamicAllocation.enabled", untold="true") == "true":
        return 0
    for _ in range(2):
        cores = spark.range(_MOST_CORES).select(spark_partition_id()).distinct().count()
    return cores


def _own_jvm(pipeline: Pipeline, landing: bool) -> dict[str, bool | float | int | str | None]:
    """What a JVM that this process starts is told."""
    scratch = jvm_scratch()
    options = JAVA_OPTIONS.replace("-XX:TieredStopAtLevel=1 ", "") if landing else JAVA_OPTIONS
    java_options = f"{ALWAYS} {os.environ.get('TIDEGATE_JAVA_OPTIONS', options)}"
    heap = min(max(int(pipeline.process_budget_bytes * _JVM_SHARE), _LEAST_JVM_BYTES), _MOST_JVM_BYTES)
    settings: dict[str, bool | float | int | str | None] = {
        "spark.master": spark_master(),
        "spark.driver.memory": f"{heap // 2**20}m",
        "spark.driver.extraJavaOptions": f"{java_options} -Djava.io.tmpdir={scratch}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if on_this_machine():
        # Nobody else has to reach it.
        return settings | {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}
    beside = max(pipeline.process_budget_bytes - heap, _LEAST_JVM_BYTES)
    return settings | {
        "spark.executor.memory": f"{heap // 2**20}m",
        "spark.executor.memoryOverhead": f"{beside // 2**20}m",
        "spark.executor.extraJavaOptions": java_options,
    }


def _not_py4j(record: logging.LogRecord) -> bool:
    """Drop what py4j says through the root logger, with a traceback, when its JVM has ended."""
    return not str(record.msg).startswith("Exception while sending command")


def _ignore_ended_jvm() -> None:
    """Keep PySpark's server of accumulators from showing a traceback when its JVM has ended."""
    from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer

    def handle_error(server: BaseServer, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], (EOFError, ConnectionError)):
            BaseServer.handle_error(server, request, client_address)

    for server in (AccumulatorTCPServer, AccumulatorUnixServer):
        server.handle_error = handle_error  # type: ignore[method-assign, assignment]


def configure_quietly() -> None:
    """Have Spark read the package's settings and log errors only, unless the machine has a configuration of its own.

    That is what ``SPARK_CONF_DIR`` names, or the folder ``conf`` of the Spark that ``SPARK_HOME`` names. On one machine
    its workers run this Python; on a cluster they run their own, the one that their PATH, ``PYSPARK_PYTHON`` or
    ``spark.pyspark.python`` names.
    """
    if not {"SPARK_CONF_DIR", "SPARK_HOME"} & os.environ.keys():
        os.environ["SPARK_CONF_DIR"] = str(SPARK_CONF)
    if on_this_machine() and "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
