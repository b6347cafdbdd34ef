"""A cut: what a reader sees of all tables, fixed when it begins to read. It holds whole runs only.

A version of a table's log may hold files of runs that are not committed (yet, or ever, after a kill). A partition that
has such files is taken from the newest earlier version in which all its files are of committed runs. So nothing has to
be recovered before reading, and a writer that dies leaves nothing behind but files that nobody sees.

The same way leads past what another program has merely rearranged (OPTIMIZE): its files are of no run, the ones before
are. Rows that another program has changed are refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.store import parquet
from tidegate.store.commits import Committed
from tidegate.store.delta import RETENTION_HOURS, DeltaLog, LiveFile
from tidegate.store.places import Place

SHARED = frozenset({"run_metrics"})
"""Tables in whose partitions every stage has a file of its own."""

_ROWS_WORTH_THREADS = 1 << 16

Key = tuple[str, str]
Partitions = Mapping[str, tuple[LiveFile, ...]]
"""Label → the partition's files, by name."""


@dataclass(eq=False)
class Cut:
    """The tables of ``logs`` as the runs of ``runs`` left them.

    ``pending``: files of runs that may still commit, which count as theirs: none for whoever reads.

    Cost: a table's log is read when it is first asked for; a partition that a killed run, or one after ``as_of``, has
    touched costs reading the log's files back to its last whole version.
    """

    logs: Mapping[str, DeltaLog]
    runs: Mapping[str, Committed]
    pending: Callable[[LiveFile], bool] = lambda _: False
    _tables: dict[str, Partitions] = field(default_factory=dict, init=False, repr=False)

    def table(self, table: str) -> Partitions:
        """The partitions of a table, labels ascending; none if it has never been written."""
        if table not in self._tables:
            self._tables[table] = self._read(table)
        return self._tables[table]

    def _read(self, table: str) -> Partitions:
        log = self.logs[table]
        log.refresh()
        listing = log.listing()
        if listing.all_of(self.runs):
            return listing
        groups = grouped(table, log.live())
        whole = {key: own for key, own in groups.items() if self.is_whole(own)}
        missing = groups.keys() - whole.keys()
        foreign = [file for own in groups.values() for file in own if file.foreign]
        if foreign and (by := log.changed_by_others([file.path for file in foreign])):
            raise changed_rows(table, log, by)
        # Where stages share a partition, the files of all of them may have gone into the one of another program.
        mixed = {file.label for file in foreign} if table in SHARED else set[str]()
        missing -= {key for key in missing if key[0] in mixed and all(file.foreign for file in groups[key])}
        versions = log.earlier()
        while (missing or mixed) and (before := next(versions, None)) is not None:
            # Partitions that no version between has changed are what has been looked at.
            earlier = grouped(table, [file for own in before.values() for file in own])
            sought = {key for key in earlier if key in missing or (key[0] in mixed and key not in whole)}
            found = {key: earlier[key] for key in sought if self.is_whole(earlier[key])}
            whole |= found
            missing |= {key for key in sought - found.keys() if not all(file.foreign for file in earlier[key])}
            missing -= found.keys()
            # What an earlier version does not have was never there before.
            missing -= {key for key in missing if key[0] in before and key not in earlier}
            rearranged = {label for (label, _), own in earlier.items() if any(file.foreign for file in own)}
            mixed -= {label for label in mixed if label in before and label not in rearranged}
        by_label: dict[str, list[LiveFile]] = defaultdict(list)
        for (label, _), own in whole.items():
            by_label[label] += own
        return {label: tuple(sorted(by_label[label])) for label in sorted(by_label)}

    def is_whole(self, files: Sequence[LiveFile]) -> bool:
        """Whether all these files are of committed runs, or pending."""
        return all(file.run in self.runs or self.pending(file) for file in files)


def changed_rows(table: str, log: DeltaLog, by: str) -> UserError:
    """What is said of a table in which another program, ``by`` a version, has changed rows."""
    return UserError(
        f"table {table}: another program has changed its rows ({by}), which only Tidegate may do: take that back (in "
        f"Spark with Delta: RESTORE TABLE delta.`{log.folder}` TO VERSION AS OF the one before), or run the intervals "
        "concerned again"
    )


def grouped(table: str, files: Iterable[LiveFile]) -> dict[Key, list[LiveFile]]:
    """The files that are replaced together: those of a partition; where stages share it, those of a stage."""
    groups: dict[Key, list[LiveFile]] = defaultdict(list)
    for file in files:
        groups[file.label, file.writer if table in SHARED else ""].append(file)
    return groups


def read_file(path: str | Place, wanted: pa.Schema, required: Collection[str] = ()) -> pa.Table:
    """A data file's rows as ``wanted``: a column that was declared after it was written is NULL.

    UserError if the file cannot be read, or lacks one of the columns ``required``.
    """
    try:
        file = parquet.opened(path)
        there = set(file.schema_arrow.names)
        # Handing a small file's columns to threads costs more than reading them.
        threads = file.metadata.num_rows > _ROWS_WORTH_THREADS
        rows = file.read(columns=[name for name in wanted.names if name in there], use_threads=threads)
    except (OSError, pa.ArrowInvalid) as error:
        if isinstance(error, FileNotFoundError):
            raise UserError(
                f"{path} is gone: what has been superseded stays for {RETENTION_HOURS // 24} days; run this again, or "
                "ask for a later --as-of"
            ) from None
        raise UserError(
            f"{path} is damaged ({str(error).splitlines()[0][:200]}): run that interval's stage again"
        ) from None
    absent = [name for name in wanted.names if name not in there]
    missing = [name for name in absent if name in required]
    if missing:
        raise UserError(
            f"{path} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}: another version of "
            "Tidegate wrote it; run that interval's stage again"
        )
    if absent:
        given = [rows.column(f.name) if f.name in there else pa.nulls(rows.num_rows, f.type) for f in wanted]
        rows = pa.table(given, names=wanted.names)
    return rows if rows.schema.equals(wanted) else rows.cast(wanted)
