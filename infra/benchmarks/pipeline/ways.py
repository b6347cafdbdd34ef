"""Ways to take an hour's files in: read with a schema, ids that come again dropped, sorted by arrival, as Parquet.

And Tidegate's whole interval, the second hour after the first. Each way yields, step by step, what it is called and how
many tuples it was about.
"""

from __future__ import annotations

import atexit
import functools
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from infra.benchmarks.pipeline.landed import ARRIVAL, COLUMNS, HOUR, ID, START, deliver

if TYPE_CHECKING:
    from tidegate.engine.context import RunContext

Step = tuple[str, int]
STAGES = ("ingest", "join_aggregate", "top_k", "sample_history", "calibrate", "check_quality")


def tidegate(folder: Path, kind: str, hour: int, stages: Sequence[str], here: bool | None = None) -> Iterator[Step]:
    """Stages, as ``tidegate run`` runs them, all hours in one run; ``here``: where slices run."""
    from tidegate.stages.run import run as run_stages
    from tidegate.store.intervals import intervals_between

    context = _run(folder, kind, here)
    start = START + hour * HOUR
    intervals = intervals_between(context.pipeline, start, start + HOUR)
    for stage in stages:
        run_stages(context, intervals, [stage])
        yield stage, sum(context.warehouse.rows(f"events_{stream}", intervals[0].label) for stream in COLUMNS)


@functools.cache
def _run(folder: Path, kind: str, here: bool | None) -> RunContext:
    """The run of this process; its Spark, if it starts one, ends with the process."""
    from tidegate.declarations import load_pipeline
    from tidegate.engine.context import RunContext

    root = folder / f"tidegate-{here}-{kind}"
    context = RunContext(load_pipeline(folder / kind), root, output=io.StringIO(), here=here)
    atexit.register(context.release_spark)
    return context.__enter__()


def duckdb(folder: Path, kind: str, hour: int, _: Sequence[str]) -> Iterator[Step]:
    """Two threads."""
    import duckdb as database

    types = {"string": "VARCHAR", "timestamp": "TIMESTAMPTZ", "double": "DOUBLE"}
    rows = 0
    with database.connect() as connection:
        connection.execute("SET threads = 2")
        for stream, columns in COLUMNS.items():
            told = ", ".join(f"{name}: '{types[kind_]}'" for name, kind_ in columns.items())
            files = folder / kind / stream / f"{START + hour * HOUR:%Y-%m-%dT%H}-*.{kind}"
            source = {
                "jsonl": f"read_json('{files}', format = 'newline_delimited', columns = {{{told}}})",
                "csv": f"read_csv('{files}', header = true, columns = {{{told}}})",
                "parquet": f"read_parquet('{files}')",
            }[kind]
            target = folder / f"duckdb-{kind}-{hour}-{stream}.parquet"
            connection.execute(
                f"COPY (SELECT * FROM {source} QUALIFY row_number() OVER (PARTITION BY {ID[stream]} ORDER BY "
                f"{ARRIVAL[stream]}) = 1 ORDER BY {ARRIVAL[stream]}, {ID[stream]}) TO '{target}' (FORMAT parquet)"
            )
            rows += pq.read_metadata(target).num_rows
    yield "ingest", rows


def polars(folder: Path, kind: str, hour: int, _: Sequence[str]) -> Iterator[Step]:
    """Its streaming engine; two threads by POLARS_MAX_THREADS."""
    import polars as pl

    rows = 0
    for stream, columns in COLUMNS.items():
        text = {n: pl.Float64 if t == "double" else pl.String for n, t in columns.items()}
        files = folder / kind / stream / f"{START + hour * HOUR:%Y-%m-%dT%H}-*.{kind}"
        if kind == "parquet":
            frame = pl.scan_parquet(files)
        else:
            frame = pl.scan_ndjson(files, schema=text) if kind == "jsonl" else pl.scan_csv(files, schema=text)
            times = [n for n, t in columns.items() if t == "timestamp"]
            frame = frame.with_columns(pl.col(times).str.to_datetime("%Y-%m-%dT%H:%M:%S%.6fZ", time_unit="us"))
        target = folder / f"polars-{kind}-{hour}-{stream}.parquet"
        whole = frame.sort(ARRIVAL[stream], ID[stream]).unique(ID[stream], keep="first", maintain_order=True)
        whole.sink_parquet(target)
        rows += pq.read_metadata(target).num_rows
    yield "ingest", rows


def spark(folder: Path, kind: str, hour: int, _: Sequence[str]) -> Iterator[Step]:
    """Plain Spark in ``local[2]``: read, drop duplicates, sort, write. Its session is started once."""
    spark_session = session()
    rows = 0
    for stream, columns in COLUMNS.items():
        told = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
        reader = spark_session.read.schema(told)
        source = str(folder / kind / stream / f"{START + hour * HOUR:%Y-%m-%dT%H}-*.{kind}")
        reader = reader.option("header", kind == "csv")
        frame = {"jsonl": reader.json, "csv": reader.csv, "parquet": reader.parquet}[kind](source)
        target = folder / f"spark-{kind}-{hour}-{stream}"
        frame.dropDuplicates([ID[stream]]).sort(ARRIVAL[stream], ID[stream]).write.parquet(str(target))
        rows += sum(pq.read_metadata(file).num_rows for file in target.glob("*.parquet"))
    yield "ingest", rows


def session():  # type: ignore[no-untyped-def]
    """A Spark session of this process."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "4g")
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC")
    made = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def structured_streaming(folder: Path, kind: str, hour: int, _: Sequence[str]) -> Iterator[Step]:
    """The three queries alone, on Spark Structured Streaming."""
    from infra.benchmarks.pipeline.streaming import structured_streaming as own

    yield from own(folder, kind, hour)


def flink(folder: Path, kind: str, hour: int, _: Sequence[str]) -> Iterator[Step]:
    """The three queries alone, on Flink SQL, from JSON lines; it is installed when first asked for."""
    from infra.benchmarks.pipeline.flink import child

    if kind != "jsonl":
        sys.exit("Flink's package reads JSON lines here, and nothing else")
    home = folder / f"flink-{hour}"
    deliver(folder / kind, home, hour)
    if "flink" not in _CHILDREN:
        _CHILDREN["flink"] = child(Path(os.environ.get("TIDEGATE_FLINK_VENV", folder / "flink")))
    process = _CHILDREN["flink"]
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{home}\n")
    process.stdin.flush()
    if not process.stdout.readline().startswith("done"):
        sys.exit("Flink gave up")
    lines = sum(file.read_bytes().count(b"\n") for file in home.glob("*/*"))
    if hour:
        process.stdin.close()
        process.wait()
    yield "three queries", lines


_CHILDREN: dict[str, subprocess.Popen[str]] = {}

WAYS: dict[str, Callable[[Path, str, int, Sequence[str]], Iterator[Step]]] = {
    "tidegate": tidegate,
    "tidegate_here": functools.partial(tidegate, here=True),
    "tidegate_tasks": functools.partial(tidegate, here=False),
    "duckdb": duckdb,
    "polars": polars,
    "spark": spark,
    "structured_streaming": structured_streaming,
    "flink": flink,
}
