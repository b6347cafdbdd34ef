"""Shows each pipeline's pages inside Airflow: the report, Data Docs and dbt docs.

Serves the files below ``<warehouse>/<pipeline>/_docs`` at ``/tidegate/<pipeline>/``, and nothing else of the warehouse.
What a plugin serves is open to anyone who reaches the port unless it asks for a login itself: this one asks
Airflow for the user behind the request and sends a stranger to the login page.
"""

from __future__ import annotations

import html
import os
import re
from pathlib import Path
from urllib.parse import quote

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import get_user
from airflow.plugins_manager import AirflowPlugin
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException as AnyHTTPException

PREFIX = "/tidegate"

# The names that tasks link to → title, file relative to _docs, what it shows.
PAGES = {
    "report": ("Report", "report.html", "slack, accuracy, window widths and memory against the promises"),
    "quality": ("Data Docs", "quality/index.html", "every expectation of every interval, and what was measured"),
    "models": ("dbt docs", "dbt/index.html", "the tables for analysts: columns, tests, lineage"),
}


def warehouse() -> Path:
    """The folder that holds one folder per pipeline."""
    return Path(os.environ["TIDEGATE_WAREHOUSE"])


def documents(pipeline: str) -> Path:
    """The folder of a pipeline's pages; not found if there is none or the name is no name."""
    folder = warehouse() / pipeline / "_docs"
    if not re.fullmatch(r"[A-Za-z0-9_]+", pipeline) or not folder.is_dir():
        raise HTTPException(404, f"Nothing has been written yet for the pipeline {pipeline!r}.")
    return folder


app = FastAPI(title="Tidegate pages", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(get_user)])


@app.exception_handler(AnyHTTPException)
async def explain(request: Request, error: AnyHTTPException) -> Response:
    """A stranger is sent to the login page, anything else is a short page."""
    if error.status_code in (401, 403):
        return RedirectResponse(get_auth_manager().get_url_login(next_url=str(request.url)), status_code=303)
    return _page("Not here (yet)", f"<p>{html.escape(str(error.detail))}</p>", status=error.status_code)


@app.get("/")
def all_pipelines() -> Response:
    """Every pipeline that has pages."""
    names = sorted(folder.parent.name for folder in warehouse().glob("*/_docs"))
    if not names:
        return _page("Tidegate", "<p>No pipeline has written a page yet. The first run does.</p>")
    return _page("Tidegate", "".join(f"<h2>{html.escape(name)}</h2>{_links(name)}" for name in names))


@app.get("/{pipeline}/")
def one_pipeline(pipeline: str) -> Response:
    """The pages of one pipeline."""
    documents(pipeline)
    return _page(pipeline, _links(pipeline))


@app.get("/{pipeline}/{path:path}")
async def document(pipeline: str, path: str, request: Request) -> Response:
    """A page by its name, or a file of it."""
    folder = documents(pipeline)
    if path.rstrip("/") in PAGES:
        title, file, _ = PAGES[path.rstrip("/")]
        if not (folder / file).is_file():
            raise HTTPException(404, f"{title} of {pipeline}: not written yet. The task that writes it has not run.")
        return RedirectResponse(f"{request.scope.get('root_path', PREFIX)}/{quote(pipeline)}/{quote(file)}")
    # StaticFiles refuses whatever leads out of the folder.
    return await StaticFiles(directory=folder, html=True).get_response(path, request.scope)


def _links(pipeline: str) -> str:
    folder = warehouse() / pipeline / "_docs"
    items = []
    for title, file, shows in PAGES.values():
        address = f"{PREFIX}/{quote(pipeline)}/{quote(file)}"
        written = (folder / file).is_file()
        name = f'<a href="{address}" target="_blank">{title}</a>' if written else f"{title} (not written yet)"
        items.append(f"<li>{name}: {shows}</li>")
    return f"<ul>{''.join(items)}</ul>"


def _page(title: str, body: str, status: int = 200) -> HTMLResponse:
    style = "body{font:16px system-ui;margin:2rem auto;max-width:46rem;color:#222;background:#fff}"
    return HTMLResponse(
        f"<!doctype html><title>{html.escape(title)}</title><style>{style}</style><h1>{html.escape(title)}</h1>{body}",
        status_code=status,
    )


class PipelinePages(AirflowPlugin):
    """The pages, an entry in the side bar, and a tab on every DAG."""

    name = "tidegate_pages"
    fastapi_apps = [{"app": app, "url_prefix": PREFIX, "name": "Tidegate pages"}]
    external_views = [
        {
            "name": "Tidegate",
            "href": f"{PREFIX}/",
            "destination": "nav",
            "category": "browse",
            "url_route": "tidegate_pages",
        },
        {
            "name": "Reports",
            "href": PREFIX + "/{DAG_ID}/",
            "destination": "dag",
            "url_route": "tidegate_reports",
        },
    ]
