"""Top-k per group, where its parts meet: the spec, the order of rows, the grain that dbt and the checks know."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from expectations.suites.answers import grain

from tidegate.declarations.models import Query
from tidegate.declarations.positions import Report, Source
from tidegate.declarations.query_parser import parse_query
from tidegate.declarations.scope import StreamSchema
from tidegate.operators.accuracy import hit_rate
from tidegate.operators.top_k import Spec, Term
from tidegate.queries.answers import sort_columns
from tidegate.queries.questions import top_k_spec
from tidegate.stages.calibrate import _truth_order
from tidegate.stages.dbt_project import _answer_grain
from tidegate.values.types import TIMESTAMP

STREAM = StreamSchema("departures", {"carrier": "string", "origin": "string", "dep_delay": "double"})
GROUPED = """SELECT dep_delay, carrier AS airline, origin FROM departures [60 MINUTES]
GROUP BY origin, carrier ORDER BY dep_delay DESC LIMIT 3 ACCURACY 95%"""


def parsed(sql: str) -> Query:
    query = parse_query("q", Report(Source(Path("q.sql"), sql)), {"departures": STREAM}, 60_000_000)
    assert query is not None
    return query


def test_groups_are_the_outputs_that_show_them() -> None:
    query = parsed(GROUPED)
    assert query.group_outputs == ("origin", "airline")
    assert top_k_spec(query, 60_000_000).groups == ("p2", "p1")
    assert parsed("SELECT carrier FROM departures [1 HOUR] ORDER BY dep_delay LIMIT 3").row_keys == ("rank",)


@pytest.mark.parametrize("shown", ["event_id", "event_id AS flight"])
def test_a_group_by_a_number_that_is_the_id_is_a_group(shown: str) -> None:
    """An id is stored as text, so its output casts it."""
    schema = {"s": StreamSchema("s", {"event_id": "integer", "level": "double"})}
    for sql in (
        f"SELECT level, {shown} FROM s [1 HOUR] GROUP BY event_id ORDER BY level LIMIT 3",
        f"SELECT level, {shown} FROM s [1 HOUR] QUALIFY ROW_NUMBER() OVER (PARTITION BY event_id ORDER BY level) <= 3",
    ):
        query = parse_query("q", Report(Source(Path("q.sql"), sql)), schema, 60_000_000)
        assert query is not None
        assert query.group_outputs == (shown.rsplit(maxsplit=1)[-1],)
        assert top_k_spec(query, 60_000_000).groups == ("p1",)


def test_rows_are_sorted_by_group_then_rank() -> None:
    query = parsed(GROUPED)
    assert sort_columns(query) == ("emitted_at", "window_end", "origin", "airline", "rank")
    assert [name for name, _ in _truth_order(query)] == ["window_end", "origin", "airline", "rank"]


def test_the_grain_is_a_rank_within_a_group() -> None:
    query = parsed(GROUPED)
    text, (test,) = _answer_grain(query)
    assert text == "one row per window end, group (origin, airline) and rank."
    columns = ["window_end", "origin", "airline", "rank"]
    assert test["grain"]["arguments"] == {"columns": columns, "nullable": ["origin", "airline"]}
    rows = {"window_end": [0, 0, 0], "origin": ["JFK", None, "JFK"], "airline": ["AA"] * 3, "rank": [1, 1, 1]}
    schema = pa.schema([("window_end", TIMESTAMP), *((n, pa.string()) for n in ("origin", "airline")), ("rank", "i8")])
    first, second, third = grain(query, pa.table(rows, schema=schema)).to_pylist()
    assert first == third != second


def test_accuracy_is_over_the_winners_of_all_groups_together() -> None:
    truth = pa.table({"window_end": [1] * 4, "event_id": ["a", "b", "c", "d"]})
    answers = pa.table({"window_end": [1] * 4, "event_id": ["a", "b", "c", "x"]})
    assert np.array_equal(hit_rate(answers, truth, pa.array([1])), [0.75])


@pytest.mark.parametrize("groups", [("g0",), ("o0", "o0")])
def test_groups_that_are_no_columns_are_refused(groups: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="must hold each group once"):
        Spec(1, (Term("o0"),), pa.schema([("o0", pa.int64())]), 10, "d", groups)
