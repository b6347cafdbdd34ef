"""The two streams that are joined: seeded, out of order, Parquet in order of arrival."""

from __future__ import annotations

import json
import math
import os
import shutil
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
from infra.benchmarks.join_aggregate.job import SECOND_US, SIDES


@dataclass(frozen=True)
class Workload:
    """``rows`` tuples a side, ``rate`` a second and side; lateness is exponential; Zipf's exponent is 1."""

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


def written(workload: Workload, work_dir: Path) -> Data:
    """The workload's files, written unless they are there.

    A folder ``events_<side>`` holds ``interval=<n>/part.parquet`` with event_time, arrival_time, event_id, key, value:
    consecutive in arrival, as many tuples each; values are whole numbers, as doubles.
    """
    folder = work_dir / "data" / workload.name
    about = folder / "about.json"
    if not about.exists():
        shutil.rmtree(folder, ignore_errors=True)
        about.parent.mkdir(parents=True)
        about.write_text(json.dumps(_write(workload, folder)))
    return Data(workload, folder, **json.loads(about.read_text()))


def _write(workload: Workload, folder: Path) -> dict[str, int]:
    timing = Timing(float(workload.seconds), lateness=Exponential(workload.mean_lateness_s))
    keys = Uniform(workload.keys) if workload.distribution == "uniform" else Zipf(workload.keys, 1.0)
    streams = KeyedStreams(dict.fromkeys(SIDES, workload.rows / workload.seconds), keys, timing)
    latest_us = 0
    for side, table in streams.tables(workload.seed).items():
        lateness = pc.subtract(table["arrival_time"].cast(pa.int64()), table["event_time"].cast(pa.int64()))
        latest_us = max(latest_us, pc.max(lateness).as_py())
        table = table.select(["event_time", "arrival_time", "event_id", "key"]).append_column(
            "value", pc.floor(table["score"])
        )
        cuts = np.linspace(0, len(table), workload.files + 1).astype(int).tolist()
        for number, (begin, end) in enumerate(zip(cuts[:-1], cuts[1:], strict=True)):
            path = folder / f"events_{side}" / f"interval={number:03}" / "part.parquet"
            path.parent.mkdir(parents=True)
            pq.write_table(table.slice(begin, end - begin), path)
            # Spark's file stream goes by the time of modification: the files' order, a second apart.
            os.utime(path, (1_600_000_000 + number,) * 2)
    start_us = round(timing.start.timestamp()) * SECOND_US
    return {"start_us": start_us, "slack_s": latest_us // SECOND_US + 1}
