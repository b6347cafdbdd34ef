"""Answers on a screen of any width: nothing longer than a line, nothing that moves the cursor, the newest first."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegate.cli.init import init
from tidegate.cli.newest_answers import newest_answers, show, table
from tidegate.cli.records_read import records_read
from tidegate.declarations import load_pipeline
from tidegate.store.intervals import Interval, intervals_between
from tidegate.store.warehouse import Warehouse

START = datetime(2026, 1, 5, 8, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
VALUES = st.none() | st.booleans() | st.floats() | st.integers(-(2**62), 2**62) | st.text(max_size=40)


def columns_on_screen(line: str) -> int:
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


@given(
    st.lists(st.lists(VALUES, min_size=4, max_size=4), min_size=1, max_size=5),
    st.lists(st.text("abcxyz_", min_size=1, max_size=63), min_size=4, max_size=4, unique=True),
    st.integers(10, 150),
)
@settings(max_examples=examples(200), deadline=None)
def test_no_line_is_wider_than_the_screen_and_no_row_is_lost(
    rows: list[list[Any]], names: list[str], width: int
) -> None:
    lines = table([dict(zip(names, row, strict=True)) for row in rows], names, width)
    of_rows = [line for line in lines if not line.startswith("(no room")][: len(rows) + 1]
    assert len(of_rows) == len(rows) + 1
    assert all(columns_on_screen(line) <= width for line in of_rows)
    assert all(c.isprintable() for line in lines for c in line)


@given(st.lists(st.sampled_from(["a", "bb", "ccc"]), min_size=2, max_size=20))
def test_what_fits_is_shown_whole(texts: list[str]) -> None:
    lines = table([{"text": text, "number": float(i)} for i, text in enumerate(texts)], ["text", "number"], 80)
    assert [line.split() for line in lines[1:]] == [[text, str(i)] for i, text in enumerate(texts)]


def test_columns_that_have_no_room_are_named() -> None:
    names = [f"quite_a_long_column_{i}" for i in range(9)]
    lines = table([dict.fromkeys(names, "a long text in a cell")], names, 40)
    assert "(no room for" in lines[2]
    shown = [name for name in names if name not in " ".join(lines[2:])]
    assert len(lines[0].split()) == len(shown) == 4


def test_what_data_says_does_not_reach_the_terminal_as_a_command() -> None:
    assert show("a\x1b[31mred\nline\u202e") == r"a\x1b[31mred\nline\u202e"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tuple[Warehouse, tuple[Interval, ...]]:
    """The shop's, with a few rows put into its tables by hand."""
    folder = tmp_path_factory.mktemp("shop") / "shop"
    init(folder, "shop")
    pipeline = load_pipeline(folder)
    house = Warehouse(tmp_path_factory.mktemp("warehouse"), pipeline)
    hours = intervals_between(pipeline, START, START + 3 * HOUR)

    def put(commit: Any, name: str, hour: int, rows: list[dict[str, Any]]) -> None:
        wanted = house.schema(name)
        filled = [{field.name: None for field in wanted} | row for row in rows]
        commit.put_arrow(name, hours[hour], pa.Table.from_pylist(filled, schema=wanted))

    def answer(end: datetime, slack_s: float, coverage: float, level: str, **row: Any) -> dict[str, Any]:
        about = {"window_end": end, "emitted_at": end + timedelta(seconds=slack_s), "slack_s": slack_s}
        return {**about, "coverage": coverage, "support_level": level, **row}

    at = START + HOUR
    with house.commit("test", hours) as commit:
        put(commit, "events_orders", 0, [{"event_id": str(i)} for i in range(1200)])
        put(commit, "quarantine", 0, [{"stream": "orders", "reason": r} for r in ["too_late", "too_early", "too_late"]])
        # An earlier window, then the newest of this hour; the last hour has no answer at all.
        put(commit, "answers_revenue", 1, [
            answer(at + 5 * MINUTE, 600, 1.0, "A", country="DE", orders=1.0, revenue=1.0),
            answer(at + 10 * MINUTE, 625, 0.634, "B", country="FR", orders=7.0, revenue=70.5),
            answer(at + 10 * MINUTE, 625, 0.634, "B", country="DE", orders=3.0, revenue=1300.25),
        ])  # fmt: skip
        put(commit, "answers_revenue", 2, [])
        end = at + 2 * HOUR
        many = [answer(end, 0.0, 0.25, "unsupported", rank=i + 1, order_id=f"o{i}", amount=2.5 * i) for i in range(15)]
        put(commit, "answers_largest_orders", 2, list(reversed(many)))
    return house, hours


def test_the_newest_answer_of_each_query_is_shown(warehouse: tuple[Warehouse, tuple[Interval, ...]]) -> None:
    said = newest_answers(*warehouse, ["ingest", "join_aggregate", "top_k"], 80)
    best, customers, largest, revenue, fast = said.split("\n\n")
    house, hours = warehouse
    records, refused_all = records_read(house, [hour.label for hour in hours], None, 80)
    assert not refused_all
    assert records.replace("\n", " ") == (
        "1,203 records read, 1,200 accepted, 3 refused (table quarantine): too_early 1, too_late 2 "
    )
    assert revenue.splitlines() == [
        "revenue: Revenue of the last hour by country.",
        "  window ending 2026-01-05 09:10 UTC, answered 10 min 25 s later, 63.4% held",
        "  (level B)",
        "  country  orders  revenue",
        "  DE            3  1300.25",
        "  FR            7    70.50",
    ]
    lines = largest.splitlines()
    assert "answered at once, 25.0% held (memory is short)" in " ".join(" ".join(lines[1:3]).split())
    assert [line.split()[:2] for line in lines if line.split()[0].isdigit()] == [
        [str(i + 1), f"o{i}"] for i in range(12)
    ]
    assert lines[-1] == "  … and 3 more rows"
    for without in (best, customers, fast):
        assert without.splitlines()[-1] == "  no answer has a row in these intervals"


@pytest.mark.parametrize(
    ("stages", "queries"),
    [
        (["ingest"], set()),
        (["top_k"], {"largest_orders"}),
        (["join_aggregate"], {"best_sellers", "customers", "revenue", "selling_fast"}),
    ],
)
def test_only_what_the_stages_made_is_shown(
    stages: list[str], queries: set[str], warehouse: tuple[Warehouse, tuple[Interval, ...]]
) -> None:
    said = newest_answers(*warehouse, stages, 80)
    assert {query.id for query in warehouse[0].pipeline.queries if f"{query.id}:" in said} == queries


def test_hours_without_a_record_say_so(warehouse: tuple[Warehouse, tuple[Interval, ...]]) -> None:
    house, hours = warehouse
    labels = [hour.label for hour in hours[2:]]
    assert records_read(house, labels, None, 80) == ("No records arrived in these intervals.\n", False)
