"""A disk that is full, broken or read-only at one call of a run: an error in one sentence, and nothing is lost.

Python's own calls are met by an audit hook, those that pyarrow and delta-rs make by patches of the functions that lead
to them. The stages run in this process; the calls are the same in every run, so a number says which one fails.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import random
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from threading import Thread
from types import FrameType
from typing import IO, Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tidegate.cli.init import init
from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline
from tidegate.engine.context import RunContext
from tidegate.stages import publish
from tidegate.stages.dbt_process import PARENTS_SPARK, Dbt
from tidegate.stages.dbt_session import Session
from tidegate.stages.machine_errors import of_the_machine
from tidegate.stages.run import STAGES, run
from tidegate.store import delta
from tidegate.store.commit import STATE
from tidegate.store.intervals import Interval, intervals_between
from tidegate.store.places import Place
from tidegate.store.warehouse import Warehouse

# The last two call libraries that call the disk a thousand times more: they have scenarios of their own.
TRIED = STAGES[: STAGES.index("check_quality")]
ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS)
# What says how long a run took and how much it needed.
MEASURED = ("run_metrics", "marts/memory_against_budget")
EVENTS = ("open", "os.remove", "os.mkdir", "os.rename", "os.link", "os.rmdir", "os.utime", "os.listdir", "os.scandir")
_OF_A_RUN = re.compile(rb"\b[0-9a-f]{12}\b|\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\d{13,}")
SITES_A_SEED = 8
"""Of all sites, a seed tries every so many-th."""


@dataclass(frozen=True)
class Scenario:
    """Hours of a day: ``first`` … ``start`` are there, and up to ``end`` all but ``stages``, which meet the faults."""

    first: int
    start: int
    end: int
    stages: tuple[str, ...]


QUALITY, PUBLISH = Scenario(9, 10, 11, ("check_quality",)), Scenario(10, 10, 11, ("publish",))
WITH_DATA, DAY_END = Scenario(8, 10, 11, TRIED), Scenario(8, 23, 24, TRIED)
SCENARIOS = (WITH_DATA, DAY_END, QUALITY, PUBLISH)
RANDOM = 2
"""Scenarios of which calls are tried at random: the others take long."""
SINGLE = (*(replace(whole, stages=(stage,)) for whole in (WITH_DATA, DAY_END) for stage in TRIED), QUALITY, PUBLISH)
"""The same, a stage at a time, as Airflow runs them: a tenth of the work before the call that fails, and after it."""


@dataclass(frozen=True)
class Prepared:
    """A scenario's pipeline, its tables before the run that meets the fault, their files after it.

    ``sites``: of each call of that run what it is, and the line of the product that leads to it.
    """

    scenario: Scenario
    pipeline: Pipeline
    before: Path
    expected: dict[tuple[str, str], list[bytes]]
    sites: tuple[str, ...]

    def run(self, root: Path) -> str:
        """Run the stages in a copy of ``before``; what is wrong with how that ended, if a command may not end so."""
        scenario = self.scenario
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(publish, "Dbt", DbtOnce)
            return attempt(self.pipeline, root, hours(self.pipeline, scenario.start, scenario.end), scenario.stages)


@dataclass
class Disk:
    """Counts the calls on paths below ``root``; call number ``fails`` raises. ``sites``: noted if none is to fail."""

    root: str = ""
    fails: int = -1
    number: int = errno.EIO
    calls: int = field(default=0)
    met: str = ""
    sites: list[str] = field(default_factory=list)

    def call(self, what: str, path: object) -> None:
        """One call."""
        name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        if self.root and name.startswith(self.root):
            self.calls += 1
            if self.fails < 0:
                self.sites.append(f"{what} {_caller()}")
            if self.calls == self.fails:
                self.met = f"{what} {name}"
                raise OSError(self.number, os.strerror(self.number), name)


DISK = Disk()


def attack(seed: int, folder: Path, count: int = 20) -> tuple[int, list[str]]:
    """So many runs, each with another call that fails; how many, and what was wrong."""
    chance, case = random.Random(seed), prepared(SCENARIOS[seed % RANDOM])
    tries = [(chance.randrange(1, len(case.sites) + 1), chance.choice(ERRORS)) for _ in range(count)]
    return _tried(case, tries, folder)


def sites(seed: int, folder: Path) -> tuple[int, list[str]]:
    """Every line that leads to a call, in every scenario: the first call, one in the middle, the last one.

    Seeds 0 … 4 · SITES_A_SEED − 1 together try them all.
    """
    part, which = divmod(seed, len(SCENARIOS))
    calls: dict[str, list[int]] = defaultdict(list)
    case = prepared(SCENARIOS[which])
    for number, site in enumerate(case.sites, start=1):
        calls[site].append(number)
    picked = [dict.fromkeys((own[0], own[len(own) // 2], own[-1])) for own in calls.values()]
    tries = [(number, ERRORS[(i + part) % len(ERRORS)]) for own in picked for i, number in enumerate(own)]
    return _tried(case, tries[part % SITES_A_SEED :: SITES_A_SEED], folder)


def calls(seed: int, folder: Path) -> tuple[int, list[str]]:
    """Every call of one stage. Seeds 0 … 13 together try all stages, seeds 0 … 41 with each of the errors."""
    case = prepared(SINGLE[seed % len(SINGLE)])
    part = seed // len(SINGLE)
    tries = [(number, ERRORS[(number + part) % len(ERRORS)]) for number in range(1, len(case.sites) + 1)]
    return _tried(case, tries, folder)


def _tried(case: Prepared, tries: Sequence[tuple[int, int]], folder: Path) -> tuple[int, list[str]]:
    """Let one call after the other fail, each time from the scenario's beginning; how many were met.

    After a state that is like one that was left before, the next run is not tried again: it would do the same.
    """
    faults, met, fine = list[str](), 0, set[str]()
    for fails, number in tries:
        root = folder / f"{fails}"
        shutil.copytree(case.before, root)
        with failing(str(root), fails, number) as disk:
            said = case.run(root)
        met += bool(disk.met)
        at = f"{case.scenario}: {errno.errorcode[number]} at call {fails} of {len(case.sites)} ({disk.met})"
        if said:
            faults.append(f"{at}: {said}")
        if (state := left(root)) not in fine:
            said = case.run(root)
            if said or files(case.pipeline, root) != case.expected:
                faults.append(f"{at}: the next run {said or 'has other rows'}")
            else:
                fine.add(state)
        shutil.rmtree(root)
    return met, faults


@cache
def prepared(scenario: Scenario) -> Prepared:
    """A scenario, run once."""
    home = Path(mkdtemp(prefix="faults-"))
    with contextlib.redirect_stdout(io.StringIO()):
        init(home / "shop", "shop")
    pipeline = load_pipeline(home / "shop")
    before = STAGES[: STAGES.index(scenario.stages[0])]
    for start, end, stages in (
        (scenario.first, scenario.start, TRIED),
        (scenario.start, scenario.end, before),
    ):
        if start < end and stages:
            assert not attempt(pipeline, home / "before", hours(pipeline, start, end), stages)
    case = Prepared(scenario, pipeline, home / "before", {}, ())
    shutil.copytree(home / "before", home / "after")
    with failing(str(home / "after"), -1, errno.EIO) as disk:
        assert not case.run(home / "after")
    return replace(case, expected=files(pipeline, home / "after"), sites=tuple(disk.sites))


def digest(file: str) -> bytes:
    """Of a file's content."""
    return hashlib.sha256(Path(file).read_bytes()).digest()


def files(
    pipeline: Pipeline, root: Place, digest: Callable[[str], bytes] = digest
) -> dict[tuple[str, str], list[bytes]]:
    """What tables, marts and the state for the next run hold, but for what is measured: each file by its content.

    Equal rows in an equal order are equal files, and those are quick to compare.
    """
    warehouse = Warehouse(root, pipeline)
    tables = {*warehouse.tables(), *warehouse.marts()}.difference(MEASURED)
    found = {(name, label): warehouse.files(name, [label]) for name in tables for label in warehouse.labels(name)}
    # What was published is named by the run that wrote it; the marts themselves are compared.
    for name in {folder.name for folder in (warehouse.folder / STATE).glob("*")} - {"published"}:
        for label in warehouse.state_labels(name):
            found[f"{STATE}/{name}", label] = tuple(map(str, warehouse.state_files(name, label)))
    return {name: [digest(file) for file in own] for name, own in found.items()}


def left(root: Path) -> str:
    """What is in a folder of tables, but for logs, the names of runs and when they were: a digest."""
    found = []
    for file in sorted(path for path in root.rglob("*") if path.is_file() and "_logs" not in path.parts):
        name = str(file.relative_to(root)).encode()
        content = b"" if re.search(rb"_commits/\w|run_metrics/\w", name) else file.read_bytes()
        if not content.startswith(b"PAR1"):
            content = content.replace(bytes(root), b"")
        found += [_OF_A_RUN.sub(b"", part) for part in (name, content)]
    return hashlib.sha256(b"\0".join(found)).hexdigest()


def attempt(pipeline: Pipeline, root: Place, intervals: Sequence[Interval], stages: Sequence[str] = TRIED) -> str:
    """Run the stages; what is wrong with how it ended, if it did not end as a command may."""
    error = error_of(pipeline, root, intervals, stages)
    return "" if error is None or sentence(error) else f"ended with {type(error).__name__}: {error}"


def error_of(pipeline: Pipeline, root: Place, intervals: Sequence[Interval], stages: Sequence[str]) -> Exception | None:
    """Run the stages; what they ended with."""
    try:
        with RunContext(pipeline, root, output=io.StringIO()) as context:
            run(context, intervals, stages)
    except Exception as error:
        return error
    return None


def sentence(error: Exception) -> str | None:
    """What a command says of it, if it says that in a sentence."""
    return str(error) if isinstance(error, UserError) else of_the_machine(error)


def hours(pipeline: Pipeline, first: int, last: int) -> Sequence[Interval]:
    """Intervals of the day that the shop's data is of."""
    day = datetime(2026, 1, 5, tzinfo=UTC)
    return intervals_between(pipeline, day + timedelta(hours=first), day + timedelta(hours=last))


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
        for name in ("create_checkpoint", "cleanup_metadata"):
            patch.setattr(DeltaTable, name, _met(getattr(DeltaTable, name), f"delta {name}"))
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
        elif arguments and isinstance(arguments[0], DeltaTable):
            first = arguments[0].table_uri.removeprefix("file://")
        elif arguments and isinstance(arguments[0], list) and arguments[0]:
            first = arguments[0][0]
        elif what == "fsync":
            first = os.readlink(f"/proc/self/fd/{arguments[0]}")
        DISK.call(what, first)
        return function(*arguments, **options)

    return call


_MADE: dict[str, tuple[bytes, Path]] = {}
"""What dbt was given → what it said, and a folder with the files that it left."""


class DbtOnce(Dbt):
    """dbt, whose process's calls are not counted: of what it has been given before, what it made then.

    It is given its project, and its session, which names the tables' files: if publish has committed before, one that
    says how long that took, under a name that nobody can foresee.
    """

    def _start(self, told: int, saying: int, errors: IO[str], lock: int) -> _InItsPlace:
        return _InItsPlace(self._home, os.dup(told), os.dup(saying), os.dup(errors.fileno()), lock)


class _InItsPlace(Thread):
    """Does what the process would do once it is told."""

    def __init__(self, home: Path, told: int, saying: int, errors: int, lock: int) -> None:
        super().__init__(daemon=True)
        self._home, self._told, self._saying, self._errors, self._lock = home, told, saying, errors, lock
        self._status = 1
        self.start()

    def run(self) -> None:
        try:
            if line := os.read(self._told, 1):
                root, DISK.root = DISK.root, ""
                try:
                    self._make(line)
                finally:
                    DISK.root = root
        finally:
            for descriptor in (self._told, self._saying, self._errors):
                os.close(descriptor)

    def kill(self) -> None:
        """It ends by itself, as nobody will tell it anything any more."""

    def wait(self) -> int:
        self.join()
        return self._status

    def _make(self, line: bytes) -> None:
        home = self._home
        files = [home / "session.json", *sorted(file for file in (home / "project").rglob("*") if file.is_file())]
        texts = [file.read_bytes().replace(bytes(home.parent), b"") for file in files]
        given = hashlib.sha256(re.sub(rb"publish-[0-9a-f]{12}", b"", b"\0".join(texts))).hexdigest()
        session = Session.load(home / "session.json")
        names = [str(Path(p).relative_to(home.parent)) for p in (session.slice, session.result, session.docs_page) if p]
        if given not in _MADE:
            done = subprocess.run(
                [sys.executable, "-m", "tidegate.stages.dbt_session", str(home / "session.json")],
                env={key: value for key, value in os.environ.items() if key not in PARENTS_SPARK},
                cwd=home,
                input=line,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                pass_fds=[self._lock],
                check=False,
            )
            if done.returncode:
                self._status = done.returncode
                os.write(self._saying, done.stdout)
                return
            _MADE[given] = done.stdout, Path(mkdtemp(prefix="dbt-"))
            _copy(names, home.parent, _MADE[given][1])
        said, kept = _MADE[given]
        _copy(names, kept, home.parent)
        self._status = 0
        os.write(self._saying, said)


def _copy(names: Sequence[str], source: Path, target: Path) -> None:
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, dirs_exist_ok=True)
        elif (source / name).is_file():
            shutil.copyfile(source / name, target / name)


@cache
def _listen() -> None:
    # An audit hook stays as long as the process.
    sys.addaudithook(lambda event, told: DISK.call(event, told[0]) if event in EVENTS and DISK.root else None)


def _caller() -> str:
    """The line of the product that is at work."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and "/spark_apps/tidegate/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return f"{frame.f_code.co_filename.partition('/spark_apps/')[2]}:{frame.f_lineno}" if frame else "elsewhere"
