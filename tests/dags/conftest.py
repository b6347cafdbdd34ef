"""The DAG folder as Airflow sees it, in an Airflow home of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="package")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment that DAG files are read in; Airflow must not have been imported before. Undone afterwards."""
    home = tmp_path_factory.mktemp("airflow")
    variables = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[2]", "extra": {"deploy-mode": "client"}}',
        "TIDEGATE_WAREHOUSE": "/warehouse",
        "TIDEGATE_LANDING": "/landing",
        "TIDEGATE_POOL": "spark",
        "TIDEGATE_PYTHON": "/venv/bin/python",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield variables


@pytest.fixture(scope="package")
def dag_bag(airflow_home: dict[str, str]) -> DagBag:
    """Every DAG of the project, read the way the DAG processor reads them."""
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(dag_folder=str(PROJECT / "dags"))


@pytest.fixture(scope="package")
def flights(dag_bag: DagBag) -> Any:
    """The DAG of the flights pipeline."""
    return dag_bag.dags["flights"]
