"""Flink in streaming mode, in a process of its own under an interpreter of its own.

Flink's PyPI package has no Parquet format, so it reads CSV made beforehand, which is not measured.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.benchmarks.rivals.job import Job

if TYPE_CHECKING:
    import pyarrow as pa

PACKAGE = "apache-flink==2.3.0"
HEAP = "6g"
ENVIRONMENT = {"JVM_ARGS": f"-Xmx{HEAP}"}


def interpreter(venv: Path, say: Any = print) -> Path:
    """The Python that has Flink, installed when first asked for; RuntimeError if it cannot be."""
    python = venv / "bin" / "python"
    ready = venv / f".has-{PACKAGE}"
    if not ready.exists():
        say(f"installing {PACKAGE} into {venv} …")
        for command in (
            [sys.executable, "-m", "venv", str(venv)],
            [str(python), "-m", "pip", "install", "--quiet", "--progress-bar", "off", PACKAGE],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                lines = [line for line in (done.stderr or done.stdout).splitlines() if not line.startswith("WARNING")]
                raise RuntimeError(f"{PACKAGE} cannot be installed: {lines[-1] if lines else 'pip said nothing'}")
        ready.touch()
    return python


def write_csv(tuples: pa.Table, file: Path) -> None:
    """Tuples as Flink reads them: event_us in place of event_time, then the other columns; without a header."""
    import pyarrow as pa
    from pyarrow import csv

    event_us = tuples["event_time"].cast(pa.int64())
    place = tuples.schema.get_field_index("event_time")
    table = tuples.set_column(place, "event_us", event_us)
    csv.write_csv(table, file, csv.WriteOptions(include_header=False))


def start(job: Job) -> Any:
    """A table environment with a cluster in the JVM beside it, which the first query starts."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in {
        "parallelism.default": "2",
        "table.local-time-zone": "UTC",
        "pipeline.object-reuse": "true",
        "table.exec.mini-batch.enabled": "false",
        "io.tmp.dirs": job.scratch,
        "taskmanager.memory.managed.size": "512m",
        "taskmanager.memory.network.max": "128m",
        "taskmanager.numberOfTaskSlots": "2",
    }.items():
        tables.get_config().set(name, value)
    return tables


def interval(seconds: int) -> str:
    """An INTERVAL literal."""
    return f"INTERVAL '{seconds}' SECOND({max(2, len(str(seconds)))})"
