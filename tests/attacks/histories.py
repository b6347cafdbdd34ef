"""Writers, a backfill, a live run, upkeep and readers at once: what each did and saw is recorded, and then judged.

Rows are named after the run that wrote them. Commits have an order (that of ``_commits``), so what a reader may see is
one of so many states: after the first k commits each interval has, in both tables, the rows of the last of them that
wrote it. A read is judged by the k that it agrees with:

- there is one: no mixed cut, no half of a run, nothing of a run that was refused or has not committed;
- it holds every commit that had returned before the read began, the reader's own ones too;
- it is not smaller than that of the same reader's read before;
- with ``--as-of`` it is that run's.

And of two runs of a stage that overlap in time and in an interval, one was refused.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.attacks.kills import ACKS, HOURS, TABLES, interval_of, nursery, rows_of, serve, size
from tests.live_files import a_pipeline

from tidegate.declarations.errors import UserError
from tidegate.store.upkeep import tidy
from tidegate.store.warehouse import Warehouse

ROLES = ("hourly", "hourly", "backfill", "live", "reader", "newcomer", "historian", "upkeep")
Event = dict[str, Any]
State = dict[str, str]
"""Label of an interval → the run whose rows it has."""


def attack(seed: int, folder: Path, steps: int = 40) -> tuple[int, list[str]]:
    """Let each role make so many steps, all at once; how many events were recorded, and what was wrong."""
    root, told = folder / "wh", folder / ACKS
    with nursery(root, told, "tests.attacks.histories") as born:
        actors = [born(f"{role} {seed * 100 + number} {steps}") for number, role in enumerate(ROLES)]
        for actor in actors:
            actor.wait()
    histories = [[json.loads(line) for line in file.read_text().splitlines()] for file in sorted(told.iterdir())]
    events = sum(map(len, histories))
    faults = [f"{len(histories)} of {len(ROLES)} have written a history"] if len(histories) != len(ROLES) else []
    faults += [f"{own[-1]['who']} ended early" for own in histories if own[-1]["what"] != "end"]
    commits = Warehouse(root, a_pipeline()).commits.rows().to_pylist()
    return events, [f"seed {seed}: {fault}" for fault in [*faults, *judge(histories, commits)]]


def judge(histories: Sequence[Sequence[Event]], commits: Iterable[dict[str, Any]]) -> list[str]:
    """What is wrong with what was seen, given the rows of ``_commits`` in their order."""
    labels: dict[str, list[str]] = {}
    for row in commits:
        labels.setdefault(row["run"], []).append(row["interval"])
    place = {run: number for number, run in enumerate(labels)}
    states: list[State] = [{}]
    for own in labels.values():
        states.append(states[-1] | dict.fromkeys(own, list(labels)[len(states) - 1]))
    written = [event for history in histories for event in history if event["what"] == "commit"]
    faults = [f"{event['run']} had committed and is lost" for event in written if event["run"] not in place]
    returned = sorted((event["end"], place.get(event["run"], -1)) for event in written)
    for history in histories:
        faults += _judged_reads(history, states, place, returned)
    faults += _judged_overlaps([event for event in written if event["run"] in place], place)
    return faults


def _judged_reads(
    history: Sequence[Event], states: Sequence[State], place: dict[str, int], returned: Sequence[tuple[int, int]]
) -> list[str]:
    faults, least = [], 0
    for event in history:
        if event["what"] != "read":
            continue
        at = f"{event['who']}, read {event['number']}"
        agree = [k for k, state in enumerate(states) if event["seen"] == dict.fromkeys(TABLES, state)]
        if event["as_of"] is not None:
            if place[event["as_of"]] + 1 not in agree:
                faults.append(f"{at} as of {event['as_of']}: saw {event['seen']}")
            continue
        if not agree:
            faults.append(f"{at}: a state that never was: {event['seen']}")
            continue
        must = max((number + 1 for end, number in returned if end < event["begin"]), default=0)
        found = next((k for k in agree if k >= max(least, must)), None)
        if found is None:
            faults.append(f"{at}: saw commit {agree[-1]}; {must} had returned, and it had seen {least}")
        least = max(least, found or 0)
    return faults


def _judged_overlaps(written: Sequence[Event], place: dict[str, int]) -> list[str]:
    faults = []
    written = sorted(written, key=lambda event: place[event["run"]])
    for number, later in enumerate(written):
        for earlier in written[:number]:
            if place[earlier["run"]] >= later["known"] and set(earlier["hours"]) & set(later["hours"]):
                faults.append(f"{later['run']} ({later['who']}) did not know {earlier['run']} ({earlier['who']})")
    return faults


# What the roles do


def _act(root: str, told: Path, role: str, seed: str, steps: str) -> None:
    chance, warehouse = random.Random(f"{role} {seed}"), Warehouse(root, a_pipeline())
    with told.open("w", buffering=1) as file:

        def note(what: str, begin: int, **about: Any) -> None:
            event = {"who": role, "what": what, "begin": begin, "end": time.monotonic_ns(), **about}
            file.write(json.dumps(event) + "\n")

        for number in range(int(steps)):
            begin = time.monotonic_ns()
            if role in ("hourly", "backfill", "live"):
                with suppress(UserError):  # another was faster
                    note("commit", begin, **_commit(warehouse, role, chance))
            elif role == "upkeep":
                time.sleep(chance.uniform(0, 0.05))
                tidy(warehouse, 1, 24)
                note("tidied", begin)
            begin, as_of = time.monotonic_ns(), None
            if role == "newcomer":
                warehouse = Warehouse(root, a_pipeline())
            elif role == "historian":
                runs = sorted(Warehouse(root, a_pipeline()).cut.runs)
                as_of = chance.choice(runs) if runs else None
                warehouse = Warehouse(root, a_pipeline(), as_of)
            warehouse.refresh()
            if chance.randrange(3) == 0:
                time.sleep(chance.uniform(0, 0.01))
            note("read", begin, number=number, as_of=as_of, seen=_seen(warehouse))
        note("end", time.monotonic_ns())


def _commit(warehouse: Warehouse, role: str, chance: random.Random) -> Event:
    """Replace some intervals; the live run's is the last one."""
    first = chance.choice(HOURS)
    hours = {"hourly": [first], "backfill": list(HOURS[first:]), "live": [HOURS[-1]]}[role]
    with warehouse.commit("live" if role == "live" else "stage", map(interval_of, hours)) as commit:
        known = len(warehouse.cut.runs)
        for hour in hours:
            for table in chance.sample(TABLES, len(TABLES)):
                commit.put_arrow(table, interval_of(hour), rows_of(table, commit.id, size(commit.id)))
        time.sleep(chance.choice([0, 0, 0.01]))
    return {"run": commit.id, "hours": hours, "known": known}


def _seen(warehouse: Warehouse) -> dict[str, State]:
    """Table → label → the run whose rows are there, all of them; else what is there instead."""
    seen: dict[str, State] = {}
    for table in TABLES:
        rows: dict[str, list[str]] = {}
        for row in warehouse.read_arrow(table).to_pylist():
            rows.setdefault(row["interval"], []).append(row["query"])
        seen[table] = {
            label: own[0] if own == [own[0]] * size(own[0]) else f"{len(own)} rows of {sorted(set(own))}"
            for label, own in rows.items()
        }
    return seen


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), _act)
