"""Files as they land: found by Structured Streaming, parsed as ingest does, put aside exactly once by batch."""

from __future__ import annotations

import glob
import os
import re
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, Stream
from tidegate.hosts import planner
from tidegate.hosts.live_clock import LANDED_SCHEMA, Landed, landing_glob, period_of
from tidegate.hosts.records import parse, read_files
from tidegate.hosts.sources import SourceFile, header_of, pattern_unit

_LISTED = "path string, modificationTime timestamp, length bigint, content binary"
_FILES_A_BATCH = 10_000


class Intake:
    """One Structured Streaming query over the files of all streams of a pipeline.

    Its sources say which files are new, and its checkpoint that each is said once; the batch function reads them, and
    moves in what it read by one rename, named after the batch. A batch that comes again after a kill finds itself done.

    Only names go through Spark's sources: the columns of a file are the file's own, as ingest sees them, where one
    streaming source has one header for ever.
    """

    def __init__(self, pipeline: Pipeline, folder: Path, say: Callable[[str], None]):
        self.pipeline, self.folder, self._say = pipeline, folder, say
        self.since_us = 0  # the present interval's start: files of periods that ended before are left alone
        self.last_batch = -1  # batches up to this one are through, whether they are still here or not
        self.failure: BaseException | None = None
        self.turn = threading.Event()  # set whenever a batch has been put aside
        self._every_s = 0.0
        self._query: Any = None
        self._landed: dict[int, list[Landed]] = {}

    def start(self, spark: SparkSession, every_s: float) -> None:
        """Begin to watch, a look every so many seconds."""
        self._every_s, self.failure = every_s, None
        # It would print every fault with a trace of the JVM; they come to light through `check`.
        levels = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
        levels.core.config.Configurator.setLevel("org.apache.spark.sql.execution.streaming", levels.Level.OFF)
        for leftover in self.folder.glob("_*"):
            shutil.rmtree(leftover, ignore_errors=True)
        (self.folder / "batches").mkdir(parents=True, exist_ok=True)
        watched = reduce(DataFrame.unionByName, (self._source(spark, stream) for stream in self.pipeline.streams))
        self._query = (
            watched.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
            .start()
        )

    def stop(self) -> None:
        """Watch no longer; a batch that is being read is read again by the next run."""
        if self._query is not None:
            self._query.stop()
            self._query = None

    def check(self) -> None:
        """Raise what ended the query, if anything did."""
        if self.failure is not None:
            raise self.failure
        if self._query is not None and self._query.exception() is not None:
            raise self._query.exception()

    def settle(self) -> None:
        """Wait until everything that has landed by now has been read."""
        try:
            self._query.processAllAvailable()
        finally:
            self.check()

    def landed(self) -> list[Landed]:
        """The files of all batches that are kept, in the order in which they came."""
        here = {int(p.name.removeprefix("batch=")): p for p in (self.folder / "batches").glob("batch=*")}
        for gone in self._landed.keys() - here.keys():
            del self._landed[gone]
        for batch in sorted(here.keys() - self._landed.keys()):
            rows = pq.read_table(here[batch] / "landed.parquet").to_pylist()
            self._landed[batch] = [Landed(**row) for row in rows]
        return [file for batch in sorted(self._landed) for file in self._landed[batch]]

    def parsed(self, files: Sequence[Landed]) -> pa.Table | None:
        """The records of the batches that hold these files of one stream, as they were parsed; None without any.

        Beside the columns of ``records.parse``: ``_bytes``, what the tuple takes in its stream's window.
        """
        parts = [
            part for batch, name in sorted({(f.batch, f.stream) for f in files}) for part in self._parts(batch, name)
        ]
        return pa.concat_tables([pq.ParquetFile(part).read() for part in parts]) if parts else None

    def landed_empty(self, pattern: str) -> bool:
        """Whether a file without content stands for a period: Spark's file source passes over such files.

        One that has only just been made may be about to be written.
        """
        ages = [time.time() - os.stat(p).st_mtime for p in glob.glob(pattern) if os.path.getsize(p) == 0]
        return bool(ages) and min(ages) >= self._every_s

    def arrivals_us(self, file: Landed) -> npt.NDArray[np.int64]:
        """When the file's records arrived, those that say so."""
        parts = [
            pq.ParquetFile(p).read(columns=["_file", "arrival_time"]) for p in self._parts(file.batch, file.stream)
        ]
        own = [part.filter(pc.equal(part.column("_file"), file.path)).column("arrival_time") for part in parts]
        found = [us.cast(pa.int64()).drop_null().to_numpy() for us in own]
        return np.concatenate([np.empty(0, dtype=np.int64), *found])

    def forget(self, landed: Sequence[Landed], until_us: int) -> None:
        """Remove the batches in which nothing arrived at ``until_us`` or later."""
        needed = {
            file.batch
            for file in landed
            if (file.period_end_us is not None and file.period_end_us > until_us)
            or (file.last_us is not None and file.last_us >= until_us)
        }
        for batch in {file.batch for file in landed} - needed:
            gone = self.folder / f"_{batch}"
            os.rename(self.folder / "batches" / f"batch={batch:09d}", gone)
            shutil.rmtree(gone, ignore_errors=True)

    def _parts(self, batch: int, stream: str) -> list[Path]:
        return sorted((self.folder / "batches" / f"batch={batch:09d}" / stream).glob("*/*.parquet"))

    def _source(self, spark: SparkSession, stream: Stream) -> DataFrame:
        files = (
            spark.readStream.format("binaryFile")
            .schema(_LISTED)
            .option("maxFileAge", "36500d")
            .option("maxFilesPerTrigger", str(_FILES_A_BATCH))
            .load(landing_glob(stream.path))
        )
        return files.select(F.lit(stream.name).alias("stream"), "path")

    def _take(self, frame: DataFrame, batch: int) -> None:
        try:
            self._put_aside(frame, batch)
        except BaseException as error:
            # Through the JVM only its text would arrive.
            self.failure = error
            raise
        finally:
            self.turn.set()

    def _put_aside(self, frame: DataFrame, batch: int) -> None:
        target = self.folder / "batches" / f"batch={batch:09d}"
        if target.exists() or batch <= self.last_batch:
            return
        aside = self.folder / f"_{batch:09d}"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        paths: dict[str, list[str]] = defaultdict(list)
        for row in frame.collect():
            paths[row["stream"]].append(re.sub("^file:/*", "/", row["path"]))
        landed: list[Landed] = []
        for stream in self.pipeline.streams:
            files = self._files(stream, sorted(paths[stream.name]), say=batch > 0)
            landed += self._read(frame.sparkSession, stream, files, aside / stream.name, batch)
        if not landed:
            shutil.rmtree(aside)
            return
        rows = pa.Table.from_pylist([vars(file) for file in landed], schema=LANDED_SCHEMA)
        pq.write_table(rows, aside / "landed.parquet")
        os.rename(aside, target)

    def _files(self, stream: Stream, paths: Sequence[str], say: bool) -> list[SourceFile]:
        """Those of the paths that matter, as they are now."""
        named, files = pattern_unit(stream.path) is not None, []
        for path in paths:
            period = period_of(stream.path, path) if named else (None, None)
            if period is None:
                continue
            if period[1] is not None and period[1] <= self.since_us:
                if say:
                    self._say(f"{stream.name}: {path} landed after the end of its interval: run that interval again")
                continue
            try:
                status = os.stat(path)
            except FileNotFoundError:
                self._say(f"{stream.name}: {path} disappeared before it could be read")
                continue
            files.append(SourceFile(Path(path), status.st_size, status.st_mtime_ns // 1000, *period))
        return files

    def _read(
        self, spark: SparkSession, stream: Stream, files: Sequence[SourceFile], folder: Path, batch: int
    ) -> list[Landed]:
        by_header: dict[Any, list[SourceFile]] = defaultdict(list)
        status = {}
        for file in files:
            try:
                header = header_of(stream, file)
            except ValueError:
                status[file.path] = "unreadable"
                self._say(f"{stream.name}: unreadable file {file.path}")
                continue
            status[file.path] = "empty" if header is None else "ok"
            if header is not None:
                # A Spark path glob stands for the files of one folder.
                by_header[header, file.path.parent].append(file)
        for number, ((header, _), own) in enumerate(by_header.items()):
            raw = read_files(spark.read, stream, own, header)
            size = planner.tuple_bytes(self.pipeline, stream).alias("_bytes")
            parse(stream, raw).select("*", size).write.parquet(str(folder / f"{number:03d}"))
        growing = [str(f.path) for f in files if f.changed()]
        if growing:
            raise UserError(
                f"{growing[0]} changed while it was read ({len(growing)} such files): a live run reads a file once, "
                "so write it under another name and rename it when it is complete; then start again"
            )
        span = {} if pattern_unit(stream.path) is not None else _arrivals(stream, folder)
        return [
            Landed(
                batch,
                stream.name,
                str(file.path),
                file.bytes,
                file.modified_us,
                file.period_start_us,
                file.period_end_us,
                status[file.path],
                *(
                    span.get(str(file.path), (None, None))
                    if file.period_start_us is None or file.period_end_us is None
                    else (file.period_start_us, file.period_end_us - 1)
                ),
            )
            for file in files
        ]


def _arrivals(stream: Stream, folder: Path) -> dict[str, tuple[int, int]]:
    """File → least and largest arrival that can be trusted."""
    parts = sorted(folder.glob("*/*.parquet"))
    if not parts:
        return {}
    columns = ["_file", "arrival_time", "_modified_us"]
    rows = pa.concat_tables([pq.ParquetFile(part).read(columns=columns) for part in parts])
    arrival_us, modified_us = rows.column("arrival_time").cast(pa.int64()), rows.column("_modified_us")
    # A record without an arrival belongs to the instant at which its file landed.
    arrival_us = pc.coalesce(arrival_us, modified_us)
    rows = pa.table({"file": rows.column("_file"), "us": arrival_us})
    rows = rows.filter(pc.less_equal(arrival_us, pc.add(modified_us, stream.max_early_s * 1_000_000)))
    spans = rows.group_by("file").aggregate([("us", "min"), ("us", "max")])
    return {row["file"]: (row["us_min"], row["us_max"]) for row in spans.to_pylist()}
