"""Spark's own Delta: what a session is told so that it reads the tables as ordinary Delta tables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.declarations.errors import UserError
from tidegate.engine.context import spark_master
from tidegate.engine.jars import jars_settings
from tidegate.engine.jvm_scratch import jvm_scratch
from tidegate.engine.pyspark_files import require_whole_pyspark
from tidegate.engine.session import JAVA_OPTIONS, NOT_COMPILED, configure_quietly
from tidegate.store.places import ObjectPath, Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
DELTA_CATALOG = {"spark.sql.extensions": EXTENSION, "spark.sql.catalog.spark_catalog": CATALOG}
"""Without these Spark's Delta reads and writes nothing."""
# By default Spark lists a folder of many partitions in as many tasks as it has paths, up to ten thousand.
_SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}
_MASTER = "local[2]"


def delta_settings(warehouse: Place | None = None) -> dict[str, str]:
    """Spark's settings for a session with Delta; for a warehouse in an S3 store, with Hadoop's connector too."""
    in_s3 = isinstance(warehouse, ObjectPath) and warehouse.root.startswith("s3:")
    return DELTA_CATALOG | jars_settings(["delta", "s3"] if in_s3 else ["delta"]) | (s3a_settings() if in_s3 else {})


def s3a_settings() -> dict[str, str]:
    """Where Hadoop's connector finds a store that is not AWS's; keys it takes from the environment, as all do."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    settings = {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    if endpoint:
        settings |= {
            "spark.hadoop.fs.s3a.endpoint": endpoint,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": str(endpoint.startswith("https:")).lower(),
        }
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region
    return settings


def delta_session(app: str, warehouse: Place, metastore: Path | None = None) -> SparkSession:
    """A session that reads and registers Delta tables: the Spark Connect server that is named, or a local one.

    ``metastore``: a folder for a Hive catalog of its own, made if it is not there (Derby: one process at a time); else
    the catalog that the machine's configuration of Spark names.

    UserError if the session that is there knows no Delta.
    """
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")
    master = spark_master()
    from pyspark.sql import SparkSession

    if master.startswith("sc://"):
        return _require_delta(SparkSession.builder.appName(app).remote(master).getOrCreate())
    configure_quietly()
    require_whole_pyspark()
    builder = SparkSession.builder.appName(app)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        scratch = jvm_scratch()
        options = f"{JAVA_OPTIONS} -Djava.io.tmpdir={scratch} -Dderby.system.home={scratch}"
        own = {
            "spark.master": os.environ.get("TIDEGATE_SPARK_MASTER") or _MASTER,
            "spark.driver.extraJavaOptions": options,
            "spark.ui.enabled": "false",
            "spark.driver.host": "localhost",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.warehouse.dir": str((metastore or scratch) / "warehouse"),
        }
        builder = builder.config(map={**NOT_COMPILED, **own, **_SMALL})
    if metastore is not None:
        metastore.mkdir(parents=True, exist_ok=True)
        url = f"jdbc:derby:;databaseName={metastore / 'metastore_db'};create=true"
        builder = builder.config("spark.hadoop.javax.jdo.option.ConnectionURL", url)
    return _require_delta(builder.config(map=dict(delta_settings(warehouse))).enableHiveSupport().getOrCreate())


def _require_delta(spark: SparkSession) -> SparkSession:
    if EXTENSION not in (spark.conf.get("spark.sql.extensions", None) or ""):
        raise UserError(
            f"the Spark session knows no Delta tables: start it with the jar of delta-spark, spark.sql.extensions="
            f"{EXTENSION} and spark.sql.catalog.spark_catalog={CATALOG}; or print the statements with --sql"
        )
    return spark
