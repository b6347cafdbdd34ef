"""What an engine is asked, and how it answers: all that an engine's own process has to know.

Only the standard library, numpy and pyarrow: Flink's interpreter has nothing else of ours.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

SECOND_US = 1_000_000
MARK = "@benchmark "
"""Before the lines that an engine says to the parent; everything else that it prints is chatter."""
PR_SET_CHILD_SUBREAPER = 36

Int64s = npt.NDArray[np.int64]
Session = TypeVar("Session")
AnyJob = TypeVar("AnyJob", bound="Job")


@dataclass(frozen=True)
class Job:
    """One query over one data set, in one form, by one engine.

    ``data``: a folder with ``events_<stream>``, Parquet in order of arrival. ``prepared``: what the engine's
    ``prepare`` has made of it. ``out``: where the answers go, a file or a folder. ``scratch``: a folder to spoil.
    Windows end at ``start_us + every_s``, ``+ 2 every_s`` … ``+ seconds``. ``slack_s`` covers every lateness.
    ``warm``: answer once before, in the same session, which is not measured.
    """

    form: str
    data: str
    prepared: str
    out: str
    scratch: str
    start_us: int
    seconds: int
    range_s: int
    every_s: int
    slack_s: int
    keys: int
    rows: int
    warm: bool

    @property
    def end_us(self) -> int:
        """End of the last window."""
        return self.start_us + self.seconds * SECOND_US

    @property
    def ends_us(self) -> Int64s:
        """End of every window."""
        every_us = self.every_s * SECOND_US
        return np.arange(self.start_us + every_us, self.end_us + 1, every_us, dtype=np.int64)

    def stream(self, name: str) -> str:
        """The folder of one stream."""
        return str(Path(self.data) / f"events_{name}")


def serve(
    kind: type[AnyJob], start: Callable[[AnyJob], Session], run: Callable[[Session, AnyJob], dict[str, int] | None]
) -> None:
    """An engine's process: start the session, wait for the word, run, report, wait to be ended.

    The parent measures between these lines; what ``run`` returns goes to it as JSON.
    """
    # Orphans stay in the tree that is measured.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    job = kind(**json.loads(sys.argv[1]))
    session = start(job)
    if job.warm:
        before = Path(job.scratch) / "before"
        before.mkdir(parents=True)
        run(session, replace(job, out=str(before / "answers.parquet"), scratch=str(before)))
    _say("ready")
    if sys.stdin.readline().strip() != "go":
        sys.exit("the parent is gone")
    told = run(session, job)
    _say("done " + json.dumps(told or {}))
    sys.stdin.readline()


def _say(text: str) -> None:
    print(MARK + text, flush=True)


def as_argument(job: Job) -> str:
    """The job as the one argument of an engine's process."""
    return json.dumps(asdict(job))


def since_1970_us(instant: datetime) -> int:
    """A naive UTC instant in microseconds."""
    return (instant.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
