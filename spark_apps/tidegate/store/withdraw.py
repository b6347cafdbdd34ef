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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
    """Have what was there before in the place of unwanted files; how many partitions.

    That is the newest state of committed runs, or of those that may still commit: a run finds its rows where it put
    them, whoever replaced them meanwhile and failed. None where what was before is no longer on the disk.
    """
    log, done = logs[table], 0
    while log.refresh() >= 0 and any(map(unwanted, log.live())):
        groups = _groups_before(logs, commits, table, unwanted)
        done += log.put_back(groups)
        flush_logs([log], log.folder.parent)
        # A run that fails while its files come back does not see them, and leaves them there.
        runs = commits.refresh()
        pending = {file.run for _, before in groups for file in before if file.run not in runs}
        renounced = frozenset(run for run in pending if commits.is_renounced(run))
        if not renounced:
            break

        def unwanted(file: LiveFile, renounced: frozenset[str] = renounced) -> bool:
            return file.run in renounced

    return done


def _groups_before(
    logs: Mapping[str, DeltaLog], commits: Commits, table: str, unwanted: Callable[[LiveFile], bool]
) -> list[tuple[Sequence[LiveFile], Sequence[LiveFile]]]:
    """What is replaced together and has unwanted files, each with the files before it, which are on the disk."""
    log = logs[table]

    def on_disk(file: LiveFile) -> bool:
        return (log.folder / file.path).exists()

    def may_commit(file: LiveFile) -> bool:
        return not (file.foreign or unwanted(file) or commits.is_renounced(file.run)) and on_disk(file)

    by_label = Cut(logs, commits.refresh(), may_commit).table(table)
    before: dict[tuple[str, str], list[LiveFile]] = {}
    for label in by_label:
        before |= grouped(table, by_label[label])
    groups: list[tuple[Sequence[LiveFile], Sequence[LiveFile]]] = []
    for (label, writer), files in grouped(table, log.live()).items():
        if not any(map(unwanted, files)):
            continue
        mixed = table in SHARED and any(file.foreign for file in files)
        whole = by_label.get(label, ()) if mixed else before.get((label, writer), ())
        if all(map(on_disk, whole)):
            groups.append((files, whole))
    return groups


def _alive(told: Mapping[str, Any], age_s: float, patience_s: float) -> bool:
    if told["host"] != platform.node():
        return age_s <= patience_s
    return is_running(told["process"], told["since"])
