"""A query's answers, by Tidegate's operators and by DuckDB's brute force of :mod:`infra.oracle`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
from infra.oracle.answers import Comparison, Row, aggregate_sql, arrow, compare, register, relative_error, top_k_sql
from infra.oracle.schedule import ExpectedWindow, connect
from tests.oracle.meanings import GOODS, by_hand, declared, text_by_hand
from tests.oracle.streams import BEGIN

from tidegate.declarations.models import Query, ReferenceTable, to_us
from tidegate.declarations.positions import Report, Source
from tidegate.declarations.query_parser import parse_query
from tidegate.declarations.scope import StreamSchema
from tidegate.operators.accuracy import relative_error as judged_error
from tidegate.operators.schedule import Schedule
from tidegate.queries.questions import Answering, Question, pooled
from tidegate.queries.scan import EventFiles
from tidegate.stages.calibrate_widths import judged_columns, tolerance_of

MINUTE_US = 60_000_000
_DAYS = re.compile(r"\[(\d+) DAYS?\]")
_FLOORS = re.compile(r" OR (\d+) IN (\w+)")
_WITHIN = re.compile(r" FOR ([\d.]+)% OF GROUPS")
CUTS = ("whole", "keys", "pooled")


class NotTakenError(Exception):
    """The query is refused."""


def parse(text: str) -> Query:
    """A query on the streams and the table; NotTakenError with the mistakes if it is refused."""
    return parsed(text, declared(), {"goods": GOODS})


def parsed(text: str, streams: Mapping[str, StreamSchema], tables: Mapping[str, ReferenceTable]) -> Query:
    """A query on these streams and tables."""
    report = Report(Source(Path("q.sql"), text))
    query = parse_query("q", report, streams, 5 * MINUTE_US, tables)
    if query is None:
        raise NotTakenError("; ".join(str(mistake) for mistake in report.mistakes))
    return query


def schedules(query: Query, slack: int, held: int) -> tuple[Schedule, np.ndarray, list[ExpectedWindow]]:
    """Windows that hold the last ``held`` tenths of their ranges, and are answered ``slack`` minutes later."""
    if query.calendar is None:
        ends = np.arange(5, 45, 5, dtype=np.int64) * MINUTE_US + to_us(BEGIN)
        ranges = {w.alias: np.full(len(ends), round(w.range_s * 1e6)) for w in query.windows}
    else:
        ends, ranges = _local_days(query)
    lower = {alias: ends - width * held // 10 for alias, width in ranges.items()}
    coverage = (held / 10.0) ** len(ranges)
    expected = [
        ExpectedWindow(
            window_end=datetime.fromtimestamp(end / 1e6, UTC),
            emitted_at=datetime.fromtimestamp(end / 1e6, UTC) + timedelta(minutes=slack),
            slack_s=60.0 * slack,
            lower={alias: BEGIN + timedelta(microseconds=int(of[n]) - to_us(BEGIN)) for alias, of in lower.items()},
            width_s={},
            range_s={},
            coverage=coverage,
            support_level="A",
        )
        for n, end in enumerate(ends.tolist())
    ]
    return Schedule(ends, ends + slack * MINUTE_US, lower), np.full(len(ends), coverage), expected


def _local_days(query: Query) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Local midnights, by looking at each quarter of an hour, and the ranges before them: dates, or hours."""
    assert query.calendar is not None
    zone, quarter = ZoneInfo(query.calendar.zone), timedelta(minutes=15)
    instants = [BEGIN + n * quarter for n in range(-4 * 24 * 4, 4 * 24 * 6)]
    dates = [instant.astimezone(zone).date() for instant in instants]
    starts = [b for b, before, now in zip(instants[1:], dates, dates[1:], strict=False) if before != now]
    ends = [start for start in starts if start > BEGIN]
    ranges = {}
    for window in query.windows:
        days = _DAYS.search(query.text)
        hours = "HOURS" in query.text
        back = [
            end - timedelta(hours=30) if hours else starts[starts.index(end) - (int(days[1]) if days else 1)]
            for end in ends
        ]
        ranges[window.alias] = np.array([to_us(e) - to_us(b) for e, b in zip(ends, back, strict=True)])
    return np.array([to_us(end) for end in ends]), ranges


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
    """How answers differ from DuckDB's, and their error from that by hand; None where neither has a row.

    ``folder``: of ``events_x`` and ``events_y``, and of what is made of them.
    """
    schedule, coverage, windows = schedules(query, slack, held)
    plain = parsed(text_by_hand(text), by_hand(), {})
    connection = connect()
    register(connection, plain, windows)
    sql = top_k_sql(plain, folder) if plain.kind == "top_k" else aggregate_sql(plain, folder)
    expected = arrow(connection, sql).to_pylist()
    if query.ranks_groups:
        expected = _best(query, expected)
    answered = _rows(query, schedule, coverage, files, cut)
    found = answered.select([n for n in answered.column_names if not n.startswith("_")]).to_pylist()
    if not expected and not found:
        return None
    keys = ["window_end", "rank"] if query.kind == "top_k" else ["window_end"]
    comparison = compare(text, found, expected, [*keys, *query.group_outputs], atol=1e-6)
    if comparison.equal and query.error is not None:
        comparison.differences += _misjudged(query, answered, files)
    return comparison


def _rows(
    query: Query, schedule: Schedule, coverage: np.ndarray, files: Mapping[str, EventFiles], cut: str
) -> pa.Table:
    """The answers with their ``window_end``."""
    tables = list(answers(Question(query, schedule, coverage, files, MINUTE_US), cut))
    rows = pa.concat_tables(tables)
    ends = pa.array(schedule.window_end_us, pa.timestamp("us", "UTC"))
    return rows.append_column("window_end", ends.take(rows.column("_window_index")))


def _misjudged(query: Query, answered: pa.Table, files: Mapping[str, EventFiles]) -> list[str]:
    """Where the error of a window is another than by hand, from the same answers and truths."""
    schedule, coverage, windows = schedules(query, 600, 10)
    truth = _rows(query, schedule, coverage, files, "whole")
    groups, values = judged_columns(query)
    ends = pa.array([window.window_end for window in windows], pa.timestamp("us", "UTC"))
    errors = judged_error(answered, truth, ends, groups, values, tolerance_of(query)).tolist()
    differences = []
    for window, error in zip(windows, errors, strict=True):
        rows = [[r for r in of.to_pylist() if r["window_end"] == window.window_end] for of in (answered, truth)]
        expected = _error_by_hand(query.text, rows[0], rows[1], groups, values)
        if not math.isclose(error, expected, rel_tol=1e-6, abs_tol=1e-9):
            differences.append(f"the error of the window to {window.window_end} is {error}, expected {expected}")
    return differences


def _error_by_hand(text: str, answer: list[Row], truth: list[Row], groups: list[str], values: list[str]) -> float:
    """The largest error of all groups, or the smallest that so many of them do not exceed."""
    floors = {name: float(floor) / 0.2 for floor, name in _FLOORS.findall(text)}
    of = [{tuple(row[name] for name in groups): row for row in rows} for rows in (answer, truth)]
    errors = []
    for key in of[0].keys() | of[1].keys():
        both = [rows.get(key) for rows in of]
        if None in both and not floors.keys() >= set(values):
            errors.append(1.0)
            continue
        errors.append(max([_value_error(name, both[0] or {}, both[1] or {}, floors) for name in values], default=0.0))
    within = _WITHIN.search(text)
    count = len(errors) if within is None else math.ceil(Fraction(within[1]) / 100 * len(errors))
    return sorted(errors)[count - 1] if errors else 0.0


def _value_error(name: str, answer: Row, truth: Row, floors: Mapping[str, float]) -> float:
    if name not in floors:
        return relative_error(answer[name], truth[name])
    given, true = (float(row.get(name) or 0) for row in (answer, truth))
    return abs(given - true) / max(abs(true), floors[name])


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
