"""Writers, readers, upkeep and migration killed at random moments, while another reader looks: whole runs, none lost,
no repair. On the local disk, and in an object store.

Rows are named after the run that wrote them, so what must be seen follows from ``_commits`` alone: of every interval,
in both tables, the rows of the last run that committed it, all of them.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from tests.live_files import a_pipeline
from tests.objects.server import a_bucket, s3_server

from tidegate.declarations.errors import UserError
from tidegate.declarations.tables import common_schema
from tidegate.store.intervals import Interval, interval_at
from tidegate.store.migrate import migrate
from tidegate.store.places import ObjectPath, Place, place
from tidegate.store.upkeep import tidy
from tidegate.store.warehouse import Warehouse

START = datetime(2013, 1, 1, tzinfo=UTC)
TABLES = ("needed_slack", "width_errors")
HOURS = range(4)
ACKS = "acks"
# What a killed writer has left hides its partition's older versions from a quick look until it is written again.
ALWAYS = ("write 0 1", "write 2 3")
SOMETIMES = ("write 1 2", "write 0", "tidy", "read")


def attack(seed: int, folder: Path, kills: int = 50) -> tuple[int, list[str]]:
    """So many kills, most of them of writers; how many there were, and what was wrong."""
    chance = random.Random(seed)
    some = chance.randrange(kills // 10, kills // 5)
    faults = kill_migrations(folder / "old", some, chance)
    return kills, faults + kill_all(folder / "wh", folder / ACKS, kills - some, chance)


def attack_objects(seed: int, folder: Path, kills: int = 50) -> tuple[int, list[str]]:
    """The same in an object store, where there are no tables of version 0.1."""
    with s3_server(folder) as address, a_bucket(address) as bucket:
        return kills, kill_all(bucket / "wh", folder / ACKS, kills, random.Random(seed))


def kill_all(root: Place, acks: Path, kills: int, chance: random.Random) -> list[str]:
    """Kill so often whoever works on a warehouse, and look whether it is whole. ``acks``: what commits have said."""
    faults = list[str]()
    with nursery(root, acks) as born:
        some = kills // 6
        put(Warehouse(root, a_pipeline()), list(HOURS))
        roles = [*ALWAYS, chance.choice(SOMETIMES)]
        alive = [born(role) for role in roles]
        for number in range(kills - some):
            if number % 5 == 4:
                tidy(Warehouse(root, a_pipeline()), 1, 24)
            faults += watch(root, chance.uniform(0, 0.2))
            which = chance.randrange(len(alive))
            if not alive[which].is_running():
                faults.append(f"{roles[which]} ended by itself")
            kill(alive[which])
            roles[which] = roles[which] if which < len(ALWAYS) else chance.choice(SOMETIMES)
            alive[which] = born(roles[which])
        for victim in alive:
            kill(victim)
        for _ in range(some):
            # Nobody writes: whatever is not committed is dead, whatever is superseded may go.
            victim = born("clear")
            time.sleep(chance.uniform(0, 0.15))
            kill(victim)
            faults += look(root)
    faults += lost(root, acks)
    last = Warehouse(root, a_pipeline())
    put(last, list(HOURS))
    tidy(last, retention_hours=0, orphan_hours=0)
    faults += look(root)
    left = [p for table in TABLES for p in (last.folder / table).glob("interval=*/*")]
    if len(left) != len(TABLES) * len(HOURS):
        faults.append(f"after the last upkeep {len(left)} files are left")
    return faults


def watch(root: Place, seconds: float) -> list[str]:
    """Look again and again for some time, at least once."""
    until, faults = time.monotonic() + seconds, look(root)
    while not faults and time.monotonic() < until:
        faults = look(root)
    return faults


def look(root: Place) -> list[str]:
    """What is wrong with what a new reader sees."""
    warehouse = Warehouse(root, a_pipeline())
    runs = warehouse.cut.runs
    expected = {row["interval"]: row["run"] for row in warehouse.commits.rows().to_pylist() if row["run"] in runs}
    faults = []
    for table in TABLES:
        rows = warehouse.read_arrow(table)
        for label, run in expected.items():
            own = [row["query"] for row in rows.to_pylist() if row["interval"] == label]
            if own != [run] * size(run):
                faults.append(f"{table} {label}: {len(own)} rows of {set(own)}, not {size(run)} of {run}")
    return faults


def lost(root: Place, acks: Path) -> list[str]:
    """Runs whose commit had returned, but that are not committed."""
    warehouse = Warehouse(root, a_pipeline())
    told = [run for file in sorted(acks.glob("*")) for run in file.read_text().split()]
    return [f"run {run} had committed and is lost" for run in told if run not in warehouse.cut.runs]


def kill_migrations(root: Path, kills: int, chance: random.Random) -> list[str]:
    """Kill a migration so often, on copies of tables of version 0.1, then finish it."""
    faults = []
    with nursery(root / "wh", root / ACKS) as born:
        for number in range(kills):
            if number % 3 == 0:
                shutil.rmtree(root / "wh", ignore_errors=True)
                old_tables(root / "wh" / "p")
            victim = born("migrate")
            time.sleep(chance.uniform(0, 0.1))
            kill(victim)
            if number % 3 == 2:
                if (root / "wh" / "p" / "_locks").exists():
                    migrate(Warehouse(root / "wh", a_pipeline()))
                warehouse = Warehouse(root / "wh", a_pipeline())
                for table in TABLES:
                    found = warehouse.read_arrow(table).group_by("interval").aggregate([([], "count_all")])
                    counts = {row["interval"]: row["count_all"] for row in found.to_pylist()}
                    files = len(list((warehouse.folder / table).rglob("*.parquet")))
                    if counts != {interval_of(hour).label: hour + 1 for hour in HOURS} or files != len(HOURS):
                        faults.append(f"migrated {table}: {counts}, {files} files")
    return faults


def old_tables(folder: Path) -> None:
    """Tables as version 0.1 left them."""
    (folder / "_locks").mkdir(parents=True)
    for table in TABLES:
        for hour in HOURS:
            partition = folder / table / f"interval={interval_of(hour).label}"
            partition.mkdir(parents=True)
            pq.write_table(rows_of(table, "old", hour + 1), partition / "part-00000-0123456789ab.parquet")


@contextmanager
def nursery(root: Place, acks: Path, module: str = "tests.attacks.kills") -> Iterator[Callable[[str], psutil.Process]]:
    """A process that has imported a module, which serves, and forks a child for each role that it is given."""
    acks.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", module, str(root), str(acks)]
    home = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=home) as it:
        assert it.stdin is not None and it.stdout is not None
        asks, tells = it.stdin, it.stdout

        def born(role: str) -> psutil.Process:
            asks.write(f"{role}\n")
            return psutil.Process(int(tells.readline()))

        yield born
        asks.close()


def size(run: str) -> int:
    """How many rows a run writes into a partition."""
    return 1 + int(run[:2], 16) % 7


def serve(root: str, acks: Path, act: Callable[..., None]) -> None:
    """Fork a child for every line that comes: a role, and what it is given; it has a file of its own in ``acks``."""
    # delta-rs must not have been used before a fork.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork() == 0:
            sys.stdin = open(os.devnull)  # noqa: SIM115
            print(os.getpid(), flush=True)
            act(root, acks / str(os.getpid()), *line.split())
            os._exit(0)
    time.sleep(0.1)


def _act(root: str, acks: Path, role: str, *hours: str) -> None:
    warehouse = Warehouse(root, a_pipeline())
    if role == "migrate":
        with suppress(UserError):  # done already
            migrate(warehouse)
    while True:
        began = time.monotonic()
        if role == "write":
            with suppress(UserError):  # another was faster
                run = put(warehouse, list(map(int, hours)))
                with acks.open("a") as file:
                    file.write(f"{run}\n")
        elif role == "read":
            if found := look(place(root)):
                print(*found, file=sys.stderr)
                return
        elif role in ("tidy", "clear"):
            tidy(warehouse, *((1, 24) if role == "tidy" else (0, 0)))
        # In memory and in one process, the server of a test is soon all that there is to be waited for. In a folder,
        # those who write without a pause write more than those who look can look through, the more so the busier the
        # machine is: so they rest for longer than they work.
        work_s = time.monotonic() - began
        time.sleep(0.1 if isinstance(warehouse.folder, ObjectPath) else 3 * work_s if role == "write" else 0)


def put(warehouse: Warehouse, hours: list[int]) -> str:
    with warehouse.commit("stage", map(interval_of, hours)) as commit:
        for hour in hours:
            for table in TABLES:
                commit.put_arrow(table, interval_of(hour), rows_of(table, commit.id, size(commit.id)))
    return commit.id


def rows_of(table: str, name: str, count: int) -> pa.Table:
    return pa.Table.from_pylist([{"query": name}] * count, schema=common_schema(table))


def interval_of(hour: int) -> Interval:
    return interval_at(a_pipeline(), START + timedelta(hours=hour))


def kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill()
        process.wait()


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), _act)
