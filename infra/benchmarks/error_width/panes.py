"""Streams as panes of one tick: per group and pane how many tuples, and the sum and largest of each of their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tidegate.examples import land_flights

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
TICK_S = 300
DAY = 24 * 3600 // TICK_S


@dataclass(frozen=True)
class Panes:
    """A stream; ``first`` is the number of its first pane since 1970.

    ``counts``: float64[groups, panes]. ``sums``, ``squares``, ``largest``: value → float64[groups, panes], of the
    tuples' values; the largest is −inf where there is none.
    """

    name: str
    first: int
    counts: Floats
    sums: Mapping[str, Floats]
    squares: Mapping[str, Floats]
    largest: Mapping[str, Floats]

    def __len__(self) -> int:
        """Count the panes."""
        return self.counts.shape[1]


def panes_of(name: str, event_s: Ints, group: Ints, values: Mapping[str, Floats]) -> Panes:
    """Panes from tuples; those with a NaN among their values are left out."""
    whole = ~np.isnan(np.column_stack([*values.values(), np.zeros(len(event_s))])).any(axis=1)
    pane, group = event_s[whole] // TICK_S, group[whole]
    # Windows end at even ticks, whatever the pane that a stream begins in.
    first = int(pane.min()) // DAY * DAY
    shape = (int(group.max()) + 1, int(pane.max()) + 1 - first)
    cell = np.ravel_multi_index((group, pane - first), shape)
    size = shape[0] * shape[1]
    sums, squares, largest = {}, {}, {}
    for column, value in values.items():
        sums[column] = np.bincount(cell, value[whole], size).reshape(shape)
        squares[column] = np.bincount(cell, value[whole] ** 2, size).reshape(shape)
        largest[column] = np.full(size, -np.inf)
        np.maximum.at(largest[column], cell, value[whole])
        largest[column] = largest[column].reshape(shape)
    counts = np.bincount(cell, minlength=size).reshape(shape).astype(np.float64)
    return Panes(name, first, counts, sums, squares, largest)


def _seconds(instants: pd.Series) -> Ints:
    return (instants - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy().astype(np.int64)


def departures() -> Panes:
    """The real departures of 2013, by airport."""
    table = land_flights.departures(land_flights.data_folder())
    values = {name: table[name].to_numpy(np.float64) for name in ("dep_delay", "distance")}
    return panes_of("departures", _seconds(table["scheduled"]), pd.factorize(table["origin"], sort=True)[0], values)


def landings() -> Panes:
    """The real landings of 2013, as one group."""
    table = land_flights.landings(land_flights.data_folder())
    values = {name: table[name].to_numpy(np.float64) for name in ("distance", "air_time")}
    return panes_of("landings", _seconds(table["landed"]), np.zeros(len(table), dtype=np.int64), values)


def markov(rng: np.random.Generator, length: int, sojourn_panes: float) -> Ints:
    """A two-state Markov chain that stays ``sojourn_panes`` panes in a state on average."""
    return (np.cumsum(rng.random(length) < 1 / sojourn_panes) + rng.integers(2)) % 2


def autoregressive(rng: np.random.Generator, length: int, correlation_panes: float) -> Floats:
    """A stationary Gaussian AR(1) of variance 1 whose correlation falls to 1/e in ``correlation_panes`` panes."""
    kept = np.exp(-1 / correlation_panes)
    noise = rng.standard_normal(length)
    noise[1:] *= np.sqrt(1 - kept**2)
    series = np.empty(length)
    series[0] = noise[0]
    for pane in range(1, length):
        series[pane] = kept * series[pane - 1] + noise[pane]
    return series


def synthetic(seed: int, days: int, rates_per_hour: tuple[float, float], correlation_h: float) -> Panes:
    """Poisson arrivals whose rate a Markov chain switches, and values 100 + 20 · AR(1), both as slowly correlated."""
    rng, length, panes = np.random.default_rng(seed), days * DAY, correlation_h * 3600 / TICK_S
    rate = np.array(rates_per_hour)[markov(rng, length, panes)] * TICK_S / 3600
    counts = rng.poisson(rate)
    value = np.repeat(100 + 20 * autoregressive(rng, length, panes), counts)
    event_s = np.repeat(np.arange(length) * TICK_S, counts)
    first_day = 1_356_998_400  # 2013-01-01, so that months have names
    return panes_of("synthetic", event_s + first_day, np.zeros(len(event_s), dtype=np.int64), {"value": value})
