"""What `tidegate run` shows at its end of each query: its newest answer."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from tidegate.declarations.models import Query
from tidegate.readable import duration
from tidegate.store.intervals import Interval
from tidegate.store.warehouse import Warehouse

ROWS_SHOWN = 12
_NARROWEST = 8
_GAP = "  "
TIED = "~"
"""Stands for a blank at which no line is broken."""


def newest_answers(warehouse: Warehouse, intervals: Sequence[Interval], stages: Sequence[str], width: int) -> str:
    """Of every query that the stages answered, the newest window that has rows.

    ``width``: columns of the screen; no line is longer than that, except words that cannot be cut. Plain text, whatever
    it is printed to. Cost: reads one partition of answers a query.
    """
    labels = [interval.label for interval in intervals]
    parts: list[str] = []
    for query in warehouse.pipeline.queries:
        if ("top_k" if query.kind == "top_k" else "join_aggregate") in stages:
            parts.append(_answer(warehouse, query, labels, width))
    return "\n".join(part for part in parts if part)


def _answer(warehouse: Warehouse, query: Query, labels: Sequence[str], width: int) -> str:
    title = f"{query.id}: {_first_paragraph(query.description)}" if query.description else query.id
    lines = wrapped(title, width)
    rows = _newest(warehouse, query, labels)
    if not rows:
        lines += wrapped("no answer has a row in these intervals", width - 2, "  ")
        return "".join(f"{line}\n" for line in lines)
    lines += wrapped(_about(rows[0]), width - 2, "  ")
    keys = query.row_keys if query.kind == "top_k" else (*query.within, "rank") if query.ranks_groups else ()
    columns = list(dict.fromkeys([*keys, *(output.name for output in query.outputs)]))
    lines += [f"  {line}" for line in table(rows[:ROWS_SHOWN], columns, width - 2)]
    if len(rows) > ROWS_SHOWN:
        lines.append(f"  … and {len(rows) - ROWS_SHOWN} more rows")
    return "".join(f"{line}\n" for line in lines)


def _newest(warehouse: Warehouse, query: Query, labels: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of the newest window that has any, in the order in which an analyst expects them."""
    name = f"answers_{query.id}"
    for label in sorted(labels, reverse=True):
        if not warehouse.rows(name, label):
            continue
        rows = warehouse.read_arrow(name, [label])
        newest = max(rows.column("window_end").to_pylist())
        mine = [row for row in rows.to_pylist() if row["window_end"] == newest]
        keys = query.row_keys if query.kind == "top_k" else tuple(o.name for o in query.outputs)
        keys = (*query.within, "rank") if query.ranks_groups else keys
        return sorted(mine, key=lambda row: [(row[key] is None, row[key]) for key in keys])
    return []


def _about(row: dict[str, Any]) -> str:
    """When the window ended, when it was answered, and how much of it was held."""
    text = f"window ending {show(row['window_end'])} UTC, answered"
    text += f" {duration(row['slack_s'])} later" if row["slack_s"] else " at once"
    if row["coverage"] >= 1:
        return f"{text}, held in full"
    text += f", {row['coverage']:.1%} held"
    return f"{text} (level {row['support_level']})" if len(row["support_level"]) == 1 else f"{text} (memory is short)"


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str], width: int) -> list[str]:
    """Rows as lines of at most ``width`` characters: the widest columns are cut first, then the last are left out.

    >>> rows = [{"country": "DE", "orders": 41.0}, {"country": None, "orders": 7.5}]
    >>> for line in table(rows, ["country", "orders"], 80):
    ...     print(line)
    country  orders
    DE        41.00
    NULL       7.50
    """
    cells = {name: _cells([row[name] for row in rows]) for name in columns}
    right = {name for name in columns if all(_is_number(row[name]) or row[name] is None for row in rows)}
    widths = {name: max(_length(text) for text in [name, *cells[name]]) for name in columns}
    shown = list(columns)
    while len(shown) > 1 and sum(min(widths[n], _NARROWEST) + len(_GAP) for n in shown) - len(_GAP) > width:
        shown.pop()
    while sum(widths[n] + len(_GAP) for n in shown) - len(_GAP) > width:
        widest = max(shown, key=lambda name: (widths[name], name))
        if widths[widest] <= 1:
            break
        widths[widest] -= 1
    lines = [[_fitted(name, widths[name], name in right) for name in shown]]
    lines += [[_fitted(cells[name][i], widths[name], name in right) for name in shown] for i in range(len(rows))]
    text = [_GAP.join(line).rstrip() for line in lines]
    left_out = [name for name in columns if name not in shown]
    return text + (wrapped(f"(no room for {', '.join(left_out)})", width) if left_out else [])


def _cells(values: Sequence[Any]) -> list[str]:
    """A column's values; numbers alike in their decimals, so that they can be compared at a glance."""
    numbers = [value for value in values if isinstance(value, float) and value]
    if all(value.is_integer() for value in numbers) or any(not 1 <= abs(value) < 1e12 for value in numbers):
        return [show(value) for value in values]
    return [f"{value:.2f}" if isinstance(value, float) else show(value) for value in values]


def show(value: Any) -> str:
    r"""A value as people read it, on one line.

    >>> show(12.0), show(3.14159), show(None), show(datetime(2026, 1, 5, 12, 30, tzinfo=UTC)), show("a\tb")
    ('12', '3.14', 'NULL', '2026-01-05 12:30', 'a\\tb')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        value = value.astimezone(UTC)
        return f"{value:%Y-%m-%d %H:%M:%S}" if value.second or value.microsecond else f"{value:%Y-%m-%d %H:%M}"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 1e15:
            return f"{value:.0f}"
        return f"{value:.2f}" if 1 <= abs(value) < 1e12 else f"{value:.3g}"
    # A control character in the data must not reach the terminal.
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _length(text: str) -> int:
    """Columns on the screen: an East Asian character takes two, a combining one none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _fitted(text: str, width: int, right: bool) -> str:
    if _length(text) > width:
        while text and _length(text) > width - 1:
            text = text[:-1]
        text += "…"
    room = " " * (width - _length(text))
    return room + text if right else text + room


def _first_paragraph(description: str) -> str:
    return " ".join(description.strip().split("\n\n")[0].split())


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """The words of a text in lines of at most ``width``."""
    lines, line = [], ""
    for word in show(text).split(" "):
        if line and _length(line) + 1 + _length(word) > width:
            lines.append(indent + line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, indent + line] if line else lines
