"""Live: minute files land one by one; what is answered is there before the interval ends, and is what a run answers.

Ten minutes of orders and rides in intervals of five minutes, with late tuples, ids that come again,
broken records, a file without content, and memory that does not suffice for every window.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.command import run_stages, tidegate

from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, to_us
from tidegate.engine.context import RunContext
from tidegate.live.run import Live
from tidegate.live.warehouse import read_position
from tidegate.store.intervals import interval_at
from tidegate.store.warehouse import Warehouse

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

START, END = datetime(2024, 3, 1, 10, tzinfo=UTC), datetime(2024, 3, 1, 10, 10, tzinfo=UTC)
MINUTES = [START + timedelta(minutes=m) for m in range(10)]
INTERVALS = [START + timedelta(minutes=m) for m in (0, 5)]
STAGES = ("ingest", "join_aggregate", "top_k", "sample_history", "resample_history", "calibrate")
# When and how long something ran is no result.
MEASURED = ("run_metrics",)

PIPELINE = """\
name: city
owner: nobody
start: 2024-03-01T00:00:00Z
interval: 5 minutes
tick: 30 seconds
horizon: 5 minutes
memory_budget: 24 KiB
process_budget: 3 GiB
initial_slack: 30 seconds
streams:
  orders:
    format: jsonl
    path: feed/orders/%Y-%m-%dT%H%M.jsonl
    columns: {id: string, at: timestamp, seen: timestamp, place: string, value: double}
    id: id
    event_time: at
    arrival_time: seen
    rate: 1 per second
    max_early: 5 seconds
    max_late: 10 minutes
    max_width: 6 minutes
    history: {leaf: 1 minute, capacity: 500, max_fraction: 50%}
  rides:
    format: csv
    path: feed/rides/%Y/%m-%d/%H%M.csv
    columns: {ride: integer, at: timestamp, seen: timestamp, place: string}
    id: ride
    event_time: at
    arrival_time: seen
    rate: 30 per minute
    max_width: 6 minutes
    missing_file: error
"""
QUERIES = {
    "takings": "SELECT place, COUNT(*) AS orders, SUM(value) AS takings FROM orders [2 MINUTES]\n"
    "GROUP BY place ERROR 20% EVERY 30 SECONDS\n",
    "served": "SELECT o.place, COUNT(*) AS pairs, AVG(o.value) AS value\n"
    "FROM orders [3 MINUTES] AS o, rides [1 MINUTE] AS r WHERE o.place = r.place GROUP BY o.place EVERY 1 MINUTE\n",
    "largest": "SELECT id, place, value FROM orders [2 MINUTES]\n"
    "ORDER BY value DESC LIMIT 4 ACCURACY 90% EVERY 30 SECONDS\n",
}


def stamp(instant: datetime) -> str:
    return instant.isoformat().replace("+00:00", "Z")


def generate() -> dict[Path, bytes]:
    """Every file of the feed, below it: the same every time. One orders file is empty, one rides file has no rides."""
    chance = random.Random(11)
    orders: dict[datetime, list[str]] = {minute: [] for minute in MINUTES}
    rides: dict[datetime, list[str]] = {minute: ["ride,at,seen,place"] for minute in MINUTES}
    instant, number = START, 0
    while instant < END:
        instant += timedelta(milliseconds=round(chance.expovariate(1 / 700)))
        late_s = chance.expovariate(1 / 6) if chance.random() < 0.93 else chance.uniform(40, 400)
        seen, number = instant + timedelta(milliseconds=round(late_s * 1000)), number + 1
        if seen >= END:
            continue
        minute, place = seen.replace(second=0, microsecond=0), chance.choice("ABCD")
        if number % 3 == 0:
            again = number - 3 if number % 60 == 0 else number
            rides[minute].append(f"{again},{stamp(instant)},{stamp(seen)},{place}")
            continue
        # Ids come again, some of them in another interval; some records are broken in one way or another.
        again = chance.randrange(max(1, number - 400), number) if number % 25 == 5 else number
        order = {"id": f"o{again}", "at": stamp(instant), "seen": stamp(seen), "place": place}
        order["value"] = round(chance.lognormvariate(3, 1), 2)  # type: ignore[assignment]
        if number % 40 == 2:
            order |= chance.choice([{"colour": "red"}, {"value": "many"}, {"at": "2099-01-01T00:00:00Z"}, {"id": None}])
        orders[minute].append("{not json" if number % 97 == 0 else json.dumps(order))
    orders[MINUTES[7]] = []
    files = {Path("orders") / f"{m:%Y-%m-%dT%H%M}.jsonl": "\n".join(lines) for m, lines in orders.items()}
    files |= {Path("rides") / f"{m:%Y/%m-%d/%H%M}.csv": "\n".join(lines) for m, lines in rides.items()}
    return {path: (text + "\n").encode() if text else b"" for path, text in files.items()}


FILES = generate()


def land(feed: Path, path: Path) -> None:
    """Write a file under another name, then rename it."""
    target = feed / path
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name("." + target.name)
    aside.write_bytes(FILES[path])
    os.rename(aside, target)


def declare(folder: Path) -> Path:
    (folder / "queries").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(PIPELINE)
    for name, text in QUERIES.items():
        (folder / "queries" / f"{name}.sql").write_text(text)
    return folder


def of_minute(minute: datetime) -> list[Path]:
    return sorted(p for p in FILES if p.name in (f"{minute:%Y-%m-%dT%H%M}.jsonl", f"{minute:%H%M}.csv"))


@pytest.fixture(scope="module")
def by_intervals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse of a run by intervals over everything that landed."""
    folder = declare(tmp_path_factory.mktemp("pipelines") / "city")
    for path in FILES:
        land(folder / "feed", path)
    root = tmp_path_factory.mktemp("by-intervals")
    run_stages(folder, root, START, END, STAGES)
    return root


def contents(pipeline: Pipeline, root: Path) -> dict[tuple[str, str], list[str]]:
    """(table, partition) → its rows in the order in which they are stored, as text that tells every bit apart."""
    warehouse = Warehouse(root, pipeline)
    found = {}
    for table in warehouse.tables():
        for label in warehouse.labels(table) if table not in MEASURED else ():
            rows = warehouse.read_arrow(table, [label]).to_pylist()
            if table == "source_files":
                rows = [{**row, "path": Path(row["path"]).name, "modified": None} for row in rows]
            if table == "quarantine":
                rows = [{**row, "source": Path(row["source"]).name} for row in rows]
            found[table, label] = [repr(row) for row in rows]
    return found


def assert_same(pipeline: Pipeline, one: Path, other: Path) -> None:
    mine, theirs = contents(pipeline, one), contents(pipeline, other)
    assert mine.keys() == theirs.keys()
    different = [key for key in mine if mine[key] != theirs[key]]
    shown = [(key, mine[key][:2], theirs[key][:2]) for key in different[:3]]
    assert not different, f"{len(different)} partitions differ: {shown}"


def answers(pipeline: Pipeline, root: Path, query: str, start: datetime) -> list[dict]:
    label = interval_at(pipeline, start).label
    return Warehouse(root, pipeline).read_arrow(f"answers_{query}", [label]).to_pylist()


def test_answers_come_as_files_land_and_are_those_of_a_run(
    by_intervals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, root = declare(tmp_path / "city"), tmp_path / "warehouse"
    pipeline = load_pipeline(folder)
    expected = {(q, start): answers(pipeline, by_intervals, q, start) for q in QUERIES for start in INTERVALS}
    assert all(expected.values())
    chance = random.Random(3)
    with RunContext(pipeline, root) as context:
        first = interval_at(pipeline, START)
        with Live(context, first, to_us(END), STAGES, every_s=0.2) as live:
            for minute in MINUTES:
                paths = of_minute(minute)
                chance.shuffle(paths)
                for number, path in enumerate(paths):
                    before = live.position.taken_us
                    land(folder / "feed", path)
                    live.intake.settle()
                    live.advance()
                    if number == 0:
                        assert live.position.taken_us == before, "the clock waits for the other stream"
                until = minute + timedelta(minutes=1)
                while minute == MINUTES[7] and live.position.answered_us < to_us(until):
                    live.advance()  # a file without content: nothing comes of it but time
                assert live.position.answered_us == to_us(until)
                start = max(begin for begin in INTERVALS if begin <= minute)
                for query in QUERIES:
                    due = [row for row in expected[query, start] if row["emitted_at"] < until]
                    assert answers(pipeline, root, query, start) == due, (query, until)
            assert live.ended
            assert not list((root / "city" / "_live" / "intake" / "batches").iterdir())
    said = capsys.readouterr().err
    assert len(re.findall(r"the interval's run gave the same \d+ answers", said)) == len(INTERVALS)
    assert ", lag " in said and "Traceback" not in said
    assert_same(pipeline, by_intervals, root)


# Runs the command, and kills itself and its JVM at the n-th transaction of a table's log or of _commits.
DIES = """\
import os, signal, sys
left = int(sys.argv.pop(1))
def dying(function):
    def call(*arguments, **options):
        global left
        left -= 1
        if left == 0:
            os.killpg(0, signal.SIGKILL)
        return function(*arguments, **options)
    return call
from tidegate.cli import main
from tidegate.store.delta import DeltaLog
DeltaLog._transact = dying(DeltaLog._transact)
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def landing(feed: Path, minutes: list[datetime], warehouse: Warehouse) -> Iterator[None]:
    """Files land meanwhile, those of a minute once the minute before has been taken in."""
    stop = threading.Event()

    def drip() -> None:
        for minute in minutes:
            while minute > START and not stop.wait(0.1):
                position = read_position(warehouse)
                if position is not None and position.taken_us >= to_us(minute):
                    break
            for path in of_minute(minute):
                if not stop.is_set():
                    land(feed, path)

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(("kills", "count"), [(1, 5), pytest.param(8, 10, marks=pytest.mark.slow)])
def test_kill_in_the_middle_of_steps_then_go_on(by_intervals: Path, tmp_path: Path, kills: int, count: int) -> None:
    """A live run that is killed again and again, and at last stopped politely, has answered all the same."""
    folder, root, log = declare(tmp_path / "city"), tmp_path / "warehouse", tmp_path / "log"
    pipeline, chance = load_pipeline(folder), random.Random(5)
    warehouse, until = Warehouse(root, pipeline), START + timedelta(minutes=count)
    stages = [word for stage in STAGES for word in ("--stage", stage)]
    span = ["--from", f"{START:%Y-%m-%dT%H}", "--live", "--every", "300 milliseconds", *stages]
    words = ["run", str(folder), "--warehouse", str(root), *span]

    def start(die_at: int) -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            command = [sys.executable, "-c", DIES, str(die_at), *words]
            return subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    label = interval_at(pipeline, until).label
    with landing(folder / "feed", MINUTES[:count], warehouse):
        for _ in range(kills):
            run = start(chance.randrange(3, 25))
            assert run.wait(timeout=300) == -signal.SIGKILL, log.read_text()[-3000:]
        run = start(-1)
        for _ in range(2400):
            position = read_position(warehouse)
            if run.poll() is not None or (position is not None and position.interval == label):
                break
            time.sleep(0.25)
    try:
        assert run.poll() is None, log.read_text()[-3000:]
        assert position is not None and position.interval == label
        other = tidegate(*words)
        assert other.status == 2 and "is already running live" in other.errors and "Traceback" not in other.errors
    finally:
        run.send_signal(signal.SIGTERM)
        status = run.wait(timeout=300)
    said = log.read_text()
    assert status == 0, said[-3000:]
    assert "Traceback" not in said and "stopped at" in said
    assert len(re.findall(r"the interval's run gave the same \d+ answers", said)) >= 1
    assert not any((root / "city" / "_staging").glob("*"))
    mine, theirs = contents(pipeline, root), contents(pipeline, by_intervals)
    over = {key for key in theirs if key[1] < interval_at(pipeline, until).label}
    assert mine.keys() == over
    assert {key: mine[key] for key in over} == {key: theirs[key] for key in over}


def test_a_file_that_grows_while_it_is_read_is_refused_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, root = declare(tmp_path / "city"), tmp_path / "warehouse"
    pipeline, first = load_pipeline(folder), interval_at(load_pipeline(folder), START)
    with RunContext(pipeline, root) as context:
        for path in of_minute(START):
            land(folder / "feed", path)
        with monkeypatch.context() as patched:
            patched.setattr("tidegate.live.intake.SourceFile.changed", lambda file: True)
            with Live(context, first, None, STAGES, every_s=0.2) as live, pytest.raises(UserError, match="rename it"):
                live.run()
            assert live.position.taken_us == to_us(START)
        assert "Traceback" not in capfd.readouterr().err
        with Live(context, first, None, STAGES, every_s=0.2) as live:
            live.intake.settle()
            live.advance()
            assert live.position.answered_us == to_us(START + timedelta(minutes=1))
