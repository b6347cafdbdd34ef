"""A query's answers, by Tidegate's operators and by DuckDB's brute force of :mod:`infra.oracle`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from infra.oracle.answers import Comparison, Row, aggregate_sql, arrow, compare, register, top_k_sql
from infra.oracle.schedule import ExpectedWindow, connect
from tests.oracle.streams import BEGIN, STREAMS

from tidegate.declarations.models import Query, to_us
from tidegate.declarations.positions import Report, Source
from tidegate.declarations.query_parser import parse_query
from tidegate.operators.schedule import Schedule
from tidegate.queries.questions import Answering, Question, pooled
from tidegate.queries.scan import EventFiles

MINUTE_US = 60_000_000
CUTS = ("whole", "keys", "pooled")


class NotTakenError(Exception):
    """The query is refused."""


def parse(text: str) -> Query:
    """A query on the streams x and y; NotTakenError with the mistakes if it is refused."""
    report = Report(Source(Path("q.sql"), text))
    query = parse_query("q", report, STREAMS, 5 * MINUTE_US)
    if query is None:
        raise NotTakenError("; ".join(str(mistake) for mistake in report.mistakes))
    return query


def schedules(query: Query, slack: int, held: int) -> tuple[Schedule, np.ndarray, list[ExpectedWindow]]:
    """Windows that hold the last ``held`` tenths of their ranges, and are answered ``slack`` minutes later."""
    ends = np.arange(5, 45, 5, dtype=np.int64) * MINUTE_US + to_us(BEGIN)
    widths = {w.alias: round(w.range_s * 1e6) * held // 10 for w in query.windows}
    lower = {alias: ends - width for alias, width in widths.items()}
    coverage = (held / 10.0) ** len(widths)
    expected = [
        ExpectedWindow(
            window_end=datetime.fromtimestamp(end / 1e6, UTC),
            emitted_at=datetime.fromtimestamp(end / 1e6, UTC) + timedelta(minutes=slack),
            slack_s=60.0 * slack,
            lower={alias: datetime.fromtimestamp((end - width) / 1e6, UTC) for alias, width in widths.items()},
            width_s={},
            range_s={},
            coverage=coverage,
            support_level="A",
        )
        for end in ends.tolist()
    ]
    return Schedule(ends, ends + slack * MINUTE_US, lower), np.full(len(ends), coverage), expected


def answers(question: Question, cut: str) -> Iterator[pa.Table]:
    """The answers of a question, worked out in one of the ways that there are."""
    if cut == "pooled" and question.query.kind != "top_k":
        yield from Answering(question, pooled([question, question]))
        return
    if cut == "whole" or question.query.kind == "top_k":
        yield from Answering(question)
        return
    with TemporaryDirectory() as folder:
        paths = []
        for index in range(3):
            part = Answering(replace(question, part=(index, 3)))
            paths.append(f"{folder}/part{index}.arrow")
            with pa.ipc.new_file(paths[-1], part.partial_schema) as out:
                for _, _, rows in part.partials():
                    out.write_table(rows)
        yield from Answering(question, partials=paths)


def compared(
    query: Query, text: str, files: Mapping[str, EventFiles], folder: Path, slack: int, held: int, cut: str
) -> Comparison | None:
    """How answers differ from DuckDB's; None where neither has a row. ``folder``: of ``events_x`` and ``events_y``."""
    schedule, coverage, windows = schedules(query, slack, held)
    connection = connect()
    register(connection, query, windows)
    sql = top_k_sql(query, folder) if query.kind == "top_k" else aggregate_sql(query, folder)
    expected = arrow(connection, sql).to_pylist()
    if query.ranks_groups:
        expected = _best(query, expected)
    question = Question(query, schedule, coverage, files, MINUTE_US)
    found = []
    for rows in answers(question, cut):
        for row in rows.to_pylist():
            end = windows[row.pop("_window_index")].window_end
            found.append({"window_end": end, **{n: v for n, v in row.items() if not n.startswith("_")}})
    if not expected and not found:
        return None
    keys = ["window_end", "rank"] if query.kind == "top_k" else ["window_end"]
    return compare(text, found, expected, [*keys, *query.group_outputs], atol=1e-6)


def _best(query: Query, rows: Sequence[Row]) -> list[Row]:
    """The best groups of each window and part, by sorting: NULL last, ties by the groups' columns."""
    parts: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        parts.setdefault((row["window_end"], *(row[name] for name in query.within)), []).append(row)
    assert query.limit is not None
    (order,) = query.order_by
    best = []
    for part in parts.values():
        by_group = sorted(part, key=lambda row: [_ascending(row[name]) for name in query.group_outputs])
        known = [row for row in by_group if row["best"] is not None]
        known.sort(key=lambda row: row["best"], reverse=False)
        if order.descending:
            known = [row for row in sorted(by_group, key=_descending) if row["best"] is not None]
        ranked = known + [row for row in by_group if row["best"] is None]
        best += [{**row, "rank": rank} for rank, row in enumerate(ranked[: query.limit], 1)]
    return best


def _descending(row: Row) -> Any:
    return 0 if row["best"] is None else -row["best"]


def _ascending(value: Any) -> tuple[bool, Any]:
    if isinstance(value, str):
        value = value.encode()
    return value is None, 0 if value is None else value
