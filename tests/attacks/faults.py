"""A disk that is full, broken or read-only at one call of a run: an error in one sentence, and nothing is lost.

Python's own calls are met by an audit hook, those that pyarrow and delta-rs make by patches of the functions that lead
to them. The stages run in this process; the calls are the same in every run, so a number says which one fails.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.live_files import contents

from tidegate.cli.init import init
from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline
from tidegate.engine.context import RunContext
from tidegate.stages.run import STAGES, run
from tidegate.store import delta
from tidegate.store.intervals import Interval, intervals_between

# All but the last two, which call libraries that call the disk a thousand times more.
TRIED = STAGES[: STAGES.index("check_quality")]
ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS)
# What says how long a run took and how much it needed.
MEASURED = ("run_metrics",)
EVENTS = ("open", "os.remove", "os.mkdir", "os.rename", "os.link", "os.rmdir", "os.utime", "os.listdir", "os.scandir")
HOURS = ((8, 10, 11), (8, 23, 24))
"""The first hours are there; the next ones meet the fault: one with data, one that ends a day."""


@dataclass
class Disk:
    """Counts the calls on paths below ``root``; call number ``fails`` raises."""

    root: str = ""
    fails: int = -1
    number: int = errno.EIO
    calls: int = field(default=0)
    met: str = ""

    def call(self, what: str, path: object) -> None:
        """One call."""
        name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        if self.root and name.startswith(self.root):
            self.calls += 1
            if self.calls == self.fails:
                self.met = f"{what} {name}"
                raise OSError(self.number, os.strerror(self.number), name)


DISK = Disk()


def attack(seed: int, folder: Path, count: int = 20) -> tuple[int, list[str]]:
    """So many runs, each with another call that fails; how many, and what was wrong."""
    which = seed % len(HOURS)
    pipeline, before, expected, calls = prepared(which)
    chance, faults = random.Random(seed), list[str]()
    for number in range(count):
        root = folder / f"{number}"
        shutil.copytree(before, root)
        fails, what = chance.randrange(1, calls + 1), chance.choice(ERRORS)
        with failing(str(root), fails, what) as disk:
            said = attempt(pipeline, root, fault_hours(pipeline, which))
        at = f"seed {seed}: {errno.errorcode[what]} at call {fails} of {calls} ({disk.met})"
        if said:
            faults.append(f"{at}: {said}")
        said = attempt(pipeline, root, fault_hours(pipeline, which))
        if said or contents(pipeline, root, MEASURED) != expected:
            faults.append(f"{at}: the next run {said or 'has other rows'}")
        shutil.rmtree(root)
    return count, faults


@cache
def prepared(which: int) -> tuple[Pipeline, Path, dict[tuple[str, str], list[str]], int]:
    """The pipeline, its tables before the run that meets the fault, the rows after it, and how many calls it makes."""
    home = Path(mkdtemp(prefix="faults-"))
    with contextlib.redirect_stdout(io.StringIO()):
        init(home / "shop", "shop")
    pipeline = load_pipeline(home / "shop")
    first, start, _ = HOURS[which]
    assert not attempt(pipeline, home / "before", _hours(pipeline, first, start))
    shutil.copytree(home / "before", home / "after")
    with failing(str(home / "after"), -1, errno.EIO) as disk:
        assert not attempt(pipeline, home / "after", fault_hours(pipeline, which))
    return pipeline, home / "before", contents(pipeline, home / "after", MEASURED), disk.calls


def fault_hours(pipeline: Pipeline, which: int) -> Sequence[Interval]:
    """The intervals whose run meets the fault."""
    return _hours(pipeline, *HOURS[which][1:])


def attempt(pipeline: Pipeline, root: Path, intervals: Sequence[Interval]) -> str:
    """Run the stages; what is wrong with how it ended, if it did not end as a command may."""
    try:
        with RunContext(pipeline, root, output=io.StringIO()) as context:
            run(context, intervals, TRIED)
    except (UserError, OSError):
        return ""
    except Exception as error:
        return f"ended with {type(error).__name__}: {error}"
    return ""


@contextlib.contextmanager
def failing(root: str, fails: int, number: int) -> Iterator[Disk]:
    """Let one call fail meanwhile."""
    _listen()
    DISK.__init__(root, fails, number)  # type: ignore[misc]
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((pq, "write_table"), (pq, "ParquetWriter"), (pq, "ParquetFile"), (pq, "read_metadata")):
            patch.setattr(module, name, _met(getattr(module, name), f"pyarrow {name}"))
        patch.setattr(ds, "dataset", _met(ds.dataset, "pyarrow dataset"))
        patch.setattr(os, "fsync", _met(os.fsync, "fsync"))
        for name in ("_transact", "create", "refresh"):
            patch.setattr(delta.DeltaLog, name, _met(getattr(delta.DeltaLog, name), f"delta {name}"))
        try:
            yield DISK
        finally:
            DISK.root = ""


def _met(function: Callable[..., Any], what: str) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        first = next((a for a in arguments if isinstance(a, str | Path)), None)
        if arguments and isinstance(arguments[0], delta.DeltaLog):
            first = arguments[0].folder
        elif arguments and isinstance(arguments[0], list) and arguments[0]:
            first = arguments[0][0]
        elif what == "fsync":
            first = os.readlink(f"/proc/self/fd/{arguments[0]}")
        DISK.call(what, first)
        return function(*arguments, **options)

    return call


@cache
def _listen() -> None:
    # An audit hook stays as long as the process.
    sys.addaudithook(lambda event, told: DISK.call(event, told[0]) if event in EVENTS and DISK.root else None)


def _hours(pipeline: Pipeline, first: int, last: int) -> Sequence[Interval]:
    day = datetime(2026, 1, 5, tzinfo=UTC)
    return intervals_between(pipeline, day.replace(hour=first), _at(day, last))


def _at(day: datetime, hour: int) -> datetime:
    return day.replace(hour=hour) if hour < 24 else day.replace(day=day.day + 1)
