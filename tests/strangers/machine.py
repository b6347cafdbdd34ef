"""Runs a case through all stages in this process, and gives what came out to the laws."""

from __future__ import annotations

import contextlib
import io
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
from tests.strangers.case import Case, write_file
from tests.strangers.landing import Landing, read_stream

from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, Stream
from tidegate.engine.context import RunContext
from tidegate.engine.session import start_session
from tidegate.live.run import Live
from tidegate.stages.check_quality import QualityError
from tidegate.stages.run import STAGES, run, stages_named
from tidegate.store.intervals import Interval, intervals_between

COMPUTING = stages_named(["answers"])
LOOKS = 3
"""A live run that has looked so often without coming any further waits for what will not land."""


@dataclass(frozen=True)
class Breach:
    """A law that does not hold, and how that shows."""

    law: str
    message: str


@dataclass
class World:
    """A case after its run: warehouses of the same files, written in one go, in parts and by a live run.

    ``lived``: labels of the intervals that the live run has ended; it waits for ever where files that must come do not.
    """

    case: Case
    pipeline: Pipeline
    home: Path
    whole: Path
    parts: Path
    live: Path
    seconds: dict[str, float] = field(default_factory=dict)
    log: io.StringIO = field(default_factory=io.StringIO)
    lived: list[str] = field(default_factory=list)
    covered: list[bool] = field(default_factory=list)
    """Of the questions to history that were answered by an interval: whether it held the truth."""
    landings: dict[str, Landing] = field(default_factory=dict)
    compared: Counter[str] = field(default_factory=Counter)
    """How many rows were compared with readings."""

    @property
    def start(self) -> datetime:
        """Start of the first interval."""
        return self.case.start

    @property
    def end(self) -> datetime:
        """End of the last interval."""
        return self.case.start + timedelta(seconds=self.pipeline.interval_s) * self.case.intervals

    def landing(self, stream: Stream) -> Landing:
        """What must become of a stream's files; read once."""
        if stream.name not in self.landings:
            self.landings[stream.name] = read_stream(self.pipeline, stream, self.case.start, self.case.intervals)
        return self.landings[stream.name]

    @property
    def tables(self) -> Path:
        """The pipeline's folder in the first warehouse."""
        return self.whole / self.pipeline.name


@dataclass
class Verdict:
    """What became of a case."""

    case: Case
    breaches: list[Breach]
    seconds: dict[str, float]
    log: str
    covered: list[bool]
    compared: Counter[str] = field(default_factory=Counter)


@contextlib.contextmanager
def shared_spark() -> Iterator[Any]:
    """A Spark session for many cases."""
    from types import SimpleNamespace

    session = start_session(SimpleNamespace(name="strangers", process_budget_bytes=3 * 2**30, partitions=2), "tests")  # type: ignore[arg-type]
    yield session
    session.stop()


def judge(case: Case, folder: Path, spark: Any = None) -> Verdict:
    """Run a case in an empty folder, by every law.

    ``spark``: a session. What runs in parts, or live, runs as its tasks then; by the laws its rows are those of what
    runs in one go, in this process.
    """
    from tests.strangers.laws import LAWS

    home = case.write(folder)
    seconds: dict[str, float] = {}
    log = io.StringIO()
    try:
        with timed(seconds, "validate"):
            pipeline = load_pipeline(home)
    except UserError as error:
        return Verdict(case, [Breach("validate_accepts", str(error))], seconds, "", [])
    except Exception:
        return Verdict(case, [Breach("no_traceback", traceback.format_exc())], seconds, "", [])
    world = World(case, pipeline, home, folder / "whole", folder / "parts", folder / "live", seconds, log)
    breaches = list(through(world, spark))
    if not breaches:
        for law in LAWS:
            with timed(seconds, f"law {law.__name__}"):
                try:
                    breaches += [Breach(law.__name__, message) for message in law(world)]
                except UserError as error:
                    breaches.append(Breach(law.__name__, f"a user's error: {error}"))
                except Exception:
                    breaches.append(Breach(law.__name__, traceback.format_exc()))
    return Verdict(case, breaches, seconds, log.getvalue(), world.covered, world.compared)


def through(world: World, spark: Any) -> Iterator[Breach]:
    """All stages: in one go, then in another warehouse in parts, some of them again."""
    pipeline, case = world.pipeline, world.case
    intervals = intervals_between(pipeline, world.start, world.end)
    stages = [stage for stage in STAGES if stage != "publish" or case.publish]
    yield from stage_run(world, spark, world.whole, intervals, stages, "in one go")
    rest = list(intervals)
    for number, count in enumerate(case.cuts):
        for file in case.files:
            if file.first is not None and number < 2:
                write_file(world.home / file.path, file, case.declaration["streams"][file.stream], first=number == 0)
        yield from stage_run(world, spark, world.parts, rest[:count], COMPUTING, f"{count} intervals")
        rest = rest[count:]
    for number in case.again:
        if number < len(intervals):
            yield from stage_run(world, spark, world.parts, [intervals[number]], COMPUTING, f"interval {number} again")
    if case.live:
        yield from live_run(world, spark, intervals)


def stage_run(
    world: World, spark: Any, root: Path, intervals: Sequence[Interval], stages: Sequence[str], what: str
) -> Iterator[Breach]:
    """One run; a breach if it ends with anything but success, or a finding that the declaration asks for."""
    if not intervals:
        return
    key = "one go" if root == world.whole else "in parts"
    context = RunContext(
        world.pipeline, root, output=world.log, beside=spark, here=spark is None or root == world.whole
    )
    try:
        with timed(world.seconds, key), contextlib.redirect_stdout(world.log), context:
            run(context, intervals, stages)
    except QualityError as error:
        rules = {row["expectation"] for _, row in error.failures} - {"file_missing_error"}
        if rules:
            yield Breach("quality_holds", f"{what}: {error}")
    except UserError as error:
        yield Breach("no_refusal", f"{what}: {error}")
    except Exception:
        yield Breach("no_traceback", f"{what}: {traceback.format_exc()}")


def live_run(world: World, spark: Any, intervals: Sequence[Interval]) -> Iterator[Breach]:
    """A live run for which everything has landed; a breach if it ends with anything but success."""
    context = RunContext(world.pipeline, world.live, output=world.log, beside=spark, here=spark is None)
    end_us = intervals[-1].end_us
    try:
        with (
            timed(world.seconds, "live"),
            contextlib.redirect_stdout(world.log),
            context,
            Live(context, intervals[0], end_us, COMPUTING, every_s=0.05, patience_s=0.0) as live,
        ):
            stood, looks = -1, 0
            while not live.ended and looks < LOOKS:
                live.intake.settle()
                live.advance()
                looks, stood = (0 if live.position.taken_us > stood else looks + 1), live.position.taken_us
            world.lived += [i.label for i in intervals if i.end_us <= live.interval.start_us]
    except UserError as error:
        yield Breach("no_refusal", f"live: {error}")
    except Exception:
        yield Breach("no_traceback", f"live: {traceback.format_exc()}")


@contextlib.contextmanager
def timed(seconds: dict[str, float], key: str) -> Iterator[None]:
    """Add the processor time that a block takes, of this process and its children (the JVM is one)."""
    before = processor_s()
    try:
        yield
    finally:
        seconds[key] = seconds.get(key, 0.0) + processor_s() - before


def processor_s() -> float:
    """Processor seconds so far of this process and all below it; those that have ended count when they were awaited."""
    own = psutil.Process()
    total = 0.0
    for process in [own, *own.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
