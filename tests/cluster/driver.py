"""A driver in a process of its own: `tidegate run` with slices so small that each stage has several.

python -m tests.cluster.driver PIPELINE WAREHOUSE FROM TO
"""

from __future__ import annotations

import functools
import sys
from datetime import datetime

from tidegate.declarations import load_pipeline
from tidegate.engine.context import RunContext
from tidegate.engine.session import cluster_cores
from tidegate.queries import slices
from tidegate.stages import calibrate, ingest, resample_history, sample_history
from tidegate.stages.launcher import guarded
from tidegate.stages.run import run
from tidegate.store.intervals import intervals_between
from tidegate.store.places import place

STAGES = ("ingest", "join_aggregate", "top_k", "sample_history", "resample_history", "calibrate")
ROWS_OF_A_SLICE, SLICE_BYTES = 1000, 100_000


def main(pipeline: str, warehouse: str, start: str, end: str) -> None:
    """Run the stages that use Spark."""
    for module in (slices, calibrate, sample_history, resample_history):
        module.ROWS_OF_A_SLICE = ROWS_OF_A_SLICE  # type: ignore[attr-defined]
    ingest.read = functools.partial(ingest.read, slice_bytes=SLICE_BYTES)
    declared = load_pipeline(pipeline)
    with RunContext(declared, place(warehouse)) as context:
        run(context, intervals_between(declared, datetime.fromisoformat(start), datetime.fromisoformat(end)), STAGES)
        context.progress(f"{cluster_cores(context.spark)} cores")


if __name__ == "__main__":
    sys.exit(guarded(lambda: main(*sys.argv[1:])))
