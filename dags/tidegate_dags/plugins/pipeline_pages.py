"""Shows each pipeline's pages inside Airflow: the report, Data Docs and dbt docs, and the Spark jobs of its stages.

Serves the files below ``<warehouse>/<pipeline>/_docs`` at ``/tidegate/<pipeline>/``, and nothing else of the warehouse.
What a plugin serves is open to anyone who reaches the port unless it asks for a login itself: this one asks
Airflow for the user behind the request and sends a stranger to the login page.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import get_user
from airflow.plugins_manager import AirflowPlugin
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException as AnyHTTPException

from tidegate_dags.places import local_warehouse
from tidegate_dags.spark_jobs import Job, events, jobs

PREFIX = "/tidegate"

# The names that tasks link to → title, file relative to _docs, what it shows.
PAGES = {
    "report": ("Report", "report.html", "slack, accuracy, window widths and memory against the promises"),
    "quality": ("Data Docs", "quality/index.html", "every expectation of every interval, and what was measured"),
    "trends": (
        "Trends",
        "quality/trends.html",
        "each period against its promise, K against the oracle's, bytes against M",
    ),
    "models": ("dbt docs", "dbt/index.html", "the tables for analysts: columns, tests, lineage"),
}


# A folder of any other name is no pipeline's.
NAME = re.compile(r"[A-Za-z0-9_]+")
ALERTS_SHOWN = 20
STYLE = """
:root{color-scheme:light dark;--ink:#222;--page:#fff;--line:#dde1e6;--good:#1a7f4b;--bad:#b3261e;--open:#7a5b00}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ed;--page:#12151a;--line:#343b45;--good:#5fcf95;--bad:#ff8a80;--open:#e6c35c}}
body{font:16px/1.5 system-ui;margin:2rem auto;padding:0 1rem;max-width:46rem;color:var(--ink);background:var(--page)}
a{color:LinkText}.good{color:var(--good)}.bad{color:var(--bad)}.open{color:var(--open)}.scroll{overflow-x:auto}
table{border-collapse:collapse}th,td{padding:.25rem .75rem .25rem 0;text-align:left;border-bottom:1px solid var(--line)}
"""


# What a page may do, by the first part of its path below the pipeline: run no script, or its own; load from here, send
# nowhere. dbt's page is made by dbt, with scripts that compile themselves; the report's names its scripts itself.
_SCRIPTS = {"report.html": "'unsafe-inline'", "dbt": "'unsafe-inline' 'unsafe-eval'"}
_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)


def documents(pipeline: str) -> Path:
    """The folder of a pipeline's pages; not found if there is none or the name is no name."""
    folder = local_warehouse() / pipeline / "_docs"
    if not NAME.fullmatch(pipeline) or not folder.is_dir():
        raise HTTPException(404, f"Nothing has been written yet for the pipeline {pipeline!r}.")
    return folder


app = FastAPI(title="Tidegate pages", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(get_user)])


@app.middleware("http")
async def restrict(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Say with every answer what the page may do, and that nothing of it is to be guessed or told elsewhere."""
    response = await answer(request)
    below = request.url.path.removeprefix(request.scope.get("root_path", "")).strip("/").split("/")
    scripts = _SCRIPTS.get(below[1] if len(below) > 1 else "", "'none'")
    response.headers["Content-Security-Policy"] = _POLICY.format(scripts=scripts)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "same-origin"
    return response


@app.exception_handler(AnyHTTPException)
async def explain(request: Request, error: AnyHTTPException) -> Response:
    """A stranger is sent to the login page, anything else is a short page."""
    if error.status_code in (401, 403):
        return RedirectResponse(get_auth_manager().get_url_login(next_url=str(request.url)), status_code=303)
    return _page("Not found", f"<p>{html.escape(str(error.detail))}</p>", status=error.status_code)


@app.get("/")
def all_pipelines() -> Response:
    """Every pipeline that has pages."""
    folders = (folder.parent.name for folder in local_warehouse().glob("*/_docs"))
    names = sorted(name for name in folders if NAME.fullmatch(name))
    if not names:
        return _page("Tidegate", "<p>No pipeline has written a page yet; the first run writes one.</p>")
    return _page("Tidegate", "".join(f"<h2>{html.escape(name)}</h2>{_pipeline(name)}" for name in names))


@app.get("/{pipeline}/")
def one_pipeline(pipeline: str) -> Response:
    """The pages of one pipeline."""
    documents(pipeline)
    return _page(pipeline, _pipeline(pipeline))


@app.get("/{pipeline}/spark")
def spark_jobs(pipeline: str, stage: str = "", interval: str = "") -> Response:
    """The jobs of Spark that a pipeline's stages ran on the Connect server, and where Spark shows each of them."""
    if not NAME.fullmatch(pipeline):
        raise HTTPException(404, f"There is no pipeline {pipeline!r}.")
    folder = events()
    if folder is None or not folder.is_dir():
        return _page(f"Spark jobs of {pipeline}", _NO_EVENTS)
    asked = {name: value for name, value in (("stage", stage), ("interval", interval)) if value}
    found = jobs(folder, pipeline=pipeline, **asked)
    about = "".join(f", {name} <b>{html.escape(value)}</b>" for name, value in asked.items())
    said = f"<p>{len(found)} jobs{about}; times are UTC.</p>" if found else f"<p>No job yet{about}.</p>"
    head = "".join(f"<th>{name}</th>" for name in ("Stage", "Interval", "Job", "Submitted", "Took", "Tasks", "Became"))
    rows = "".join(map(_job, found))
    table = f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>' if found else ""
    return _page(f"Spark jobs of {pipeline}", said + table + _HISTORY.format(folder=html.escape(str(folder))))


_NO_EVENTS = (
    "<p>No event log is known: TIDEGATE_SPARK_EVENTS names the folder where <code>tidegate spark-server</code> keeps "
    "them. A cluster's own history server shows the applications that were submitted to it.</p>"
)
_HISTORY = (
    "<p>Jobs of servers that have ended: Spark's history server shows them, from the same event logs:</p><pre>"
    'SPARK_HISTORY_OPTS="-Dspark.history.fs.logDirectory=file:{folder}" \\\n'
    "  spark-class org.apache.spark.deploy.history.HistoryServer   # http://127.0.0.1:18080</pre>"
)


def _job(job: Job) -> str:
    """A row of the table."""
    ui = os.environ.get("TIDEGATE_SPARK_UI", "")
    name = f"{job.number} of {html.escape(job.server)}"
    if ui and not job.server_ended:
        name = f'<a href="{html.escape(ui)}/jobs/job/?id={job.number}" target="_blank">{job.number}</a>'
    tone, became = ("good", "done") if job.succeeded else ("bad", "failed")
    if job.seconds is None:
        tone, became = ("bad", "lost with its server") if job.server_ended else ("open", "running")
    took = "" if job.seconds is None else f"{job.seconds:.2f} s"
    stage, interval = (html.escape(job.tags.get(tag, "")) for tag in ("stage", "interval"))
    cells = (stage, interval, name, f"{job.submitted_at:%Y-%m-%d %H:%M:%S}", took, str(job.tasks))
    return f'<tr>{"".join(f"<td>{cell}</td>" for cell in cells)}<td class="{tone}">{became}</td></tr>'


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
    folder = local_warehouse() / pipeline / "_docs"
    items = []
    for title, file, shows in PAGES.values():
        address = f"{PREFIX}/{quote(pipeline)}/{quote(file)}"
        written = (folder / file).is_file()
        name = f'<a href="{address}" target="_blank">{title}</a>' if written else f"{title} (not written yet)"
        items.append(f"<li>{name}: {shows}</li>")
    if events() is not None:
        address = f"{PREFIX}/{quote(pipeline)}/spark"
        items.append(f'<li><a href="{address}" target="_blank">Spark jobs</a>: what each stage had Spark do</li>')
    return f"<ul>{''.join(items)}</ul>"


_MARKS = {"ok": ("good", "in order"), "info": ("good", "in order"), "warning": ("open", "with a warning")}


def _pipeline(pipeline: str) -> str:
    """How a pipeline is doing: its newest interval, its promises, what was said to be wrong, and the pages."""
    return _status(pipeline) + _links(pipeline) + _alerts(pipeline)


def _status(pipeline: str) -> str:
    try:
        summary = json.loads((documents(pipeline) / "quality" / "summary.json").read_text(encoding="utf-8"))
        rows = "".join(_promise(one) for one in summary["promises"])
        headings, explained = summary["headings"], summary["explained"]
    except (OSError, ValueError, KeyError):  # none, or another version's, which the next interval replaces
        return "<p>No interval has been judged yet.</p>"
    tone, words = _MARKS.get(summary["status"], ("bad", "with critical failures"))
    newest = html.escape(summary["newest"])
    page = f"{PREFIX}/{quote(pipeline)}/quality/hours/{quote(summary['newest'])}.html"
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    table = f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div><p>{html.escape(explained)}</p>'
    return (
        f'<p>Newest interval judged: <a href="{page}" target="_blank">{newest}</a>, <b class="{tone}">{words}</b>.</p>'
        + (table if rows else "")
    )


def _promise(one: dict[str, Any]) -> str:
    """A query's promise, told as Data Docs tells it."""
    query, mark, *rest = (html.escape(cell) for cell in one["cells"])
    cells = "".join(f"<td>{cell}</td>" for cell in rest)
    return f'<tr><td>{query}</td><td class="{html.escape(one["tone"])}">{mark}</td>{cells}</tr>'


def _alerts(pipeline: str) -> str:
    """The newest alerts, as alerts.py recorded them."""
    try:
        lines = (documents(pipeline) / "alerts.jsonl").read_text(encoding="utf-8").splitlines()
        alerts = [json.loads(line) for line in lines[-ALERTS_SHOWN:]]
    except (OSError, ValueError):
        return ""
    items = "".join(
        f"<li><b>{html.escape(one['at'][:16].replace('T', ' '))}</b> {html.escape(one['text'])}</li>"
        for one in reversed(alerts)
    )
    return f"<h3>Alerts</h3><ul>{items}</ul>" if items else ""


def _page(title: str, body: str, status: int = 200) -> HTMLResponse:
    return HTMLResponse(
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style><h1>{html.escape(title)}</h1>{body}",
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
