"""The night of the storm, run once for all who look at it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.command import run_pipeline
from tests.e2e.flights import FLIGHTS, NIGHT_END, NIGHT_START, declared, land

from tidegate.declarations.models import Pipeline
from tidegate.stages.run import STAGES


@pytest.fixture(scope="session")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The feed of the night."""
    return land(tmp_path_factory.mktemp("landing"), NIGHT_START, NIGHT_END)


@pytest.fixture(scope="session")
def night(landing: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse after ``tidegate run`` over the night: read only."""
    root = tmp_path_factory.mktemp("night")
    # dbt's models of these tables are built by tests/dbt and by the interval that Airflow runs.
    stages = [word for stage in STAGES if stage != "publish" for word in ("--stage", stage)]
    span = (f"{NIGHT_START:%Y-%m-%dT%H}", f"{NIGHT_END:%Y-%m-%dT%H}")
    run_pipeline(FLIGHTS, root, *span, *stages, TIDEGATE_LANDING=landing)
    return root


@pytest.fixture(scope="session")
def pipeline(landing: Path) -> Pipeline:
    """The flights as declared, fed from the night's folder."""
    return declared(landing)
