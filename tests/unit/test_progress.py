"""What a run says while it works."""

from __future__ import annotations

import io
import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyspark
import pytest

from tidegate.declarations.models import Column, Pipeline, Stream
from tidegate.engine.context import RunContext
from tidegate.stages import ingest, run
from tidegate.stages.companion import Companion
from tidegate.store.intervals import intervals_between

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
PROJECT = Path(__file__).resolve().parents[2]


def context_in(folder: Path, missing_file: str = "warn", cold_start: bool = False) -> RunContext:
    stream = Stream(
        name="s", format="jsonl", path=f"{folder}/%Y-%m-%dT%H.jsonl", columns=(Column(name="id", type="string"),),
        id=("id",), event_time="id", arrival_time=None, rate=1.0, max_early_s=0, max_late_s=0,
        missing_file=missing_file,
    )  # fmt: skip
    pipeline = Pipeline(
        name="p", folder=folder, owner="o", start=START, interval_s=3600, tick_s=60, horizon_s=3600,
        memory_budget_bytes=1 << 20, process_budget_bytes=1 << 30, streams=(stream,), queries=(),
    )  # fmt: skip
    return RunContext(pipeline, folder / "warehouse", output=io.StringIO(), cold_start=cold_start)


@pytest.mark.parametrize(
    ("missing_file", "said"),
    [("ignore", []), ("warn", ["missing"]), ("error", ["missing"])],
)
def test_missing_files_are_said_in_one_line_and_ignored_ones_not_at_all(missing_file, said, tmp_path):
    context = context_in(tmp_path, missing_file)
    (tmp_path / "2026-01-01T02.jsonl").write_text("")
    with context:
        ingest.read(context, intervals_between(context.pipeline, START, START + DAY))
    lines = [line for line in context.output.getvalue().splitlines() if "missing" in line]
    assert len(lines) == len(said)
    if said:
        assert lines[0].endswith(f"p: ingest: s: missing file {tmp_path}/2026-01-01T00.jsonl and 22 more")


@pytest.mark.parametrize("cold_start", [False, True])
def test_a_cold_start_is_said_once(cold_start, tmp_path):
    context = context_in(tmp_path, cold_start=cold_start)
    for table in ("source_files", "stream_rates", "slack_plan"):
        context.require_predecessor(table, intervals_between(context.pipeline, START, START + DAY), "any")
    (line,) = context.output.getvalue().splitlines()
    assert "cold start at 2026-01-01T00" in line


def test_a_long_run_starts_cold_in_its_first_pass_only(tmp_path, monkeypatch):
    """More than 96 intervals are run in passes, a short one first; each continues from the one before."""
    seen = []

    class Watched(Companion):
        def run(self, stages, intervals):
            seen.append((len(intervals), context.cold_start))
            super().run(stages, intervals)

    monkeypatch.setattr(run, "Companion", Watched)
    with context_in(tmp_path, cold_start=True) as context:
        intervals = intervals_between(context.pipeline, START, START + 5 * DAY)
        run.run(context, intervals, ["resample_history"])
        log = context.warehouse.folder / "_logs" / "stages.jsonl"
        assert [json.loads(line)["intervals"] for line in log.read_text().splitlines()] == [24, 48, 48]
    assert seen == [(24, True), (48, False), (48, False)]


def test_a_stage_says_a_short_line_and_logs_what_it_measured(tmp_path, capsys):
    with context_in(tmp_path) as context:
        run.run(context, intervals_between(context.pipeline, START, START + DAY), ["resample_history"])
        log = context.warehouse.folder / "_logs" / "stages.jsonl"
        (line,) = [json.loads(line) for line in log.read_text().splitlines()]
        assert (line["app"], line["intervals"], line["process_budget_bytes"]) == ("resample_history", 24, 1 << 30)
    assert capsys.readouterr().out == ""
    first, last = context.output.getvalue().splitlines()
    assert first.endswith("p: resample_history: 2026-01-01T00 … 2026-01-01T23 (24 intervals)")
    assert "p: resample_history: done in " in last


@pytest.mark.spark
def test_java_does_not_warn_of_a_module_that_spark_asks_for():
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    configuration = str(PROJECT / "spark_apps" / "tidegate" / "engine" / "spark_conf")

    def said(**environment: str) -> str:
        known = os.environ | {"SPARK_SUBMIT_OPTS": ""} | environment
        done = subprocess.run([submit, "--version"], env=known, stderr=subprocess.STDOUT, stdout=subprocess.PIPE)
        return done.stdout.decode()

    assert "incubator" not in said(SPARK_CONF_DIR=configuration) and "version" in said(SPARK_CONF_DIR=configuration)
    # Everything else that Java says there is shown.
    assert "nowhere.jar" in said(SPARK_CONF_DIR=configuration, SPARK_SUBMIT_OPTS="-javaagent:nowhere.jar")
