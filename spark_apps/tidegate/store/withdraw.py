"""What runs that never committed have put into the tables' logs goes as soon as somebody knows that they never will.

Whoever reads by cuts does not see it in any case. This is for readers of a table's newest version, such as Spark's own
Delta: between a run's versions and its row in ``_commits`` lie milliseconds, unless it dies there or is refused.

A run leaves a note before it writes into the logs and removes it when it is done. The next run of the pipeline that
finds the note of a process that is gone withdraws that run: it first renounces the commit on its behalf, in
``_commits`` itself, so that a process which was only taken for dead is refused and no row of a committed run can go.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psutil  # type: ignore[import-untyped]

from tidegate.declarations.errors import UserError
from tidegate.store.commits import Commits
from tidegate.store.cut import SHARED, Cut, grouped
from tidegate.store.delta import DeltaLog, LiveFile, flush_logs
from tidegate.store.places import Place
from tidegate.store.processes import is_running

FOLDER = "_publishing"
PATIENCE_S = 600
"""After that the process of another machine is taken for gone; publishing takes seconds."""


@contextmanager
def noted(home: Place, run: str, tables: Collection[str]) -> Iterator[None]:
    """Leave a note, in the folder of the tables, while a run writes into the logs of these tables.

    It stays if the process ends here, or an error leaves the run's files in the logs.
    """
    note = home / FOLDER / f"{run}.json"
    note.parent.mkdir(parents=True, exist_ok=True)
    process = psutil.Process()
    told = {"tables": sorted(tables), "host": platform.node(), "process": os.getpid(), "since": process.create_time()}
    note.write_text(json.dumps(told))
    yield
    # Whoever sees it once more finds that the run is committed.
    with suppress(OSError):
        note.unlink(missing_ok=True)


def withdraw_dead(home: Place, logs: Mapping[str, DeltaLog], commits: Commits, patience_s: float = PATIENCE_S) -> int:
    """Withdraw the runs whose processes are gone, by their notes; how many partitions are as they were before.

    Cost: listing a folder, which is empty as a rule.
    """
    restored = 0
    for note in (home / FOLDER).glob("*.json"):
        try:
            age_s = time.time() - note.stat().st_mtime
            told = json.loads(note.read_text())
        except FileNotFoundError:
            continue
        except ValueError:
            # Its writer died, or is about to write it; nothing is in the logs yet.
            if age_s > patience_s:
                note.unlink(missing_ok=True)
            continue
        if not _alive(told, age_s, patience_s):
            # A table in which another program has changed rows is for whoever reads it to say.
            with suppress(UserError):
                restored += withdraw(home, logs, commits, note.name.removesuffix(".json"), told["tables"])
    return restored


def withdraw(home: Place, logs: Mapping[str, DeltaLog], commits: Commits, run: str, tables: Collection[str]) -> int:
    """Take a run's files out of the tables' logs, and its note, unless it is committed; how many partitions."""
    restored = 0
    if commits.renounce(run):
        restored = sum(put_back(logs, commits, table, lambda file: file.run == run) for table in tables)
    (home / FOLDER / f"{run}.json").unlink(missing_ok=True)
    return restored


def put_back(logs: Mapping[str, DeltaLog], commits: Commits, table: str, unwanted: Callable[[LiveFile], bool]) -> int:
    """Have what the cut of all commits holds in the place of unwanted files; how many partitions.

    None where what was before is no longer on the disk.
    """
    log = logs[table]
    if log.refresh() < 0 or not any(map(unwanted, log.live())):
        return 0
    before: dict[tuple[str, str], list[LiveFile]] = {}
    by_label = Cut(logs, commits.refresh()).table(table)
    for label in by_label:
        before |= grouped(table, by_label[label])
    groups = []
    for (label, writer), files in grouped(table, log.live()).items():
        if not any(map(unwanted, files)):
            continue
        mixed = table in SHARED and any(file.foreign for file in files)
        whole = by_label.get(label, ()) if mixed else before.get((label, writer), ())
        if all((log.folder / file.path).exists() for file in whole):
            groups.append((files, whole))
    done = log.put_back(groups)
    flush_logs([log], log.folder.parent)
    return done


def _alive(told: Mapping[str, Any], age_s: float, patience_s: float) -> bool:
    if told["host"] != platform.node():
        return age_s <= patience_s
    return is_running(told["process"], told["since"])
