"""Keys to an object store are in the environment of processes, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from tidegate.cli.init import init

KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "AWS_SESSION_TOKEN": "IQoJb3JpZ2luX2VjEXAMPLETOKEN",
}
# What AWS says of a wrong signature, with all that it has been shown.
REFUSAL = """<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>SignatureDoesNotMatch</Code><Message>The request signature we calculated does not match.</Message>
<AWSAccessKeyId>{AWS_ACCESS_KEY_ID}</AWSAccessKeyId><StringToSign>{AWS_SESSION_TOKEN}</StringToSign></Error>"""


class Refuses(BaseHTTPRequestHandler):
    def answer(self) -> None:
        body = REFUSAL.format(**KEYS).encode()
        self.send_response(403)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def refusing() -> Iterator[dict[str, str]]:
    """An environment that leads to a store that refuses everything."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "AWS_REGION": "us-east-1"}
        yield {**{k: v for k, v in os.environ.items() if not k.startswith("AWS_")}, **KEYS, **here}
        server.shutdown()


def told(command: list[str], environment: dict[str, str]) -> tuple[int, str, list[str]]:
    """Status, all that was said, and the command lines of the processes while they ran."""
    lines: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-m", "tidegate.cli", *command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        mine = psutil.Process(process.pid)
        lines += [str(one.cmdline()) for one in (mine, *mine.children(recursive=True))]
        said, _ = process.communicate(timeout=120)
    return process.returncode, said, lines


def test_a_store_that_refuses_is_told_in_a_sentence_without_keys(refusing: dict[str, str], tmp_path: Path) -> None:
    init(tmp_path / "shop", "shop")
    shop, span = str(tmp_path / "shop"), ["--from", "2026-01-05T08", "--to", "2026-01-05T09"]
    stored, local = "s3://lake/tables", str(tmp_path / "tables")
    asked = [
        ["run", shop, "--warehouse", stored, *span],
        ["report", shop, "--warehouse", stored],
        ["sql", shop, "--warehouse", stored, "--duckdb"],
        ["history", shop, "--warehouse", stored, *span, "SELECT COUNT(*) FROM orders"],
    ]
    declared = tmp_path / "shop" / "pipeline.yml"
    for command in [*asked, ["run", shop, "--warehouse", local, *span, "--stage", "ingest"]]:
        if local in command:
            declared.write_text(declared.read_text().replace("path: landing", "path: s3://lake/landing"))
        status, said, lines = told(command, refusing)
        assert status in (1, 2) and "lake" in said and "Traceback" not in said, said
        assert not [key for key in KEYS.values() if key in said or key in str(lines)], said
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert not [key for key in KEYS.values() if key.encode() in file.read_bytes()], file
