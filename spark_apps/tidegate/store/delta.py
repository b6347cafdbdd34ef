"""One table as Delta Lake: which files are live, and how some are put in the place of others.

Data files are written by whoever has the rows (a slice in a worker, a stage in its process); the log is written here,
from the driver alone. A file's name ends in ``-<run>.parquet``: readers tell by it whose it is.

delta-rs creates and opens tables, and makes checkpoints. One version more is read here, and in folders written here, as
the Delta protocol has it (JSON, a line an action): for each, delta-rs goes through all files that the table has.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.store import parquet
from tidegate.store.durable import flush
from tidegate.store.places import ObjectPath, Place, said, storage_options

if TYPE_CHECKING:
    from deltalake import DeltaTable

RETENTION_HOURS = 7 * 24
"""How long superseded files stay: longer than any reader reads, and as far back as ``--as-of`` reaches."""
_TRIES = 50
_LOOKS, _LOOK_AGAIN_S = 5, 0.02
_FIRST_SPAN = 4
"""So many versions are looked back at first, then twice as many each time."""
_CONFIGURATION: dict[str, str | None] = {"delta.logRetentionDuration": "interval 30 days"}
_CHECKPOINT_EVERY = 100
_DECLARED = {"metaData", "protocol"}
# Neither column mapping nor deletion vectors: files are read as they are.
_READER = 1
_CHANGING = {"DELETE", "UPDATE", "MERGE"}
ENGINE = "Tidegate"
_RUN = re.compile(r"(migrate)?[0-9a-f]{12}")
_UUID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")
# The log stays for 30 days: whoever has not looked for longer than this opens the table anew.
_TRUSTED_S = 86_400
# There each file of the log that a reader has to open costs a request.
_IN_A_STORE: dict[str, str | None] = {"delta.checkpointInterval": "10"}


@dataclass(frozen=True, order=True)
class LiveFile:
    """One file of a version: ``label`` of its partition (empty in a table without), name, rows, bytes."""

    label: str
    name: str
    rows: int
    size: int

    @property
    def run(self) -> str:
        """The run that wrote it."""
        return run_of(self.name)

    @property
    def writer(self) -> str:
        """What its name begins with, before the run."""
        return self.name.rpartition("-")[0]

    @property
    def foreign(self) -> bool:
        """Whether another program has written it: its name ends in no run, or has a UUID as all others' names have."""
        return not _RUN.fullmatch(self.run) or _UUID.search(self.name) is not None

    @property
    def path(self) -> str:
        """Where it is, relative to the table."""
        return f"interval={self.label}/{self.name}" if self.label else self.name


class Listing(Mapping[str, tuple[LiveFile, ...]]):
    """The files of a version: label → the partition's files, by name. Labels ascend.

    Cost: a microsecond a file when it is made of a table; ``after`` a version more, what that changes. What is not
    asked for is never more than text.
    """

    def __init__(self, table: DeltaTable | None, partitioned: bool):
        # Runs that have not been seen to be committed → how many files they have here.
        self._doubted: Counter[str] = Counter()
        # What differs from the table's since it was opened: label → files, none where it has gone.
        self._changed: dict[str, tuple[LiveFile, ...]] = {}
        self._paths: list[str] = []
        # Label → where its files begin and end.
        self._span: dict[str, tuple[int, int]] = {}
        if table is None:
            return
        self._actions = pa.table(table.get_add_actions(flatten=True)).select(["path", "num_records", "size_bytes"])
        self._actions = self._actions.sort_by("path").combine_chunks()
        self._paths = self._actions.column("path").to_pylist()
        self._doubted.update(map(run_of, self._paths))
        folders = [path.rpartition("/")[0] for path in self._paths] if partitioned else [""] * len(self._paths)
        begin = 0
        for folder, own in groupby(folders):
            end = begin + sum(1 for _ in own)
            self._span[folder.removeprefix("interval=")] = begin, end
            begin = end

    def after(self, actions: Iterable[Mapping[str, Any]]) -> Listing:
        """The files once a version's actions are taken."""
        new = copy(self)
        new._doubted, new._changed = self._doubted.copy(), self._changed.copy()
        for cached in ("_labels", "filled"):
            new.__dict__.pop(cached, None)
        touched: dict[str, dict[str, LiveFile]] = {}
        for action in actions:
            for kind, told in action.items():
                if kind not in ("add", "remove"):
                    continue
                folder, _, name = told["path"].rpartition("/")
                label = folder.removeprefix("interval=")
                own = touched.setdefault(label, {file.name: file for file in self.get(label, ())})
                if own.pop(name, None) is not None and new._doubted[run_of(name)]:
                    new._doubted[run_of(name)] -= 1
                if kind == "add":
                    count = json.loads(told.get("stats") or "{}").get("numRecords")
                    own[name] = LiveFile(label, name, _rows(count), told["size"])
                    new._doubted[run_of(name)] += 1
        new._changed |= {label: tuple(sorted(own.values())) for label, own in touched.items()}
        return new

    def all_of(self, committed: Collection[str]) -> bool:
        """Whether all files are of these runs; more of them each time that it is asked."""
        self._doubted = Counter({run: n for run, n in self._doubted.items() if n and run not in committed})
        return not self._doubted

    def __getitem__(self, label: str) -> tuple[LiveFile, ...]:
        if label in self._changed:
            if not self._changed[label]:
                raise KeyError(label)
            return self._changed[label]
        begin, end = self._span[label]
        names = [path.rpartition("/")[2] for path in self._paths[begin:end]]
        own = self._actions.slice(begin, end - begin)
        rows, sizes = (own.column(name).to_pylist() for name in ("num_records", "size_bytes"))
        return tuple(
            LiveFile(label, name, _rows(count), size) for name, count, size in zip(names, rows, sizes, strict=True)
        )

    def __contains__(self, label: object) -> bool:
        return bool(self._changed[label]) if label in self._changed else label in self._span  # type: ignore[index]

    @cached_property
    def _labels(self) -> list[str]:
        gone = {label for label, own in self._changed.items() if not own}
        # Nearly sorted: the newest come last.
        return sorted(label for label in {**self._span, **self._changed} if label not in gone)

    @cached_property
    def filled(self) -> list[str]:
        """The labels whose files have rows, or may have."""
        counts = self._actions.column("num_records").to_pylist() if self._span else []
        before = list(accumulate((count != 0 for count in counts), initial=0))

        def has_rows(label: str) -> bool:
            if label in self._changed:
                return any(file.rows for file in self._changed[label])
            begin, end = self._span[label]
            return bool(before[begin] < before[end])

        return [label for label in self._labels if has_rows(label)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)


@dataclass(eq=False)
class DeltaLog:
    """The versions of one table at ``folder``; ``schema`` as declared, without ``interval``.

    ``properties``: of the table that ``create`` makes, beside those that every table has. ``unflushed``: what it has
    written of its log and not yet seen to be on the disk.

    Cost: opening reads the newest checkpoint and the log after it (8 000 partitions: 50 ms); ``refresh`` only what has
    been added since; ``replace`` writes one file of the log. Neither depends on how many files the table has.
    """

    folder: Place
    schema: pa.Schema
    partitioned: bool = True
    properties: Mapping[str, str] = field(default_factory=dict)
    configuration: Mapping[str, str] = field(default_factory=dict, init=False)
    """The table's properties as they were last looked at."""
    unflushed: list[Place] = field(default_factory=list, init=False, repr=False)
    version: int = field(default=-1, init=False)
    """The version last looked at; −1 if there is none."""
    _listing: Listing = field(init=False, repr=False)
    _table: DeltaTable | None = field(default=None, init=False, repr=False)
    _earlier: dict[int, Listing] = field(default_factory=dict, init=False, repr=False)
    _looked_s: float = field(default=0.0, init=False, repr=False)
    _told: set[str] = field(default_factory=set, init=False, repr=False)
    _opened_anew: bool = field(default=False, init=False, repr=False)
    _fits: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        self._listing = Listing(None, self.partitioned)

    def refresh(self) -> int:
        """Look for newer versions; the newest one's number, −1 if there is no table yet."""
        if self.version >= 0:
            if not self._advance():
                self._open()
        elif any((self.folder / "_delta_log").glob("*.json")):  # a killed writer may have left an empty folder
            self._open()
        return self.version

    def _open(self) -> None:
        self._opened_anew = self._table is not None
        self._table = opened(self.folder)
        self._require_plain(self._table.protocol().min_reader_version, self._table.protocol().reader_features)
        self.version = self._table.version()
        self.configuration = self._table.metadata().configuration
        self._listing = Listing(self._table, self.partitioned)
        self._looked_s = time.monotonic()

    def _advance(self) -> bool:
        """Read the versions that have been added; False if the table has to be opened anew."""
        if time.monotonic() - self._looked_s > _TRUSTED_S:
            return False
        while (text := self._text(self.version + 1)) is not None:
            try:
                actions = [json.loads(line) for line in text.splitlines() if line]
            except ValueError:
                return False
            if any(_DECLARED & action.keys() for action in actions):
                self._fits = False
            for action in actions:
                if "metaData" in action:
                    self.configuration = action["metaData"].get("configuration") or {}
                elif "protocol" in action:
                    told = action["protocol"]
                    self._require_plain(told["minReaderVersion"], told.get("readerFeatures"))
                elif "txn" in action:
                    self._told.add(action["txn"]["appId"])
            self._listing = self._listing.after(actions)
            self.version += 1
        self._looked_s = time.monotonic()
        return isinstance(self.folder, ObjectPath) or self._file(self.version).exists()

    def _require_plain(self, reader: int, features: Sequence[str] | None) -> None:
        """UserError if another program has given the table what this one does not read, such as deletion vectors."""
        if reader > _READER:
            named = ", ".join(sorted(features or [])) or "column mapping"
            raise UserError(
                f"table {self.folder.name} in {self.folder.parent} asks its readers for {named}, which another program "
                "has switched on: take the feature away (in Spark with Delta: ALTER TABLE … DROP FEATURE), or move "
                f"{self.folder} away and run its intervals again"
            )

    def transacted(self, application: str, since_opened: bool = False) -> bool:
        """Whether a version up to the one last looked at bears this application transaction.

        ``since_opened``: one before the table was opened is of no concern. Cost: a millisecond without.
        """
        if application in self._told:
            return True
        if self._table is None or (since_opened and not self._opened_anew):
            return False
        return self._table.transaction_version(application) is not None

    def changed_by_others(self, paths: Collection[str]) -> str | None:
        """Which version has brought one of these files with rows that are not those of the files before; None if none.

        Cost: the versions' files of the log, from the newest to those that brought them.
        """
        sought = set(paths)
        for version in range(self.version, -1, -1):
            if not sought:
                return None
            text = self._text(version)
            if text is None:
                break
            actions = [json.loads(line) for line in text.splitlines() if line]
            brought = [action["add"] for action in actions if action.get("add", {}).get("path") in sought]
            if any(add["dataChange"] for add in brought):
                about: Mapping[str, Any] = next(
                    (action["commitInfo"] for action in actions if "commitInfo" in action), {}
                )
                by = f" by {about['engineInfo']}" if about.get("engineInfo") else ""
                return f"version {version} ({about.get('operation', 'an unnamed operation')}){by}"
            sought -= {add["path"] for add in brought}
        return f"a version before {self.version}" if sought else None

    def bereft_by_others(self, since_s: float) -> str | None:
        """Which version since then (seconds since 1970) is of another program and took some of a run's files; or None.

        What was restored, or run again, since then is no longer bereft. Cost: reading the log's files since then.
        """
        version = self.version
        while version >= 0:
            file = self._file(version)
            try:
                if file.stat().st_mtime < since_s:
                    return None
                actions = [json.loads(line) for line in file.read_bytes().splitlines() if line]
            except FileNotFoundError:
                return None
            about: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
            operation, engine = about.get("operation", ""), about.get("engineInfo", ENGINE)
            if operation == "RESTORE" and (before := about.get("operationParameters", {}).get("version")) is not None:
                version = int(before)
                continue
            if operation in _CHANGING or not engine.startswith((ENGINE, "delta-rs")):
                gone = (action["remove"] for action in actions if action.get("remove", {}).get("dataChange"))
                for folder, _, name in (told["path"].rpartition("/") for told in gone):
                    beside = self.listing().get(folder.removeprefix("interval="), ())
                    if any(file.run == run_of(name) for file in beside):
                        return f"version {version} ({operation}) by {engine}"
            version -= 1
        return None

    def _file(self, version: int) -> Place:
        return self.folder / "_delta_log" / f"{version:020d}.json"

    def _text(self, version: int) -> bytes | None:
        try:
            return self._file(version).read_bytes()
        except FileNotFoundError:
            return None

    def listing(self, version: int | None = None) -> Listing:
        """The files of a version (None: the one last looked at), by partition; none before the first."""
        number = self.version if version is None else version
        if number == self.version or number < 0:
            return self._listing if number >= 0 else Listing(None, self.partitioned)
        if number not in self._earlier:
            # Versions are asked for one after the other.
            self._earlier = {number: Listing(opened(self.folder, number), self.partitioned)}
        return self._earlier[number]

    def earlier(self) -> Iterator[Mapping[str, tuple[LiveFile, ...]]]:
        """Of each version before the one last looked at, the newest first, what the version after it has changed.

        Label → the partition's files in the earlier version, none if it was not there yet; the other partitions' files
        are those of the version after it.

        Cost: reading the log's files as far as versions are asked for, at most twice as many, and opening the table a
        number of times that grows with the logarithm of that.
        """
        newest, span = self.version, _FIRST_SPAN
        while newest > 0:
            steps = self._steps(max(newest - span, 0), newest)
            yield from reversed(steps)
            newest, span = newest - len(steps), 2 * span

    def _steps(self, oldest: int, newest: int) -> list[dict[str, tuple[LiveFile, ...]]]:
        """What each version after ``oldest`` up to ``newest`` has changed, as it was before; at least the newest's.

        The first of them are left out where the log does not reach back so far any more.
        """
        texts: list[bytes] = []
        while newest - len(texts) > oldest and (text := self._text(newest - len(texts))) is not None:
            texts.insert(0, text)
        while True:
            try:
                listing = Listing(opened(self.folder, newest - max(len(texts), 1)), self.partitioned)
                break
            except UserError:
                if len(texts) <= 1:
                    raise
                texts = texts[-(len(texts) // 2) :]
        if not texts:
            # A checkpoint has it, but nothing says what it has changed.
            return [{label: listing.get(label, ()) for label in {*listing, *self.listing(newest)}}]
        steps = []
        for text in texts:
            actions = [json.loads(line) for line in text.splitlines() if line]
            steps.append({label: listing.get(label, ()) for label in sorted(_labels_of(actions))})
            listing = listing.after(actions)
        return steps

    def live(self, version: int | None = None) -> tuple[LiveFile, ...]:
        """All files of a version (None: the one last looked at); none before the first."""
        return tuple(file for own in self.listing(version).values() for file in own)

    def create(self) -> None:
        """Make the table unless it is there."""
        if self.refresh() >= 0:
            return
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import DeltaError

        self.folder.mkdir(parents=True, exist_ok=True)
        wanted = Schema.from_arrow(self._whole_schema())
        in_a_store = _IN_A_STORE if isinstance(self.folder, ObjectPath) else {}
        try:
            DeltaTable.create(
                str(self.folder),
                wanted,
                mode="ignore",
                partition_by=self._by,
                configuration=_CONFIGURATION | in_a_store | dict(self.properties),
                storage_options=storage_options(self.folder),
                raise_if_key_not_exists=False,  # properties that Delta does not know are anybody's
            )
        except (DeltaError, OSError) as error:
            # Another writer was first.
            if self.refresh() < 0:
                raise self._unwritable(error) from None
        self.unflushed.append(self._file(0))
        self.refresh()

    def set_properties(self, wanted: Mapping[str, str]) -> None:
        """Give the table properties, unless it has them already; to be followed by ``flush_logs``."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        for _ in range(_TRIES):
            before = self.refresh()
            if wanted.items() <= self.configuration.items():
                return
            try:
                opened(self.folder).alter.set_table_properties(dict(wanted), raise_if_not_exists=False)
            except CommitFailedError:
                continue
            except (DeltaError, OSError) as error:
                raise self._unwritable(error) from None
            self.unflushed += [self._file(version) for version in range(before + 1, self.refresh() + 1)]
        raise self._contended()

    def replace(
        self,
        added: Iterable[LiveFile],
        replaces: Callable[[LiveFile], bool],
        labels: Collection[str] | None = None,
        rearranged: bool = False,
    ) -> int:
        """Put files in the place of others and return the version's number; to be followed by ``flush_logs``.

        ``replaces``: which of the live files go, asked anew whenever another writer was faster. ``labels``: all of
        them, and all that are added, are in these partitions (None: anywhere). Where partitions are replaced and
        others are new, the new ones come in a version of their own before: whoever streams from the table and skips
        what is replaced would miss them. ``rearranged``: the rows are those that were there.
        """
        self.create()
        self._fit()
        files = {file.path: file for file in added}
        for _ in range(_TRIES):
            # A path that is added may not be removed: its rows are in place already.
            listing = self.listing()
            live = [file for label in (listing if labels is None else labels) for file in listing.get(label, ())]
            here = {file.path for file in live}
            fresh = [file for path, file in files.items() if path not in here]
            gone = sorted(file for file in live if replaces(file) and file.path not in files)
            touched = {file.label for file in gone}
            new = [file for file in fresh if file.label not in touched]
            if gone and new:
                self._transact(new, [])
                self.refresh()
                continue
            if not (fresh or gone) or self._transact(fresh, gone, rearranged):
                return self.refresh()
            self.refresh()
        raise self._contended()

    def put_back(self, groups: Sequence[tuple[Sequence[LiveFile], Sequence[LiveFile]]]) -> int:
        """Of each (files, files before them), have those before in the place of the others; how many it was done for.

        A group of which not all are live any more has been replaced meanwhile: it stays. To be followed by
        ``flush_logs``.
        """
        for _ in range(_TRIES):
            self.refresh()
            listing = self.listing()
            added: list[LiveFile] = []
            gone: list[LiveFile] = []
            done = 0
            for after, before in groups:
                here = {file.path for file in listing.get(after[0].label, ())}
                if all(file.path in here for file in after):
                    done += 1
                    gone += after
                    added += [file for file in before if file.path not in here]
            if not gone or self._transact(sorted(added), sorted(gone)):
                self.refresh()
                return done
        raise self._contended()

    def append_transaction(self, application: str) -> bool:
        """Add a version that says no more than this name; False if there is one after the one last looked at."""
        return self._transact([], [], application=application)

    def append_alone(self, file: LiveFile) -> bool:
        """Add a file as the version after the one last looked at; False if there is such a version already."""
        added = self._transact([file], [])
        if added:
            try:
                flush_logs([self], self.folder.parent)
            except OSError as error:
                raise UserError(
                    f"{error.filename or self.folder}: {error.strerror}; this run is visible, but would be lost if the "
                    "machine lost its power now: mend the disk, and run it again"
                ) from None
        return added

    def _transact(
        self,
        added: Sequence[LiveFile],
        gone: Sequence[LiveFile],
        rearranged: bool = False,
        application: str | None = None,
    ) -> bool:
        """Write the version after the one last looked at; False if there is such a version already."""
        from deltalake.exceptions import DeltaError

        assert self.version >= 0, "create() comes first"
        try:
            if isinstance(self.folder, ObjectPath):
                written = self._put(added, gone, rearranged, application)
            else:
                written = self._link(_actions(added, gone, self._by, rearranged, application))
                if written and (self.version + 2) % _CHECKPOINT_EVERY == 0:
                    # The version is there, whatever becomes of this.
                    with suppress(DeltaError, OSError, UserError):
                        table = opened(self.folder)
                        table.create_checkpoint()
                        table.cleanup_metadata()
        except (DeltaError, OSError) as error:
            raise self._unwritable(error) from None
        if written:
            self.unflushed.append(self._file(self.version + 1))
        return written

    def _link(self, actions: Iterable[Mapping[str, Any]]) -> bool:
        """Write a version into a folder: it appears whole, or not at all if another writer was faster."""
        target = cast(Path, self._file(self.version + 1))
        own = target.with_name(f"_commit_{uuid.uuid4()}.json.tmp")
        try:
            own.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
            os.link(own, target)
        except FileExistsError:
            return False
        finally:
            with suppress(OSError):
                own.unlink(missing_ok=True)
        return True

    def _put(
        self, added: Sequence[LiveFile], gone: Sequence[LiveFile], rearranged: bool, application: str | None
    ) -> bool:
        """Write a version into an object store, which is asked for one that is not there yet: delta-rs knows how."""
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction

        assert self._table is not None, "create() comes first"
        self._table.update_incremental()
        if self._table.version() != self.version:
            return False
        written_ms = now_ms()
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, _values(file, self._by), written_ms, not rearranged, _stats(file))
            for file in added
        ]
        actions += [RemoveAction(file.path, not rearranged, written_ms) for file in gone]
        told = [Transaction(application, 1)] if application else None
        schema = Schema.from_arrow(self._whole_schema())
        once = CommitProperties(max_commit_retries=0, app_transactions=told)
        try:
            self._table.create_write_transaction(actions, "append", schema, self._by, commit_properties=once)
        except CommitFailedError:
            return False
        return True

    def _contended(self) -> UserError:
        return UserError(f"table {self.folder} is being written by too many at once: run this again")

    def _unwritable(self, error: Exception) -> UserError:
        return UserError(
            f"the log of table {self.folder.name} cannot be written: {said(error)}; nothing "
            f"of this run is visible: mend what is wrong with {self.folder}, and run it again"
        )

    def vacuum(self, hours: int = RETENTION_HOURS) -> int:
        """Remove the files that no version of the last ``hours`` names, those of killed runs too; how many."""
        if self.refresh() < 0:
            return 0
        gone = opened(self.folder).vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        self.refresh()
        return len(gone)

    @property
    def _by(self) -> list[str]:
        return ["interval"] if self.partitioned else []

    def _whole_schema(self) -> pa.Schema:
        return self.schema.append(pa.field("interval", pa.string())) if self.partitioned else self.schema

    def stored_schema(self) -> pa.Schema | None:
        """The schema that the table has, whatever is declared; None if there is no table."""
        if self.refresh() < 0:
            return None
        return pa.schema(opened(self.folder).schema().to_arrow())

    def _fit(self) -> None:
        """Give the table the columns that have been declared since; UserError if one has another type."""
        if self._fits:
            return
        # As it was opened, if nothing has been added since.
        table = self._table
        if table is None or table.version() != self.version:
            table = opened(self.folder)
        before = self.version
        if add_columns(table, self.schema, self.folder):
            self.unflushed += [self._file(version) for version in range(before + 1, self.refresh() + 1)]
        self._fits = True


def _labels_of(actions: Iterable[Mapping[str, Any]]) -> set[str]:
    """The labels of the partitions that a version's actions change."""
    paths = (told["path"] for action in actions for kind, told in action.items() if kind in ("add", "remove"))
    return {path.rpartition("/")[0].removeprefix("interval=") for path in paths}


def add_columns(table: DeltaTable, schema: pa.Schema, folder: Place) -> bool:
    """Give a table the columns of a schema that it lacks; False if it lacks none.

    Raises:
        UserError: a column has another type in the table.
    """
    from deltalake import Field, Schema

    there = {field_.name: field_.type for field_ in pa.schema(table.schema().to_arrow())}
    wanted = pa.schema(Schema.from_arrow(schema).to_arrow())
    for field_ in wanted:
        if there.get(field_.name, field_.type) != field_.type:
            raise UserError(
                f"column {field_.name} of table {folder.name} is {there[field_.name]} in {folder}, and {field_.type} "
                "now: a column keeps its type; give the column another name (a source of Spark: its stream), or run "
                "into another warehouse"
            )
    missing = [Field.from_arrow(field_.with_nullable(True)) for field_ in wanted if field_.name not in there]
    if missing:
        table.alter.add_columns(missing)
    return bool(missing)


def flush_logs(logs: Iterable[DeltaLog], home: Place) -> None:
    """Return once all that these have written of their logs is on the disk; ``home`` is the folder of the tables."""
    written = list(logs)
    # The folder itself may be new, too.
    flush((path for log in written for path in log.unflushed), home.parent)
    for log in written:
        log.unflushed.clear()


def run_of(name: str) -> str:
    """The run that a file's name ends in, before its suffix."""
    return name.partition(".")[0].rpartition("-")[2]


class ReplacedBy:
    """Says of a live file whether a commit replaces it: those of its partitions, or of its writer there.

    ``partitions``: labels replaced as a whole. ``writers``: (label, writer) of the files that are replaced alone.
    ``labels``: of all partitions concerned.
    """

    def __init__(self, partitions: Iterable[str] = (), writers: Iterable[tuple[str, str]] = ()):
        self._partitions, self._writers = frozenset(partitions), frozenset(writers)
        self.labels = sorted({*self._partitions, *(label for label, _ in self._writers)})

    def __call__(self, file: LiveFile) -> bool:
        """Whether the file goes."""
        return file.label in self._partitions or (file.label, file.writer) in self._writers


def live_file(path: Place, label: str, rows: int | None = None) -> LiveFile:
    """A file as it has been written; ``rows``: how many, by whoever wrote it here (None: its footer says)."""
    counted = parquet.footer(path).num_rows if rows is None else rows
    return LiveFile(label, path.name, counted, path.stat().st_size)


def _actions(
    added: Sequence[LiveFile],
    gone: Sequence[LiveFile],
    by: Sequence[str],
    rearranged: bool = False,
    application: str | None = None,
) -> Iterator[dict[str, Any]]:
    """A version of the log. Labels and names of files have no character that a URI would have to escape."""
    written_ms = now_ms()
    runs = sorted({file.run for file in added})
    about = {
        "timestamp": written_ms,
        "operation": "OPTIMIZE" if rearranged else "WRITE",
        "operationParameters": {"mode": "Overwrite" if gone else "Append", "partitionBy": json.dumps(by)},
        "isBlindAppend": not gone,
        "engineInfo": ENGINE,
    }
    yield {"commitInfo": about | ({"userMetadata": f"run {', '.join(runs)}"} if runs else {})}
    if application:
        yield {"txn": {"appId": application, "version": 1, "lastUpdated": written_ms}}
    for file in gone:
        told = {"path": file.path, "deletionTimestamp": written_ms, "dataChange": not rearranged}
        yield {"remove": told | {"extendedFileMetadata": True} | _more(file, by)}
    for file in added:
        told = {"path": file.path, "modificationTime": written_ms, "dataChange": not rearranged, "stats": _stats(file)}
        yield {"add": told | _more(file, by)}


def _more(file: LiveFile, by: Sequence[str]) -> dict[str, Any]:
    return {"partitionValues": _values(file, by), "size": file.size}


def _rows(count: int | None) -> int:
    # Another program may have written a file without saying how many: not none, or nobody would look.
    return 1 if count is None else count


def _values(file: LiveFile, by: Sequence[str]) -> dict[str, str]:
    return dict.fromkeys(by, file.label)


def _stats(file: LiveFile) -> str:
    return json.dumps({"numRecords": file.rows})


def now_ms() -> int:
    """Milliseconds since 1970, as logs have times."""
    return time.time_ns() // 1_000_000


def opened(folder: Place, version: int | None = None) -> DeltaTable:
    """A table as delta-rs has it; UserError if its log cannot be read."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    failed: Exception = OSError()
    for _ in range(_LOOKS):
        try:
            return DeltaTable(str(folder), version=version, storage_options=storage_options(folder))
        except (DeltaError, OSError) as error:
            # A listing that is made while others write may have a version and lack the one before it.
            failed = error
            time.sleep(_LOOK_AGAIN_S)
    raise UserError(
        f"the log of table {folder.name} cannot be read: {said(failed)}; "
        f"restore {folder / '_delta_log'} from a backup, or move {folder} away and run its intervals again"
    )
