"""What one run of the paper's experiments says: the numbers behind the figures."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean

import pyarrow.compute as pc
from infra.research.figures.join_aggregate.streams import SECOND_US, arrivals, production, tuples_per_s
from infra.research.figures.running import Row
from infra.research.published.join_aggregate import Arrival, Query, start
from infra.research.published.join_aggregate.costs import ic_accesses, tc_accesses

from tidegate.operators.join_aggregate import finish, state_bytes
from tidegate.operators.join_aggregate import step as production_step

BUCKETS = 20
PAIR_METHODS = {"pc": "PC", "ic": "IC", "tc": "TC-COUNT"}
GROUP_METHODS = {"pc": "GPC", "ic": "GIC", "tc": "GTC"}
MANY_METHODS = {"pc": "MPC", "tc": "MTC"}

WIDTH_BYTE_RATE, WIDTH_KEYS, WIDTH_TUPLES = 100, 20, 200
RATE_WIDTH_S, RATE_BYTE_RATE, RATE_SECONDS = 20, 500, 5
GROUP_RATE, GROUP_KEYS, GROUP_TUPLES = 100, 100, 20
WAYS_WIDTH_S, WAYS_BYTE_RATE, WAYS_KEYS = 10, 100, 100
# The production operator's fixed costs a batch vanish only in batches of many tuples.
PRODUCTION_TUPLES = 20_000


@dataclass(frozen=True)
class Seen:
    """One tuple's cost: CPU time, accesses, both of the paper's cost formulas, and bytes held just after it."""

    event_us: int
    cpu_us: float
    touched: float
    model_ic: float
    model_tc: float
    held_bytes: float

    @staticmethod
    def mean(of: Sequence[Seen], prefix: str, model: bool = False) -> dict[str, float]:
        """The means as columns, with or without the cost formula; nothing if nobody arrived."""
        if not of:
            return {}
        names = {"cpu_us": "us", "touched": "touched", "held_bytes": "bytes"}
        names |= {f"model_{prefix}": "model"} if model and prefix != "pc" else {}
        return {f"{prefix}_{column}": fmean(getattr(one, name) for one in of) for name, column in names.items()}


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Time without the garbage collector, or a few tuples would pay for the garbage of all."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def run(name: str, query: Query, found: Sequence[Arrival], from_us: int) -> list[Seen]:
    """A published algorithm over the tuples; it answers, and is measured, from ``from_us`` on."""
    with uninterrupted():
        return list(_run(name, query, found, from_us))


def _run(name: str, query: Query, found: Sequence[Arrival], from_us: int) -> Iterator[Seen]:
    state = start(name, query)
    for one in found:
        if one.event_us < from_us:
            state.absorb(one)
            continue
        before, touched = [len(window) for window in state.windows], state.touched.total
        begun = time.process_time_ns()
        state.absorb(one)
        state.answer()
        cpu_us = (time.process_time_ns() - begun) / 1e3
        before[one.side] += 1
        held = [len(window) for window in state.windows]
        gone = [was - now for was, now in zip(before, held, strict=True)]
        own, other = one.side, (one.side + 1) % len(held)
        yield Seen(
            one.event_us,
            cpu_us,
            state.touched.total - touched,
            ic_accesses(before[own], before[other], query.buckets, gone[own], gone[other]),
            tc_accesses(before[own], before[other], query.buckets),
            state.published_bytes,
        )


def production_cost(found: Sequence[Arrival], widths_us: Sequence[int], grouped: bool = False) -> dict[str, float]:
    """CPU time a tuple of the production operator, in one batch with an answer after each; the most that it held."""
    state, batch = production(found, widths_us, grouped)
    with uninterrupted():
        begun = time.process_time_ns()
        state, _ = production_step(state, batch)
        state, _ = finish(state)
        cpu_us = (time.process_time_ns() - begun) / 1e3
    return {"production_us": cpu_us / len(found), "production_bytes": float(state.peak_bytes)}


def by_width(width_s: int, seed: int) -> Row:
    """Figs. 2 and 3: rate fixed, window growing; a window is filled, then tuples are measured."""
    rate = tuples_per_s(WIDTH_BYTE_RATE)
    found = arrivals(seed, 2, [(width_s + WIDTH_TUPLES / (2 * rate), rate)], WIDTH_KEYS)
    query, row = Query((width_s * SECOND_US,) * 2, buckets=BUCKETS), {}
    for prefix, name in PAIR_METHODS.items():
        row |= Seen.mean(run(name, query, found, width_s * SECOND_US), prefix, model=True)
    longer = arrivals(seed, 2, [(PRODUCTION_TUPLES / (2 * rate), rate)], WIDTH_KEYS)
    return row | production_cost(longer, query.widths_us)


def by_rate(squared: int, seed: int) -> Row:
    """Figs. 4 and 5: a full window, then five seconds of falling rate; columns end in ``_1`` … ``_5``.

    The rate in second i is 500 / 2^i bytes/s, or, as the print can also be read, 500 / i^2.
    """
    rate = tuples_per_s(RATE_BYTE_RATE)
    falling = [rate / (second**2 if squared else 2**second) for second in range(1, RATE_SECONDS + 1)]
    found = arrivals(seed, 2, [(RATE_WIDTH_S, rate), *((1, one) for one in falling)], WIDTH_KEYS)
    query, row = Query((RATE_WIDTH_S * SECOND_US,) * 2, buckets=BUCKETS), {}
    for prefix, name in PAIR_METHODS.items():
        seen = run(name, query, found, RATE_WIDTH_S * SECOND_US)
        for second in range(1, RATE_SECONDS + 1):
            within = [one for one in seen if one.event_us // SECOND_US == RATE_WIDTH_S + second - 1]
            row |= {f"{column}_{second}": value for column, value in Seen.mean(within, prefix, model=True).items()}
    state, batch = production(found, query.widths_us)
    second_of = pc.add(pc.divide(batch.column("event_us"), SECOND_US), 1 - RATE_WIDTH_S)
    state, _ = production_step(state, batch.filter(pc.less(second_of, 1)))
    for second in range(1, RATE_SECONDS + 1):
        state, _ = production_step(state, batch.filter(pc.equal(second_of, second)))
        row[f"production_bytes_{second}"] = float(state_bytes(state))
    longer = arrivals(seed, 2, [(PRODUCTION_TUPLES / (2 * rate), rate)], WIDTH_KEYS)
    cpu_us = production_cost(longer, query.widths_us)["production_us"]
    return row | {f"production_us_{second}": cpu_us for second in range(1, RATE_SECONDS + 1)}


def by_group(width_s: int, seed: int) -> Row:
    """Fig. 6: as Fig. 2, grouped by the join key."""
    found = arrivals(seed, 2, [(width_s + GROUP_TUPLES / (2 * GROUP_RATE), GROUP_RATE)], GROUP_KEYS)
    query, row = Query((width_s * SECOND_US,) * 2, groups=(0,), buckets=BUCKETS), {}
    for prefix, name in GROUP_METHODS.items():
        row |= Seen.mean(run(name, query, found, width_s * SECOND_US), prefix)
    longer = arrivals(seed, 2, [(PRODUCTION_TUPLES / (2 * GROUP_RATE), GROUP_RATE)], GROUP_KEYS)
    return row | production_cost(longer, query.widths_us, grouped=True)


def by_ways(windows: int, identical: int, seed: int) -> Row:
    """Fig. 7: more and more windows, of independent streams or of identical ones; measured for one window's width."""
    rate = tuples_per_s(WAYS_BYTE_RATE)
    found = arrivals(seed, windows, [(2 * WAYS_WIDTH_S, rate)], WAYS_KEYS, bool(identical))
    query, row = Query((WAYS_WIDTH_S * SECOND_US,) * windows, buckets=BUCKETS), {}
    for prefix, name in MANY_METHODS.items():
        row |= Seen.mean(run(name, query, found, WAYS_WIDTH_S * SECOND_US), prefix)
    length_s = PRODUCTION_TUPLES / (windows * rate)
    return row | production_cost(
        arrivals(seed, windows, [(length_s, rate)], WAYS_KEYS, bool(identical)), query.widths_us
    )
