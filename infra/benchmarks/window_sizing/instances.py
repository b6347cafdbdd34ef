"""Random planning problems, reproducible from a seed.

>>> needs = random_needs(seed=1, windows=3, queries=10)
>>> needs.window_ids, len(needs.query_ids)
(('w000', 'w001', 'w002'), 10)
"""

from __future__ import annotations

import numpy as np

from tidegate.operators.window_sizing.c_support import Swings
from tidegate.operators.window_sizing.needs import Needs, QueryNeed, WindowNeed

Range = tuple[float, float]


def random_needs(
    seed: int,
    windows: int,
    queries: int,
    *,
    byte_rate: Range = (10.0, 1000.0),
    range_s: Range = (60.0, 3600.0),
    slack_fraction: Range = (0.0, 0.2),
    delay_s: Range = (60.0, 3600.0),
    join_fraction: float = 0.0,
) -> Needs:
    """Needs with all parameters random.

    Byte rates (bytes/s), ranges and delays (s) are log-uniform between the two numbers, the slack width is a uniform
    fraction of the range. The first queries read one window each in turn, so that none is idle; the others read
    one at random. ``join_fraction`` of the queries read a second window as well.
    """
    rng = np.random.default_rng(seed)
    ids = [f"w{w:03d}" for w in range(windows)]
    rates = log_uniform(rng, byte_rate, windows)
    ranges = log_uniform(rng, range_s, (queries, 2))
    slack = rng.uniform(*slack_fraction, queries)
    delays = log_uniform(rng, delay_s, queries)
    first = np.where(np.arange(queries) < windows, np.arange(queries) % windows, rng.integers(windows, size=queries))
    other = (first + rng.integers(1, max(windows, 2), size=queries)) % windows
    joins = (rng.random(queries) < join_fraction) & (other != first)
    needs = []
    for q in range(queries):
        reads = {ids[first[q]]: float(ranges[q, 0])}
        if joins[q]:
            reads[ids[other[q]]] = float(ranges[q, 1])
        missing = {window: float(slack[q]) * range_ for window, range_ in reads.items()}
        needs.append(QueryNeed(f"q{q:06d}", reads, missing, float(delays[q])))
    return Needs.of([WindowNeed(name, float(rate)) for name, rate in zip(ids, rates, strict=True)], needs)


def random_swings(seed: int, windows: int, family: str = "random") -> Swings:
    """The grouping problem of level C alone: slots, periods, exchange memory.

    Families: "random": slots and periods log-uniform, a slot at most its period; "similar": slots a third of the
    period ± 10 %, exchange ± 10 % (all windows look alike); "tight": slots 0.25 to 0.5 of one common period; "uniform":
    periods 20 to 100 s, slots 1 to 30 s, 1 to 100 bytes/s, all uniform (many windows to a group).
    """
    rng = np.random.default_rng(seed)
    exchange = log_uniform(rng, (10.0, 1000.0), windows)
    if family == "random":
        period = log_uniform(rng, (60.0, 3600.0), windows)
        slot = np.minimum(log_uniform(rng, (10.0, 1000.0), windows), period)
    elif family == "similar":
        period = np.full(windows, 600.0)
        slot = 200.0 * rng.uniform(0.9, 1.1, windows)
        exchange = 100.0 * rng.uniform(0.9, 1.1, windows)
    elif family == "tight":
        period = np.full(windows, 600.0)
        slot = 600.0 * rng.uniform(0.25, 0.5, windows)
    elif family == "uniform":
        period = rng.uniform(20.0, 100.0, windows)
        slot = np.minimum(rng.uniform(1.0, 30.0, windows), period)
        exchange = slot * rng.uniform(1.0, 100.0, windows)
    else:
        raise ValueError(f"unknown family {family}")
    return Swings(slot, period, np.zeros(windows), exchange)


def log_uniform(rng: np.random.Generator, between: Range, size: int | tuple[int, ...]) -> np.ndarray:
    """Numbers whose logarithms are uniform between the logarithms of the two."""
    return np.exp(rng.uniform(np.log(between[0]), np.log(between[1]), size))
