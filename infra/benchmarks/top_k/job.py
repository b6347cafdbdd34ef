"""What an engine is asked about the top-k, and how it answers.

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

__all__ = ["SECOND_US", "STREAM", "Int64s", "Job", "serve"]
STREAM = "scores"


@dataclass(frozen=True)
class Job(rivals.Job):
    """The ``k`` tuples of the stream ``scores`` with the highest score; of each key, if there are several."""

    k: int

    @property
    def grouped(self) -> bool:
        """Whether each key has a top-k of its own."""
        return self.keys > 1

    @property
    def panes(self) -> int:
        """Panes in a window."""
        return self.range_s // self.every_s

    def write(self, window_end_us: npt.ArrayLike, event_id: npt.ArrayLike, score: npt.ArrayLike) -> None:
        """Write answers: a row a window and tuple, in any order."""
        ends = pa.array(np.asarray(window_end_us, dtype=np.int64)).cast(pa.timestamp("us", tz="UTC"))
        ids, scores = np.asarray(event_id, dtype=np.int64), np.asarray(score, dtype=np.float64)
        pq.write_table(pa.table({"window_end": ends, "event_id": ids, "score": scores}), self.out)


def serve(start: Callable[[Job], Session], run: Callable[[Session, Job], dict[str, int] | None]) -> None:
    """An engine's process; see ``rivals.job.serve``."""
    rivals.serve(Job, start, run)
