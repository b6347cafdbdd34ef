"""ON MISS: what OMIT keeps and what CORRECT corrects, by answers, truth and accuracy of the same windows."""

from __future__ import annotations

import contextlib
import io
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from infra.oracle import misses
from tests.live_files import contents

from tidegate.cli.init import init
from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.tables import schema
from tidegate.engine.context import RunContext
from tidegate.stages.calibrate_misses import corrections
from tidegate.stages.run import run, stages_named
from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse

pytestmark = pytest.mark.e2e
START = datetime(2026, 1, 5, 8, tzinfo=UTC)
HOURS = 4
QUERIES = {
    "totals": "SELECT country, SUM(amount) AS total, COUNT(*) AS n, MAX(product) AS p FROM orders [30 MINUTES] "
    "GROUP BY country ERROR 1% ON MISS CORRECT EVERY 5 MINUTES",
    "by_amount": "SELECT amount, MAX(quantity) AS most, MIN(product) AS p FROM orders [30 MINUTES] "
    "GROUP BY amount ERROR 50% ON MISS CORRECT EVERY 30 MINUTES",
    "revenue": "SELECT SUM(amount) AS total FROM orders [30 MINUTES] ERROR 3% ON MISS OMIT EVERY 5 MINUTES",
    "largest": "SELECT order_id, amount FROM orders [30 MINUTES] ORDER BY amount DESC LIMIT 5 "
    "ACCURACY 90% ON MISS CORRECT EVERY 5 MINUTES",
    "best": "SELECT order_id, amount FROM orders [30 MINUTES] ORDER BY amount DESC LIMIT 5 "
    "ACCURACY 90% ON MISS OMIT EVERY 5 MINUTES",
}
Row = dict[str, Any]


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    home = tmp_path_factory.mktemp("on_miss")
    with contextlib.redirect_stdout(io.StringIO()):
        init(home / "shop", "shop")
    for query in (home / "shop" / "queries").iterdir():
        query.unlink()
    for name, text in QUERIES.items():
        (home / "shop" / "queries" / f"{name}.sql").write_text(text)
    declared = home / "shop" / "pipeline.yml"
    told = declared.read_text().replace("initial_slack: 10 minutes", "initial_slack: 1 minute")
    declared.write_text(told.replace("product: string", "product: string\n      quantity: integer"))
    return load_pipeline(home / "shop")


@pytest.fixture(scope="module")
def warehouse(pipeline: Pipeline) -> Warehouse:
    root = pipeline.folder.parent / "wh"
    intervals = intervals_between(pipeline, START, START + timedelta(hours=HOURS))
    with RunContext(pipeline, root, output=io.StringIO()) as context:
        run(context, intervals, stages_named(["answers"]))
    return Warehouse(root, pipeline)


def by_window(warehouse: Warehouse, table: str) -> dict[datetime, list[Row]]:
    found: dict[datetime, list[Row]] = defaultdict(list)
    for row in warehouse.read_arrow(table).to_pylist():
        found[row["window_end"]].append(row)
    return found


def judged(warehouse: Warehouse, query: str) -> dict[datetime, Row]:
    return {r["window_end"]: r for r in warehouse.read_arrow("accuracy").to_pylist() if r["query"] == query}


@pytest.mark.parametrize("query", ["revenue", "best"])
def test_omit_keeps_the_answers_that_kept_the_promise_once_that_is_known(warehouse: Warehouse, query: str) -> None:
    verdicts, answers = judged(warehouse, query), by_window(warehouse, f"answers_{query}")
    kept = by_window(warehouse, f"kept_{query}")
    good = {end for end, row in verdicts.items() if row["kept"]}
    assert good and good < verdicts.keys()
    assert kept.keys() == {end for end in good if answers[end]}
    for end, rows in kept.items():
        assert {row.pop("interval") for row in rows} == {verdicts[end]["interval"]}
        assert rows == [{name: value for name, value in row.items() if name != "interval"} for row in answers[end]]


@pytest.mark.parametrize(("query", "key"), [("totals", "country"), ("largest", "rank")])
def test_correct_writes_what_was_said_what_is_true_and_the_difference(
    warehouse: Warehouse, query: str, key: str
) -> None:
    verdicts, answers = judged(warehouse, query), by_window(warehouse, f"answers_{query}")
    truth, found = by_window(warehouse, f"truth_{query}"), by_window(warehouse, f"corrections_{query}")
    missed = {end for end, row in verdicts.items() if not row["kept"]}
    assert missed and missed < verdicts.keys()
    assert found.keys() == missed
    for end, rows in found.items():
        said, known = ({row[key]: row for row in own[end]} for own in (answers, truth))
        assert {row[key] for row in rows} == said.keys() | known.keys() and len(rows) == len(said.keys() | known.keys())
        for row in rows:
            assert row["known_at"] == end + timedelta(hours=1) and row["interval"] == verdicts[end]["interval"]
            before, now = said.get(row[key], {}), known.get(row[key], {})
            assert row["emitted_at"] == before.get("emitted_at", row["emitted_at"])
            for name in warehouse.pipeline.query(query).corrected:
                assert (row[f"{name}_answered"], row[f"{name}_true"]) == (before.get(name), now.get(name))
                if f"{name}_difference" in row and before and now:
                    assert row[f"{name}_difference"] == now[name] - before[name]


def test_the_rows_do_not_depend_on_how_many_intervals_run_at_once(warehouse: Warehouse, tmp_path: Path) -> None:
    pipeline = warehouse.pipeline
    for interval in intervals_between(pipeline, START, START + timedelta(hours=HOURS)):
        with RunContext(pipeline, tmp_path, output=io.StringIO()) as context:
            run(context, [interval], stages_named(["answers"]))
    assert contents(pipeline, tmp_path, ("run_metrics",)) == contents(pipeline, warehouse.root, ("run_metrics",))


def tables_of(pipeline: Pipeline, query: Query, answers: list[Row], truth: list[Row]) -> tuple[pa.Table, pa.Table]:
    return tuple(
        pa.Table.from_pylist(rows, schema(pipeline, f"{kind}_{query.id}"))
        for kind, rows in (("answers", answers), ("truth", truth))
    )


HOUR_US = 3_600_000_000


def test_an_answer_without_a_row_of_the_truth_is_corrected_by_nulls(pipeline: Pipeline) -> None:
    query, end = pipeline.query("totals"), START

    def row(country: str | None, total: float | None) -> Row:
        return {"window_end": end, "emitted_at": end, "country": country, "total": total, "n": 1.0, "p": "x"}

    def found(said: list[Row], true: list[Row]) -> list[Row]:
        wanted = schema(pipeline, "corrections_totals")
        return corrections(query, *tables_of(pipeline, query, said, true), wanted, HOUR_US).to_pylist()

    said = [row("DE", 2.0), row(None, 1.0), row("ES", None)]
    true = [row(None, 1.5), row("ES", 3.0), row("FR", float("nan"))]
    names = ("country", "total_answered", "total_true", "total_difference", "n_answered")
    assert [tuple(r[name] for name in names) for r in found(said, true[:2])] == [
        (None, 1.0, 1.5, 0.5, 1.0),
        ("DE", 2.0, None, None, 1.0),
        ("ES", None, 3.0, None, 1.0),
    ]
    (only,) = found([], true[2:])
    assert only["emitted_at"] is None and only["known_at"] == end + timedelta(hours=1)
    assert only["total_answered"] is None and only["total_true"] != only["total_true"]
    assert found([], []) == []


NUMBERS = st.none() | st.sampled_from([0.0, -0.0, 1.5, -1.5, float("nan"), float("inf")])
WHOLE = st.none() | st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(
    st.tuples(st.integers(0, 2), NUMBERS, WHOLE, st.none() | st.text(max_size=2)),
    max_size=12,
    # 0.0 and -0.0 are one key.
    unique_by=lambda row: (row[0], repr(None if row[1] is None else row[1] + 0.0)),
)


@given(said=ROWS, true=ROWS)
def test_corrections_are_those_of_the_definition(pipeline: Pipeline, said: list[Any], true: list[Any]) -> None:
    """NULL and NaN are keys, and 0.0 is one with -0.0."""
    query = pipeline.query("by_amount")

    def rows(drawn: list[Any]) -> list[Row]:
        ends = [START + timedelta(minutes=5 * window) for window, *_ in drawn]
        return [
            {"window_end": end, "emitted_at": end + timedelta(seconds=7), "amount": amount, "most": most, "p": text}
            for end, (_, amount, most, text) in zip(ends, drawn, strict=True)
        ]

    missed = [{"window_end": START + timedelta(minutes=5 * window), "kept": False} for window in range(3)]
    answers, truth = tables_of(pipeline, query, rows(said), rows(true))
    wanted = schema(pipeline, "corrections_by_amount")
    found = corrections(query, answers, truth, wanted, HOUR_US)
    assert found.schema == wanted
    by_definition = misses.corrections(query, answers.to_pylist(), truth.to_pylist(), missed, timedelta(hours=1))
    assert Counter(repr(sorted(row.items())) for row in found.to_pylist()) == Counter(
        repr(sorted(row.items())) for row in by_definition
    )
    assert found.column("window_end").to_pylist() == sorted(found.column("window_end").to_pylist())
