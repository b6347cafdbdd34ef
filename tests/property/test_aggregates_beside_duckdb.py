"""Every aggregate beside DuckDB: random tuples, groups, filters, joins; whole windows and narrow ones, cut or not.

DuckDB's statement is the brute force of ``infra.oracle``: every window against every tuple.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from infra.oracle.answers import aggregate_sql, arrow, compare, register
from infra.oracle.schedule import ExpectedWindow, connect
from tests.examples import examples

from tidegate.aggregates import AGGREGATES
from tidegate.declarations.models import Query, to_us
from tidegate.declarations.positions import Report, Source
from tidegate.declarations.query_parser import parse_query
from tidegate.declarations.scope import StreamSchema
from tidegate.operators.schedule import Schedule
from tidegate.queries.questions import Answering, Question, pooled
from tidegate.queries.scan import EventFiles
from tidegate.values.types import arrow_type

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE_US = 60_000_000
COLUMNS = {"k": "string", "n": "integer", "v": "double", "d": "decimal(12,2)", "b": "boolean", "t": "timestamp"}
SCHEMA = pa.schema(
    [
        ("event_id", pa.string()),
        ("event_time", arrow_type("timestamp")),
        ("arrival_time", arrow_type("timestamp")),
        *((name, arrow_type(kind)) for name, kind in COLUMNS.items()),
    ]
)
STREAMS = {name: StreamSchema(name, {"event_time": "timestamp", **COLUMNS}) for name in "xy"}

INTEGERS = st.one_of(st.integers(-3, 3), st.integers(-(2**53), 2**53), st.sampled_from([2**62, -(2**62), 2**63 - 1]))
DOUBLES = st.one_of(st.sampled_from([0.0, -0.0, 0.1, -2.5, 1e15, 1e-9]), st.floats(-1e6, 1e6))
TUPLES = st.lists(
    st.tuples(
        st.integers(0, 29),  # minute of the event
        st.integers(0, 9),  # minutes late
        st.sampled_from(["a", "b", "é", None]),
        st.one_of(st.none(), INTEGERS),
        st.one_of(st.none(), DOUBLES),
        st.one_of(st.none(), st.integers(-(10**11), 10**11)),
        st.one_of(st.none(), st.booleans()),
    ),
    max_size=25,
)

# Aggregate → calls of it; {c} is an alias and a point, or nothing.
CALLS = {
    "count": ["COUNT(*)", "COUNT({c}n)", "COUNT({c}k) FILTER (WHERE {c}v > 0)"],
    "count_if": ["COUNT_IF({c}b)", "COUNT_IF({c}n > 0 AND {c}b)"],
    "sum": ["SUM({c}n)", "SUM({c}v)", "SUM({c}d)", "SUM({c}n) FILTER (WHERE {c}b)", "SUM({c}n + 1)"],
    "avg": ["AVG({c}n)", "AVG({c}v)", "AVG({c}v) FILTER (WHERE NOT {c}b)"],
    "min": ["MIN({c}k)", "MIN({c}n)", "MIN({c}v)", "MIN({c}d)", "MIN({c}b)", "MIN({c}t)"],
    "max": ["MAX({c}k)", "MAX({c}n)", "MAX({c}v)", "MAX({c}d)", "MAX({c}b)", "MAX({c}t)"],
    "bool_and": ["BOOL_AND({c}b)", "BOOL_AND({c}v > 0)"],
    "bool_or": ["BOOL_OR({c}b)", "BOOL_OR({c}n = 1)"],
    "any_value": ["ANY_VALUE({c}k)", "ANY_VALUE({c}d)"],
    "stddev_samp": ["STDDEV({c}v)", "STDDEV_SAMP({c}v) FILTER (WHERE {c}b)"],
    "stddev_pop": ["STDDEV_POP({c}v)"],
    "var_samp": ["VARIANCE({c}v)", "VAR_SAMP({c}d)"],
    "count_distinct": ["COUNT(DISTINCT {c}k)", "COUNT(DISTINCT {c}n) FILTER (WHERE {c}b)", "COUNT(DISTINCT {c}d)"],
    "sum_distinct": ["SUM(DISTINCT {c}n)", "SUM(DISTINCT {c}d)", "SUM(DISTINCT {c}v)"],
    "percentile": ["PERCENTILE({c}v, 0.25)", "PERCENTILE({c}d, 1)", "PERCENTILE({c}v, 0) FILTER (WHERE {c}b)"],
    "percentile_cont": ["PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY {c}v DESC)"],
    "median": ["MEDIAN({c}v)", "MEDIAN({c}d)"],
    "max_by": ["MAX_BY({c}k, {c}v)", "MAX_BY({c}n, {c}k)", "MAX_BY({c}b, {c}d) FILTER (WHERE {c}n > 0)"],
    "min_by": ["MIN_BY({c}d, {c}n)", "MIN_BY({c}t, {c}t)", "MIN_BY({c}v, {c}b)"],
    "first_value": ["FIRST_VALUE({c}k)", "FIRST({c}v)", "FIRST_VALUE({c}n) IGNORE NULLS"],
    "last_value": ["LAST_VALUE({c}d)", "LAST({c}b) FILTER (WHERE {c}v > 0)", "LAST_VALUE({c}k) IGNORE NULLS"],
    "var_pop": ["VAR_POP({c}v)", "VAR_POP({c}v / 3)"],
}
GROUPS = ["{c}k", "{c}b", "{c}n", "{c}n % 2", "{c}v > 0", "COALESCE({c}k, 'none')", "{c}d"]
CUTS = ["whole", "keys", "pooled"]
LAW = settings(max_examples=examples(150), deadline=None)


APPROXIMATE = {"approx_count_distinct", "percentile_approx"}
"""Not equal to DuckDB's own: their bounds are tested in test_sketch_laws.py."""


def test_every_aggregate_is_among_the_calls() -> None:
    assert CALLS.keys() | APPROXIMATE == AGGREGATES.keys()


@st.composite
def queries(draw: Any, call: str = "") -> str:
    joined = draw(st.booleans())
    alias = "l." if joined else ""
    calls = [call] if call else []
    calls += draw(st.lists(st.sampled_from([c for own in CALLS.values() for c in own]), max_size=3))
    sides = [draw(st.sampled_from([alias, "r." if joined else alias])) for _ in calls]
    groups = [g.format(c=alias) for g in draw(st.lists(st.sampled_from(GROUPS), max_size=2, unique=True))]
    if not calls and not groups:
        calls, sides = ["COUNT(*)"], [alias]
    items = [f"{g} AS g{i}" for i, g in enumerate(groups)]
    items += [f"{c.format(c=side)} AS v{i}" for i, (c, side) in enumerate(zip(calls, sides, strict=True))]
    source = "x [10 MINUTES] AS l, y [10 MINUTES] AS r WHERE l.k = r.k" if joined else "x [10 MINUTES]"
    by = f" GROUP BY {', '.join(str(i + 1) for i in range(len(groups)))}" if groups else ""
    return f"SELECT {', '.join(items)} FROM {source}{by} EVERY 5 MINUTES"


@cache
def parsed(text: str) -> Query:
    report = Report(Source(Path("q.sql"), text))
    query = parse_query("q", report, STREAMS, 5 * MINUTE_US)
    assert query is not None, [str(mistake) for mistake in report.mistakes]
    return query


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    fields = []
    for number, (event, late, k, n, v, d, b) in enumerate(rows):
        at = BEGIN + timedelta(minutes=event, seconds=number % 7)
        decimal = None if d is None else Decimal(d).scaleb(-2)
        values = {
            "k": k,
            "n": n,
            "v": v,
            "d": decimal,
            "b": b,
            "t": None if b is None else at - timedelta(days=len(k or "")),
        }
        keys = {"event_id": str(number), "event_time": at, "arrival_time": at + timedelta(minutes=late)}
        fields.append(keys | values)
    return pa.Table.from_pylist(fields, schema=SCHEMA).sort_by("arrival_time")


def schedules(query: Query, slack: int, held: int) -> tuple[Schedule, np.ndarray, list[ExpectedWindow]]:
    """Windows of ten minutes that hold the last ``held`` of them, answered ``slack`` minutes later."""
    ends = np.arange(5, 45, 5, dtype=np.int64) * MINUTE_US + to_us(BEGIN)
    aliases = [w.alias for w in query.windows]
    lower = {alias: ends - held * MINUTE_US for alias in aliases}
    coverage = (held / 10.0) ** len(aliases)
    expected = [
        ExpectedWindow(
            window_end=datetime.fromtimestamp(end / 1e6, UTC),
            emitted_at=datetime.fromtimestamp(end / 1e6, UTC) + timedelta(minutes=slack),
            slack_s=60.0 * slack,
            lower=dict.fromkeys(aliases, datetime.fromtimestamp(end / 1e6, UTC) - timedelta(minutes=held)),
            width_s={},
            range_s={},
            coverage=coverage,
            support_level="A",
        )
        for end in ends.tolist()
    ]
    return Schedule(ends, ends + slack * MINUTE_US, lower), np.full(len(ends), coverage), expected


def answered(question: Question, cut: str, folder: Path) -> Iterator[pa.Table]:
    """The answers of a question, worked out in one of the ways that there are."""
    if cut == "pooled":
        cells = pooled([question, question])
        return iter(Answering(question, cells))
    if cut == "whole" or question.query.kind == "top_k":
        return iter(Answering(question))
    paths = []
    for index in range(3):
        part = Answering(replace(question, part=(index, 3)))
        paths.append(str(folder / f"part{index}.arrow"))
        with pa.ipc.new_file(paths[-1], part.partial_schema) as out:
            for _, _, rows in part.partials():
                out.write_table(rows)
    return iter(Answering(question, partials=paths))


def check(text: str, left: list[Any], right: list[Any], slack: int, held: int, cut: str) -> None:
    query = parsed(text)
    schedule, coverage, windows = schedules(query, slack, held)
    with TemporaryDirectory() as name:
        folder = Path(name)
        files = {}
        for stream, rows in (("x", left), ("y", right)):
            path = folder / f"events_{stream}" / "interval=1" / "1.parquet"
            path.parent.mkdir(parents=True)
            pq.write_table(table(rows), path)
            files[stream] = EventFiles((str(path),), SCHEMA)
        connection = connect()
        register(connection, query, windows)
        expected = arrow(connection, aggregate_sql(query, folder)).to_pylist()
        question = Question(query, schedule, coverage, files, MINUTE_US)
        found = []
        for rows in answered(question, cut, folder):
            for row in rows.to_pylist():
                found.append({"window_end": windows[row.pop("_window_index")].window_end, **row})
        keys = ["window_end", *query.group_outputs]
        if expected or found:
            compared = compare(text, found, expected, keys, atol=1e-6)
            assert compared.equal, str(compared)


@pytest.mark.long
@LAW
@given(
    queries(),
    TUPLES,
    TUPLES,
    st.integers(0, 9),
    st.sampled_from([10, 10, 5, 4]),
    st.sampled_from(["whole", "keys", "pooled"]),
)
def test_answers_are_duckdbs(text: str, left: list[Any], right: list[Any], slack: int, held: int, cut: str) -> None:
    check(text, left, right, slack, held, cut)


@pytest.mark.parametrize("call", [call for calls in CALLS.values() for call in calls])
def test_each_call_is_duckdbs_at_least_once(call: str) -> None:
    chance = np.random.default_rng(len(call))
    rows = [
        (
            int(chance.integers(0, 30)),
            int(chance.integers(0, 9)),
            [None, "a", "b", "é"][int(chance.integers(0, 4))],
            None if chance.random() < 0.2 else int(chance.integers(-3, 4)),
            None if chance.random() < 0.2 else float(chance.integers(-9, 9)) / 8,
            None if chance.random() < 0.2 else int(chance.integers(-9999, 9999)),
            None if chance.random() < 0.2 else bool(chance.integers(0, 2)),
        )
        for _ in range(60)
    ]
    one = f"SELECT k AS g0, {call.format(c='')} AS v0 FROM x [10 MINUTES] GROUP BY k EVERY 5 MINUTES"
    both = "x [10 MINUTES] AS l, y [10 MINUTES] AS r WHERE l.k = r.k"
    two = f"SELECT {call.format(c='r.')} AS v0 FROM {both} EVERY 5 MINUTES"
    for text in (one, two):
        for held, cut in ((10, "whole"), (10, "keys"), (10, "pooled"), (4, "whole")):
            check(text, rows, rows[::2], 3, held, cut)


def test_moments_are_exact_where_doubles_cancel() -> None:
    rows = [(1, 0, "a", None, 1e15 + i, None, None) for i in range(3)]
    query = parsed("SELECT VAR_POP(v) AS v0 FROM x [10 MINUTES] EVERY 5 MINUTES")
    schedule, coverage, _ = schedules(query, 0, 10)
    with TemporaryDirectory() as name:
        pq.write_table(table(rows), Path(name) / "x.parquet")
        files = {"x": EventFiles((str(Path(name) / "x.parquet"),), SCHEMA)}
        found = Answering(Question(query, schedule, coverage, files, MINUTE_US)).table().column("v0")[0].as_py()
    assert math.isclose(found, 2 / 3, rel_tol=1e-15)
