"""Where the time of a backfill went: stage by stage, work and the rest."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds
from infra.oracle.schedule import live

TASKS = """
SELECT task_id, start_date, end_date FROM task_instance
WHERE state = 'success' AND start_date IS NOT NULL ORDER BY start_date
"""


@dataclass(frozen=True)
class Stage:
    """One stage over all intervals: ``task_s`` as Airflow timed its tasks, ``work_s`` as it timed its own work."""

    name: str
    tasks: int
    task_s: float
    work_s: float | None


@dataclass(frozen=True)
class Account:
    """What one alternative took.

    ``busy_s``: time in which some task ran. What is left of ``wall_s`` is the scheduler's; what is left of the tasks'
    time beyond their work is Spark's and Python's start, and end.
    """

    name: str
    wall_s: float
    cpu_s: float
    busy_s: float
    stages: tuple[Stage, ...]

    @classmethod
    def read(cls, name: str, wall_s: float, cpu_s: float, database: Path, warehouse: Path) -> Account:
        """From Airflow's metadata and the pipeline's ``run_metrics``."""
        with closing(sqlite3.connect(database)) as connection:
            rows = connection.execute(TASKS).fetchall()
        spans = [(task, datetime.fromisoformat(start), datetime.fromisoformat(end)) for task, start, end in rows]
        partitions = ds.partitioning(flavor="hive")
        metrics = ds.dataset(live(warehouse, "run_metrics"), format="parquet", partitioning=partitions).to_table()
        # An application's seconds stand beside every query that it answered.
        metrics = metrics.group_by(["app", "interval"]).aggregate([("seconds", "max")])
        order = list(dict.fromkeys(task for task, _, _ in spans))
        stages = []
        for task in order:
            own = [(end - start).total_seconds() for name, start, end in spans if name == task]
            work = metrics.filter(pc.equal(metrics["app"], task))["seconds_max"].to_pylist()
            stages.append(Stage(task, len(own), sum(own), sum(work) if work else None))
        return cls(name, wall_s, cpu_s, _covered_s([span[1:] for span in spans]), tuple(stages))

    def text(self) -> str:
        """A table for people."""
        task_s = sum(stage.task_s for stage in self.stages)
        work_s = sum(stage.work_s or 0.0 for stage in self.stages)
        runs = max(stage.tasks for stage in self.stages)
        lines = [
            f"{self.name}: {runs} intervals in {self.wall_s:.0f} s ({self.wall_s / runs:.1f} s each), "
            f"CPU {self.cpu_s:.0f} s ({self.cpu_s / runs:.1f} s each)",
            f"  no task ran for {self.wall_s - self.busy_s:.0f} s ({1 - self.busy_s / self.wall_s:.0%} of the wall "
            f"time); tasks took {task_s:.0f} s, {1 - work_s / task_s:.0%} of it not their own work",
            f"  {'stage':<18} {'tasks':>5} {'s a task':>9} {'work':>7} {'rest':>7}",
        ]
        for stage in self.stages:
            each = stage.task_s / stage.tasks
            own = f"{stage.work_s / stage.tasks:7.1f} {each - stage.work_s / stage.tasks:7.1f}" if stage.work_s else ""
            lines.append(f"  {stage.name:<18} {stage.tasks:>5} {each:9.1f} {own}".rstrip())
        return "\n".join(lines)


def _covered_s(spans: Sequence[tuple[datetime, datetime]]) -> float:
    """Length of the union of time spans."""
    total, until = 0.0, None
    for start, end in sorted(spans):
        if until is None or start > until:
            total += (end - start).total_seconds()
            until = end
        elif end > until:
            total += (end - until).total_seconds()
            until = end
    return total
