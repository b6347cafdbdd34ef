"""The Spark session that every stage runs in."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
_JAVA_OPTIONS = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:-UsePerfData -Duser.timezone=UTC"
)
# A thread that dies of it would leave the stage standing still.
_ALWAYS = "-XX:+ExitOnOutOfMemoryError"
_CODEGEN_PAYS_FROM_ROWS = 500_000
# spark-defaults.conf and log4j2.properties of one machine.
SPARK_CONF = Path(__file__).parent / "spark_conf"


def start_session(pipeline: Pipeline, app: str) -> SparkSession:
    """A Spark session with Tidegate's settings.

    Under spark-submit the master and the resources are the command line's; otherwise they are
    ``TIDEGATE_SPARK_MASTER`` (default ``local[2]``) and a third of the pipeline's process budget for the JVM's heap.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # pyarrow warns on every start without it.
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")
    configure_quietly()
    require_whole_pyspark()
    # It says at every collected object that it closes a connection, and shows a traceback for every call to a JVM that
    # has ended, of which the command says one sentence.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_py4j)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"tidegate-{pipeline.name}-{app}")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        scratch = jvm_scratch()
        java_options = os.environ.get("TIDEGATE_JAVA_OPTIONS", _JAVA_OPTIONS)
        heap = min(max(int(pipeline.process_budget_bytes * _JVM_SHARE), _LEAST_JVM_BYTES), _MOST_JVM_BYTES)
        builder = (
            builder.master(os.environ.get("TIDEGATE_SPARK_MASTER", "local[2]"))
            .config("spark.driver.memory", f"{heap // 2**20}m")
            .config("spark.driver.extraJavaOptions", f"{_ALWAYS} {java_options} -Djava.io.tmpdir={scratch}".strip())
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.host", "localhost")
            .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        )
    session = builder.config(map=_settings(pipeline)).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _not_py4j(record: logging.LogRecord) -> bool:
    """Drop what py4j says through the root logger, with a traceback, when its JVM has ended."""
    return not str(record.msg).startswith("Exception while sending command")


def session_beside(session: SparkSession, pipeline: Pipeline) -> SparkSession:
    """A session in the same JVM with Tidegate's settings, its own temporary views, and nothing to stop."""
    beside = session.newSession()
    for name, value in _settings(pipeline).items():
        beside.conf.set(name, value)
    return beside


def _settings(pipeline: Pipeline) -> dict[str, Any]:
    """What a session may set for itself, whatever its JVM was started with."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.shuffle.partitions": str(pipeline.partitions),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.sql.streaming.metricsEnabled": "false",
    }


def configure_quietly() -> None:
    """Have Spark read the package's settings and log warnings only, unless the machine has a configuration of its own.

    That is what ``SPARK_CONF_DIR`` names, or the folder ``conf`` of the Spark that ``SPARK_HOME`` names.
    """
    if not {"SPARK_CONF_DIR", "SPARK_HOME"} & os.environ.keys():
        os.environ["SPARK_CONF_DIR"] = str(SPARK_CONF)


def suit_to_size(spark: SparkSession, rows: int) -> None:
    """Have Spark interpret its plans for few rows and compile them for many; the results are the same.

    Compiling the plan of one stage takes seconds; interpreting it costs about a microsecond a row and expression.
    """
    compiled = rows >= _CODEGEN_PAYS_FROM_ROWS
    spark.conf.set("spark.sql.codegen.wholeStage", str(compiled).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if compiled else "NO_CODEGEN")
