"""Which columns say when a thing happened, when its record arrived, and which record it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from tidegate.declarations.errors import UserError
from tidegate.guess import words
from tidegate.guess.columns import Seen
from tidegate.guess.records import Steps, Topic
from tidegate.guess.written_times import TimeFormat

STAMP: Steps = ("$timestamp", "$broker")
"""The path of Kafka's timestamp as an arrival time, which is no column of the stream."""
BROKER = "broker"
NO_ID_OF_TOPIC = "no column, nor two or three that are named so, identifies a record: its partition and offset do"
_SENT: Steps = ("$timestamp",)
_FULL = 0.99
_NEARLY = 0.94
_MOSTLY = 0.97
"""The share of records that have an id of their own, if a few came twice."""
_LEAST_RECORDS = 10
_SOON_US = 60_000_000
_MOST_PARTS = 8
_TIME_OF_DAY = re.compile(r"\d{1,2}:\d\d(:\d\d([.,]\d+)?)?")


@dataclass(frozen=True)
class Times:
    """The two times of a stream; the same column twice if there is but one. ``why``: what was seen of each."""

    event: Seen
    arrival: Seen
    why_event: str
    why_arrival: str


@dataclass(frozen=True)
class Identity:
    """The columns that identify a record; none: its place does."""

    columns: tuple[Seen, ...]
    why: str


def times_of(columns: Sequence[Seen], about: str) -> Times:
    """The event time and the arrival time.

    Raises:
        UserError: no column holds times in nearly all records; ``about`` names the data.
    """
    times = [column for column in columns if column.time is not None]
    full = [column for column in times if _filled(column) >= _FULL] or [c for c in times if _filled(c) >= 0.9]
    if not full:
        raise UserError(_no_time(columns, times, about))
    event = max(full, key=lambda column: (_event_score(column), -_median(column), -full.index(column)))
    arrival, why = _arrival(event, [column for column in full if column is not event])
    others = [c.shown for c in full if c is not event and c is not arrival]
    also = f" (also times: {', '.join(others[:5])})" if others else ""
    named = "named so" if event.words & (words.EVENTS | words.TIMES) else "the earliest of the times"
    return Times(event, arrival, ("the one column of times" if len(full) == 1 else named) + also, why)


def times_of_topic(columns: Sequence[Seen], topic: Topic) -> tuple[tuple[Seen, ...], Times]:
    """The event time and the arrival time of a topic's records, and the columns with what is added to them.

    Where no column says when a record arrived, Kafka's timestamp does; where none says when it happened, that as well.
    """
    how = TimeFormat("epoch_us", day_only=False, local=False, share=1.0)
    stamp = Seen(STAMP, topic.stamps, "timestamp", how, "Kafka's timestamp")
    try:
        times = times_of(columns, topic.name)
    except UserError:
        sent = Seen(_SENT, topic.stamps, "timestamp", how, "Kafka's timestamp: no field says when a record happened")
        return (*columns, sent), Times(sent, stamp, "no field of the values is a time", "Kafka's timestamp")
    if times.arrival is not times.event:
        return tuple(columns), replace(times, why_arrival=f"{times.why_arrival}; or broker: Kafka's timestamp")
    return tuple(columns), replace(times, arrival=stamp, why_arrival="Kafka's timestamp: no field says it")


def _no_time(columns: Sequence[Seen], times: Sequence[Seen], about: str) -> str:
    partly = [f"{column.shown} (in {_filled(column):.0%})" for column in times[:5]]
    looked = ", ".join(column.shown for column in columns[:12]) + (", …" if len(columns) > 12 else "")
    return (
        f"no time can be seen in {about}: a stream needs a column that says when each record happened. Looked at were "
        f"{looked or 'no columns'}, for ISO 8601, counts since 1970 (seconds to nanoseconds) and common ways to write "
        "dates" + (f"; times that many records lack: {', '.join(partly)}" if partly else "")
    )


def _filled(column: Seen) -> float:
    return sum(us is not None for us in column.instants) / max(len(column.instants), 1)


def _known(column: Seen) -> list[int]:
    return [us for us in column.instants if us is not None]


def _median(column: Seen) -> int:
    known = sorted(_known(column))
    return known[len(known) // 2]


def disorder(instants: Sequence[int]) -> float:
    """The share of neighbours of which the later comes first.

    >>> disorder([1, 2, 2, 1, 5])
    0.25
    """
    pairs = len(instants) - 1
    return sum(a > b for a, b in zip(instants, instants[1:], strict=False)) / pairs if pairs > 0 else 0.0


def _event_score(column: Seen) -> float:
    named = column.words
    score = 2.0 * bool(named & words.EVENTS) + bool(named & words.TIMES) - 2.0 * bool(named & words.LATER)
    score -= 1.5 * bool(named & words.ARRIVALS)
    score -= 4.0 * (column.type == "date") + 3.0 * (len(column.distinct) == 1 and len(column.values) > 1)
    return score


def _arrival(event: Seen, others: Sequence[Seen]) -> tuple[Seen, str]:
    """The column that says when a record arrived, and why."""
    mess = disorder(_known(event))
    named: list[tuple[float, int, Seen, str]] = []
    for number, column in enumerate(others):
        pairs = [
            (a - e) for e, a in zip(event.instants, column.instants, strict=True) if e is not None and a is not None
        ]
        if not pairs or column.type == "date" or sum(wait >= 0 for wait in pairs) < len(pairs) * _FULL:
            continue
        mixed, called = disorder(_known(column)), bool(column.words & words.ARRIVALS)
        if column.words & words.LATER and not called:
            continue
        soon = mixed <= mess and max(pairs) <= _SOON_US and any(pairs)
        if (called and mixed <= mess + 0.05) or mixed < mess * 0.5 or soon:
            why = "named so" if called else "better ordered" if mixed < mess * 0.5 else "shortly after the event time"
            named.append((-float(called), number, column, f"{why}, never before {event.shown}"))
    if not named:
        return event, "no other time follows it: records arrive as they happen"
    _, _, column, why = min(named, key=lambda item: (item[0], disorder(_known(item[2])), item[1]))
    return column, why


def identity_of(columns: Sequence[Seen], event: Seen) -> Identity:
    """The column or columns that identify a record."""
    kinds = [c for c in columns if c.time is None and c.type in ("string", "integer")]
    able = [c for c in kinds if c.fill >= _FULL and not c.unfit]
    # A few records without it may be broken ones, if it is named so.
    ids = [c for c in kinds if c.words & words.IDS and c.fill * len(c.values) - c.unfit >= _NEARLY * len(c.values)]
    ids.sort(key=lambda c: (_id_rank(c), columns.index(c)))
    for column in ids:
        if len(column.distinct) == len(column.present):
            return Identity((column,), _counted((column,), "in every record another"))
    for column in ids:
        if len(column.distinct) >= len(column.present) * _MOSTLY:
            return Identity(
                (column,), _counted((column,), "nearly always another; those that come again are duplicates")
            )
    for column in able:
        if len(column.present) >= _LEAST_RECORDS and _identifies(column):
            return Identity((column,), _counted((column,), "in every record another"))
    return _together(able, event)


def _id_rank(column: Seen) -> int:
    """Names that speak of the record itself come first."""
    if column.words in ({"id"}, {"id", "oid"}, {"uuid"}, {"guid"}):
        return len(column.path)
    return 10 if column.words & {"event", "message", "transaction", "trade", "order", "uuid"} else 20


def _identifies(column: Seen) -> bool:
    """Whether values that are all different look like ids, not like measurements."""
    if len(column.distinct) < len(column.present):
        return False
    if column.type == "integer":
        if column.words & (words.MONEY | words.SUMS | words.MEANS | words.PLACES):
            return False
        numbers = [int(value) for value in column.present]
        return min(numbers) >= 10**6 or all(a < b for a, b in zip(numbers, numbers[1:], strict=False))
    texts = [str(value) for value in column.present]
    if all(map(_TIME_OF_DAY.fullmatch, texts)):
        return False
    return all(8 <= len(text) <= 64 and " " not in text and any(map(str.isdigit, text)) for text in texts)


def _together(able: Sequence[Seen], event: Seen) -> Identity:
    """Two or three columns that identify a record together."""
    parts = [c for c in able if c.words & (words.IDS | words.PARTS | words.DEVICES)][:_MOST_PARTS]
    sets: list[tuple[Seen, ...]] = [
        some for size in (2, 3) for some in combinations(parts, size) if any(c.words & words.PARTS for c in some)
    ]
    devices = [c for c in able if c.words & words.DEVICES and len(c.distinct) > 1]
    sets += [(column, event) for column in devices if event.type in ("timestamp", "date")]
    for least in (1.0, _MOSTLY):
        for some in sets:
            if event in some and least < 1:
                continue
            rows: list[Any] = list(zip(*(column.values for column in some), strict=True))
            if len(rows) >= _LEAST_RECORDS and len(set(rows)) >= len(rows) * least:
                what = "together in every record others" if least == 1 else "together nearly always others"
                return Identity(some, _counted(some, what))
    return Identity(
        (), "no column, nor two or three that are named so, identifies a record: its place in its file does"
    )


def _counted(columns: Sequence[Seen], what: str) -> str:
    return f"{what} (of {len(columns[0].present):,})"
