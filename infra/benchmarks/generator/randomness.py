"""Uniform numbers by seed and purpose, from which everything random is made."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def uniforms(seed: int, purpose: str, rows: int) -> Floats:
    """Independent numbers in (0, 1), float64[rows].

    Every purpose has numbers of its own, so switching duplicates on does not change the keys. Only raw uniforms are
    taken from numpy, since it may change its other distributions between versions.

    >>> uniforms(1, "keys", 3).tolist() == uniforms(1, "keys", 5)[:3].tolist()
    True
    """
    sequence = np.random.SeedSequence([seed, zlib.crc32(purpose.encode())])
    numbers = np.random.Generator(np.random.PCG64(sequence)).random(rows)
    return np.maximum(numbers, 2.0**-54)  # 0 has no logarithm and no normal quantile
