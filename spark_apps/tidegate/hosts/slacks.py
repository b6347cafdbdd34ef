"""The slack K in effect at a window's end, from the effective-dated rows of ``slack_plan``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.declarations.models import Pipeline, Query, to_us
from tidegate.hosts.warehouse import Warehouse
from tidegate.operators.schedule import Int64s


@dataclass(frozen=True)
class SlackHistory:
    """Query → K over time."""

    pipeline: Pipeline
    steps: dict[str, tuple[Int64s, Int64s]]

    @classmethod
    def load(cls, warehouse: Warehouse, labels: Sequence[str] | None = None) -> SlackHistory:
        """The slack plans of the intervals ``labels`` (None: all); each is in effect from its interval's end."""
        rows = warehouse.read_arrow("slack_plan", labels).to_pylist()
        steps = {}
        for query in warehouse.pipeline.queries:
            own = sorted(
                (to_us(r["effective_from"]), round(r["slack_s"] * 1e6)) for r in rows if r["query"] == query.id
            )
            steps[query.id] = (
                np.array([at for at, _ in own], dtype=np.int64),
                np.array([slack for _, slack in own], dtype=np.int64),
            )
        return cls(warehouse.pipeline, steps)

    def slack_us(self, query: Query, window_end_us: Int64s) -> Int64s:
        """K of each window, microseconds: the newest plan's, before any the declared initial slack.

        A query that promises nothing waits for nothing.
        """
        initial_us = self.pipeline.initial_slack_s * 1_000_000 if query.promised is not None else 0
        at_us, slack_us = self.steps[query.id]
        index = np.searchsorted(at_us, window_end_us, side="right") - 1
        known = np.append(slack_us, initial_us)
        return known[np.where(index >= 0, index, len(slack_us))]
