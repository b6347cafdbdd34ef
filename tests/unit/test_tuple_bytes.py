"""What a tuple is reckoned to weigh, against what the operators really hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.command import ROOT

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline, to_us
from tidegate.declarations.tables import schema
from tidegate.operators.schedule import Schedule
from tidegate.operators.tuple_bytes import tuple_bytes
from tidegate.queries.planner import held as held_by_all
from tidegate.queries.questions import Answering, Question
from tidegate.queries.questions import held as held_of
from tidegate.queries.scan import EventFiles

START = datetime(2013, 2, 8, tzinfo=UTC)
TUPLES = 300


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return load_pipeline(ROOT / "dags" / "pipelines" / "flights")


def tuples(pipeline: Pipeline, stream: str) -> pa.Table:
    """Tuples within two hours, one in ten values missing, strings of all lengths."""
    random = np.random.default_rng(7)
    columns = {}
    for field in schema(pipeline, f"events_{stream}"):
        if field.name == "event_id":
            values = [f"{stream}-{i}" for i in range(TUPLES)]
        elif pa.types.is_timestamp(field.type):
            values = [START + timedelta(seconds=int(s)) for s in np.sort(random.integers(0, 7000, TUPLES))]
        elif pa.types.is_string(field.type):
            values = ["ä" * int(n) for n in random.integers(1, 5, TUPLES)]
        else:
            values = random.integers(0, 40, TUPLES).tolist()
        missing = random.random(TUPLES) < 0.1
        if field.name not in ("event_id", "event_time", "arrival_time"):
            values = [None if gone else value for value, gone in zip(values, missing, strict=True)]
        columns[field.name] = pa.array(values, field.type)
    return pa.table(columns)


def in_file(rows: pa.Table, path: Path) -> EventFiles:
    pq.write_table(rows, path)
    return EventFiles((str(path),), rows.schema)


@pytest.mark.parametrize("count", [1, 2, 9, TUPLES])
def test_operators_hold_no_more_than_tuples_are_reckoned_to_weigh(pipeline, tmp_path, count):
    """However few they are: a budget that is full to the last byte is still kept."""
    rows = {s.name: tuples(pipeline, s.name)[:count] for s in pipeline.streams}
    files = {name: in_file(table, tmp_path / f"{name}.parquet") for name, table in rows.items()}
    end_us = to_us(START + timedelta(hours=2))
    held = 0
    for query in pipeline.queries:
        weighed = sum(int(tuple_bytes([held_of(query, w.alias)], rows[w.stream]).sum()) for w in query.windows)
        # One window that holds everything: whatever passes the predicates is in the operator's state at its answer.
        ranges_us = {w.alias: 2 * 3_600_000_000 for w in query.windows}
        schedule = Schedule.from_ticks(np.array([end_us]), 0, ranges_us)
        answering = Answering(Question(query, schedule, np.ones(1), files, 2 * 3_600_000_000))
        answering.table()
        assert (answering.peak_state_bytes > 0) == (weighed > 0)
        assert weighed > 0 or count < TUPLES
        assert answering.peak_state_bytes <= weighed, query.id
        held += answering.peak_state_bytes
    # What a stream's tuples weigh for the plan is what all its queries hold of them.
    assert held <= sum(int(tuple_bytes(held_by_all(pipeline, s), rows[s.name]).sum()) for s in pipeline.streams)
