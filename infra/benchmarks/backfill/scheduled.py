"""One backfill: files landed, a stack of its own brought up, the intervals run, the stack ended for certain."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

import psutil
from infra.benchmarks.backfill.accounts import Account

LEAD = timedelta(hours=1)
"""Files that land before the first interval: those of flights that had left by then."""


def backfill(
    name: str,
    project: Path,
    state: Path,
    start: datetime,
    end: datetime,
    environment: dict[str, str],
    timeout_s: int,
) -> Account:
    """Backfill the flights' intervals in [start, end) by the code in ``project``; what it took.

    CPU is the whole machine's, so nothing else may be at work; bringing Airflow up is not counted.
    """
    own = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "TIDEGATE", "SPARK"))}
    own |= {"TIDEGATE_STATE": str(state), "TIDEGATE_AIRFLOW_PORT": "18280"} | environment
    # It may be another checkout than the one that this Python has installed.
    own["PYTHONPATH"] = os.pathsep.join(str(project / folder) for folder in (".", "spark_apps", "dags"))
    own["TIDEGATE_DBT_PROJECT"] = str(project / "dbt")

    def run(*words: str) -> None:
        done = subprocess.run([sys.executable, *words], cwd=project, env=own, capture_output=True, text=True)
        if done.returncode:
            sys.exit(
                f"{' '.join(words)} ended with status {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
            )

    landing, stack = str(state / "landing"), "infra/airflow/stack.py"
    run("infra/demo/land_flights.py", "--landing", landing, "--from", _text(start - LEAD), "--to", _text(end))
    try:
        run(stack, "up")
        cpu_s, began = _machine_cpu_s(), time.monotonic()
        span = ("--from", f"{_text(start)}:00Z", "--to", f"{_text(end)}:00Z", "--timeout", str(timeout_s))
        run(stack, "backfill", "--dag", "flights", *span)
        wall_s, cpu_s = time.monotonic() - began, _machine_cpu_s() - cpu_s
    finally:
        run(stack, "down")
    return Account.read(name, wall_s, cpu_s, state / "airflow" / "airflow.db", state / "warehouse" / "flights")


def _text(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H}"


def _machine_cpu_s() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.system)
