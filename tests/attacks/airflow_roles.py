"""What each role may do in an Airflow whose users FAB knows: ``python -m tests.attacks.airflow_roles``.

It needs the wheel with its extra ``airflow`` and ``apache-airflow-providers-fab`` in one environment, which the lock
does not have, and takes two minutes. It makes a database, a user of each role, and asks the API server as each of them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from tests.e2e.airflow_stack import PROJECT

ROLES = ("Nobody", "Viewer", "User", "Op", "Admin")
DAG = "/api/v2/dags/flights"
BACKFILL = {"dag_id": "flights", "max_active_runs": 1, "reprocess_behavior": "failed", "dag_run_conf": {}}
CONNECTION = {"connection_id": "NAME", "conn_type": "spark"}
USER = {"username": "NAME", "email": "NAME@x.example", "first_name": "a", "last_name": "b", "password": "NAME"}
# What is asked, and the first of ROLES that may. DAY: of each role another.
ASKED: tuple[tuple[str, str, str, Mapping[str, Any] | None, str], ...] = (
    ("see a DAG", "GET", DAG, None, "Viewer"),
    ("see runs", "GET", f"{DAG}/dagRuns", None, "Viewer"),
    ("see backfills", "GET", "/api/v2/backfills?dag_id=flights", None, "Viewer"),
    ("see the Tidegate page", "GET", "/tidegate/", None, "Viewer"),
    ("see pools", "GET", "/api/v2/pools", None, "Viewer"),
    ("start a run", "POST", f"{DAG}/dagRuns", {"logical_date": "DAYT01:00:00Z"}, "User"),
    ("clear runs", "POST", f"{DAG}/clearTaskInstances", {"dry_run": False, "only_failed": False}, "User"),
    ("pause", "PATCH", DAG, {"is_paused": False}, "User"),
    (
        "backfill",
        "POST",
        "/api/v2/backfills",
        BACKFILL | dict.fromkeys(("from_date", "to_date"), "DAYT00:00:00Z"),
        "User",
    ),
    ("see connections", "GET", "/api/v2/connections", None, "Op"),
    ("see variables", "GET", "/api/v2/variables", None, "Op"),
    (
        "change a pool",
        "PATCH",
        "/api/v2/pools/default_pool?update_mask=slots",
        {"name": "default_pool", "slots": 9},
        "Op",
    ),
    ("make a connection", "POST", "/api/v2/connections", CONNECTION, "Op"),
    ("see users", "GET", "/auth/fab/v1/users", None, "Admin"),
    ("make a user", "POST", "/auth/fab/v1/users", USER | {"roles": [{"name": "Viewer"}]}, "Admin"),
)


def main() -> int:
    """Print who may do what; 1 if it is not as expected."""
    sys.path.insert(0, str(PROJECT / "infra" / "airflow"))
    from environment import airflow_environment, places

    with tempfile.TemporaryDirectory() as state, socket.create_server(("127.0.0.1", 0)) as free:
        os.environ["TIDEGATE_STATE"] = state
        port = free.getsockname()[1]
        environment = os.environ | airflow_environment(places(), port)
        environment["AIRFLOW__CORE__AUTH_MANAGER"] = (
            "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager"
        )
        free.close()
        for words in (["db", "migrate"], ["fab-db", "migrate"], ["dags", "reserialize"], *map(_creation, ROLES[1:])):
            subprocess.run([sys.executable, "-m", "airflow", *words], env=environment, check=True, capture_output=True)
        command = [sys.executable, "-m", "airflow", "api-server"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, env=environment, start_new_session=True, **quiet) as server:
            try:
                return _ask_all(f"http://127.0.0.1:{port}")
            finally:
                os.killpg(server.pid, signal.SIGINT)


def _creation(role: str) -> list[str]:
    told = {
        "role": role,
        "username": role,
        "password": role,
        "firstname": "a",
        "lastname": "b",
        "email": f"{role}@x.example",
    }
    return ["users", "create", *(word for name, value in told.items() for word in (f"--{name}", value))]


def _ask_all(url: str) -> int:
    while _answer(url, "GET", "/api/v2/version") == 0:
        time.sleep(0.5)
    tokens = {role: _token(url, role) for role in ROLES}
    print(f"{'':24}", *(f"{role:8}" for role in ROLES))
    wrong = 0
    for what, method, path, body, first in ASKED:
        found = []
        for number, role in enumerate(ROLES):
            text = json.dumps(body).replace("DAY", f"2013-01-0{number + 1}").replace("NAME", f"by-{role}")
            found.append(_answer(url, method, path, tokens[role], text if body else None))
        print(f"{what:24}", *(f"{status:<8}" for status in found))
        # What clashes with another's backfill was allowed.
        may = [status in (200, 201, 409) for status in found]
        wrong += may != [number >= ROLES.index(first) for number in range(len(ROLES))]
    return int(wrong > 0)


def _token(url: str, role: str) -> str:
    body = json.dumps({"username": role, "password": role}).encode()
    asked = urllib.request.Request(f"{url}/auth/token", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=60) as told:
            return str(json.load(told)["access_token"])
    except urllib.error.HTTPError:
        return ""


class _Stays(urllib.request.HTTPRedirectHandler):
    """A stranger is sent to the login: that is no."""

    def redirect_request(self, *_: Any) -> None: ...


def _answer(url: str, method: str, path: str, token: str = "", body: str | None = None) -> int:
    """The status; 0 if nobody answers."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers |= {"Authorization": f"Bearer {token}", "Cookie": f"_token={token}"}
    asked = urllib.request.Request(f"{url}{path}", body.encode() if body else None, headers, method=method)
    try:
        with urllib.request.build_opener(_Stays).open(asked, timeout=60) as told:
            return int(told.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


if __name__ == "__main__":
    sys.exit(main())
