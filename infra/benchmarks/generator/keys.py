"""Which key a tuple has: uniform, Zipf, or a pair of keys whose pairs are Zipf."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from infra.benchmarks.generator.randomness import Floats, Integers, uniforms


@dataclass(frozen=True)
class Uniform:
    """Each of the keys 0 … ``count`` − 1 as often."""

    count: int = 10_000

    def columns(self, rows: int, seed: int, stream: str) -> dict[str, Integers]:
        """Column ``key``, int64[rows]."""
        return {"key": (uniforms(seed, f"{stream}/keys", rows) * self.count).astype(np.int64)}


@dataclass(frozen=True)
class Zipf:
    """Key k (from 0) in proportion to 1 / (k + 1)^s, the same at all times; s = 0 is uniform."""

    count: int = 10_000
    s: float = 1.0

    def columns(self, rows: int, seed: int, stream: str) -> dict[str, Integers]:
        """Column ``key``, int64[rows]."""
        return {"key": _zipf(uniforms(seed, f"{stream}/keys", rows), self.count, self.s)}


@dataclass(frozen=True)
class Pairs:
    """Two keys of 0 … ``count`` − 1 each, in ``pairs`` distinct combinations, of which number i has a Zipf(s) share.

    All streams of one seed know the same pairs, so that joins on both keys find partners.
    """

    count: int = 100
    pairs: int = 2_000
    s: float = 1.0

    def columns(self, rows: int, seed: int, stream: str) -> dict[str, Integers]:
        """Columns ``key`` and ``other_key``, int64[rows]."""
        combinations = self.count**2
        if self.pairs > combinations:
            raise ValueError(f"{self.count} keys make {combinations} pairs, not {self.pairs}")
        number = _zipf(uniforms(seed, f"{stream}/keys", rows), self.pairs, self.s)
        # A multiplier that shares no factor with the number of combinations gives each pair a combination of its own.
        start, stride = (uniforms(seed, "pairs", 2) * combinations).astype(np.int64).tolist()
        while math.gcd(stride, combinations) != 1:
            stride += 1
        combination = (start + stride * number) % combinations
        return {"key": combination // self.count, "other_key": combination % self.count}


Keys = Uniform | Zipf | Pairs


def _zipf(u: Floats, count: int, s: float) -> Integers:
    cumulative = np.cumsum(np.arange(1, count + 1, dtype=np.float64) ** -s)
    return np.minimum(np.searchsorted(cumulative, u * cumulative[-1]), count - 1).astype(np.int64)
