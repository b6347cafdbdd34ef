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

FLIGHTS = ROOT / "dags" / "pipelines" / "flights"
# From the afternoon on which the storm came into the next day: the daily pass over history lies between.
NIGHT_START, NIGHT_END = datetime(2013, 2, 8, 14, tzinfo=UTC), datetime(2013, 2, 9, 2, tzinfo=UTC)


def land(folder: Path, start: datetime, end: datetime) -> Path:
    """Land the files of [start, end) in a folder; the folder."""
    program = ROOT / "infra" / "demo" / "land_flights.py"
    span = ["--from", start.isoformat(), "--to", end.isoformat()]
    subprocess.run([sys.executable, str(program), "--landing", str(folder), *span], check=True)
    return folder


def declared(landing: Path) -> Pipeline:
    """The pipeline, reading what landed there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEGATE_LANDING", str(landing))
        return load_pipeline(FLIGHTS)
