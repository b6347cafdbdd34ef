"""How a rate moves in time around its mean: steady, square, sine, spikes.

A shape is told by its cumulative intensity, a polyline over [0, seconds]. Event times are its inverse at the points of
a Poisson process of rate 1, so every shape costs one interpolation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from infra.benchmarks.generator.randomness import Floats, uniforms

Knots = tuple[Floats, Floats]
SINE_STEPS = 64


@dataclass(frozen=True)
class Steady:
    """The same rate at all times."""

    def knots(self, seconds: float, seed: int) -> Knots:
        """Times and cumulative intensity there, both float64[k], the latter in any unit."""
        return np.array([0.0, seconds]), np.array([0.0, seconds])


@dataclass(frozen=True)
class Square:
    """``high`` times the low rate during the first ``duty`` share of every ``period_s``, then the low rate."""

    period_s: float = 60.0
    high: float = 10.0
    duty: float = 0.2

    def knots(self, seconds: float, seed: int) -> Knots:
        """As for :class:`Steady`."""
        begins = np.arange(0.0, seconds, self.period_s)
        return _steps(begins, begins + self.duty * self.period_s, self.high, seconds)


@dataclass(frozen=True)
class Sine:
    """Swings by ``swing`` (a share of the mean, at most 1) around the mean, once every ``period_s``."""

    period_s: float = 60.0
    swing: float = 0.8

    def knots(self, seconds: float, seed: int) -> Knots:
        """As for :class:`Steady`; a polyline with 64 pieces a period."""
        times = np.linspace(0.0, seconds, max(2, round(SINE_STEPS * seconds / self.period_s) + 1))
        turns = 2 * np.pi * times / self.period_s
        return times, times + self.swing * self.period_s / (2 * np.pi) * (1 - np.cos(turns))


@dataclass(frozen=True)
class Spikes:
    """``high`` times the low rate for ``width_s``, on average every ``every_s``, at random.

    All streams of a seed have their spikes at the same instants: a burst hits them together.
    """

    every_s: float = 60.0
    width_s: float = 1.0
    high: float = 50.0

    def knots(self, seconds: float, seed: int) -> Knots:
        """As for :class:`Steady`; spikes that overlap are one longer spike."""
        count = max(1, round(seconds / self.every_s))
        begins = np.sort(uniforms(seed, "spikes", count)) * seconds
        ends = np.minimum(begins + self.width_s, np.append(begins[1:], seconds))
        return _steps(begins, ends, self.high, seconds)


Shape = Steady | Square | Sine | Spikes


def _steps(begins: Floats, ends: Floats, high: float, seconds: float) -> Knots:
    """Rate ``high`` in every [begin, end), 1 elsewhere."""
    times = np.clip(np.column_stack([begins, ends]).ravel(), 0.0, seconds)
    times = np.concatenate([[0.0], times, [seconds]])
    rates = np.where(np.arange(len(times) - 1) % 2 == 1, high, 1.0)
    return times, np.concatenate([[0.0], np.cumsum(np.diff(times) * rates)])


def event_times_s(shape: Shape, rows: int, seconds: float, seed: int, stream: str) -> Floats:
    """Ascending times in (0, seconds), float64[rows]: a Poisson process of this shape that has so many events.

    **Cost**: O(rows). **Guarantee**: exactly ``rows`` events; given their number, they lie as a Poisson process's do.
    """
    gaps = -np.log(uniforms(seed, f"{stream}/events", rows + 1))
    order_statistics = np.cumsum(gaps)
    times, cumulative = shape.knots(seconds, seed)
    return np.interp(order_statistics[:-1] / order_statistics[-1] * cumulative[-1], cumulative, times)


def relative_rate(shape: Shape, at_s: Floats, seconds: float, seed: int) -> Floats:
    """The rate at these times over the mean rate, float64 like ``at_s``."""
    times, cumulative = shape.knots(seconds, seed)
    piece = np.clip(np.searchsorted(times, at_s, side="right") - 1, 0, len(times) - 2)
    slope = (cumulative[piece + 1] - cumulative[piece]) / (times[piece + 1] - times[piece])
    return slope * seconds / cumulative[-1]
