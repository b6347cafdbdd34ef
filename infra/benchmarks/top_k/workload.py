"""The stream whose best tuples are asked for: scores are exponential, no two alike."""

from __future__ import annotations

from pathlib import Path

from infra.benchmarks.rivals import workload as rivals
from infra.benchmarks.rivals.workload import Data, Workload
from infra.benchmarks.top_k.job import STREAM

__all__ = ["Data", "Workload", "written"]


def written(workload: Workload, work_dir: Path) -> Data:
    """The workload's files with event_time, arrival_time, event_id, key, score; see ``rivals.workload.written``."""
    return rivals.written(workload, work_dir, (STREAM,), ("score", lambda score: score))
