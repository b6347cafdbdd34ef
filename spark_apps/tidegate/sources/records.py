"""Blocks of records to tuples and refused records: whole where all is well, else record by record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.declarations.models import Stream
from tidegate.declarations.tables import STREAM_KEYS, event_schema
from tidegate.sources import parquet, parse
from tidegate.sources.blocks import Block, text_of
from tidegate.sources.columns import from_values
from tidegate.sources.files import SourceFile
from tidegate.sources.judge import Verdict, by_column, by_record
from tidegate.sources.values import Given

AT = "_at"
_PARTS = 16
_FEW_LINES = 48


@dataclass(frozen=True)
class Refused:
    """A refused record: the verdict, where it is (octet of the line, number of the row), and its text."""

    verdict: Verdict
    at: int
    text: str


@dataclass
class Judged:
    """What became of records. ``tuples``: tables of ``event_schema`` with ``_at``, int64: where the record is."""

    tuples: list[pa.Table]
    refused: list[Refused]

    @property
    def records(self) -> int:
        """How many there were."""
        return sum(int(table.num_rows) for table in self.tuples) + len(self.refused)


def judge_lines(
    stream: Stream, file: SourceFile, block: Block, header: tuple[str, ...], judged: Judged, whole: bool = True
) -> None:
    """Judge a block of JSON lines or CSV. ``whole`` False: record by record at once."""
    lines = len(block.starts)
    if not lines:
        return
    table = _table(stream, block, header) if whole else None
    if table is not None:
        tuples, good = by_column(stream, file, table)
        _keep(tuples, good, block.starts + block.offset, judged)
        doubtful = np.flatnonzero(~good).tolist()
    elif whole and lines > _FEW_LINES:
        cuts = [lines * i // _PARTS for i in range(_PARTS + 1)]
        for first, last in zip(cuts, cuts[1:], strict=False):
            judge_lines(stream, file, block.lines(first, last), header, judged)
        return
    else:
        doubtful = list(range(lines))
    fields = _fields(stream, header)
    _judge_each(
        stream,
        file,
        [fields(block.line(i)) for i in doubtful],
        [int(block.starts[i]) + block.offset for i in doubtful],
        lambda i: text_of(block.line(doubtful[i])),
        judged,
    )


def judge_rows(
    stream: Stream, file: SourceFile, first: int, rows: pa.Table, judged: Judged, whole: bool = True
) -> None:
    """Judge rows of a Parquet file, of which the first is number ``first``."""
    at = np.arange(first, first + rows.num_rows)
    known = set(rows.column_names) <= {c.name for c in stream.columns}
    table = parquet.plain(rows) if whole and known else None
    if table is not None:
        tuples, good = by_column(stream, file, table)
        _keep(tuples, good, at, judged)
        doubtful = np.flatnonzero(~good)
    else:
        doubtful = np.arange(rows.num_rows)
    if not len(doubtful):
        return
    given = parquet.givens(rows, doubtful.tolist()) if rows.num_columns else [{} for _ in doubtful]
    _judge_each(stream, file, given, at[doubtful].tolist(), lambda i: parquet.record_text(given[i]), judged)


def _table(stream: Stream, block: Block, header: tuple[str, ...]) -> pa.Table | None:
    return parse.csv_table(stream, block, header) if stream.format == "csv" else parse.json_table(stream, block)


def _fields(stream: Stream, header: tuple[str, ...]) -> Callable[[bytes], Mapping[str, Given] | None]:
    return (lambda line: parse.csv_fields(line, header)) if stream.format == "csv" else parse.json_fields


def _keep(tuples: pa.Table, good: np.ndarray, at: np.ndarray, judged: Judged) -> None:
    tuples = tuples.append_column(AT, pa.array(at, pa.int64()))
    kept = tuples if good.all() else tuples.filter(pa.array(good))
    if kept.num_rows:
        judged.tuples.append(kept)


def _judge_each(
    stream: Stream,
    file: SourceFile,
    given: Sequence[Mapping[str, Given] | None],
    at: Sequence[int],
    text: Callable[[int], str],
    judged: Judged,
) -> None:
    good: list[tuple[int, Verdict]] = []
    for i, record in enumerate(given):
        verdict = by_record(stream, file, record)
        if verdict.reason is None:
            good.append((at[i], verdict))
        else:
            judged.refused.append(Refused(verdict, at[i], text(i)))
    if not good:
        return
    kinds = {c.name: c.type for c in stream.columns}
    by_name = {name: from_values(kinds[name], [v.values[name] for _, v in good]) for name in kinds}
    arrival = from_values("timestamp", [v.arrival_us for _, v in good])
    own = [by_name[stream.id[0]].cast(pa.string()), by_name[stream.event_time], arrival]
    own += [by_name[name] for name in kinds if name not in STREAM_KEYS]
    table = pa.table(own, schema=event_schema(stream))
    judged.tuples.append(table.append_column(AT, pa.array([place for place, _ in good], pa.int64())))
