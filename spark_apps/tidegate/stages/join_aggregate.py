"""The answers of the aggregate and join-aggregate queries that are emitted in an interval."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.engine.context import RunContext
from tidegate.queries.answers import write_answers
from tidegate.queries.updates import write_updates
from tidegate.stages.launcher import launch
from tidegate.store.intervals import Interval

STAGE = "join_aggregate"


def run(context: RunContext, intervals: Sequence[Interval]) -> None:
    """Answer every window whose instant of emission (end + K), or of EMIT, lies in the intervals."""
    queries = [q for q in context.pipeline.queries if q.kind != "top_k"]
    with context.stage(STAGE, intervals) as stage:
        write_answers(context, stage, queries, intervals)
        write_updates(context, stage, queries, intervals)


if __name__ == "__main__":
    launch(STAGE)
