"""The two streams that are joined: values are whole numbers, as doubles."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
from infra.benchmarks.join_aggregate.job import SIDES
from infra.benchmarks.rivals import workload as rivals
from infra.benchmarks.rivals.workload import Data, Workload

__all__ = ["Data", "Workload", "written"]


def written(workload: Workload, work_dir: Path) -> Data:
    """The workload's files with event_time, arrival_time, event_id, key, value; see ``rivals.workload.written``."""
    return rivals.written(workload, work_dir, SIDES, ("value", pc.floor))
