"""The two workloads: keyed streams with scores, and the auctions of NEXMark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from infra.benchmarks.generator.keys import Keys, Zipf
from infra.benchmarks.generator.randomness import Integers, uniforms
from infra.benchmarks.generator.timing import Happenings, Timing, as_arrived, happenings

# NEXMark's proportions and hot keys, as in Apache Beam's generator.
PERSONS, AUCTIONS, BIDS = 1, 3, 46
ROUND = PERSONS + AUCTIONS + BIDS
HUNDRED = 100
HOT_BIDS = 1 / 2
HOT_SELLERS = HOT_BIDDERS = 3 / 4
ACTIVE_PERSONS = 1_000
CATEGORIES = 5
AUCTION_SECONDS = 60
CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent")


@dataclass(frozen=True)
class KeyedStreams:
    """Streams of (key, score) at unequal rates: ``rates`` maps each stream's name to its mean rate in tuples/s."""

    rates: Mapping[str, float]
    keys: Keys = Zipf()
    timing: Timing = Timing()

    def tables(self, seed: int) -> dict[str, pa.Table]:
        """Every stream's records in order of arrival: the columns of :func:`.as_arrived`, keys, ``score``, ``fault``.

        **Cost**: O(rows log rows) time for the order of arrival; about 200 bytes a row at the peak.
        **Guarantee**: round(rate · seconds) events a stream; the same arguments give the same rows, and under the
        locked environment on the same kind of machine the same bytes.

        >>> tables = KeyedStreams({"left": 100.0, "right": 10.0}).tables(seed=1)
        >>> {name: len(table) for name, table in tables.items()}
        {'left': 6000, 'right': 600}
        """
        return {name: self._stream(name, rate, seed) for name, rate in self.rates.items()}

    def _stream(self, name: str, rate: float, seed: int) -> pa.Table:
        rows = round(rate * self.timing.seconds)
        when = happenings(self.timing, rows, seed, name)
        keys = {column: pa.array(values) for column, values in self.keys.columns(rows, seed, name).items()}
        return as_arrived({**keys, "score": pa.array(when.score)}, when, self.timing.faults, seed, name)


@dataclass(frozen=True)
class Nexmark:
    """An auction house: of every 50 events 1 is a new person, 3 are new auctions, 46 are bids.

    Half the bids go to the hot auction, the first of the newest hundred; three quarters of the auctions are of the hot
    seller and three quarters of the bids by the hot bidder, each among the newest hundred persons. Prices are
    log-uniform from 1 to a million. NEXMark's own queries ask windows of 10 s by 5 s.

    **Source**: Tucker et al., "NEXMark: a benchmark for queries over data streams" (2008), with the numbers of
    Apache Beam's generator. Lateness, clocks, duplicates and broken records are added here.
    """

    rate: float = 10_000.0
    timing: Timing = Timing()

    def tables(self, seed: int) -> dict[str, pa.Table]:
        """``persons``, ``auctions`` and ``bids`` in order of arrival. Cost and guarantee as for keyed streams.

        >>> {name: len(table) for name, table in Nexmark(rate=50.0).tables(seed=1).items()}
        {'persons': 60, 'auctions': 180, 'bids': 2760}
        """
        when = happenings(self.timing, round(self.rate * self.timing.seconds), seed, "nexmark")
        rounds, place = np.divmod(np.arange(len(when.event_us)), ROUND)
        kinds = {
            "persons": (place < PERSONS, _persons),
            "auctions": ((place >= PERSONS) & (place < PERSONS + AUCTIONS), _auctions),
            "bids": (place >= PERSONS + AUCTIONS, _bids),
        }
        tables = {}
        for name, (mine, columns) in kinds.items():
            of_kind = _rows(when, mine)
            tables[name] = as_arrived(
                columns(rounds[mine], place[mine], of_kind, seed), of_kind, self.timing.faults, seed, name
            )
        return tables


def _rows(when: Happenings, mine: np.ndarray) -> Happenings:
    return Happenings(**{name: column[mine] for name, column in vars(when).items()})


def _persons(rounds: Integers, place: Integers, when: Happenings, seed: int) -> dict[str, pa.Array]:
    city = (uniforms(seed, "cities", len(rounds)) * len(CITIES)).astype(np.int64)
    return {"person": pa.array(rounds), "city": pa.array(CITIES).take(pa.array(city))}


def _auctions(rounds: Integers, place: Integers, when: Happenings, seed: int) -> dict[str, pa.Array]:
    rows = len(rounds)
    lifetime_us = np.rint(AUCTION_SECONDS * 2e6 * uniforms(seed, "lifetimes", rows)).astype(np.int64)
    return {
        "auction": pa.array(rounds * AUCTIONS + place - PERSONS),
        "seller": pa.array(_person(rounds, HOT_SELLERS, 0, seed, "sellers")),
        "category": pa.array((uniforms(seed, "categories", rows) * CATEGORIES).astype(np.int64)),
        "initial_bid": pa.array(_prices(rows, seed, "initial bids")),
        "expires": pa.array(when.stamped_us + lifetime_us).cast(pa.timestamp("us", tz="UTC")),
    }


def _bids(rounds: Integers, place: Integers, when: Happenings, seed: int) -> dict[str, pa.Array]:
    rows = len(rounds)
    newest = rounds * AUCTIONS + AUCTIONS - 1
    recent = np.maximum(newest - (uniforms(seed, "auctions", rows) * HUNDRED).astype(np.int64), 0)
    hot = uniforms(seed, "hot auctions", rows) < HOT_BIDS
    return {
        "auction": pa.array(np.where(hot, newest // HUNDRED * HUNDRED, recent)),
        "bidder": pa.array(_person(rounds, HOT_BIDDERS, 1, seed, "bidders")),
        "price": pa.array(_prices(rows, seed, "prices")),
    }


def _person(newest: Integers, hot_share: float, hot_place: int, seed: int, purpose: str) -> Integers:
    """The hot one of the newest hundred persons in so many cases, else one of the newest thousand."""
    active = np.minimum(newest + 1, ACTIVE_PERSONS)
    recent = newest - (uniforms(seed, purpose, len(newest)) * active).astype(np.int64)
    hot = uniforms(seed, f"hot {purpose}", len(newest)) < hot_share
    return np.where(hot, np.minimum(newest // HUNDRED * HUNDRED + hot_place, newest), recent)


def _prices(rows: int, seed: int, purpose: str) -> np.ndarray:
    """Log-uniform from 1 to 10^6, in whole cents."""
    return np.round(10.0 ** (6 * uniforms(seed, purpose, rows)), 2)
