"""The flights pipeline over any stretch of 2013."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.command import ROOT

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline
from tidegate.declarations.variables import expanded

FLIGHTS = ROOT / "dags" / "pipelines" / "flights"
# From the afternoon on which the storm came into the next day: the daily pass over history lies between.
NIGHT_START, NIGHT_END = datetime(2013, 2, 8, 14, tzinfo=UTC), datetime(2013, 2, 9, 2, tzinfo=UTC)


def land(folder: Path, start: datetime, end: datetime) -> Path:
    """Land the files of [start, end) in a folder; the folder."""
    arguments = ["--landing", str(folder), "--from", start.isoformat(), "--to", end.isoformat()]
    subprocess.run([sys.executable, "-m", "tidegate.examples.land_flights", *arguments], check=True)
    return folder


def declared(landing: Path) -> Pipeline:
    """The pipeline, reading what landed there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEGATE_LANDING", str(landing))
        pipeline = load_pipeline(FLIGHTS)
        # What Spark reads is looked up where it is read: here it stays what it is now.
        streams = [
            stream
            if stream.source is None
            else stream.model_copy(
                update={"source": stream.source.model_copy(update={"options": expanded(stream.source.options)})}
            )
            for stream in pipeline.streams
        ]
        return pipeline.model_copy(update={"streams": tuple(streams)})
