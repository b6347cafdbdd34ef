"""What an answer is worth that waits K and holds a share of its range: the map (K, width) → accuracy.

**Idea.** Of each past winner (or window, with ERROR) two numbers are known: how long it had to be waited for, and which
share of the range had to be held. An answer that waits K and holds the share c has it if both suffice. So the pairs
give the accuracy of every K and every width at once, and it falls with neither.

**Source.** papers/05, "What an answer is worth"; of a window with ERROR the two are taken one by one (the slack over
the whole range, the share with all tuples known): it is taken to be within its error if either alone would leave it so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tidegate.operators.accuracy.error_width import least_evidence
from tidegate.operators.accuracy.slack import Float64s, least_covering

SHARES = tuple(k / 8 for k in range(9))
"""The shares of the ranges at which the map is told: from nothing to everything."""
_ROUNDING = 1e-9
_MOST_SLACKS = 64


@dataclass(frozen=True, eq=False)
class Support:
    """What past winners, or windows, needed.

    ``slack_s``, ``share``, ``weight`` float64[n]; ``share`` NaN where it was not measured. ``tolerable``: the share of
    its ranges that a query is taken to need as long as too few are known.

    >>> support = Support(np.array([0.0, 60.0, 600.0]), np.array([0.1, 0.9, 0.5]), np.ones(3), 1.0)
    >>> [round(support.accuracy(slack_s, share), 2) for slack_s, share in ((60, 1.0), (60, 0.5), (600, 0.5))]
    [0.67, 0.33, 0.67]
    """

    slack_s: Float64s
    share: Float64s
    weight: Float64s
    tolerable: float

    @property
    def known(self) -> bool:
        """Whether anything is."""
        return len(self.slack_s) > 0

    def accuracy(self, slack_s: float, share: float) -> float:
        """The part of the weight that this wait and this share of the ranges have; 1 if nothing is known."""
        if not self.known:
            return 1.0
        waited = self.slack_s <= slack_s
        measured = ~np.isnan(self.share)
        in_time = float(self.weight[waited].sum() / self.weight.sum())
        own = waited & measured
        if share >= 1:
            return in_time
        if not own.any():
            return in_time if share >= self.tolerable - _ROUNDING else 0.0
        held = self.weight[own & (self.share <= share + _ROUNDING)].sum() / self.weight[own].sum()
        return in_time * float(held)

    def part(self, slack_s: float, share: float, wanted_s: float) -> float:
        """What is left, in [0, 1], of the accuracy with ``wanted_s`` and whole ranges; nothing is had of nothing."""
        whole = self.accuracy(wanted_s, 1.0)
        if share <= 0 or whole <= 0:
            return 0.0
        return min(self.accuracy(slack_s, share) / whole, 1.0)

    def expected_after(self, wait_s: float, slack_s: float, expected: float) -> float:
        """The accuracy expected of answers over whole ranges after another wait than K, of which so much is expected.

        A shorter wait keeps of it what it keeps of the weight, a longer one gets of what is missing the share that it
        gets of the weight that K misses.

        >>> support = Support(np.array([0.0, 60.0, 600.0]), np.ones(3), np.ones(3), 1.0)
        >>> [round(support.expected_after(wait_s, 60, 0.6), 2) for wait_s in (0, 60, 600)]
        [0.3, 0.6, 1.0]
        """
        then, now = self.accuracy(wait_s, 1.0), self.accuracy(slack_s, 1.0)
        if wait_s <= slack_s:
            return expected * then / now if now > 0 else 0.0
        return expected + (1 - expected) * (then - now) / (1 - now) if now < 1 else expected

    def needed_share(self, covered: float) -> float:
        """The least of the shares told that so much of the weight needs no more than; ``tolerable`` of too few."""
        measured = ~np.isnan(self.share)
        if measured.sum() < least_evidence():
            return self.tolerable
        least = least_covering(self.share[measured], covered, self.weight[measured])
        return next((share for share in SHARES if share >= least - _ROUNDING), 1.0)

    def slacks_to_try(self, most_s: float) -> list[float]:
        """The K that are worth a try, ascending, 0 and the most among them: at most 64 needed slacks between."""
        if not self.known:
            return [most_s * k / _MOST_SLACKS for k in range(_MOST_SLACKS + 1)]
        needed = np.unique(self.slack_s[self.slack_s < most_s])
        if len(needed) > _MOST_SLACKS:
            needed = needed[np.linspace(0, len(needed) - 1, _MOST_SLACKS).astype(np.int64)]
        return sorted({0.0, *needed.tolist(), most_s})


def expected_accuracy(by_share: Mapping[float, float], share: Float64s) -> Float64s:
    """The accuracy at any shares of the ranges, between those told in proportion.

    >>> expected_accuracy({0.0: 0.0, 0.5: 0.6, 1.0: 0.8}, np.array([0.25, 0.75, 1.0])).round(2).tolist()
    [0.3, 0.7, 0.8]
    """
    told = sorted(by_share)
    return np.interp(share, told, [by_share[at] for at in told])
