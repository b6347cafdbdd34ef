"""What an engine is asked about the join-aggregate, and how it answers.

Only the standard library, numpy and pyarrow: Flink's interpreter has nothing else of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from infra.benchmarks.rivals import job as rivals
from infra.benchmarks.rivals.job import SECOND_US, Int64s, Session

__all__ = ["SECOND_US", "SIDES", "Int64s", "Job", "serve"]
SIDES = ("left", "right")


@dataclass(frozen=True)
class Job(rivals.Job):
    """COUNT and SUM over the join of the streams ``left`` and ``right``."""

    def write(self, window_end_us: npt.ArrayLike, count: npt.ArrayLike, total: npt.ArrayLike) -> None:
        """Write answers: a row a window; windows left out are empty joins."""
        ends = pa.array(np.asarray(window_end_us, dtype=np.int64)).cast(pa.timestamp("us", tz="UTC"))
        counts = pa.array(np.asarray(count, dtype=np.float64)).cast(pa.int64())
        sums = pa.array(np.asarray(total, dtype=np.float64))
        pq.write_table(pa.table({"window_end": ends, "count": counts, "sum": sums}), self.out)

    def write_changes(self, window_end_us: npt.ArrayLike, count: npt.ArrayLike, total: npt.ArrayLike) -> None:
        """Write answers that hold until the next of them: every window gets the latest one at or before its end."""
        changed = np.asarray(window_end_us, dtype=np.int64)
        order = np.argsort(changed)
        place = np.searchsorted(changed[order], self.ends_us, side="right")
        counts, totals = (
            np.append(0.0, np.asarray(column, dtype=np.float64)[order])[place] for column in (count, total)
        )
        self.write(self.ends_us, counts, totals)


def serve(start: Callable[[Job], Session], run: Callable[[Session, Job], dict[str, int] | None]) -> None:
    """An engine's process; see ``rivals.job.serve``."""
    rivals.serve(Job, start, run)
