"""How often the intervals of history's estimates hold the truth: streams, samples and ranges of many seeds.

Streams of four kinds are held as a store would hold them after its last pass: periods of equal length, thinned to
levels by ``plan_levels``, the load-lowered ones entering at a lowered level. Each range asks for COUNT, SUM and AVG of
the tuples of some kind within it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from infra.research.figures.running import Row

from tidegate.declarations.models import History
from tidegate.operators.history.bands import Bands, plan_levels
from tidegate.operators.history.estimators import Estimate, Float64s, Int64s, LeafSample

KINDS = ("stationary", "drifting", "bursty", "load-lowered")
SELECTIVITIES = (0.02, 0.04, 0.1, 0.3, 0.8)
AGES = ("newest quarter", "second quarter", "third quarter", "oldest quarter")
AGGREGATES = ("count", "sum", "avg")
PERIODS, PERIOD_TUPLES = 1_000, 100
CONFIDENCE, LEAST_EFFECTIVE_ROWS = 0.95, 10.0
SPEC = History(leaf_s=1, capacity_tuples=10_000, max_fraction=0.9, min_fraction=0.001, law="inverse_age")


@dataclass(frozen=True, eq=False)
class Store:
    """A stream and what is kept of it; ``y`` the value, ``kind`` uniform in [0, 1): a predicate selects kind < s."""

    tuples: Int64s
    period: Int64s
    y: Float64s
    kind: Float64s
    fraction: Float64s
    kept: Int64s

    @classmethod
    def of(cls, kind: str, seed: int, spec: History = SPEC) -> Store:
        """A stream of the kind, thinned."""
        rng, position = np.random.default_rng([seed, KINDS.index(kind)]), np.arange(PERIODS) / PERIODS
        rate = np.full(PERIODS, float(PERIOD_TUPLES))
        level = np.zeros(PERIODS, np.int64)
        if kind == "drifting":
            rate *= 1 + 0.8 * np.sin(6 * np.pi * position)
        if kind == "bursty":
            rate *= np.where(rng.random(PERIODS) < 0.05, 12.0, 0.4)
        if kind == "load-lowered":
            level = np.where(rng.random(PERIODS) < 0.3, rng.integers(1, 8, PERIODS), 0)
        tuples = rng.poisson(rate)
        period = np.repeat(np.arange(PERIODS), tuples)
        # Account balances of TPC-H are uniform from -999.99 to 9999.99; the drift moves them by their deviation.
        y = rng.uniform(-1_000, 10_000, len(period))
        y += 6_000 * position[period] * (kind == "drifting")
        u, bands = rng.random(len(period)), Bands.of(spec)
        band = bands.of_priority(u)
        rows = np.zeros((PERIODS, bands.count), np.int64)
        np.add.at(rows, (period[band >= 0], band[band >= 0]), 1)
        rows *= np.arange(bands.count) >= level[:, None]
        fraction = bands.fractions[plan_levels(tuples, rows, level, spec)]
        return cls(tuples, period, y, rng.random(len(period)), fraction, np.flatnonzero(u < fraction[period]))

    def ask(self, first: int, last: int, selectivity: float, confidence: float = CONFIDENCE) -> Iterator[tuple]:
        """(aggregate, estimate, truth, n_eff) for periods first to last (exclusive)."""
        low, high = np.searchsorted(self.period, [first, last])
        rows = self.kept[slice(*np.searchsorted(self.kept, [low, high]))]
        chosen, y = self.kind[rows] < selectivity, self.y[rows]
        weight = 1 / self.fraction[self.period[rows]][chosen]
        effective = float(weight.sum() ** 2 / (weight**2).sum()) if len(weight) else 0.0
        if effective < LEAST_EFFECTIVE_ROWS:
            return
        sample = LeafSample(
            self.tuples[first:last],
            self.fraction[first:last],
            self.fraction[self.period[rows]],
            confidence,
            self.period[rows] - first,
        )
        inside = slice(low, high)
        truth = self.y[inside][self.kind[inside] < selectivity]
        bounds = (float(self.y[inside].min()), float(self.y[inside].max()))
        in_sampled = np.repeat(self.fraction[first:last] > 0, self.tuples[first:last])
        known = (y, float(self.y[inside][in_sampled].sum()))
        yield "count", sample.count(chosen), float(len(truth)), effective
        yield "sum", sample.total(chosen, y, bounds, known), float(truth.sum()), effective
        yield "avg", sample.mean(chosen, y, bounds, known=known), float(truth.mean()) if len(truth) else 0.0, effective


def holds(estimate: Estimate, truth: float) -> bool:
    """Whether the interval holds the truth; an interval of no width around a wrong estimate does not."""
    slack = 1e-9 * max(abs(truth), 1.0)
    low = -np.inf if estimate.low is None else estimate.low - slack
    high = np.inf if estimate.high is None else estimate.high + slack
    return bool(low <= truth <= high)


def ranges(rng: np.random.Generator, count: int) -> Iterator[tuple[int, int, float]]:
    """Random ranges of 1 % to 40 % of the history, and selectivities."""
    for _ in range(count):
        length = int(PERIODS * 10 ** rng.uniform(-2, -0.4))
        first = int(rng.integers(0, PERIODS - length + 1))
        yield first, first + length, float(rng.choice(SELECTIVITIES))


def coverage(kind: int, seed: int, asked: int = 2_000) -> Row:
    """Hits and trials of one store: ``hits_<aggregate>``, and by quarter of age and by selectivity."""
    store, rng = Store.of(KINDS[kind], seed), np.random.default_rng([seed, kind, 1])
    found: dict[str, float] = {}
    for first, last, selectivity in ranges(rng, asked):
        quarter = min(3, int(4 * (1 - (first + last) / 2 / PERIODS)))
        for aggregate, estimate, truth, _ in store.ask(first, last, selectivity):
            hit, width = holds(estimate, truth), (estimate.high or 0.0) - (estimate.low or 0.0)
            for name in (aggregate, f"age{quarter}", f"selectivity{SELECTIVITIES.index(selectivity)}"):
                found[f"trials_{name}"] = found.get(f"trials_{name}", 0) + 1
                found[f"hits_{name}"] = found.get(f"hits_{name}", 0) + hit
            found["without_width"] = found.get("without_width", 0) + (width == 0 and not estimate.exact)
    return found
