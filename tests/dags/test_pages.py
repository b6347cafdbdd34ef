"""The pages inside Airflow, as the plugin serves them to somebody who has logged in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient


@pytest.fixture
def pages(airflow_home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setenv("TIDEGATE_WAREHOUSE", str(tmp_path))
    from airflow.api_fastapi.core_api.security import get_user
    from tidegate_dags.plugins.pipeline_pages import app

    for name, content in {"report.html": "r", "quality/index.html": "q", "dbt/index.html": "d"}.items():
        file = tmp_path / "flights" / "_docs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    app.dependency_overrides[get_user] = lambda: None
    with TestClient(app) as client:
        yield client
    app.dependency_overrides.clear()


def test_a_folder_that_is_no_pipeline_hides_none(pages: TestClient, tmp_path: Path) -> None:
    (tmp_path / "<b>bold" / "_docs").mkdir(parents=True)
    answer = pages.get("/")
    assert answer.status_code == 200
    assert "flights" in answer.text and "bold" not in answer.text
    assert pages.get("/%3Cb%3Ebold/").status_code == 404


@pytest.mark.parametrize(
    ("path", "scripts"),
    [
        ("/", "script-src 'none'"),
        ("/flights/", "script-src 'none'"),
        ("/nothing/", "script-src 'none'"),
        ("/flights/quality/index.html", "script-src 'none'"),
        ("/flights/report.html", "script-src 'unsafe-inline';"),
        ("/flights/dbt/index.html", "script-src 'unsafe-inline' 'unsafe-eval';"),
    ],
)
def test_every_page_says_that_it_loads_and_sends_nothing_elsewhere(pages: TestClient, path: str, scripts: str) -> None:
    policy = pages.get(path).headers["Content-Security-Policy"]
    assert scripts in policy
    assert "default-src 'none'" in policy and "connect-src" not in policy and "http" not in policy
