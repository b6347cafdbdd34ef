"""A first continuous query of a stream: how many records, and a number worth knowing, by a column of few values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.declarations.names import ANSWER_COLUMNS, refusal
from tidegate.declarations.units import show_duration
from tidegate.guess import words
from tidegate.guess.clock import LATE_SHARE, Clock, window_s
from tidegate.guess.columns import Seen
from tidegate.guess.proposal import StreamProposal
from tidegate.values.types import is_decimal, is_number

_FEW = 50
PROMISED_ERROR = "10%"


@dataclass(frozen=True)
class FirstQuery:
    """One query: the name of its file, its text, and whether it promises something."""

    id: str
    text: str
    promises: bool


def first_queries(stream: StreamProposal, clock: Clock) -> Iterator[FirstQuery]:
    """Queries that make sense for the stream, the best first, the last one only counts."""
    numbers = sorted(
        (c for c in stream.schema.columns if _interest(c, stream) > 0), key=lambda c: -_interest(c, stream)
    )
    group = _group(stream)
    for number in [*numbers[:3], None]:
        yield _query(stream, clock, number, group)
    yield _query(stream, clock, None, None)


def _query(stream: StreamProposal, clock: Clock, number: Seen | None, group: Seen | None) -> FirstQuery:
    range_s, slide_s = window_s((stream.span[1] - stream.span[0]) / 1e6, stream.rate, clock)
    by = stream.column(group) if group is not None else ""
    outputs, title = [*([by] if by else []), "COUNT(*) AS records"], "Records"
    if number is not None:
        name = stream.column(number)
        if _adds(number):
            outputs.append(f"SUM({name}) AS {_alias('sum', name)}")
            title = f"Records and the sum of {name}"
        else:
            outputs.append(f"AVG({name}) AS {_alias('mean', name)}")
            title = f"Records and the mean {name}"
    positive = number is None or all(us >= 0 for us in _floats(number))
    promises = stream.late.share >= LATE_SHARE and positive and stream.times.event is not stream.times.arrival
    lines = [f"-- {title} of the last {show_duration(range_s)}{f' by {by}' if by else ''}.", "--"]
    if promises:
        lines += [
            f"-- ERROR {PROMISED_ERROR}: Tidegate waits for late records, as long as it takes for every value to be",
            f"-- within {PROMISED_ERROR} of its final one in at least 95 % of a day's windows.",
        ]
    else:
        lines += [
            "-- Nothing is promised, so nothing is waited for: the answer is what was known when the window ended."
        ]
    lines += [f"SELECT {', '.join(outputs)}", f"FROM {stream.name} [RANGE {_upper(range_s)}]"]
    lines.append(f"GROUP BY {by}" if by else "HAVING COUNT(*) > 0")
    lines.append((f"ERROR {PROMISED_ERROR} " if promises else "") + f"EVERY {_upper(slide_s)}")
    return FirstQuery(
        f"{stream.name[:40]}_by_{by.lower()}"[:63] if by else f"{stream.name[:50]}_count",
        "\n".join(lines) + "\n",
        promises,
    )


def _upper(seconds: int) -> str:
    return show_duration(seconds).upper()


def _alias(ahead: str, name: str) -> str:
    alias = f"{ahead}_{name}"[:63]
    return alias if refusal(alias, "answer") is None and alias.lower() not in ANSWER_COLUMNS else f"{ahead}_value"


def _adds(column: Seen) -> bool:
    return bool(column.words & words.SUMS) and not column.words & words.MEANS


def _floats(column: Seen) -> list[float]:
    numbers = []
    for value in column.present:
        try:
            numbers.append(float(str(value).replace(",", ".")))
        except ValueError:
            continue
    return numbers


def _interest(column: Seen, stream: StreamProposal) -> float:
    """How much a number is worth knowing; 0: not at all."""
    named = column.words
    unable = not is_number(column.type) or refusal(stream.column(column), "alias") is not None
    if unable or column in stream.identity.columns:
        return 0
    if named & (words.IDS | words.PLACES | words.PARTS | words.DEVICES) and not named & (words.MONEY | words.SUMS):
        return 0
    score = 3.0 * bool(named & words.MONEY) + 2.0 * bool(named & (words.SUMS | words.MEANS)) + 1.0
    score += (0.5 if column.type == "double" or is_decimal(column.type) else 0.0) + column.fill
    score += 0.5 * ("total" in named) + 0.25 * ("amount" in named)
    return score if len(column.distinct) > 1 else score / 10


def _group(stream: StreamProposal) -> Seen | None:
    """The column to group by: text or truth with few values that come again and again."""
    able = []
    for number, column in enumerate(stream.schema.columns):
        few = 2 <= len(column.distinct) <= min(_FEW, max(len(column.present) // 5, 2))
        coded = column.type == "integer" and bool(
            column.words & (words.IDS | words.DEVICES | {"type", "status", "vendor"})
        )
        if not few or (column in stream.identity.columns and not column.words & words.DEVICES):
            continue
        if column.time is not None or not (column.type in ("string", "boolean") or coded):
            continue
        name = stream.column(column)
        if name.lower() in (*ANSWER_COLUMNS, "records") or refusal(name, "alias"):
            continue
        rank = {"string": 1, "integer": 2, "boolean": 3}[column.type] - 3 * bool(column.words & words.GROUPS)
        able.append((rank, len(column.path), -round(column.fill, 1), number, column))
    return min(able, key=lambda item: item[:4])[-1] if able else None
