"""Talks to the Airflow that `up` started: one class, the few calls that are needed.

A call costs some 40 ms, an ``airflow`` command five seconds of processor time.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any


class Refused(Exception):
    """The server said no; ``status`` is HTTP's, the message what it said."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Rest:
    """The REST API of one Airflow, as one user."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self.url = url
        self._user = user
        self._password = password
        self._token = ""
        # Never through a proxy: the server listens on this machine only.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def healthy(self) -> dict[str, bool]:
        """Component → whether it answers, empty as long as the server itself does not."""
        try:
            health = self._call("GET", "/api/v2/monitor/health", None, {})
        except (OSError, Refused):
            return {}
        return {name: health[name]["status"] == "healthy" for name in ("metadatabase", "scheduler", "dag_processor")}

    def get(self, path: str, **query: Any) -> Any:
        """GET below /api/v2."""
        return self._authorized("GET", path + ("?" + urllib.parse.urlencode(query) if query else ""), None)

    def post(self, path: str, body: Any) -> Any:
        """POST below /api/v2."""
        return self._authorized("POST", path, body)

    def patch(self, path: str, body: Any) -> Any:
        """PATCH below /api/v2."""
        return self._authorized("PATCH", path, body)

    def put(self, path: str) -> Any:
        """PUT without a body below /api/v2."""
        return self._authorized("PUT", path, None)

    def pages(self, path: str, of: str, **query: Any) -> list[Any]:
        """Every entry of a listing, however many pages it has."""
        entries: list[Any] = []
        while True:
            answer = self.get(path, limit=100, offset=len(entries), **query)
            entries += answer[of]
            if not answer[of] or len(entries) >= answer["total_entries"]:
                return entries

    def _authorized(self, method: str, path: str, body: Any) -> Any:
        if not self._token:
            self._login()
        try:
            return self._call(method, "/api/v2" + path, body, {"Authorization": f"Bearer {self._token}"})
        except Refused as refused:
            if refused.status != 401:
                raise
        self._login()
        return self._call(method, "/api/v2" + path, body, {"Authorization": f"Bearer {self._token}"})

    def _login(self) -> None:
        credentials = {"username": self._user, "password": self._password}
        self._token = self._call("POST", "/auth/token", credentials, {})["access_token"]

    def _call(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        request.add_header("Accept", "application/json")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with self._opener.open(request, timeout=30) as response:
                return json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            raise Refused(
                error.code, f"{method} {path}: {error.code} {error.read().decode(errors='replace')[:500]}"
            ) from None
