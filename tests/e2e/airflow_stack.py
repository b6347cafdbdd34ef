"""An Airflow of its own for a test: temporary home, free port, gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped, unused-ignore]

PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class TemporaryStack:
    """The commands of infra/airflow/stack.py, against folders of the test."""

    state: Path
    dags: Path = PROJECT / "dags"
    port: int = 18080  # a first try; the next free one is taken

    @property
    def warehouse(self) -> Path:
        """Where the stages write."""
        return self.state / "warehouse"

    @property
    def landing(self) -> Path:
        """Where files land."""
        return self.state / "landing"

    def command(self, *words: str, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
        """Run one command of the stack; its output is text."""
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "TIDEGATE", "SPARK"))
        }
        return subprocess.run(
            [sys.executable, str(PROJECT / "infra" / "airflow" / "stack.py"), *words],
            env=inherited
            | {
                "TIDEGATE_STATE": str(self.state),
                "TIDEGATE_DAGS": str(self.dags),
                "TIDEGATE_AIRFLOW_PORT": str(self.port),
            },
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    @contextmanager
    def running(self) -> Iterator[TemporaryStack]:
        """The stack up, then down again with nothing left of it."""
        up = self.command("up")
        try:
            assert up.returncode == 0, up.stdout + up.stderr
            yield self
        finally:
            down = self.command("down")
        assert down.returncode == 0, down.stdout + down.stderr
        assert self.processes() == []

    def processes(self) -> list[str]:
        """Command lines of the processes that have this stack's folder in their environment or command line."""
        left = []
        for process in psutil.process_iter():
            try:
                mentions = str(self.state) in " ".join(process.cmdline()) + " ".join(process.environ().values())
            except psutil.Error:
                continue
            if mentions and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                left.append(f"{process.pid} {' '.join(process.cmdline())}")
        return left
