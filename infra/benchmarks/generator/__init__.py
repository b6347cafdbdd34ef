"""Seeded event streams for benchmarks and tests, with explicit event and arrival times.

In the manner of NEXMark (:class:`Nexmark`), plus what it lacks (:class:`KeyedStreams`): stationary Zipf keys and pairs
of keys, unequal and bursty rates, heavy-tailed lateness, also resampled from real departures,
scores that go along with lateness, clocks that are off, duplicates, broken records. Each knob draws from numbers of
its own, so turning one leaves the rest as it was. ``python -m infra.benchmarks.generator --help``.
"""

from infra.benchmarks.generator.faults import Faults
from infra.benchmarks.generator.keys import Pairs, Uniform, Zipf
from infra.benchmarks.generator.lateness import Departures, Exponential, LogNormal, Pareto, Punctual
from infra.benchmarks.generator.shapes import Sine, Spikes, Square, Steady
from infra.benchmarks.generator.timing import Timing
from infra.benchmarks.generator.workloads import KeyedStreams, Nexmark

__all__ = [
    "Departures",
    "Exponential",
    "Faults",
    "KeyedStreams",
    "LogNormal",
    "Nexmark",
    "Pairs",
    "Pareto",
    "Punctual",
    "Sine",
    "Spikes",
    "Square",
    "Steady",
    "Timing",
    "Uniform",
    "Zipf",
]
