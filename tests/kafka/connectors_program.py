"""A session with the connectors' jars: a topic into a Delta table in an object store, and back. Run by a test."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from tidegate.engine.jars import jars_settings
from tidegate.engine.session import configure_quietly


def main(servers: str, topic: str, endpoint: str, bucket: str) -> None:
    """Print what was read back, as JSON."""
    configure_quietly()
    spark = (
        SparkSession.builder.master("local[2]")
        .config(map=dict(jars_settings(["kafka", "delta", "s3"])))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.driver.host", "localhost")
        .config("spark.ui.enabled", "false")
        .config("spark.hadoop.fs.s3a.endpoint", endpoint)
        .config("spark.hadoop.fs.s3a.endpoint.region", "us-east-1")
        .config("spark.hadoop.fs.s3a.access.key", "testing")
        .config("spark.hadoop.fs.s3a.secret.key", "testing")
        .config("spark.hadoop.fs.s3a.path.style.access", "true")
        .getOrCreate()
    )
    place = f"s3a://{bucket}/records"
    records = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    query = (
        records.option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .load()
        .selectExpr("cast(value AS STRING) AS value", "partition", "offset")
        .writeStream.format("delta")
        .option("checkpointLocation", f"s3a://{bucket}/checkpoint")
        .trigger(availableNow=True)
        .start(place)
    )
    query.awaitTermination()
    rows = spark.read.format("delta").load(place).orderBy("offset").collect()
    print(json.dumps([row.value for row in rows]))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
