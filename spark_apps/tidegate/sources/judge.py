"""Which records are tuples, and why the others are not. Pure: no Spark, no disk.

There are two judges. ``by_record`` looks at one record and is the definition. ``by_column`` looks at a whole block,
and says of which records it is sure that they are good; of these it gives the same values. What is left goes to
``by_record``. That both agree on every record, reason and value is a property test.

In this order, the first that applies is the reason: broken_record, unknown_column, then column by column missing_value,
wrong_type, non_finite; then too_early, too_late, outside_file_interval. (duplicate_id needs other records.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.declarations.models import Stream
from tidegate.declarations.tables import STREAM_KEYS, event_schema
from tidegate.declarations.types import TIMESTAMP, arrow_type
from tidegate.sources.columns import Mask, typed, valid
from tidegate.sources.files import SourceFile
from tidegate.sources.values import Given, NotFiniteError, NotOfTypeError, Typed, read


@dataclass(frozen=True)
class Verdict:
    """On one record. ``reason`` None: it is a tuple, of these ``values`` (declared column → value).

    ``arrival_us``: when it arrived, as far as it can be told, None if not.
    """

    reason: str | None
    column: str | None
    arrival_us: int | None
    values: Mapping[str, Typed]


def by_record(stream: Stream, file: SourceFile, given: Mapping[str, Given] | None) -> Verdict:
    """The verdict on one record.

    Args:
        stream: what is declared.
        file: which file the record is of: its period, and when it landed.
        given: column → value; None: the record is none.
    """
    landed_us = file.modified_us if stream.arrival_time is None else None
    if not given:
        return Verdict("broken_record", None, landed_us, {})
    values: dict[str, Typed] = {}
    problem: tuple[str | None, str | None] = None, None
    unknown = given.keys() - {c.name for c in stream.columns}
    if unknown:
        problem = "unknown_column", min(unknown)
    required = stream.required
    for column in stream.columns:
        name, found = column.name, None
        value = given.get(name)
        try:
            values[name] = read(column.type, value)
            if value is None and (not column.nullable or name in required):
                found = "missing_value"
        except NotOfTypeError:
            values[name], found = None, "wrong_type"
        except NotFiniteError:
            values[name], found = None, "non_finite"
        if found is not None and problem[0] is None:
            problem = found, name
    arrival_us = landed_us if stream.arrival_time is None else values[stream.arrival_time]
    event_us = values[stream.event_time]
    if problem[0] is None:
        assert isinstance(arrival_us, int) and isinstance(event_us, int)
        problem = _untimely(stream, file, event_us, arrival_us)
    return Verdict(*problem, arrival_us, values)  # type: ignore[arg-type]


def _untimely(stream: Stream, file: SourceFile, event_us: int, arrival_us: int) -> tuple[str | None, str | None]:
    early_us = event_us - arrival_us
    if early_us > stream.max_early_s * 1_000_000:
        return "too_early", stream.event_time
    if early_us < -stream.max_late_s * 1_000_000:
        return "too_late", stream.event_time
    if file.period_start_us is None or file.period_end_us is None:
        return None, None
    if not file.period_start_us <= arrival_us < file.period_end_us:
        return "outside_file_interval", stream.arrival_time
    return None, None


def by_column(stream: Stream, file: SourceFile, given: pa.Table) -> tuple[pa.Table, Mask]:
    """A block's records as tuples (``tables.event_schema``), and which of them are good for sure: bool[n].

    ``given`` has columns of the stream only, in text or a type of the file's; those that it lacks are NULL.
    """
    rows = given.num_rows
    doubtful = np.zeros(rows, dtype=bool)
    required = stream.required
    columns: dict[str, pa.Array] = {}
    for column in stream.columns:
        if column.name in given.column_names:
            found = given.column(column.name)
            found = found.chunk(0) if found.num_chunks == 1 else pa.concat_arrays(found.chunks or [_none(found)])
            columns[column.name], wrong = typed(column.type, found)
            doubtful |= wrong
        else:
            columns[column.name] = pa.nulls(rows, arrow_type(column.type))
        value = columns[column.name]
        if value.null_count and (not column.nullable or column.name in required):
            doubtful |= ~valid(value)
        if column.type == "double":
            doubtful |= ~np.isfinite(np.asarray(value.fill_null(0.0)))
    event_us = _us(columns[stream.event_time])
    if stream.arrival_time is None:
        arrival_us = np.full(rows, file.modified_us, np.int64)
        arrival = pa.array(arrival_us).cast(TIMESTAMP)
    else:
        arrival = columns[stream.arrival_time]
        arrival_us = _us(arrival)
    early_us = event_us - arrival_us
    doubtful |= (early_us > stream.max_early_s * 1_000_000) | (early_us < -stream.max_late_s * 1_000_000)
    if file.period_start_us is not None and file.period_end_us is not None:
        doubtful |= (arrival_us < file.period_start_us) | (arrival_us >= file.period_end_us)
    own = [columns[stream.id[0]].cast(pa.string()), columns[stream.event_time], arrival]
    own += [columns[c.name] for c in stream.columns if c.name not in STREAM_KEYS]
    return pa.table(own, schema=event_schema(stream)), ~doubtful


def _none(chunked: pa.ChunkedArray) -> pa.Array:
    return pa.array([], chunked.type)


def _us(instants: pa.Array) -> np.ndarray:
    return np.asarray(instants.cast(pa.int64()).fill_null(0))
