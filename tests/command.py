"""``tidegate`` as a user runs it: another process, its own Spark. And the same stages in this process."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline
from tidegate.engine.context import RunContext
from tidegate.stages.run import run
from tidegate.store.intervals import intervals_between

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 900


@dataclass(frozen=True)
class Run:
    """What a command said, and its exit status."""

    status: int
    output: str
    errors: str


def tidegate(*arguments: str | Path, **environment: str | Path) -> Run:
    """Run the command line with these arguments; more environment by keyword."""
    command = [sys.executable, "-m", "tidegate.cli", *map(str, arguments)]
    given = {name: str(value) for name, value in environment.items()}
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, **given}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT, timeout=TIMEOUT_S, check=False)
    return Run(done.returncode, done.stdout, done.stderr)


def run_pipeline(
    pipeline: Path, warehouse: Path, start: str, end: str, *options: str, **environment: str | Path
) -> Run:
    """``tidegate run`` over a range; an AssertionError with the end of what it said if it failed."""
    run = tidegate("run", pipeline, "--warehouse", warehouse, "--from", start, "--to", end, *options, **environment)
    assert run.status == 0, f"tidegate run ended with {run.status}:\n{run.errors[-6000:]}"
    return run


def shared_session() -> SparkSession:
    """The one session of this process, with Kafka's connector if it is there.

    A JVM that another session started has no connector: so this one is the first wherever Spark is used, and whoever
    asks for another gets it.
    """
    from tidegate.engine.jars import jars
    from tidegate.engine.session import start_session

    pipeline: Any = SimpleNamespace(name="tests", process_budget_bytes=3 * 2**30, partitions=2)
    return start_session(pipeline, "tests", ["kafka"] if jars("kafka") else [])


def run_stages(
    pipeline: Pipeline | Path,
    warehouse: Path,
    start: datetime,
    end: datetime,
    stages: Sequence[str],
) -> str:
    """What ``tidegate run`` does, in this process; what it said while it worked."""
    declared = load_pipeline(pipeline) if isinstance(pipeline, Path) else pipeline
    said = io.StringIO()
    if declared.landed_streams:
        shared_session()
    with RunContext(declared, warehouse, output=said) as context:
        run(context, intervals_between(declared, start, end), stages)
    return said.getvalue()
