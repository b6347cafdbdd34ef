"""Which records are tuples, and why the others are not. Pure: no Spark, no disk.

There are two judges. ``by_record`` looks at one record and is the definition. ``by_column`` looks at a whole block,
and says of which records it is sure that they are good; of these it gives the same values. What is left goes to
``by_record``. That both agree on every record, reason and value is a property test.

In this order, the first that applies is the reason: broken_record, unknown_column, then column by column missing_value,
wrong_type, non_finite; then too_early of the arrival that it claims; then too_early, too_late, outside_file_interval.
(duplicate_id needs other records.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.declarations.models import Stream
from tidegate.sources.files import SourceFile
from tidegate.sources.layout import layout_of
from tidegate.values.base import (
    Day,
    Mask,
    Moment,
    Nested,
    NotFiniteError,
    NotOfTypeError,
    RawValue,
    Typed,
    Untyped,
    nulls_of,
    valid,
)
from tidegate.values.types import TIMESTAMP

_MOST_SHOWN = 100
Instants = npt.NDArray[np.int64]
"""Microseconds since 1970-01-01 UTC."""


@dataclass(frozen=True)
class Record:
    """A record as it was read: column → value (those that are not there may lack), and what else is at its top."""

    values: Mapping[str, RawValue]
    others: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Verdict:
    """On one record. ``reason`` None: it is a tuple, of these ``values`` (declared column → value).

    ``arrival_us``: when it arrived, as far as it can be told, None if not. ``detail``: of a value that is not of its
    type, how it is written; of one that is too early or late, by how many seconds.
    """

    reason: str | None
    column: str | None
    arrival_us: int | None
    values: Mapping[str, Typed]
    detail: str | None = None


def by_record(
    stream: Stream, file: SourceFile, record: Record | None, arrived_us: int | None = None, too_early: bool = False
) -> Verdict:
    """The verdict on one record.

    Args:
        stream: what is declared.
        file: which file the record is of: its period, and when it landed.
        record: as it was read; None: it is none.
        arrived_us: when it arrived, if that is known, whatever its arrival column or its file says.
        too_early: whether it claims an arrival that cannot be.
    """
    landed_us = file.modified_us if stream.arrival_time is None else None
    landed_us = landed_us if arrived_us is None else arrived_us
    if record is None:
        return Verdict("broken_record", None, landed_us, {})
    layout = layout_of(stream)
    values: dict[str, Typed] = {}
    problem: tuple[str | None, str | None] = None, None
    detail = None
    if layout.refuses_others and record.others:
        problem = "unknown_column", min(record.others)
    for field in layout.fields:
        name, reason = field.column.name, None
        raw = record.values.get(name)
        try:
            values[name] = field.values.read(raw)
            if raw is None and field.required:
                reason = "missing_value"
        except NotOfTypeError:
            values[name], reason = None, "wrong_type"
        except NotFiniteError:
            values[name], reason = None, "non_finite"
        if reason is not None and problem[0] is None:
            problem, detail = (reason, name), _written(raw)
    arrival_us: Typed = landed_us
    if landed_us is None and stream.arrival_time is not None:
        arrival_us = values[stream.arrival_time]
    event_us = values[stream.event_time]
    if problem[0] is None and too_early:
        problem = "too_early", stream.arrival_time
    elif problem[0] is None:
        assert isinstance(arrival_us, int) and isinstance(event_us, int)
        problem = _untimely(stream, file, event_us, arrival_us)
        detail = str(abs(event_us - arrival_us) // 1_000_000)
    return Verdict(*problem, arrival_us, values, detail)  # type: ignore[arg-type]


def _written(raw: RawValue) -> str | None:
    """A value as it is written, as far as it is short; of an object or a list which of them it is."""
    if isinstance(raw, Nested):
        return raw.text[:_MOST_SHOWN] or "{…}"
    return None if raw is None or isinstance(raw, Moment | Day | Untyped) else str(raw)[:_MOST_SHOWN]


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


@dataclass(frozen=True)
class Columns:
    """A block's records, typed: declared column → values.

    ``arrival``: timestamps. ``good``: which are sure to be tuples, bool[n].
    """

    typed: dict[str, pa.Array]
    arrival: pa.Array
    good: Mask


def by_column(
    stream: Stream,
    file: SourceFile,
    rows: int,
    raw: Mapping[str, pa.Array],
    arrived_us: Instants | None = None,
    too_early: Mask | None = None,
) -> Columns:
    """A block's records in their types, and which of them are good for sure.

    ``raw``: declared column → values, in text or a type of the file's; those that it lacks are NULL. That no record has
    another column, where these are refused, is known. ``arrived_us``, ``too_early``: as in
    ``by_record``, of each.
    """
    doubtful = np.zeros(rows, dtype=bool)
    typed: dict[str, pa.Array] = {}
    for field in layout_of(stream).fields:
        name = field.column.name
        if name in raw:
            typed[name], wrong = field.values.column(raw[name])
            doubtful |= wrong
        else:
            typed[name] = nulls_of(field.column.type, rows)
        if field.required and typed[name].null_count:
            doubtful |= ~valid(typed[name])
        suspects = field.values.suspects(typed[name])
        if suspects is not None:
            doubtful |= suspects
    event_us = _us(typed[stream.event_time])
    if arrived_us is not None or stream.arrival_time is None:
        arrival_us = np.full(rows, file.modified_us, np.int64) if arrived_us is None else arrived_us
        arrival = pa.array(arrival_us).cast(TIMESTAMP)
    else:
        arrival = typed[stream.arrival_time]
        arrival_us = _us(arrival)
    early_us = event_us - arrival_us
    doubtful |= (early_us > stream.max_early_s * 1_000_000) | (early_us < -stream.max_late_s * 1_000_000)
    if file.period_start_us is not None and file.period_end_us is not None:
        doubtful |= (arrival_us < file.period_start_us) | (arrival_us >= file.period_end_us)
    if too_early is not None:
        doubtful |= too_early
    return Columns(typed, arrival, ~doubtful)


def _us(instants: pa.Array) -> np.ndarray:
    return np.asarray(instants.cast(pa.int64()).fill_null(0))
