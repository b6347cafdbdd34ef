"""The buttons on a task: the page where its results can be seen, and the Spark jobs that it ran."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

from tidegate.declarations.interval_labels import interval_label
from tidegate_dags.declaration import parse_instant

TITLES = {"report": "Report", "quality": "Data Docs", "models": "dbt docs"}


class PipelinePage(BaseOperatorLink):
    """A page of ``<warehouse>/<pipeline>/_docs``, as plugins/pipeline_pages.py serves it."""

    def __init__(self, pipeline: str, page: str) -> None:
        self._pipeline = pipeline
        self._page = page

    @property
    def name(self) -> str:
        """What the button says."""
        return TITLES[self._page]

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The page's address, without host: it opens wherever the reader reached Airflow, through a tunnel too."""
        return f"{_prefix()}/tidegate/{self._pipeline}/{self._page}"


class SparkJobs(BaseOperatorLink):
    """The jobs of Spark that a task ran, as plugins/pipeline_pages.py lists them."""

    name = "Spark jobs"

    def __init__(self, pipeline: str, stage: str, length: timedelta) -> None:
        self._pipeline = pipeline
        self._stage = stage
        self._length = length

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The page's address, for the intervals in the operator's arguments; before they are filled in, for all."""
        asked = {"stage": self._stage}
        words = list(getattr(operator, "application_args", ()))
        if "--from" in words and "{{" not in words[words.index("--from") + 1]:
            first = parse_instant(words[words.index("--from") + 1])
            last = parse_instant(words[words.index("--to") + 1]) - self._length
            labels = [interval_label(start, self._length) for start in (first, last)]
            asked["interval"] = labels[0] if first == last else "…".join(labels)
        return f"{_prefix()}/tidegate/{self._pipeline}/spark?{urlencode(asked)}"


def _prefix() -> str:
    prefix: str = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
    return prefix
