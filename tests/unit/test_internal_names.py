"""Columns named like Tidegate's own: they work, or are refused with a name that is free."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import DeclarationErrors
from tidegate.declarations.models import to_us
from tidegate.declarations.tables import schema
from tidegate.operators.schedule import Schedule
from tidegate.queries.questions import Answering, Question
from tidegate.queries.scan import EventFiles

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
# Names that frames, batches and tables have for columns of their own, and words of SQL.
OWN = (
    "event_us", "arrival_us", "read_us", "side", "window_index", "stream", "query", "reason", "column", "record",
    "a0", "g0", "j0", "o0", "p0", "v_x", "part", "band", "tuples", "sampled", "timestamp", "date", "count", "sum",
    "drop",
)  # fmt: skip
PIPELINE = """
name: names
owner: tests
start: 2026-01-01T00:00:00Z
interval: 1 hour
tick: 1 minute
horizon: 1 hour
memory_budget: 1 MiB
process_budget: 1 GiB
streams:
  s:
    format: jsonl
    path: /nowhere/%Y-%m-%dT%H.jsonl
    columns: {{event_id: {id}, event_time: timestamp, arrival_time: timestamp, {columns}}}
    id: event_id
    event_time: event_time
    arrival_time: arrival_time
    rate: 1 per minute
{more}
"""


def load(folder: Path, queries: dict[str, str], columns: str, id_type: str = "string", more: str = "") -> Any:
    folder = folder / "names"
    (folder / "queries").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(PIPELINE.format(columns=columns, id=id_type, more=more))
    for name, sql in queries.items():
        (folder / "queries" / f"{name}.sql").write_text(sql)
    return load_pipeline(folder)


def tuples(pipeline: Any) -> pa.Table:
    """Six tuples; the i-th has the id i, and i in every column but for `side`, which is its parity."""
    rows = [
        {
            "event_id": str(i),
            "event_time": MIDNIGHT + timedelta(minutes=i),
            "arrival_time": MIDNIGHT + timedelta(minutes=i),
            **{name: i % 2 if name == "side" else i for name in OWN},
        }
        for i in range(6)
    ]
    return pa.Table.from_pylist(rows, schema=schema(pipeline, "events_s"))


BEST = "SELECT event_id, {every} FROM s [10 MINUTES] {where} ORDER BY event_us DESC, `drop` LIMIT 2 EVERY 10 MINUTES"
GROUPED = (
    "SELECT side, COUNT(*) AS window_index, SUM(event_us) AS arrival_us, MAX(`drop`) AS event_us, "
    "MIN(arrival_us) AS p0 FROM s [10 MINUTES] {where} GROUP BY side EVERY 10 MINUTES"
)


@pytest.mark.parametrize("id_type", ["string", "integer"])
@pytest.mark.parametrize("where", ["", "WHERE ABS(event_us) >= 0"], ids=["all", "filtered"])
def test_columns_named_like_internal_ones_are_answered(where, id_type, tmp_path):
    every = ", ".join(f"`{name}`" for name in OWN)
    queries = {"best": BEST.format(every=every, where=where), "grouped": GROUPED.format(where=where)}
    columns = ", ".join(f"{name}: integer" for name in OWN)
    pipeline = load(tmp_path, queries, columns, id_type)
    pq.write_table(tuples(pipeline), tmp_path / "events.parquet")
    events = {"s": EventFiles((str(tmp_path / "events.parquet"),), schema(pipeline, "events_s"))}
    end_us = to_us(MIDNIGHT + timedelta(minutes=10))
    schedule = Schedule.from_ticks(np.array([end_us]), 0, {"s": 600_000_000})

    def rows(query_id: str) -> list[dict[str, Any]]:
        question = Question(pipeline.query(query_id), schedule, np.ones(1), events, 60_000_000)
        return Answering(question).table().to_pylist()

    best = sorted(rows("best"), key=lambda row: row["rank"])
    assert [(row["event_id"], row["rank"], row["_window_index"]) for row in best] == [("5", 1, 0), ("4", 2, 0)]
    for row, i in zip(best, (5, 4), strict=True):
        assert [row[name] for name in OWN] == [i % 2 if name == "side" else i for name in OWN]
    grouped = {row["side"]: row for row in rows("grouped")}
    expected = {"window_index": 3.0, "arrival_us": 9.0, "event_us": 5, "p0": 1}
    assert {name: grouped[1][name] for name in expected} == expected and grouped[0]["arrival_us"] == 6.0
    fields = schema(pipeline, "answers_best")
    assert fields.names.count("event_id") == 1 and fields.field("event_id").type == pa.string()


@pytest.mark.parametrize(
    ("columns", "sql", "more", "mistake"),
    [
        ("x: integer", "SELECT x AS event_id FROM s [1 HOUR] ORDER BY x LIMIT 1", "",
         "1:13: every answer has a column 'event_id' of its own; expected another name, such as AS s_event_id"),
        ("rank: integer", "SELECT rank FROM s [1 HOUR] ORDER BY rank LIMIT 1", "",
         "1:8: every answer has a column 'rank' of its own; expected another name, such as AS s_rank"),
        ("width_s: integer", "SELECT width_s, COUNT(*) AS n FROM s [1 HOUR] GROUP BY width_s", "",
         "1:8: every answer has a column 'width_s' of its own; expected another name, such as AS s_width_s"),
        ("Event_Time: timestamp", "SELECT COUNT(*) AS n FROM s [1 HOUR]", "",
         "columns 'event_time' and 'Event_Time' differ in letter case only"),
        ("u: double", "SELECT COUNT(*) AS n FROM s [1 HOUR]", "    history: {leaf: 1 hour, capacity: 10}",
         "'u' would clash with the column 'u' of the history samples; expected another name, such as 's_u'"),
        ("drop: integer", "SELECT drop FROM s [1 HOUR] ORDER BY event_time LIMIT 1", "",
         "1:8: 'drop' is a word of SQL and cannot stand here as a column's bare name; expected `drop`, in backticks"),
    ],
)  # fmt: skip
def test_names_that_cannot_be_had_are_refused_with_one_that_can(columns, sql, more, mistake, tmp_path):
    with pytest.raises(DeclarationErrors) as error:
        load(tmp_path, {"q": sql}, columns, more=more)
    assert mistake in str(error.value)


def test_a_column_that_differs_from_the_tables_own_in_letter_case_is_refused(tmp_path):
    text = PIPELINE.format(columns="x: integer", id="string", more="").replace("event_id", "Event_ID")
    (tmp_path / "names" / "queries").mkdir(parents=True)
    (tmp_path / "names" / "pipeline.yml").write_text(text)
    (tmp_path / "names" / "queries" / "q.sql").write_text("SELECT COUNT(*) AS n FROM s [1 HOUR]")
    with pytest.raises(DeclarationErrors) as error:
        load_pipeline(tmp_path / "names")
    assert "'Event_ID' would clash with the column 'event_id'" in str(error.value)
    assert "expected 'event_id', or another name, such as 's_event_id'" in str(error.value)
