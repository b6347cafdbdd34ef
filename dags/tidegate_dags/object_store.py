"""What a stage's process needs to reach an object store, from the Airflow connection ``aws_default``.

It goes into the environment of the process that the task starts, and nowhere else: not into a command line, a rendered
field, a log or a page.
"""

from __future__ import annotations

import os
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

CONNECTION = "aws_default"
_EXTRA = {
    "aws_session_token": "AWS_SESSION_TOKEN",
    "region_name": "AWS_REGION",
    "endpoint_url": "AWS_ENDPOINT_URL",
    "profile_name": "AWS_PROFILE",
}


class StageCommand(BashOperator):
    """A stage that is a plain command; with ``objects``, it reads or writes an object store."""

    def __init__(self, *, objects: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.objects = objects

    def get_env(self, context: Any) -> dict[str, str]:
        """The command's environment; made when it starts, so that no page shows it."""
        found: dict[str, str] = super().get_env(context)
        return {**found, **keys()} if self.objects else found


def keys() -> dict[str, str]:
    """Variables that the AWS libraries know, as the connection says; what the environment names already stays.

    Nothing where there is no such connection: then machine, profile or service account say who this is.
    """
    try:
        connection = BaseHook.get_connection(CONNECTION)
    except AirflowNotFoundException:
        return {}
    extra: dict[str, Any] = connection.extra_dejson
    found = {"AWS_ACCESS_KEY_ID": connection.login, "AWS_SECRET_ACCESS_KEY": connection.password}
    found |= {variable: extra.get(name) for name, variable in _EXTRA.items()}
    return {variable: str(value) for variable, value in found.items() if value and variable not in os.environ}
