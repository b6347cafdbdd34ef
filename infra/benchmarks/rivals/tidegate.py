"""The pipeline that a user of Tidegate would write for a benchmark's query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.benchmarks.rivals.job import Job

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline

PIPELINE = """\
name: benchmark
description: What its rivals are asked, too
owner: benchmark
start: 2013-01-01T00:00:00Z
interval: 1 hour
tick: {every_s} seconds
horizon: 1 hour
memory_budget: 1 GiB
process_budget: 6 GiB
initial_slack: {slack_s} seconds
streams:
"""
STREAM = """\
  {name}:
    format: parquet
    path: {path}/*/*.parquet
    columns: {{event_id: integer, event_time: timestamp, arrival_time: timestamp, key: integer, {value}: double}}
    id: event_id
    event_time: event_time
    arrival_time: arrival_time
    rate: 1000 per second
    max_early: 1 minute
    max_late: 1 hour
"""


def pipeline_of(job: Job, streams: Mapping[str, str], value: str, lines: Sequence[str]) -> Pipeline:
    """A pipeline with one query, ``asked``, under the job's scratch folder.

    ``streams``: name → folder of its files. ``value``: the column beside the keys. ``lines``: the query.
    """
    folder = Path(job.scratch) / "benchmark"
    (folder / "queries").mkdir(parents=True, exist_ok=True)
    text = PIPELINE.format(every_s=job.every_s, slack_s=job.slack_s)
    text += "".join(STREAM.format(name=name, path=path, value=value) for name, path in streams.items())
    (folder / "pipeline.yml").write_text(text)
    (folder / "queries" / "asked.sql").write_text("\n".join(["-- The benchmark's query", *lines, ""]))
    return load_pipeline(folder)
