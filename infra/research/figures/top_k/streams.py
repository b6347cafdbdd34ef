"""The streams of the figures: random ones by their law of delays, and the departures of 2013."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import pandas as pd
from infra.benchmarks.generator.lateness import Exponential, Lateness, LogNormal, Pareto
from infra.benchmarks.generator.randomness import Floats, uniforms
from infra.research.published.top_k import Arrival, arrivals

from tidegate.examples.land_flights import data_folder, departures

SECOND_US = 1_000_000
GENERATOR = (
    "streams.py beside this figure's code: so many tuples with event times uniform over the run, scores uniform and "
    "independent of the delays, by infra/benchmarks/generator"
)
# Laws of about the same mean, 6 s: medium disorder.
LAWS: dict[str, Lateness] = {
    "exponential": Exponential(6.0),
    "lognormal": LogNormal(2.0, 1.5),
    "Pareto": Pareto(2.0, 1.5),
}
DEPARTURES_FROM, DEPARTURES_DAYS = pd.Timestamp("2013-01-01", tz="UTC"), 42


def random_stream(laws: Sequence[tuple[float, Lateness]], rate_per_s: float, seed: int) -> list[Arrival]:
    """Tuples over (seconds, law of the delays) one after the other, by event time."""
    seconds = np.cumsum([length_s for length_s, _ in laws])
    rows = int(seconds[-1] * rate_per_s)
    event_s = uniforms(seed, "top_k/events", rows) * seconds[-1]
    share, scores = uniforms(seed, "top_k/lateness", rows), uniforms(seed, "top_k/scores", rows)
    late_s: Floats = np.zeros(rows)
    regime = np.searchsorted(seconds, event_s, side="right")
    for index, (_, law) in enumerate(laws):
        late_s[regime == index] = law.quantile_s(share[regime == index])
    event_us = (event_s * SECOND_US).astype(np.int64)
    arrival_us = event_us + (late_s * SECOND_US).astype(np.int64)
    return arrivals(event_us.tolist(), arrival_us.tolist(), scores.tolist(), list(range(rows)))


@functools.lru_cache(maxsize=1)
def departures_stream() -> list[Arrival]:
    """The departures from New York as the demo's feed lands them, by scheduled time; the score is the delay."""
    found = departures(data_folder())
    until = DEPARTURES_FROM + pd.Timedelta(days=DEPARTURES_DAYS)
    found = found[(found["scheduled"] >= DEPARTURES_FROM) & (found["scheduled"] < until)]
    begin_s = DEPARTURES_FROM.timestamp()
    event_us, arrival_us = (
        ((found[name].astype("datetime64[ns, UTC]").astype("int64") / 1e9 - begin_s) * SECOND_US).astype("int64")
        for name in ("scheduled", "arrival")
    )
    scores, ids = found["dep_delay"].astype(float), found["flight_id"]
    return arrivals(event_us.tolist(), arrival_us.tolist(), scores.tolist(), ids.tolist())
