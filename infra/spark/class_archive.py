"""Makes the archive of Java classes that cuts a Spark session's start by half.

The JVM spends most of a small application's time on reading and compiling Spark's classes. An archive of them (AppCDS)
is mapped into memory instead. It fits exactly one Java and one class path, so it is made on the machine that uses it:
once, in about half a minute, 160 MB. Without it everything works as well, only slower. Measured on two cores, start of
a session, two small jobs and stop, processor seconds (wall):

    Java as it comes, G1            23.6 (22 to 25)
    first compiler only, serial GC  13 to 15 (13 to 17)
    the same with the archive       7.5 to 8.3 (8 to 9)

Run as ``python infra/spark/class_archive.py ARCHIVE``; ``spark-submit`` runs the same file as the application that
loads the classes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# The class path must be the same when the archive is used, and may hold no folder with files in it: Spark's
# configuration folder is on the class path, so it stays empty and the settings travel as Java options.
EMPTY_CONFIGURATION = "no_conf"


def make(archive: Path, java_options: str) -> bool:
    """Write the archive; False (and a word on why) if this Java cannot."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    (archive.parent / EMPTY_CONFIGURATION).mkdir(exist_ok=True)
    unfinished = archive.with_suffix(f".{os.getpid()}")
    done = subprocess.run(
        [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]", str(Path(__file__).resolve())],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(archive.parent / EMPTY_CONFIGURATION),
            "SPARK_SUBMIT_OPTS": f"{java_options} -Xlog:disable -XX:ArchiveClassesAtExit={unfinished}",
            "TIDEGATE_LOAD_CLASSES": "1",
        },
        capture_output=True,
        text=True,
    )
    if done.returncode or not unfinished.exists():
        unfinished.unlink(missing_ok=True)
        print("No archive of Spark's classes (Spark starts without it, slower):", done.stderr[-500:], file=sys.stderr)
        return False
    unfinished.replace(archive)
    return True


def load_classes() -> None:
    """Touch what every stage touches: a session, Parquet, a shuffle, a Python worker, a stream."""
    import tempfile

    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        frame = spark.sql(
            "SELECT id, id % 3 AS key, timestamp_micros(id) AS at, cast(id AS string) AS name FROM range(100)"
        )
        frame.write.partitionBy("key").parquet(f"{folder}/table")
        stored = spark.read.parquet(f"{folder}/table")
        stored.mapInArrow(lambda batches: batches, stored.schema).groupBy("key").count().orderBy("key").toArrow()
        stored.alias("a").join(stored.alias("b"), "id").selectExpr("count(*)", "max_by(a.name, a.at)").toArrow()
        stream = (
            spark.readStream.schema(stored.schema).parquet(f"{folder}/table").writeStream.trigger(availableNow=True)
        )
        stream.option("checkpointLocation", f"{folder}/checkpoint").foreachBatch(
            lambda batch, _: print(batch.count())
        ).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    if os.environ.get("TIDEGATE_LOAD_CLASSES"):
        load_classes()
    else:
        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "airflow"))
        from environment import java_options

        sys.exit(0 if make(Path(sys.argv[1]).resolve(), java_options()) else 1)
