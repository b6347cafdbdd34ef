"""What the marts of an interval were made of, kept as a state beside them: what has not changed is not made again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.store import parquet
from tidegate.store.commit import Commit
from tidegate.store.cut import SHARED
from tidegate.store.delta import run_of
from tidegate.store.intervals import Interval, interval_at
from tidegate.store.warehouse import MARTS, Warehouse

_STATE = "published"
_SCHEMA = pa.schema([("name", pa.string()), ("files", pa.list_(pa.string()))])
_FINGERPRINT = "fingerprint"
_VERDICTS = "quality_results"
# What the stage itself writes into a table that the marts are made of says nothing about them.
_OWN_WRITER = "publish"

Files = Mapping[str, Sequence[str]]
"""Table → the names of a partition's files. A name is given once: other rows are in other files."""


@dataclass(frozen=True)
class Changes:
    """What has to be made: of which intervals, and what comes from which tables (None: everything).

    ``sources`` and ``marts``: what each of these intervals has in the tables now, and had in the marts.
    """

    fingerprint: str
    intervals: tuple[Interval, ...]
    tables: frozenset[str] | None
    sources: Mapping[str, Files]
    marts: Mapping[str, Files]

    def keep(self, commit: Commit, interval: Interval, made: Collection[str]) -> None:
        """Note, with the commit, what the interval's marts are made of now that these have been made."""
        marts = self.marts[interval.label] if self.tables is not None else {}
        tables = [f"{MARTS}/{mart}" for mart in made]
        new = {table: [file.name for file in commit.written(table, interval.label)] for table in tables}
        content = {_FINGERPRINT: [self.fingerprint], **self.sources[interval.label], **marts, **new}
        rows = [{"name": name, "files": files} for name, files in content.items()]
        commit.put_state(_STATE, interval, pa.Table.from_pylist(rows, schema=_SCHEMA))


def changes(warehouse: Warehouse, intervals: Sequence[Interval], fingerprint: str, everything: bool = False) -> Changes:
    """Compare the tables of each interval with what its marts were made of, by the newest cut.

    An interval whose marts were built by another project (``fingerprint``), are gone or damaged is made as a whole;
    with ``everything`` each is.

    Cost: a read of a small file an interval, and of the footer of each of its marts.
    """
    warehouse.refresh()
    tables: frozenset[str] | None = frozenset()
    changed, sources, marts = [], {}, {}
    for interval in intervals:
        now = _sources(warehouse, interval.label)
        before = {} if everything else _kept(warehouse, interval.label)
        own = {name: files for name, files in before.items() if name.startswith(f"{MARTS}/")}
        stands = before.get(_FINGERPRINT) == [fingerprint] and _are_whole(warehouse, interval.label, own)
        different = {table for table, files in now.items() if before.get(table) != files}
        if stands and not different:
            continue
        changed.append(interval)
        sources[interval.label], marts[interval.label] = now, own
        tables = tables | different if stands and tables is not None else None
    return Changes(fingerprint, tuple(changed), tables, sources, marts)


def checked_beside(warehouse: Warehouse, intervals: Sequence[Interval], most: int) -> list[Interval]:
    """Intervals next to these, without a gap, that wait to be published; at most ``most``, ascending.

    One waits if its newest check failed in nothing critical, and came after all that was written for it and after it
    was published last.
    """
    warehouse.refresh()
    length = intervals[0].end - intervals[0].start
    found: list[Interval] = []

    def walk(neighbour: Callable[[Interval], Interval], start: Interval) -> None:
        interval = neighbour(start)
        while len(found) < most and _waits(warehouse, interval.label):
            found.append(interval)
            interval = neighbour(interval)

    walk(lambda interval: interval_at(warehouse.pipeline, interval.end), intervals[-1])
    walk(lambda interval: interval_at(warehouse.pipeline, interval.start - length), intervals[0])
    return sorted(found)


def _waits(warehouse: Warehouse, label: str) -> bool:
    verdicts = warehouse.live(_VERDICTS, label)
    if not verdicts:
        return False
    runs = warehouse.cut.runs
    judged = runs[verdicts[0].run]
    written = [
        runs[file.run] for table in warehouse.tables() if table not in SHARED for file in warehouse.live(table, label)
    ]
    published = [runs[run_of(file.name)] for file in warehouse.state_files(_STATE, label)]
    if any(one > judged for one in [*written, *published]):
        return False
    rows = warehouse.read_arrow(_VERDICTS, [label], ["success", "severity"])
    return ("critical", False) not in set(zip(rows["severity"].to_pylist(), rows["success"].to_pylist(), strict=True))


def _sources(warehouse: Warehouse, label: str) -> dict[str, list[str]]:
    return {
        table: [file.name for file in warehouse.live(table, label) if file.writer != _OWN_WRITER]
        for table in warehouse.tables()
    }


def _kept(warehouse: Warehouse, label: str) -> dict[str, list[str]]:
    """What was noted; nothing if that cannot be read: then all is made anew."""
    try:
        state = warehouse.read_state(_STATE, label)
    except (UserError, OSError):
        return {}
    return {} if state is None else {row["name"]: row["files"] for row in state.to_pylist()}


def _are_whole(warehouse: Warehouse, label: str, marts: Files) -> bool:
    """Whether the marts hold these files, and nothing else, and each can be opened."""
    for mart, names in marts.items():
        live = warehouse.live(mart, label)
        if [file.name for file in live] != names:
            return False
        try:
            if any(parquet.footer(warehouse.folder / mart / file.path).num_rows != file.rows for file in live):
                return False
        except (OSError, pa.ArrowInvalid):
            return False
    return bool(marts)
