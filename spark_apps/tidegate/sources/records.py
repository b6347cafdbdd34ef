"""Batches of records to tuples and refused records: whole where all is well, else record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.declarations.models import Stream
from tidegate.declarations.tables import STREAM_KEYS, event_schema
from tidegate.sources.files import SourceFile
from tidegate.sources.formats.base import Batch, Raw, parts
from tidegate.sources.identity import event_ids
from tidegate.sources.judge import Verdict, by_column, by_record
from tidegate.sources.layout import layout_of
from tidegate.values.base import Mask

POSITION, LINE = "_at", "_line"
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Refused:
    """A refused record: the verdict, where it is in its file, its line within the piece, and its text."""

    verdict: Verdict
    position: int
    line: int
    text: str


@dataclass(frozen=True)
class Tuples:
    """Accepted records: ``rows`` of ``event_schema`` with where each was.

    ``others``: name of a field that no column is read from → which rows have it, None: all of them.
    """

    rows: pa.Table
    others: dict[str, Mask | None]


@dataclass
class Judged:
    """What became of records. ``columns``: those of which any record has a value, good or not."""

    tuples: list[Tuples] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)

    @property
    def accepted(self) -> int:
        """How many tuples there are."""
        return sum(int(one.rows.num_rows) for one in self.tuples)


def judge(stream: Stream, file: SourceFile, batch: Batch, judged: Judged, whole: bool = True) -> None:
    """Judge a batch's records. ``whole`` False: record by record at once."""
    file = batch.file or file
    if not whole:
        _judge_each(stream, file, batch, range(len(batch)), judged)
        return
    for _, part, raw in parts(batch):
        if raw is None:
            _judge_each(stream, file, part, range(len(part)), judged)
        else:
            _judge_at_once(stream, file, part, raw, judged)


def _judge_at_once(stream: Stream, file: SourceFile, batch: Batch, raw: Raw, judged: Judged) -> None:
    columns = by_column(stream, file, len(batch), raw.columns, batch.arrival_us, batch.too_early)
    good = columns.good
    judged.columns |= {name for name, values in raw.columns.items() if values.null_count < len(values)}
    rows = _table(stream, file, columns.typed, columns.arrival, batch.positions, batch.lines)
    others = {name: there for name, there in raw.others}
    if not good.all():
        rows = rows.filter(pa.array(good))
        others = {name: None if there is None else there[good] for name, there in others.items()}
    if rows.num_rows:
        judged.tuples.append(Tuples(rows, others))
    _judge_each(stream, file, batch, np.flatnonzero(~good).tolist(), judged)


def _judge_each(stream: Stream, file: SourceFile, batch: Batch, rows: Sequence[int], judged: Judged) -> None:
    good: list[tuple[int, Verdict, frozenset[str]]] = []
    for row in rows:
        record = batch.record(row)
        arrived_us = None if batch.arrival_us is None else int(batch.arrival_us[row])
        too_early = batch.too_early is not None and bool(batch.too_early[row])
        verdict = by_record(stream, file, record, arrived_us, too_early)
        if record is not None and len(judged.columns) < len(stream.columns):
            judged.columns |= {name for name, value in record.values.items() if value is not None}
        if verdict.reason is None and record is not None:
            good.append((row, verdict, record.others))
        else:
            judged.refused.append(Refused(verdict, int(batch.positions[row]), int(batch.lines[row]), batch.text(row)))
    if not good:
        return
    fields = layout_of(stream).fields
    typed = {f.column.name: f.values.of([v.values[f.column.name] for _, v, _ in good]) for f in fields}
    arrival = pa.array([v.arrival_us for _, v, _ in good], pa.int64())
    places = np.array([row for row, _, _ in good])
    table = _table(stream, file, typed, arrival, batch.positions[places], batch.lines[places])
    names = sorted(set().union(*(others for _, _, others in good)))
    judged.tuples.append(Tuples(table, {n: np.array([n in others for _, _, others in good]) for n in names}))


def _table(
    stream: Stream, file: SourceFile, typed: dict[str, pa.Array], arrival: pa.Array, positions: Int64s, lines: Int64s
) -> pa.Table:
    schema = event_schema(stream)
    places = pa.array(positions, pa.int64())
    keys = [event_ids(stream, file, typed, places), typed[stream.event_time], arrival.cast(schema.types[2])]
    columns = keys + [typed[c.name] for c in stream.columns if c.name not in STREAM_KEYS]
    table = pa.table(columns, schema=schema)
    return table.append_column(POSITION, places).append_column(LINE, pa.array(lines, pa.int64()))
