"""What is replayed: the flights of 2013, the flights of 2001, commits, a glucose sensor, and laws of delays."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from infra.benchmarks.generator.lateness import Exponential, Lateness, LogNormal, Pareto
from infra.benchmarks.generator.randomness import Floats, uniforms
from infra.benchmarks.promises.stream import DAY_S, HOUR_S, Asked, NeededOf, Stream, totals, winners
from infra.benchmarks.slack import stream as stepping
from scipy.special import ndtri

from tidegate.examples import land_flights
from tidegate.operators.accuracy import Needed

HOURLY = {"period_s": DAY_S, "chosen_every_s": HOUR_S, "horizon_s": 6 * HOUR_S, "initial_s": 2.0 * HOUR_S}
LAWS: dict[str, tuple[Lateness, float]] = {
    "exponential": (Exponential(1.0), 0.0),
    "lognormal": (LogNormal(math.exp(-(1.5**2) / 2), 1.5), 0.0),
    "Pareto": (Pareto(1 / 3, 1.5), 0.0),
    "exponential, late scores high": (Exponential(1.0), 0.5),
}
LAW_HOURS, LAW_RATE = 120, 5


@dataclass(frozen=True, eq=False)
class Case:
    """A query over a stream of a data set, and how to find what its windows needed."""

    data: str
    stream: Stream
    asked: Asked
    needed: NeededOf


def flights() -> Iterator[Case]:
    """The queries of the demo that promise something, over all of 2013; the first at 95 %, too."""
    folder = land_flights.data_folder()
    table = land_flights.departures(folder)
    of, order = Stream.of("departures", *(_seconds(table[name]) for name in ("scheduled", "arrival")))
    score, origin, carrier = (
        table["dep_delay"].to_numpy(float)[order],
        *(pd.factorize(table[name], sort=True)[0][order] for name in ("origin", "carrier")),
    )
    asked = Asked("most_delayed", 0.9, HOUR_S, 600, **HOURLY)  # type: ignore[arg-type]
    yield Case("flights 2013", of, asked, winners(score, 10))
    yield Case("flights 2013", of, replace(asked, name="most_delayed, 95 %", target=0.95), winners(score, 10))
    yield Case("flights 2013", of, replace(asked, name="most_delayed_by_airport"), winners(score, 10, origin))
    yield Case("flights 2013", of, replace(asked, name="most_delayed_by_carrier"), winners(score, 10, carrier))
    count = replace(asked, name="departures_by_airport", target=0.95, error=0.1)
    yield Case("flights 2013", of, count, totals(300, group=origin))
    table = land_flights.landings(folder)
    of, order = Stream.of("landings", *(_seconds(table[name]) for name in ("landed", "arrival")))
    delay, arrival, air, miles = (
        table[name].to_numpy(float)[order] for name in ("dep_delay", "arr_delay", "air_time", "distance")
    )
    made_up = np.nan_to_num(delay - arrival, nan=-np.inf)
    counts = (delay > 15) & ~np.isnan(arrival)
    yield Case("flights 2013", of, replace(asked, name="time_made_up", target=0.95), winners(made_up, 5, counts=counts))
    known = ~np.isnan(air)
    flown = Stream("landings", of.event_s[known], of.arrival_s[known])
    speed = replace(asked, name="ground_speed", target=0.95, error=0.2, range_s=6 * HOUR_S)
    yield Case("flights 2013", flown, speed, totals(300, (miles[known], air[known])))


def flights_2001(file: Path) -> Iterator[Case]:
    """Three million departures, January to June 2001; the clock of each airport is read as one clock."""
    table = pq.read_table(file, columns=["date", "delay", "origin"])
    delay_s = table.column("delay").to_numpy().astype(np.float64) * 60
    left_s = table.column("date").cast("timestamp[us]").cast("int64").to_numpy() / 1e6
    # Two hours early and more is a mistake of the clock.
    own = delay_s > -2 * HOUR_S
    origin = np.asarray(table.column("origin").to_pandas())[own]
    left_s, delay_s = left_s[own], delay_s[own]
    of, order = Stream.of("departures", left_s - delay_s, left_s)
    score, origin = delay_s[order], origin[order]
    asked = Asked("most_delayed", 0.9, HOUR_S, 600, **{**HOURLY, "horizon_s": 12 * HOUR_S})  # type: ignore[arg-type]
    yield Case("flights 2001", of, asked, winners(score, 10))
    names, group = np.unique(origin, return_inverse=True)
    busiest = np.isin(group, np.argsort(-np.bincount(group))[:3])
    some = Stream("departures of three airports", of.event_s[busiest], of.arrival_s[busiest])
    by_airport = winners(score[busiest], 10, group[busiest])
    yield Case("flights 2001", some, replace(asked, name="most_delayed_by_airport"), by_airport)
    count = replace(asked, name="departures_by_airport", target=0.95, error=0.1)
    yield Case("flights 2001", some, count, totals(300, group=group[busiest]))


def commits() -> Iterator[Case]:
    """A programmer's commits, 2012 to 2017, weeks as periods; each arrives with the next push (modelled)."""
    at = sorted(parsedate_to_datetime(line.strip()).astimezone(UTC).timestamp() for line in _lines("commits.txt.gz"))
    event_s = np.array(at)
    # Pushes 7.4 h apart in the median.
    apart_s = HOUR_S * np.exp(2 + 0.8 * ndtri(uniforms(0, "promises/pushes", 20_000)))
    pushes_s = event_s[0] + np.cumsum(apart_s)
    of, _ = Stream.of("commits", event_s, pushes_s[np.searchsorted(pushes_s, event_s)])
    week = Asked("latest", 0.9, 2 * DAY_S, DAY_S // 4, 2 * DAY_S, 7 * DAY_S, DAY_S, 0.0)
    yield Case("commits", of, week, winners(of.event_s, 5))
    busy = replace(week, name="commits", target=0.95, error=0.2, range_s=3 * DAY_S, every_s=DAY_S // 2)
    yield Case("commits", of, busy, totals(2 * HOUR_S))


def glucose() -> Iterator[Case]:
    """Half a year of a sensor's readings; it uploads every hour, by night not before seven (this is modelled)."""
    rows = list(csv.DictReader(_lines("CGM.csv.gz")))
    measured_s = np.array([datetime.fromisoformat(r["datetime"]).replace(tzinfo=UTC).timestamp() for r in rows])
    level = np.array([float(row["glucose"]) for row in rows])
    upload_s = (measured_s // HOUR_S + 1) * HOUR_S
    day = (measured_s // DAY_S).astype(np.int64)
    woken_s = day * DAY_S + 7 * HOUR_S + 2400 * uniforms(0, "promises/woken", int(day.max()) + 1)[day]
    night = (measured_s % DAY_S >= HOUR_S) & (measured_s % DAY_S < 7 * HOUR_S)
    of, order = Stream.of("sensor", measured_s, np.where(night, np.maximum(woken_s, measured_s), upload_s))
    level = level[order]
    lows = Asked("lows", 0.95, 6 * HOUR_S, HOUR_S // 2, 12 * HOUR_S, DAY_S, HOUR_S, float(HOUR_S))
    yield Case("glucose", of, lows, winners(-level, 3))
    yield Case("glucose", of, replace(lows, name="level", range_s=3 * HOUR_S, error=0.05), totals(1800, (level,)))


def laws() -> Iterator[Case]:
    """The generator's laws: their mean steps by up to 30 % an hour; top 5 of a minute each 5 s, an hour's promise."""
    for name, (law, correlation) in LAWS.items():
        found = stepping.stream(stepping.stepping_thetas(0, LAW_HOURS), 0, correlation, law, LAW_RATE)
        of = Stream(name, found.event_s, found.event_s + found.delay_s)
        asked = Asked("top 5", 0.95, stepping.RANGE_S, stepping.SLIDE_S, 180, HOUR_S, 300, 0.0)
        yield Case(f"law: {name}", of, asked, _stepping_winners(found))


def _stepping_winners(found: stepping.Stream) -> NeededOf:
    def needed(of: Stream, asked: Asked) -> Needed:
        best = stepping.winners(found)
        # All have k winners; none is later than the horizon in the truth.
        return Needed(best.end_us, np.minimum(best.needed_s, asked.horizon_s), np.full(len(best.end_us), 1 / 5))

    return needed


def _seconds(column: pd.Series) -> Floats:
    return np.asarray(column.astype("datetime64[ns, UTC]").astype("int64").to_numpy() / 1e9)


def _lines(name: str) -> Iterator[str]:
    spec = find_spec("bokeh_sampledata")
    assert spec is not None and spec.submodule_search_locations is not None
    with gzip.open(Path(spec.submodule_search_locations[0]) / "_data" / name, "rt", encoding="utf-8") as file:
        yield from file


DATA: dict[str, Callable[[], Iterator[Case]]] = {
    "flights": flights,
    "commits": commits,
    "glucose": glucose,
    "laws": laws,
}
