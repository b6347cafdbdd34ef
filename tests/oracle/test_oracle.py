"""Random queries of the whole language over random streams: the answers are DuckDB's."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.examples import examples
from tests.oracle.__main__ import differences
from tests.oracle.evaluation import MINUTE_US, compared, parse, schedules
from tests.oracle.queries import (
    CALLS,
    draw_bounded_query,
    draw_calendar_query,
    draw_query,
    draw_session_query,
)
from tests.oracle.streams import BEGIN, SCHEMA, draw_streams

from tidegate.aggregates import AGGREGATES
from tidegate.queries.questions import Answering, Question
from tidegate.queries.scan import EventFiles

APPROXIMATE = {"approx_count_distinct", "percentile_approx"}
"""Not equal to DuckDB's own: their bounds are tested in tests/property/test_sketch_laws.py."""


def test_every_aggregate_is_among_the_calls() -> None:
    assert CALLS.keys() | APPROXIMATE == AGGREGATES.keys()


def test_every_clause_is_among_a_few_hundred_queries() -> None:
    chance = random.Random(1)
    texts = [draw(chance) for draw in (draw_query, draw_calendar_query) for _ in range(300)]
    for clause in (" z [", " zz [", " u [", " uu [", " JOIN goods", "LEFT JOIN goods", "% OF GROUPS", " IN v",
                   " FOR EACH ", "[2 DAYS] ", "AT TIME ZONE", "l.v > r.v", "QUALIFY", "HAVING"):  # fmt: skip
        assert any(clause in text for text in texts), clause


def test_every_shape_of_sessions_and_bounded_joins_is_among_a_few_hundred_queries() -> None:
    chance = random.Random(1)
    texts = [draw_session_query(chance) for _ in range(300)] + [draw_bounded_query(chance).text for _ in range(300)]
    for shape in ("session_window(", "TABLE(SESSION(TABLE z PARTITION BY ", "[5 MINUTES] GROUP BY", " LEFT JOIN ",
                  " LEFT SEMI JOIN ", " LEFT ANTI JOIN ", " WHERE EXISTS (", " WHERE NOT EXISTS (", "JOIN goods",
                  " BETWEEN l.event_time - INTERVAL", "r.event_time > ", " zz "):  # fmt: skip
        assert any(shape in text for text in texts), shape


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 1 + examples(12)))
def test_answers_are_duckdbs(seed: int) -> None:
    different = [f"{where}\n{what}" for where, what in differences(seed) if what]
    assert not different, "\n".join(different)


@pytest.mark.parametrize("call", [call for calls in CALLS.values() for call in calls])
def test_each_call_is_duckdbs_at_least_once(call: str, tmp_path: Path) -> None:
    files = draw_streams(random.Random(7), tmp_path, 60)
    one = f"SELECT b AS g0, {call.format(c='')} AS v0 FROM x [10 MINUTES] GROUP BY b EVERY 5 MINUTES"
    both = "x [10 MINUTES] AS l, y [10 MINUTES] AS r WHERE l.k = r.k"
    two = f"SELECT {call.format(c='r.')} AS v0 FROM {both} EVERY 5 MINUTES"
    for text in (one, two):
        for held, cut in ((10, "whole"), (10, "keys"), (10, "pooled"), (4, "whole")):
            comparison = compared(parse(text), text, files, tmp_path, 3, held, cut)
            assert comparison is not None and comparison.equal, str(comparison)


def test_moments_are_exact_where_doubles_cancel(tmp_path: Path) -> None:
    rows = [{"event_id": str(i), "event_time": BEGIN, "arrival_time": BEGIN, "v": 1e15 + i} for i in range(3)]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), tmp_path / "x.parquet")
    files = {"x": EventFiles((str(tmp_path / "x.parquet"),), SCHEMA)}
    query = parse("SELECT VAR_POP(v) AS v0 FROM x [10 MINUTES] EVERY 5 MINUTES")
    schedule, coverage, _ = schedules(query, 0, 10)
    found = Answering(Question(query, schedule, coverage, files, MINUTE_US)).table().column("v0")[0].as_py()
    assert math.isclose(found, 2 / 3, rel_tol=1e-15)
