"""One engine on one job: started as a process of its own, measured as a tree, ended for certain."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from infra.benchmarks.rivals.job import MARK, Job, as_argument
from infra.benchmarks.rivals.meter import TreeMeter
from infra.benchmarks.rivals.workload import Data

ROOT = Path(__file__).parents[3]
START_LIMIT_S = 120.0


class NotExactError(ValueError):
    """Answers that cannot be compared."""


Checksum = Callable[[Path], tuple[str, int]]
"""Of a file or folder of answers: a hash, and how many windows it is over; NotExactError."""


@dataclass(frozen=True)
class Engine:
    """An engine that can be asked for.

    ``module``: what its process runs. ``forms``: how the query can be written for it; ``default_forms`` are run when
    only its name is given. ``prepare``: makes of the data what it reads instead, not measured.
    """

    name: str
    forms: tuple[str, ...]
    default_forms: tuple[str, ...]
    prepare: Callable[[Data, Path], None] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    module: str = ""


@dataclass
class Measured:
    """What a run took. ``failure``: why there are no answers. CPU and memory are the whole tree's."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    start_wall_s: float = 0.0
    start_cpu_s: float = 0.0
    peak_bytes: int = 0
    told: dict[str, int] = field(default_factory=dict)
    checksum: str = ""
    windows: int = 0
    failure: str = ""


def measured(engine: Engine, python: Path, job: Job, checksum: Checksum, limit_s: float, log: Path) -> Measured:
    """Run an engine on a job; a run that fails or exceeds the limit says so in ``failure``."""
    shutil.rmtree(job.scratch, ignore_errors=True)
    Path(job.scratch).mkdir(parents=True)
    _remove(Path(job.out))
    log.parent.mkdir(parents=True, exist_ok=True)
    result = Measured()
    # The rival's Python may be another one, which has no Tidegate installed.
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'spark_apps'}:{ROOT}"} | engine.environment
    environment |= {"TMPDIR": job.scratch, "SPARK_LOCAL_DIRS": job.scratch}
    command = [str(python), "-m", engine.module, as_argument(job)]
    with log.open("w") as chatter:
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=chatter,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        with TreeMeter(child.pid) as meter:
            try:
                _follow(child, meter, result, (START_LIMIT_S + job.warm * limit_s, limit_s), chatter)
            finally:
                result.peak_bytes = meter.peak_bytes
                _end(child, meter)
    if not result.failure:
        try:
            result.checksum, result.windows = checksum(Path(job.out))
        except (NotExactError, OSError, KeyError, ValueError) as error:
            result.failure = f"answers unreadable: {error}"
    elif not result.failure.startswith("did not"):
        result.failure = f"failed: {reason(log.read_text())}"
    shutil.rmtree(job.scratch, ignore_errors=True)
    return result


def _follow(
    child: subprocess.Popen[str], meter: TreeMeter, result: Measured, limits_s: tuple[float, float], chatter: TextIO
) -> None:
    start_limit_s, limit_s = limits_s
    lines: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith(MARK):
                lines.put(line.removeprefix(MARK).strip())
            else:
                with contextlib.suppress(ValueError):
                    chatter.write(line)
        lines.put(None)

    threading.Thread(target=listen, daemon=True).start()
    assert child.stdin is not None
    began = time.monotonic()

    def line(within_s: float) -> str | None:
        try:
            return lines.get(timeout=within_s)
        except queue.Empty:
            return f"late {within_s:g}"

    said = line(start_limit_s)
    result.start_wall_s, result.start_cpu_s = time.monotonic() - began, meter.cpu_s()
    if said != "ready":
        result.failure = f"did not start in {start_limit_s:g} s" if said else "failed"
        return
    began = time.monotonic()
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write("go\n")
        child.stdin.flush()
    said = line(limit_s)
    result.wall_s = time.monotonic() - began
    result.cpu_s = meter.cpu_s() - result.start_cpu_s
    if said is None:
        result.failure = "failed"
    elif said.startswith("late"):
        result.failure = f"did not finish in {limit_s:g} s"
    else:
        result.told = json.loads(said.removeprefix("done "))


def _end(child: subprocess.Popen[str], meter: TreeMeter) -> None:
    """End what was started, and only that: the tree as it is, in the session that it was given."""
    for process in meter.processes():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError, ValueError):
                pipe.close()


def reason(text: str) -> str:
    """The line of a log that says most about a failure."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for words in ("OutOfMemoryError", "Caused by:", "Error:", "Exception:", "Error", "Exception"):
        found = [line for line in lines if words in line]
        if found:
            return found[-1][:160]
    return lines[-1][:160] if lines else "it said nothing"


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def own_python() -> Path:
    """The interpreter that runs this."""
    return Path(sys.executable)
