"""NEXMark's windowed queries: the final answers are DuckDB's rows, from the same files of events out of order."""

from __future__ import annotations

import io
from datetime import timedelta
from pathlib import Path

import pytest
from infra.benchmarks.nexmark.answers import ends, expected, truths
from infra.benchmarks.nexmark.feed import START, write_events, write_pipeline
from infra.benchmarks.nexmark.questions import QUESTIONS

from tidegate.declarations import load_pipeline
from tidegate.engine.context import RunContext
from tidegate.stages.run import run
from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse

pytestmark = pytest.mark.e2e

EVENTS, SPAN_S = 20_000, 600.0
STAGES = ("ingest", "join_aggregate", "top_k", "calibrate")


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nexmark")
    write_events(folder, EVENTS, EVENTS / SPAN_S, seed=11)
    return folder


@pytest.fixture(scope="module")
def warehouse(feed: Path) -> Warehouse:
    folder = feed / "auction"
    write_pipeline(folder, feed, EVENTS / SPAN_S, memory_mib=64)
    pipeline = load_pipeline(folder)
    # A window of ten minutes is final at the half hour.
    intervals = intervals_between(pipeline, START, START + timedelta(minutes=30))
    with RunContext(pipeline, feed / "warehouse", output=io.StringIO(), here=True) as context:
        run(context, intervals, STAGES)
    return Warehouse(feed / "warehouse", pipeline)


@pytest.mark.parametrize("name", QUESTIONS)
def test_final_answers_are_duckdbs(name: str, warehouse: Warehouse, feed: Path) -> None:
    question = QUESTIONS[name]
    theirs = expected(feed, question, ends(question, SPAN_S))
    assert theirs
    assert truths(warehouse, name, question) == theirs
