"""The stage that lands is of pipelines with streams that come through Spark alone."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

from tidegate.cli import main
from tidegate.cli.hints import hint
from tidegate.cli.init import init
from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import UserError
from tidegate.engine.context import RunContext
from tidegate.landing.failures import sentence_of
from tidegate.live.run import Live
from tidegate.sources.parse import Example
from tidegate.stages import land
from tidegate.stages.ingest_summary import Refusal
from tidegate.stages.run import LIVE_STAGES, STAGES, run, stages_named
from tidegate.store.intervals import Interval, intervals_between


def context_of(folder: Path, kafka: bool) -> tuple[RunContext, list[Interval]]:
    """A run of the shop, with its orders in a topic of Kafka if so."""
    init(folder / "shop", "shop")
    declared = folder / "shop" / "pipeline.yml"
    if kafka:
        text, source = declared.read_text(), 'source: {kafka: {servers: "k:9092", topic: orders}}'
        declared.write_text(re.sub(r"path: landing/orders\S+", source, text))
    pipeline = load_pipeline(folder / "shop")
    assert bool(pipeline.landed_streams) == kafka
    intervals = intervals_between(pipeline, pipeline.start, pipeline.start + timedelta(seconds=pipeline.interval_s))
    return RunContext(pipeline, str(folder / "warehouse")), list(intervals)


@pytest.mark.parametrize("kafka", [True, False])
def test_a_run_lands_where_there_is_something_to_land(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka: bool
) -> None:
    landed: list[str] = []
    monkeypatch.setattr(land, "run", lambda context, intervals: landed.extend(i.label for i in intervals))
    context, intervals = context_of(tmp_path, kafka)
    with context:
        run(context, intervals, ("land",))
    assert landed == ([interval.label for interval in intervals] if kafka else [])


def test_landing_is_the_first_of_the_stages_that_answer_and_no_live_runs() -> None:
    assert STAGES[0] == stages_named(["answers"])[0] == "land"
    assert "land" not in LIVE_STAGES and "ingest" in LIVE_STAGES


def test_a_live_run_of_such_a_stream_is_refused_with_a_sentence(tmp_path: Path) -> None:
    context, intervals = context_of(tmp_path, kafka=True)
    with pytest.raises(UserError, match=r"a live run of streams that come through Spark \(orders\)"):
        Live(context, intervals[0], None)


@pytest.mark.parametrize(
    ("reason", "column", "detail", "text", "mend"),
    [
        ("broken_record", "", None, "\x00\x00\x00\x00\x07x", "format: avro, registry: http://…"),
        ("broken_record", "", None, "not JSON", ""),
        ("too_early", "received_at", None, "{}", "later than they landed"),
        ("too_early", "placed_at", "90", "{}", "max_early: 2 minutes"),
        ("wrong_type", "amount", "1,5", "{}", "type: string"),
    ],
)
def test_what_would_mend_refused_messages_is_said_as_of_files(
    tmp_path: Path, reason: str, column: str, detail: str | None, text: str, mend: str
) -> None:
    context, _ = context_of(tmp_path, kafka=True)
    refusal = Refusal("orders", reason, column, 1, (("orders", 1, Example(0, text, detail)),))
    said = hint(context.pipeline, refusal)
    assert mend in said and bool(mend) == bool(said)


def test_a_declaration_is_tried_on_the_streams_that_have_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    context, _ = context_of(tmp_path, kafka=True)
    assert main(["validate", str(context.pipeline.folder), "--data"]) == 0
    assert capsys.readouterr().out.endswith("not tried: orders (it comes through Spark, not as files)\n")


def test_what_fails_in_a_source_in_python_is_named(tmp_path: Path) -> None:
    """Spark says where it failed; the last line of the traceback says what did."""
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback (most recent call last):\n"
        '  File "worker.py", line 3, in main\n    return pickle.loads(obj)\n'
        "ModuleNotFoundError: No module named 'shop_sources'\n\tat org.apache.spark.Some.frame(Some.scala:3)\n"
    )
    sentence = sentence_of(AnalysisException(text), context_of(tmp_path, True)[0].pipeline.streams[0])
    assert sentence is not None and "Failed to create Python data source instance" in sentence
    assert "No module named 'shop_sources'" in sentence and "at org" not in sentence
