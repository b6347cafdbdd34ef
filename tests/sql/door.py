"""The SQL door in a process of its own, over a warehouse of three intervals that no Spark had to write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from tests.dbt.sensors import sensors

from tidegate.sql.engine import Limits
from tidegate.store.warehouse import Warehouse

START = datetime(2013, 2, 8, 10, tzinfo=UTC)
_SERVE = """
import sys
from pathlib import Path
from tests.dbt.sensors import sensors
from tidegate.sql.door import serve
from tidegate.sql.engine import Limits
from tidegate.store.warehouse import Warehouse
limits = Limits(float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6]))
tls = (Path(sys.argv[7]), Path(sys.argv[8])) if sys.argv[7:] else None
serve(Warehouse(Path(sys.argv[1]), sensors()), port=0, password_file=Path(sys.argv[2]), limits=limits, tls=tls,
      say=lambda text: print(text, flush=True))
"""


class Door:
    """A door that is open; ``connect`` knows the password. ``tls``: a certificate and its key."""

    def __init__(self, root: Path, scratch: Path, limits: Limits | None = None, tls: tuple[Path, ...] = ()):
        self.root = root
        self.password_file = scratch / "state" / "password"
        self.errors = scratch / "stderr"
        self.outside = scratch / "outside"
        self.outside.mkdir(parents=True)
        chosen = limits or Limits()
        given = (chosen.seconds, chosen.rows, chosen.memory_bytes, chosen.clients)
        command = [sys.executable, "-c", _SERVE, str(root), str(self.password_file), *map(str, (*given, *tls))]
        environment = {**os.environ, "TIDEGATE_SECRET": "of the server's environment"}
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=Path.cwd()
            )
        assert self.process.stdout is not None
        self.said: list[str] = []
        for line in self.process.stdout:
            self.said.append(line)
            if "ready at" in line:
                self.port = int(line.split("127.0.0.1:")[1].split("/")[0])
                self.password = self.password_file.read_text().strip()
                return
        raise AssertionError(f"the door did not open: {self.errors.read_text()}")

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(self.root, sensors())

    def address(self, driver: str = "postgresql") -> str:
        return f"{driver}://analyst:{self.password}@127.0.0.1:{self.port}/sensors"

    def connect(self, **given: str) -> psycopg.Connection:
        return psycopg.connect(self.address(), autocommit=True, **given)

    def close(self) -> str:
        """Stop it; what it wrote to stderr."""
        self.process.send_signal(signal.SIGTERM)
        said, _ = self.process.communicate(timeout=60)
        assert "sql: stopped" in said
        assert self.process.returncode == 0
        return self.errors.read_text()
