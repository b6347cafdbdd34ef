"""The slack K in effect at a window's end, from the effective-dated rows of ``slack_plan``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.declarations.models import Pipeline, Query, to_us
from tidegate.engine.context import RunContext, previous_label
from tidegate.operators.accuracy import expected_accuracy
from tidegate.operators.schedule import Int64s
from tidegate.store.intervals import Interval, interval_holding
from tidegate.store.warehouse import Warehouse


@dataclass(frozen=True, eq=False)
class Waits:
    """K as a step function of the end of a window, microseconds.

    ``at_us`` int64[n], ascending: from when on ``slack_us[1:]``, int64[n], hold; ``slack_us[0]`` holds before.
    """

    at_us: Int64s
    slack_us: Int64s

    @classmethod
    def always(cls, slack_us: int) -> Waits:
        """The same K at all times."""
        return cls(np.zeros(0, np.int64), np.array([slack_us], dtype=np.int64))

    @property
    def longest_us(self) -> int:
        """The longest of them."""
        return int(self.slack_us.max())

    def of(self, window_end_us: Int64s) -> Int64s:
        """K of each window."""
        waited: Int64s = self.slack_us[np.searchsorted(self.at_us, window_end_us, side="right")]
        return waited


@dataclass(frozen=True)
class SlackHistory:
    """Query → K over time.

    For each of these K, None if unknown: ``expected``, share of the ranges held → accuracy; ``expected_after``, seconds
    waited → accuracy over whole ranges, of queries that emit updates.
    """

    pipeline: Pipeline
    steps: dict[str, tuple[Int64s, Int64s]]
    expected: dict[str, list[dict[float, float] | None]]
    expected_after: dict[str, list[dict[float, float] | None]]

    @classmethod
    def load(cls, warehouse: Warehouse, intervals: Sequence[Interval]) -> SlackHistory:
        """The slacks in effect at windows that can be waited for, or judged, in the intervals.

        No window is waited for longer than the horizon, and none is judged later than a horizon after its end, give or
        take a tick, and a bound's lag. A plan written for an interval is in effect from its end.
        """
        pipeline = warehouse.pipeline
        lag_us = max((query.lag_us for query in pipeline.queries), default=0)
        oldest_us = intervals[0].start_us - (2 * pipeline.horizon_s + pipeline.tick_s) * 1_000_000 - 2 * lag_us
        oldest = interval_holding(pipeline, oldest_us).label
        known = [label for label in warehouse.labels("slack_plan") if label < intervals[-1].label]
        before = [label for label in known if label < oldest][-1:]
        rows = warehouse.read_arrow("slack_plan", [*before, *(x for x in known if x >= oldest)]).to_pylist()
        steps: dict[str, tuple[Int64s, Int64s]] = {}
        expected: dict[str, list[dict[float, float] | None]] = {}
        after: dict[str, list[dict[float, float] | None]] = {}
        for query in pipeline.queries:
            own = sorted((r for r in rows if r["query"] == query.id), key=lambda r: r["effective_from"])
            steps[query.id] = (
                np.array([to_us(r["effective_from"]) for r in own], dtype=np.int64),
                np.array([round(r["slack_s"] * 1e6) for r in own], dtype=np.int64),
            )
            for by_query, column in ((expected, "accuracy_by_share"), (after, "accuracy_by_wait")):
                maps = [r[column] for r in own]
                by_query[query.id] = [None if m is None else {float(at): v for at, v in m} for m in maps]
        return cls(pipeline, steps, expected, after)

    def slack_us(self, query: Query, window_end_us: Int64s) -> Int64s:
        """K of each window, microseconds: the newest plan's, before any the declared initial slack.

        A query that promises nothing waits for nothing. With a bound it is the newest plan's once its lag is over.
        """
        at_us, slack_us = self.steps[query.id]
        index = np.searchsorted(at_us, window_end_us + query.lag_us, side="right") - 1
        known = np.append(slack_us, self._initial_us(query))
        return known[np.where(index >= 0, index, len(slack_us))]

    def waits(self, query: Query) -> Waits:
        """K by the end of a window, as far back as it is known."""
        at_us, slack_us = self.steps[query.id]
        return Waits(at_us, np.concatenate([np.array([self._initial_us(query)], np.int64), slack_us]))

    def accuracy_expected(self, query: Query, window_end_us: Int64s, share: np.ndarray) -> np.ndarray:
        """float64[n]: the hit rate, or the chance to be within ERROR, of answers over these shares of their ranges.

        By the newest plan at each window's end; NaN while nothing is known, or promised.
        """
        return self._by_maps(self.expected[query.id], query, window_end_us, share)

    def accuracy_after(self, query: Query, window_end_us: Int64s, share: np.ndarray, wait_s: np.ndarray) -> np.ndarray:
        """The same of answers that waited so long, whatever K was: what waits and what shares are worth, multiplied."""
        waited = self._by_maps(self.expected_after[query.id], query, window_end_us, wait_s)
        part, whole = (self.accuracy_expected(query, window_end_us, own) for own in (share, np.ones(len(share))))
        known: np.ndarray = waited * np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)
        return known

    def _by_maps(
        self, maps: Sequence[dict[float, float] | None], query: Query, window_end_us: Int64s, at: np.ndarray
    ) -> np.ndarray:
        """What the maps of the newest plans at each window's end say of these places."""
        index = np.searchsorted(self.steps[query.id][0], window_end_us + query.lag_us, side="right") - 1
        found = np.full(len(window_end_us), np.nan)
        for step in np.unique(index[index >= 0]).tolist():
            known = maps[step]
            if known is not None:
                found[index == step] = expected_accuracy(known, at[index == step])
        return found

    def pending_s(self, query: Query, at_us: int) -> float:
        """The longest K that matters from an instant on: the one in effect, and those of windows still waited for.

        A window that ended under a longer K is answered later than one that ends now: its tuples are needed until then.
        """
        starts, slacks = self.steps[query.id]
        before = starts <= at_us
        slacks = np.append(self._initial_us(query), slacks[before])
        ends = np.append(starts[before], at_us)
        waited = np.maximum(ends + slacks > at_us, np.arange(len(slacks)) == len(slacks) - 1)
        return float(slacks[waited].max()) / 1e6

    def _initial_us(self, query: Query) -> int:
        return self.pipeline.initial_slack_s * 1_000_000 if query.promised is not None else 0


def require_calibrated(context: RunContext, intervals: Sequence[Interval]) -> None:
    """UserError if the interval before was not calibrated though earlier ones were: what it learnt would be missing."""
    before = previous_label(context.pipeline, intervals[0])
    earlier = [label for label in context.warehouse.labels("slack_plan") if label < intervals[0].label]
    if earlier and not context.cold_start:
        context.warehouse.require("slack_plan", [before], "calibrate")
