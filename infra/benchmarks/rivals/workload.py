"""The streams that are asked: seeded, out of order, Parquet in order of arrival."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from infra.benchmarks.generator.keys import Uniform, Zipf
from infra.benchmarks.generator.lateness import Exponential
from infra.benchmarks.generator.timing import Timing
from infra.benchmarks.generator.workloads import KeyedStreams
from infra.benchmarks.rivals.job import SECOND_US


@dataclass(frozen=True)
class Workload:
    """``rows`` tuples a stream, ``rate`` a second each; lateness is exponential; Zipf's exponent is 1."""

    rows: int
    rate: float
    keys: int
    distribution: str
    mean_lateness_s: float
    files: int
    seed: int

    @property
    def seconds(self) -> int:
        """How long the streams last, in whole seconds."""
        return math.ceil(self.rows / self.rate)

    @property
    def name(self) -> str:
        """The folder's name: all that decides the bytes."""
        return "-".join(str(value) for value in asdict(self).values())


@dataclass(frozen=True)
class Data:
    """A workload on disk; ``slack_s`` is the least whole number of seconds above every lateness."""

    workload: Workload
    folder: Path
    start_us: int
    slack_s: int

    def files(self, stream: str) -> list[Path]:
        """A stream's files in order of arrival."""
        return sorted((self.folder / f"events_{stream}").glob("*/*.parquet"))

    def read(self, stream: str, columns: Sequence[str]) -> pa.Table:
        """A stream's tuples in order of arrival."""
        return pa.concat_tables([pq.ParquetFile(file).read(list(columns)) for file in self.files(stream)])


def written(
    workload: Workload, work_dir: Path, streams: Sequence[str], value: tuple[str, Callable[[pa.Array], pa.Array]]
) -> Data:
    """The workload's files, written unless they are there.

    A folder ``events_<stream>`` holds ``interval=<n>/part.parquet`` with event_time, arrival_time, event_id, key and
    what ``value`` names and makes of the score: consecutive in arrival, as many tuples each.
    """
    folder = work_dir / "data" / "-".join([*streams, workload.name])
    about = folder / "about.json"
    if not about.exists():
        shutil.rmtree(folder, ignore_errors=True)
        about.parent.mkdir(parents=True)
        about.write_text(json.dumps(_write(workload, folder, streams, value)))
    return Data(workload, folder, **json.loads(about.read_text()))


def _write(
    workload: Workload, folder: Path, streams: Sequence[str], value: tuple[str, Callable[[pa.Array], pa.Array]]
) -> dict[str, int]:
    timing = Timing(float(workload.seconds), lateness=Exponential(workload.mean_lateness_s))
    keys = Uniform(workload.keys) if workload.distribution == "uniform" else Zipf(workload.keys, 1.0)
    keyed = KeyedStreams(dict.fromkeys(streams, workload.rows / workload.seconds), keys, timing)
    latest_us = 0
    for stream, table in keyed.tables(workload.seed).items():
        lateness = pc.subtract(table["arrival_time"].cast(pa.int64()), table["event_time"].cast(pa.int64()))
        latest_us = max(latest_us, pc.max(lateness).as_py())
        name, valued = value
        table = table.select(["event_time", "arrival_time", "event_id", "key"]).append_column(
            name, valued(table["score"])
        )
        cuts = np.linspace(0, len(table), workload.files + 1).astype(int).tolist()
        for number, (begin, end) in enumerate(zip(cuts[:-1], cuts[1:], strict=True)):
            path = folder / f"events_{stream}" / f"interval={number:03}" / "part.parquet"
            path.parent.mkdir(parents=True)
            pq.write_table(table.slice(begin, end - begin), path)
            # Spark's file stream goes by the time of modification: the files' order, a second apart.
            os.utime(path, (1_600_000_000 + number,) * 2)
    start_us = round(timing.start.timestamp()) * SECOND_US
    return {"start_us": start_us, "slack_s": latest_us // SECOND_US + 1}
