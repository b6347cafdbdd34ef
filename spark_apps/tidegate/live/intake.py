"""Files as they land: looked for, parsed and judged as ingest does, put aside exactly once, batch by batch."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, Stream
from tidegate.engine import Slice
from tidegate.live.clock import LANDED_SCHEMA, Landed
from tidegate.operators.schedule import instants_us
from tidegate.sources.files import (
    Piece,
    SourceFile,
    fixed_folder,
    landing_glob,
    matching,
    pattern_unit,
    period_of,
    pinned,
    source_file,
)
from tidegate.sources.parse import FILE, ParseResult, ParseTask, Part, PieceReport, parse_pieces
from tidegate.sources.settle import kept
from tidegate.store.places import place

_FOREVER_US = 2**62
_SEEN = "seen.json"


class Intake:
    """The files of all streams of a pipeline, each read once, whenever it lands.

    A look lists what matches the streams' paths; what is new makes a batch, which is moved in by one rename. The
    batches say which files are known, so a kill at any moment leaves a file to be read by the next look, or read.
    """

    def __init__(self, pipeline: Pipeline, folder: Path, say: Callable[[str], None]):
        self.pipeline, self.folder, self._say = pipeline, folder, say
        self.since_us = 0  # the present interval's start: files of periods that ended before are left alone
        self.last_batch = -1  # the newest batch that a step has seen, whether it is still here or not
        self._every_s = 0.0
        self._landed: dict[int, list[Landed]] = {}
        self._passed: set[tuple[str, str]] = set()
        self._looked = False

    def start(self, every_s: float) -> None:
        """Begin to look, about every so many seconds."""
        self._every_s = every_s
        for leftover in self.folder.glob("_*"):
            shutil.rmtree(leftover, ignore_errors=True)
        (self.folder / "batches").mkdir(parents=True, exist_ok=True)
        seen = self.folder / _SEEN
        self._passed = {(stream, path) for stream, path in json.loads(seen.read_text())} if seen.exists() else set()

    def settle(self) -> None:
        """Look: read everything that has landed by now and is not known.

        Raises:
            UserError: a file changed while it was read; nothing of this look is kept.
        """
        known = self._passed | {(file.stream, file.path) for file in self.landed()}
        pieces = [
            Piece(stream, pinned(file))
            for stream in self.pipeline.streams
            for file in self._files(stream)
            if (stream.name, file.name) not in known
        ]
        self._looked = True
        if pieces:
            self._put_aside(pieces)

    def landed(self) -> list[Landed]:
        """The files of all batches that are kept, in the order in which they came."""
        here = {int(p.name.removeprefix("batch=")): p for p in (self.folder / "batches").glob("batch=*")}
        for gone in self._landed.keys() - here.keys():
            del self._landed[gone]
        for batch in sorted(here.keys() - self._landed.keys()):
            rows = pq.read_table(here[batch] / "landed.parquet").to_pylist()
            # Those of before there was a column for it had no other arrivals.
            self._landed[batch] = [Landed(**{"trusted_us": row["last_us"], **row}) for row in rows]
        return [file for batch in sorted(self._landed) for file in self._landed[batch]]

    def taken(self, files: Sequence[Landed]) -> ParseResult:
        """The parts of the batches that hold these files."""
        together = ParseResult()
        for batch in sorted({file.batch for file in files}):
            parts = json.loads((self._batch(batch) / "parts.json").read_text())
            together.tuples += [_part(self._batch(batch), one) for one in parts["tuples"]]
            together.refused += [_part(self._batch(batch), one) for one in parts["refused"]]
        return together

    def landed_empty(self, pattern: str) -> bool:
        """Whether a file without content stands for a period: such files make no batch.

        One that has only just been made may be about to be written.
        """
        ages = [time.time() - status.st_mtime for _, status in matching(pattern, {}) if status.st_size == 0]
        return bool(ages) and min(ages) >= self._every_s

    def arrivals_us(self, file: Landed) -> npt.NDArray[np.int64]:
        """When the file's good records arrived."""
        return _arrivals_us(self.taken([file]), file.stream, file.path)

    def forget(self, landed: Sequence[Landed], until_us: int) -> None:
        """Remove the batches in which nothing arrived at ``until_us`` or later."""
        needed = {
            file.batch
            for file in landed
            if (file.period_end_us is not None and file.period_end_us > until_us)
            or (file.last_us is not None and file.last_us >= until_us)
        }
        gone = [file for file in landed if file.batch not in needed]
        # Files of a period that is over are not looked at any more; the others are there for ever.
        self._passed |= {(file.stream, file.path) for file in gone if file.period_start_us is None}
        partial = self.folder / f"{_SEEN}.partial"
        partial.write_text(json.dumps(sorted(self._passed)))
        os.replace(partial, self.folder / _SEEN)
        for batch in {file.batch for file in gone}:
            aside = self.folder / f"_{batch}"
            os.rename(self._batch(batch), aside)
            shutil.rmtree(aside, ignore_errors=True)

    def _batch(self, number: int) -> Path:
        return self.folder / "batches" / f"batch={number:09d}"

    def _files(self, stream: Stream) -> Iterator[SourceFile]:
        """Those that matter, as they are now."""
        named = pattern_unit(stream.path) is not None
        for path, status in matching(landing_glob(stream.path), {}):
            period: tuple[int | None, int | None] | None
            period = period_of(stream.path, str(path)) if named else (None, None)
            if period is None or path.name.startswith((".", "_")) or not status.st_size:
                continue
            file = source_file(path, status, period[0], period[1], fixed_folder(stream.path))
            if period[1] is not None and period[1] <= self.since_us:
                if (stream.name, file.name) not in self._passed:
                    self._passed.add((stream.name, file.name))
                    known = any(own.path == file.name for own in self.landed())
                    if self._looked and not known:
                        self._say(
                            f"{stream.name}: {path} landed after the end of its interval: run that interval again"
                        )
                continue
            yield file

    def _put_aside(self, pieces: Sequence[Piece]) -> None:
        number = max([self.last_batch, *self._landed]) + 1
        aside = self.folder / f"_{number:09d}"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        length_us = self.pipeline.interval_s * 1_000_000
        task = ParseTask(tuple(pieces), -_FOREVER_US, _FOREVER_US, str(aside), length_us)
        taken = parse_pieces(Slice(0, task))
        growing = [piece.file.name for piece in pieces if piece.file.changed()]
        if growing:
            shutil.rmtree(aside)
            raise UserError(
                f"{growing[0]} changed while it was read ({len(growing)} such files): a live run reads a file once, "
                "so write it under another name and rename it when it is complete; then start again"
            )
        for report in taken.reports:
            if report.status == "unreadable":
                self._say(f"{report.stream}: unreadable file {report.file.name}: {report.error}")
        landed = [_landed(self.pipeline, number, report, taken) for report in taken.reports]
        rows = pa.Table.from_pylist([vars(file) for file in landed], schema=LANDED_SCHEMA)
        pq.write_table(rows, aside / "landed.parquet")
        parts = {"tuples": [_saved(p) for p in taken.tuples], "refused": [_saved(p) for p in taken.refused]}
        (aside / "parts.json").write_text(json.dumps(parts))
        os.rename(aside, self._batch(number))


def _saved(part: Part) -> dict[str, Any]:
    files = [{**asdict(file), "path": str(file.path)} for file in part.files]
    return {**vars(part), "path": os.path.basename(part.path), "files": files}


def _part(folder: Path, saved: dict[str, Any]) -> Part:
    files = tuple(SourceFile(**{**file, "path": place(file["path"])}) for file in saved["files"])
    starts = tuple(saved.get("starts", [0] * len(files)))
    return replace(Part(**{**saved, "files": files, "starts": starts}), path=str(folder / saved["path"]))


def _landed(pipeline: Pipeline, batch: int, report: PieceReport, taken: ParseResult) -> Landed:
    """What there is to say of a file."""
    file = report.file
    first_us = last_us = trusted_us = None
    if file.period_start_us is not None and file.period_end_us is not None:
        first_us, last_us = file.period_start_us, file.period_end_us - 1
        trusted_us = last_us
    elif report.status == "ok":
        arrivals_us = _arrivals_us(taken, report.stream, file.name)
        if len(arrivals_us):
            first_us, last_us = int(arrivals_us.min()), int(arrivals_us.max())
            latest_us = file.modified_us + pipeline.stream(report.stream).max_early_s * 1_000_000
            trusted = arrivals_us[arrivals_us <= latest_us]
            trusted_us = int(trusted.max()) if len(trusted) else None
        elif report.refused and not report.accepted:
            first_us = last_us = trusted_us = file.modified_us
    own = file.name, file.bytes, file.modified_us, file.period_start_us, file.period_end_us
    return Landed(batch, report.stream, *own, report.status, first_us, last_us, trusted_us)


def _arrivals_us(taken: ParseResult, stream: str, name: str) -> npt.NDArray[np.int64]:
    found = [np.empty(0, dtype=np.int64)]
    for part in taken.tuples:
        if part.stream == stream:
            table = part.read(["arrival_time", FILE])
            others = frozenset(file.name for file in part.files if file.name != name)
            found.append(instants_us(table.column("arrival_time"))[kept(part, table, others)])
    return np.concatenate(found)
