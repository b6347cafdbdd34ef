"""``_commits``: which runs are committed, and when. A row of it is what makes a run's files visible, in all its tables.

A file a run, ``<µs since 1970>-<stage>-<run>.parquet``: its name alone says what readers need. Of two runs of a stage
that meet in an interval, or of two that write a table there, the one whose row is second is refused: the row is added
to the version that was looked at, or looked at again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import from_us, to_us
from tidegate.store import parquet
from tidegate.store.delta import DeltaLog, LiveFile, flush_logs, live_file
from tidegate.store.durable import flush
from tidegate.store.format import FORMAT, PROPERTY, format_of, require_readable
from tidegate.store.places import Place
from tidegate.values.types import TIMESTAMP

TABLE = "_commits"
SCHEMA = pa.schema(
    [
        ("stage", pa.string()),
        ("interval", pa.string()),
        ("run", pa.string()),
        ("versions", pa.map_(pa.string(), pa.int64())),
        ("committed_at", TIMESTAMP),
    ]
)
_MERGED = "merged"
_DIGITS = 17
_NAME = re.compile(rf"(\d{{{_DIGITS}}})-(\w+)-(\w+)\.parquet")
_DEAD = "dead run "


class Committed(NamedTuple):
    """A committed run: when (µs since 1970; later commits have later times), of which stage."""

    at_us: int
    stage: str
    run: str


@dataclass(eq=False)
class Commits:
    """The commits of one pipeline, in ``folder``. Call ``refresh`` before asking.

    Cost: what has been committed since, and a copy of a table of all runs (a year of them: a millisecond).
    """

    folder: Place
    _log: DeltaLog = field(init=False, repr=False)
    _known: dict[str, tuple[Committed, ...]] = field(default_factory=dict, init=False, repr=False)
    _version: int = field(default=-1, init=False, repr=False)
    _runs: dict[str, Committed] = field(default_factory=dict, init=False, repr=False)
    _newest_us: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        self._log = DeltaLog(self.folder / TABLE, SCHEMA, partitioned=False, properties={PROPERTY: str(FORMAT)})

    def refresh(self) -> Mapping[str, Committed]:
        """Run → its commit, of all there are now; what was returned before stays as it was.

        UserError if a newer program has written the warehouse.
        """
        version = self._log.refresh()
        require_readable(self._log.configuration, self.folder)
        if version != self._version:
            known = {f.name: self._known.get(f.name) or self._commits_of(f) for f in self._log.live()}
            # A run that has been committed stays so, in whatever file.
            new = [one for name, own in known.items() if name not in self._known for one in own]
            self._runs = self._runs | {one.run: one for one in new}
            self._newest_us = max([self._newest_us, *(one.at_us for one in new)])
            self._known, self._version = known, self._log.version
        return self._runs

    @property
    def format(self) -> int | None:
        """The number of the warehouse's format, None where nothing has been written yet; UserError as ``refresh``."""
        self.refresh()
        return format_of(self._log.configuration) if self._version >= 0 else None

    def begin(self) -> int:
        """Make the table, or raise the warehouse's format to this program's, before anything is written; what it was.

        UserError if a newer program has written the warehouse. Cost: nothing where there is nothing to do.
        """
        self.refresh()
        if self._version < 0:
            self._log.create()
        before = format_of(self._log.configuration)
        if before < FORMAT:
            self._log.set_properties({PROPERTY: str(FORMAT)})
            flush_logs([self._log], self.folder)
        return before

    def until(self, as_of: str | datetime) -> int:
        """The last commit (µs) of a cut: that of a run, or the last one by an instant; UserError if there is none."""
        runs = self.refresh()
        if isinstance(as_of, datetime):
            instant_us = to_us(as_of)
            if not any(one.at_us <= instant_us for one in runs.values()):
                first = min(runs.values(), default=None)
                since = (
                    f"the first is of {from_us(first.at_us):%Y-%m-%dT%H:%M:%SZ}" if first else "there is none at all"
                )
                raise UserError(f"nothing had been committed by {as_of:%Y-%m-%dT%H:%M:%SZ} in {self.folder}: {since}")
            return instant_us
        if as_of not in runs:
            newest = ", ".join(one.run for one in sorted(runs.values())[-3:])
            raise UserError(
                f"'{as_of}' is neither a time nor a committed run of {self.folder}"
                + (f"; the newest runs: {newest} (column run of table _commits)" if newest else "")
            )
        return runs[as_of].at_us

    def append(
        self,
        stage: str,
        run: str,
        labels: Sequence[str],
        versions: Mapping[str, int],
        replaced: frozenset[str],
        begun: Set[str],
    ) -> None:
        """Commit a run of a stage on some intervals; ``begin`` comes first.

        ``replaced``: the tables of which it replaces whole partitions. ``begun``: the runs that it knew when it began.

        UserError if another run of the stage, or of these tables, has committed one of the intervals since, or if the
        run was taken for dead.
        """
        while True:
            self.refresh()
            if self._log.transacted(_DEAD + run, since_opened=True):
                raise UserError(
                    f"run {run} of the stage {stage} was taken for dead by another process ({self.folder}), and what "
                    f"it wrote is dropped: run the stage {stage} again"
                )
            self._refuse_second(stage, labels, replaced, begun)
            at_us = max(time.time_ns() // 1000, self._newest_us + 1)
            path = self._log.folder / f"{at_us:0{_DIGITS}}-{stage}-{run}.parquet"
            rows = {
                "stage": [stage] * len(labels),
                "interval": list(labels),
                "run": [run] * len(labels),
                "versions": [list(versions.items())] * len(labels),
                "committed_at": [from_us(at_us)] * len(labels),
            }
            parquet.write(pa.table(rows, schema=SCHEMA), path)
            flush([path], self.folder)
            if self._log.append_alone(live_file(path, "")):
                return
            if path.name in {file.name for file in self._log.live(self._log.refresh())}:
                return  # it is there: the answer to the first attempt was lost on its way
            path.unlink()

    def renounce(self, run: str) -> bool:
        """See to it that a run which is not committed never will be; False if it is committed."""
        self.begin()
        while run not in self.refresh():
            if self.is_renounced(run):
                return True
            if self._log.append_transaction(_DEAD + run):
                flush_logs([self._log], self.folder)
                return True
        return False

    def is_renounced(self, run: str) -> bool:
        """Whether a run never will be committed, as of the last ``refresh``."""
        return self._log.transacted(_DEAD + run)

    def rows(self) -> pa.Table:
        """All rows, in the order of their commits."""
        self.refresh()
        parts = [parquet.opened(self._log.folder / f.name).read().cast(SCHEMA) for f in self._log.live()]
        return pa.concat_tables([SCHEMA.empty_table(), *parts]).sort_by(
            [("committed_at", "ascending"), ("interval", "ascending")]
        )

    def merge(self) -> None:
        """Put one file in the place of all that there are; readers find the same rows."""
        rows, before = self.rows(), self._log.live()
        if len(before) < 2:
            return
        path = self._log.folder / f"{_MERGED}-{max(self._runs.values()).run}-{time.time_ns():x}.parquet"
        parquet.write(rows, path)
        flush([path], self.folder)
        names = {f.name for f in before}
        self._log.replace([live_file(path, "")], lambda file: file.name in names, rearranged=True)
        flush_logs([self._log], self.folder)

    def vacuum(self, hours: int) -> int:
        """Remove what merges have left behind."""
        return self._log.vacuum(hours)

    def _refuse_second(self, stage: str, labels: Sequence[str], replaced: frozenset[str], begun: Set[str]) -> None:
        """UserError if a run that this one did not know has been for the same stage and interval, or wrote its tables.

        Which rows stand where two have written is decided table by table: a reader could see one of each.
        """
        if len(begun) == len(self._runs):
            return
        for name, own in self._known.items():
            if all(one.run in begun for one in own):
                continue
            for row in parquet.opened(self._log.folder / name).read().to_pylist():
                if row["run"] in begun or row["interval"] not in labels:
                    continue
                if row["stage"] == stage or replaced & {table for table, _ in row["versions"]}:
                    raise UserError(
                        f"stage {row['stage']} was run for {row['interval']} by another process meanwhile (run "
                        f"{row['run']}, {self.folder}): its rows stand, these are dropped; run the stage {stage} again "
                        "if they are needed"
                    )

    def _commits_of(self, file: LiveFile) -> tuple[Committed, ...]:
        if named := _NAME.fullmatch(file.name):
            at, stage, run = named.groups()
            return (Committed(int(at), stage, run),)
        # Merged, here or by another program: the rows say it.
        names = ["committed_at", "stage", "run"]
        rows = parquet.opened(self._log.folder / file.name).read(columns=names)
        # Spark writes nanoseconds.
        at_us = rows.column("committed_at").cast(TIMESTAMP).cast(pa.int64()).to_pylist()
        told = zip(at_us, rows.column("stage").to_pylist(), rows.column("run").to_pylist(), strict=True)
        return tuple(map(Committed._make, set(told)))
