"""The paper's experiment: errors of AVG(ACCTBAL) over landmark and snapshot scopes, by its estimators and by ours.

Both know the same exact leaves, of 100 tuples each. The paper keeps leaf k at min(exp(−age/D), f_max), scales every
leaf's sample by 1/f, and gives a cut leaf's share of its aggregates. Tidegate holds intervals of 10 leaves at the
levels that ``plan_levels`` gives by D0/age, calibrates to exact leaves, and looks into a cut leaf's sample (below
f = 2/3 the share stands unless the sample contradicts it).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from infra.research.figures.history.customers import customers
from infra.research.figures.running import Row

from tidegate.declarations.models import History
from tidegate.operators.history.bands import Bands, plan_levels
from tidegate.operators.history.estimators import LeafSample, with_uniform_arrivals
from tidegate.operators.history.laws import Float64s, Int64s, Law, exponential_targets

LEAF_TICKS, LEAVES_AN_INTERVAL, SNAPSHOT_TICKS = 100, 10, 5_000
CAPACITY, MAX_FRACTION, CONFIDENCE = 100_000, 0.9, 0.95
LANDMARKS = tuple(round(share, 3) for share in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99))
NATION = 7
CAPACITIES = (10_000, 30_000, 100_000, 300_000)
LAWS: tuple[Law, ...] = ("exponential", "inverse_age")
WINDOW_SHARE, WINDOWS = 0.01, 40


def _spec(capacity: int, law: Law) -> History:
    return History(
        leaf_s=LEAF_TICKS, capacity_tuples=capacity, max_fraction=MAX_FRACTION, min_fraction=1e-4, law=law, bands=2
    )


@dataclass(frozen=True, eq=False)
class Held:
    """What one store holds of the stream: fraction a leaf, and the ticks that are sampled, ascending."""

    fraction: Float64s
    kept: Int64s

    def rows(self, first: int, last: int) -> Int64s:
        """The sampled ticks of leaves first to last (exclusive)."""
        edges = np.searchsorted(self.kept, [first * LEAF_TICKS, last * LEAF_TICKS])
        return self.kept[edges[0] : edges[1]]


@functools.lru_cache(maxsize=4)
def stores(seed: int, capacity: int, law: Law) -> tuple[Held, Held]:
    """The paper's store and ours, of the same tuples' priorities."""
    ticks = customers().ticks
    u, leaves = np.random.default_rng([seed, capacity]).random(ticks), ticks // LEAF_TICKS
    paper = np.minimum(exponential_targets(np.full(leaves, LEAF_TICKS), capacity), MAX_FRACTION)
    spec = _spec(capacity, law)
    bands, length = Bands.of(spec), LEAF_TICKS * LEAVES_AN_INTERVAL
    intervals = ticks // length
    rows, band = np.zeros((intervals, bands.count), np.int64), bands.of_priority(u)
    np.add.at(rows, (np.arange(ticks)[band >= 0] // length, band[band >= 0]), 1)
    level = plan_levels(np.full(intervals, length), rows, np.zeros(intervals, np.int64), spec)
    ours = np.repeat(bands.fractions[level], LEAVES_AN_INTERVAL)
    return tuple(  # type: ignore[return-value]
        Held(fraction, np.flatnonzero(u < np.repeat(fraction, LEAF_TICKS))) for fraction in (paper, ours)
    )


def _scope(start: int, end: int) -> tuple[int, int]:
    return start // LEAF_TICKS, -(-end // LEAF_TICKS)


def _paper_simple(start: int, end: int) -> float:
    """Whole leaves, and of a cut leaf the covered share of SUM and COUNT."""
    stream, (first, last) = customers(), _scope(start, end)
    total = 0.0
    for leaf in {first, last - 1}:
        low, high = max(start, leaf * LEAF_TICKS), min(end, (leaf + 1) * LEAF_TICKS)
        share = (high - low) / LEAF_TICKS
        total += share * float(stream.balance[leaf * LEAF_TICKS : (leaf + 1) * LEAF_TICKS].sum())
    inner = stream.balance[(first + 1) * LEAF_TICKS : (last - 1) * LEAF_TICKS]
    return (total + float(inner.sum())) / (end - start)


def _paper_complex(held: Held, start: int, end: int, nation: int) -> float:
    """Each leaf's qualifying sample scaled by 1/f; NaN if nothing qualifies."""
    stream, rows = customers(), held.rows(*_scope(start, end))
    rows = rows[(rows >= start) & (rows < end) & (stream.nation[rows] == nation)]
    weight = 1 / held.fraction[rows // LEAF_TICKS]
    return float((weight * stream.balance[rows]).sum() / weight.sum()) if len(rows) else float("nan")


def _ours(held: Held, start: int, end: int, nation: int | None) -> float:
    """Calibrated to the exact leaves; NaN for no estimate."""
    stream, (first, last) = customers(), _scope(start, end)
    cut = [leaf for leaf in {first, last - 1} if leaf * LEAF_TICKS < start or (leaf + 1) * LEAF_TICKS > end]
    leaves = np.array(sorted(cut) if nation is None else range(first, last), dtype=np.int64)
    whole = np.setdiff1d(np.arange(first, last), leaves)
    rows = held.rows(first, last)
    rows = rows[np.isin(rows // LEAF_TICKS, leaves)]
    y = stream.balance[rows]
    sample = LeafSample(
        np.full(len(leaves), LEAF_TICKS),
        held.fraction[leaves],
        held.fraction[rows // LEAF_TICKS],
        CONFIDENCE,
        np.searchsorted(leaves, rows // LEAF_TICKS),
    )
    chosen = (rows >= start) & (rows < end)
    chosen &= True if nation is None else stream.nation[rows] == nation
    by_leaf = stream.balance.reshape(-1, LEAF_TICKS).sum(axis=1)
    sampled = leaves[held.fraction[leaves] > 0]
    known = (y, float(by_leaf[sampled].sum()))
    count, total = len(whole) * LEAF_TICKS, float(by_leaf[whole].sum())
    if not len(leaves):
        return total / count
    found = sample.mean(chosen, y, None, float(count), total, known)
    if nation is None:
        fraction = float(held.fraction[leaves].min())
        found = with_uniform_arrivals(found, _paper_simple(start, end), fraction, int(chosen.sum()))
    return float("nan") if found.estimate is None else found.estimate


def _error(found: float, truth: float) -> float:
    return abs(found - truth) / abs(truth)


def landmarks(seed: int, step: int) -> Row:
    """Figs. 2 to 5 at one landmark: relative errors over [ts, newest) and over [ts, ts + 5000)."""
    stream, rng = customers(), np.random.default_rng([seed, step, 5])
    start = int(LANDMARKS[step] * stream.ticks + rng.integers(1, 4_000))
    paper, ours = stores(seed, CAPACITY, "inverse_age")
    row = {"ts": LANDMARKS[step] * stream.ticks}
    nation = int(rng.integers(25))
    for scope, end in (("landmark", stream.ticks), ("snapshot", start + SNAPSHOT_TICKS)):
        balance, chosen = stream.balance[start:end], stream.nation[start:end] == nation
        simple, complex_ = float(balance.mean()), float(balance[chosen].mean())
        row[f"paper_simple_{scope}"] = _error(_paper_simple(start, end), simple)
        row[f"ours_simple_{scope}"] = _error(_ours(ours, start, end, None), simple)
        row[f"paper_complex_{scope}"] = _error(_paper_complex(paper, start, end, nation), complex_)
        row[f"ours_complex_{scope}"] = _error(_ours(ours, start, end, nation), complex_)
    return row


def store_sizes(seed: int, size: int) -> Row:
    """Errors at 4 % selectivity over windows of 1 % of the history, recent half and oldest tenth, by law."""
    stream, rng = customers(), np.random.default_rng([seed, size, 6])
    length, row = int(WINDOW_SHARE * stream.ticks), {"capacity": float(CAPACITIES[size])}
    ends = {"recent": (stream.ticks // 2, stream.ticks - length), "oldest": (0, stream.ticks // 10 - length)}
    for law in LAWS:
        held = stores(seed, CAPACITIES[size], law)[1]
        for part, (low, high) in ends.items():
            errors = []
            for start in rng.integers(low, high, WINDOWS).tolist():
                end, nation = start + length, int(rng.integers(25))
                truth = stream.balance[start:end][stream.nation[start:end] == nation].mean()
                errors.append(_error(_ours(held, start, end, nation), float(truth)))
            known = [error for error in errors if not np.isnan(error)]
            row[f"{law}_{part}"] = float(np.quantile(known, 0.95)) if known else float("nan")
            row[f"{law}_{part}_unanswered"] = 1 - len(known) / len(errors)
    return row
