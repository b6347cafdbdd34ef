"""When tuples happen and when they arrive, whatever they tell of."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from infra.benchmarks.generator.faults import TIMESTAMP, Faults
from infra.benchmarks.generator.lateness import Lateness, Punctual, scores_and_lateness_s
from infra.benchmarks.generator.randomness import Floats, Integers
from infra.benchmarks.generator.shapes import Shape, Steady, event_times_s, relative_rate

MEAN_SCORE = 100.0


@dataclass(frozen=True)
class Timing:
    """When it begins, how long it lasts, how the rate and the lateness move, and what goes wrong.

    ``lateness_shape``: lateness is multiplied by it at the tuple's event time (a square makes regimes).
    ``correlation`` of the score with the lateness, in the copula (see :func:`.scores_and_lateness_s`).
    """

    seconds: float = 60.0
    start: datetime = datetime(2013, 1, 1, tzinfo=UTC)
    rate_shape: Shape = Steady()
    lateness: Lateness = Punctual()
    lateness_shape: Shape = Steady()
    correlation: float = 0.0
    faults: Faults = field(default_factory=Faults)


@dataclass(frozen=True, eq=False)
class Happenings:
    """One row an event, in the order of true event time: all int64[n] or float64[n]."""

    event_us: Integers
    source: Integers
    stamped_us: Integers
    arrival_us: Integers
    lateness_us: Integers
    score: Floats


def happenings(timing: Timing, rows: int, seed: int, stream: str) -> Happenings:
    """When so many events happen, which clock stamps them with what, when they arrive, and their scores.

    Arrival = true event time + lateness; what the stream says is the stamp, true event time + the clock's error.
    """
    at_s = event_times_s(timing.rate_shape, rows, timing.seconds, seed, stream)
    score, late_s = scores_and_lateness_s(timing.lateness, timing.correlation, MEAN_SCORE, rows, seed, stream)
    late_s = late_s * relative_rate(timing.lateness_shape, at_s, timing.seconds, seed)
    event_us = round(timing.start.timestamp()) * 1_000_000 + np.floor(at_s * 1e6).astype(np.int64)
    lateness_us = np.rint(late_s * 1e6).astype(np.int64)
    source, skew_us = timing.faults.clocks(rows, seed, stream)
    return Happenings(event_us, source, event_us + skew_us, event_us + lateness_us, lateness_us, score)


def as_arrived(columns: dict[str, pa.Array], when: Happenings, faults: Faults, seed: int, stream: str) -> pa.Table:
    """The records of a stream in order of arrival, with ``event_id``, ``event_time``, ``arrival_time``, ``source``.

    Arguments: ``columns``: what the tuples tell, in the order of ``when``.
    """
    row, arrival_us = faults.repeat(when.arrival_us, when.lateness_us, seed, stream)
    clocks = {
        "event_id": pa.array(np.arange(len(when.event_us))),
        "event_time": pa.array(when.stamped_us).cast(TIMESTAMP),
        "source": pa.array(when.source),
    }
    table = pa.table({**clocks, **columns}).take(pa.array(row))
    table = table.add_column(2, "arrival_time", pa.array(arrival_us).cast(TIMESTAMP))
    return faults.spoil(table, seed, stream)
