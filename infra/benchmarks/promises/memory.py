"""Is memory that would suffice used? Level A beside what one who knows all arrivals beforehand would reach.

The controller that `ingest` runs, over the arrivals of whole streams; ranges and K are fixed. M is a share of the most
that all windows over their whole height (range and K) take at any tick, each counted by whole panes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from infra.benchmarks.generator.randomness import Floats, uniforms
from infra.benchmarks.promises import cases
from infra.benchmarks.promises.stream import DAY_S, HOUR_S, Stream

from tidegate.operators.window_sizing.controller import advance_counts
from tidegate.operators.window_sizing.ledger import Arrivals
from tidegate.operators.window_sizing.spec import ControllerSpec, SizedQuery, SizedStream
from tidegate.operators.window_sizing.state import ControllerState

SHARES = (1.0, 0.9, 0.7, 0.5)
DAYS = 60


@dataclass(frozen=True, eq=False)
class Held:
    """A stream of ``tuple_bytes`` a tuple, whose windows hold ``range_s`` and wait ``slack_s``."""

    stream: Stream
    tuple_bytes: float
    range_s: float
    slack_s: float


@dataclass(frozen=True)
class Reached:
    """Shares of the time after the first day: all queries at level A; what all of them need fits M."""

    data: str
    share: float
    level_a: float
    fits: float


def sets() -> Iterator[tuple[str, int, list[Held]]]:
    """Name, tick in seconds, and streams that share M."""
    departures, landings = (
        next(c.stream for c in cases.flights() if c.stream.name == name) for name in ("departures", "landings")
    )
    yield "flights 2013", 300, [Held(departures, 490, HOUR_S, 4 * HOUR_S), Held(landings, 170, 6 * HOUR_S, 0)]
    yield "commits", DAY_S // 12, [Held(next(cases.commits()).stream, 100, 3 * DAY_S, 2 * DAY_S)]
    yield "glucose", 1800, [Held(next(cases.glucose()).stream, 50, 6 * HOUR_S, 8 * HOUR_S)]
    # A tuple a minute, and once in five days a hundred times as many for an hour.
    at = np.arange(0, DAYS * DAY_S, 60.0)
    bursts = [day * DAY_S + HOUR_S * uniforms(day, "promises/burst", 6000) for day in range(3, DAYS, 5)]
    event_s = np.sort(np.concatenate([at, *bursts]))
    yield "bursts of 100", 300, [Held(Stream("bursts", event_s, event_s), 100, 6 * HOUR_S, 0)]


def reached(data: str, tick_s: int, held: list[Held], shares: tuple[float, ...] = SHARES) -> Iterator[Reached]:
    """What came of each budget."""
    tick_us, counts = tick_s * 1_000_000, {}
    for one in held:
        own = one.stream.arrival_s < DAYS * DAY_S if len(held) > 1 else np.ones(len(one.stream.arrival_s), dtype=bool)
        times = ((s[own] * 1e6).astype(np.int64) for s in (one.stream.arrival_s, one.stream.event_s))
        counts[one.stream.name] = Arrivals.of(*times, one.tuple_bytes, tick_us)
    end_us = max(int(c.slot_us[-1]) for c in counts.values()) + tick_us
    needed = sum(needed_bytes(counts[o.stream.name], o.range_s + o.slack_s, tick_us, end_us) for o in held)
    assert isinstance(needed, np.ndarray)
    first = DAY_S // tick_s
    for share in shares:
        budget = float(needed.max()) * share
        streams = tuple(
            SizedStream(
                o.stream.name, len(o.stream.event_s) / o.stream.event_s[-1], o.tuple_bytes, o.range_s + o.slack_s
            )
            for o in held
        )
        queries = tuple(
            SizedQuery(
                o.stream.name, {o.stream.name: o.range_s}, {o.stream.name: 0.0}, float(tick_s), slack_s=o.slack_s
            )
            for o in held
        )
        spec = ControllerSpec(streams, queries, budget, tick_us)
        done = advance_counts(spec, ControllerState.initial(spec), 0, end_us, counts)
        ticks = np.arange(first, end_us // tick_us) * tick_us
        at_a = np.ones(len(ticks), dtype=bool)
        for query in queries:
            own = [row for row in done.query_plans if row.query == query.id]
            place = np.searchsorted([row.effective_from_us for row in own], ticks, side="right") - 1
            at_a &= np.array([row.support_level == "A" for row in own])[place]
        yield Reached(data, share, float(at_a.mean()), float((needed[first:] <= budget).mean()))


def needed_bytes(counts: Arrivals, height_s: float, tick_us: int, end_us: int) -> Floats:
    """Bytes, a tick, of the panes that a window of the height reaches, with what arrives until the next tick."""
    ticks = end_us // tick_us
    since = counts.slot_us // tick_us
    until = (counts.pane_us + round(height_s * 1e6)) // tick_us
    own = until > since
    change = np.bincount(since[own], np.ceil(counts.bytes[own]), ticks + 1)
    gone = np.bincount(np.minimum(until[own], ticks), np.ceil(counts.bytes[own]), ticks + 1)
    return np.asarray(np.cumsum(change - gone)[:ticks])
