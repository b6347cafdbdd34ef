"""The button on a task that opens the page where its results can be seen."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

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
        prefix = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
        return f"{prefix}/tidegate/{self._pipeline}/{self._page}"
