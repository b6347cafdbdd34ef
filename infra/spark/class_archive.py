"""Makes the archive of Java classes that cuts a Spark session's start by half.

The JVM spends most of a small application's time on reading and compiling Spark's classes. An archive of them (AppCDS)
is mapped into memory instead. It fits exactly one Java and one class path, so it is made on the machine that uses it:
once, in about half a minute, 160 MB. Without it everything works as well, only slower. Measured on two cores, start of
a session, two small jobs and stop, processor seconds (wall):

    Java as it comes, G1            23.6 (22 to 25)
    first compiler only, serial GC  13 to 15 (13 to 17)
    the same with the archive       7.5 to 8.3 (8 to 9)

Run as ``python infra/spark/class_archive.py`` (the Makefile does where it saves more than it costs); ``spark-submit``
runs the same file as the application that loads the classes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def make(archive: Path, no_configuration: Path, java_options: str) -> None:
    """Write the archive, or a word on why this Java cannot.

    The class path must be the same when the archive is used, and may hold no folder with files in it: Spark's
    configuration folder is on the class path, so it stays empty and the settings travel as Java options.
    """
    no_configuration.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_suffix(f".{os.getpid()}")
    done = subprocess.run(
        [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]", str(Path(__file__).resolve())],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(no_configuration),
            "SPARK_SUBMIT_OPTS": f"{java_options} -Xlog:disable -XX:ArchiveClassesAtExit={unfinished}",
            "TIDEGATE_LOAD_CLASSES": "1",
        },
        capture_output=True,
        text=True,
    )
    if done.returncode or not unfinished.exists():
        unfinished.unlink(missing_ok=True)
        print("No archive of Spark's classes (Spark starts without it, slower):", done.stderr[-500:], file=sys.stderr)
        return
    unfinished.replace(archive)


def load_classes() -> None:
    """Touch what stages and dbt touch: a session, Parquet, a shuffle, a Python worker, a stream, views and tables."""
    import tempfile

    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as folder:
        spark = SparkSession.builder.config("spark.sql.warehouse.dir", f"{folder}/warehouse").getOrCreate()
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
        # As Tidegate's sessions have it.
        spark.conf.set("spark.sql.codegen.wholeStage", "false")
        spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        for statement in _MODEL.format(folder).split(";"):
            spark.sql(statement).collect()
        spark.stop()


_MODEL = """
create schema if not exists models;
create table models.source (id bigint, at timestamp, name string, key string)
using parquet partitioned by (key) location '{0}/table';
create or replace view models.staged as select id, at, name, key, map('a', 1.5D) as widths from models.source;
select * from (select * from models.staged) where false limit 0;
create table models.mart using parquet location '{0}/mart' as
with parts as (
    select id, key, to_json(named_struct('name', name, 'at', at), map('ignoreNullFields', 'false')) as said, widths
    from models.staged
    union all
    select id, key, cast(null as string), widths from models.staged where at is not null
),
exploded as (select id, key, said, explode(widths) as (alias, width) from parts),
kept as (select * from exploded left anti join (select distinct id from parts where said is null) using (id)),
declared (key, stream) as (values ('1', 'one'), ('2', 'two'))
select
    exploded.key, stream, count(*) as tuples, count_if(width > 1) as wide, min(id) as least, first(said) as said,
    cast(row_number() over (partition by exploded.key order by stream nulls last) as bigint) as number,
    aggregate(array_sort(collect_list(width)), 0D, (total, value) -> total + value) as total
from exploded left join declared on exploded.key = declared.key
where exploded.id not in (select id from kept)
group by exploded.key, stream;
select count(*) as failures from (select key from models.mart group by key having count(*) > 1);
describe extended models.mart;
show tables in models;
drop table models.mart;
drop view models.staged
"""


if __name__ == "__main__":
    if os.environ.get("TIDEGATE_LOAD_CLASSES"):
        load_classes()
    else:
        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "airflow"))
        from environment import CLASS_ARCHIVE, NO_CONFIGURATION, java_options

        make(CLASS_ARCHIVE, NO_CONFIGURATION, java_options())
