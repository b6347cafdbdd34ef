"""Target laws: how dense history stays at which age. Age is counted in tuples, never in seconds.

Source: papers/03, "Sampling" and "Settled here" ("Time in tuples"): the papers' (t_new − t_m)·r is the number of tuples
that arrived since, and right under changing rates as well.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]
Law = Literal["exponential", "inverse_age"]


def ages(tuples: Int64s) -> Float64s:
    """Age of each period in tuples: all newer ones and half of its own.

    >>> ages(np.array([10, 0, 4])).tolist()
    [9.0, 4.0, 2.0]
    """
    newer = np.cumsum(tuples[::-1])[::-1] - tuples
    return newer + tuples / 2


def law_of_age(age: Float64s, law: Law, scale: float) -> Float64s:
    """The target fraction at an age, at most 1.

    Args:
        age: float64[n], tuples.
        law: ``exponential``: exp(−age/scale), the papers'; ``inverse_age``: scale/age, which still reaches back when
            the exponential has kept nothing.
        scale: in tuples: D of the papers, D0 of the other law. The store's capacity is its limit, or solved for.

    >>> law_of_age(np.array([0.0, 10.0, 100.0]), "inverse_age", 10).tolist()
    [1.0, 1.0, 0.1]
    """
    if law == "exponential":
        return np.exp(-age / max(scale, 1e-9))
    return np.minimum(1.0, scale / np.maximum(age, 0.5))


def exponential_targets(tuples: Int64s, capacity_tuples: float) -> Float64s:
    """The law exp(−age/D) with D the capacity, as the papers have it.

    Guarantee: Σ tuples · target ≤ D·(1 − exp(−all/D)) < D for any periods and any rates, since the value at the middle
    of a period lies below the mean of a convex function over it. The bound is on the expected size.
    Source: papers/03, "Sampling", Theorem 1.

    Args:
        tuples: int64[n], tuples of each period, the oldest first.
        capacity_tuples: D.
    """
    return law_of_age(ages(tuples), "exponential", capacity_tuples)


def inverse_age_targets(tuples: Int64s, capacity_tuples: float) -> Float64s:
    """The law D0/age, where D0·(1 + ln(all/D0)) = D, so that the store holds D in expectation.

    It holds everything younger than D0, and the share D0/age of what is older.
    Source: papers/03, "A decay for the long run".
    """
    every = float(tuples.sum())
    if every <= capacity_tuples:
        return np.ones(len(tuples))
    low, high = 0.0, float(capacity_tuples)
    for _ in range(80):
        middle = (low + high) / 2
        held = middle * (1 + np.log(every / middle))
        low, high = (middle, high) if held < capacity_tuples else (low, middle)
    return law_of_age(ages(tuples), "inverse_age", low)


def targets(tuples: Int64s, capacity_tuples: float, law: Law) -> Float64s:
    """Targets under a law whose scale is known from the capacity alone."""
    known = {"exponential": exponential_targets, "inverse_age": inverse_age_targets}
    return known[law](tuples, capacity_tuples)
