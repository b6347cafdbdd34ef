"""The stage that lands is of pipelines with streams that come through Spark alone."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from tidegate.cli.init import init
from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import UserError
from tidegate.engine.context import RunContext
from tidegate.live.run import Live
from tidegate.stages import land
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
