"""Makes known to Airflow from when on the deadlines of Tidegate's DAGs count."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from tidegate_dags.alerts import RunQueued


class Deadlines(AirflowPlugin):
    """The instants that deadlines count from."""

    name = "tidegate_deadlines"
    deadline_references = [RunQueued]
