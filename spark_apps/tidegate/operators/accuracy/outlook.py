"""What windows of late have needed, so that the accuracy of any K can be told: of the K chosen now, not of those had.

**Idea.** A winner is in the answer that waited K iff it needed no more. So what past windows needed gives the accuracy
that any K would have had on them, whatever they were answered with. Where K is no length of time but follows the delays
(a multiple of what all delays ask for, a place on a scale of what is to be expected: ``promise``), another day's needs
say little of it: there each need is kept in the same unit, as it was when its window ended, and what is told is what
the same rule would have had. Old windows count less.

**Source.** papers/04, "Beyond the paper: all slacks at once, exactly"; units as for the choice itself (``promise``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tidegate.operators.accuracy.slack import Float64s, Int64s, rounded_up

SECONDS, RATIO = 0, 1
"""Units: a length of time; a multiple of what the law of all delays asked for. Those after them: places on scales."""
_PLACES = 50
"""Parts of a step of a scale: finer does not matter."""
_EIGHTHS = 8
_FORGOTTEN = 1e-9
_SEVERAL = 1.5


@dataclass(frozen=True, eq=False)
class Outlook:
    """Needs of the windows that ended before ``until_us``, old ones counting less.

    ``unit`` int64[n]; ``need``, ``share``, ``weight`` float64[n]: how much of that unit was needed, rounded up; of
    ``SECONDS``, the share of the range that had to be held, in eighths (NaN: not measured). ``count``: how many there
    are, old ones counting less.

    >>> nothing = Outlook.initial()
    >>> known = nothing.after(60, 1.0, {SECONDS: np.array([0.0, 30.0, 90.0, 600.0])}, np.ones(4) / 4)
    >>> known.accuracy(SECONDS, 90.0), known.accuracy(RATIO, 90.0), nothing.accuracy(SECONDS, 90.0)
    (0.75, None, None)
    """

    until_us: int | None
    unit: Int64s
    need: Float64s
    share: Float64s
    weight: Float64s
    count: float = 0.0

    @classmethod
    def initial(cls) -> Outlook:
        """Before any window was final."""
        return cls(None, np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0))

    def after(
        self, until_us: int, kept: float, needs: dict[int, Float64s], weight: Float64s, share: Float64s | None = None
    ) -> Outlook:
        """With the needs of the windows that ended since; those before count ``kept`` of what they did.

        Args:
            needs: unit → float64[n], NaN where it is not known in that unit.
            weight: float64[n].
            share: float64[n], of the range.

        **Cost.** O((n + m) log m) for m needs kept: at most 900 a power of ten, and share.
        """
        count = len(weight)
        held = np.full(count, np.nan) if share is None else np.clip(np.ceil(share * _EIGHTHS - 1e-9) / _EIGHTHS, 0, 1)
        units, need = np.repeat(list(needs), count), np.concatenate([np.zeros(0), *needs.values()])
        shares = np.concatenate([np.zeros(0), *(held if u == SECONDS else np.full(count, np.nan) for u in needs)])
        known = ~np.isnan(need)
        unit = np.append(self.unit, units[known])
        need = np.append(self.need, np.where(units <= RATIO, rounded_up(np.nan_to_num(need)), _on_grid(need))[known])
        share = np.append(self.share, shares[known])
        weight = np.append(self.weight * kept, np.tile(weight, len(needs))[known])
        order = np.lexsort((share, need, unit))
        unit, need, share, weight = unit[order], need[order], share[order], weight[order]
        unlike = (np.diff(unit) != 0) | (np.diff(need) != 0) | (np.diff(np.nan_to_num(share, nan=-1.0)) != 0)
        first = np.flatnonzero(np.append(np.ones(min(len(unit), 1), dtype=bool), unlike))
        summed = np.add.reduceat(weight, first) if len(first) else weight
        lasting = summed > _FORGOTTEN * summed.max(initial=0.0)
        first = first[lasting]
        return Outlook(until_us, unit[first], need[first], share[first], summed[lasting], self.count * kept + count)

    def accuracy(self, unit: int, amount: float) -> float | None:
        """The accuracy that so much of the unit would have had; None where nothing is known in it."""
        own = self.unit == unit
        if not own.any():
            return None
        enough = rounded_up(amount) if unit <= RATIO else _on_grid(np.array(amount))
        weight = self.weight[own]
        return math.fsum(weight[self.need[own] <= enough]) / math.fsum(weight)

    def next_within(self, slack_s: float) -> float:
        """The chance that the next need is no more than a slack that was chosen as one of them.

        Of n + 1 in any order the last is the largest with 1/(n + 1); where the largest came twice it is not.
        """
        own = self.unit == SECONDS
        largest_s = self.need[own].max(initial=0.0)
        at_largest = self.weight[own & (self.need == largest_s)].sum() / max(self.weight[own].sum(), _FORGOTTEN)
        if slack_s > largest_s or at_largest * self.count > _SEVERAL:
            return 1.0
        return self.count / (self.count + 1)

    @property
    def pairs(self) -> tuple[Float64s, Float64s, Float64s]:
        """Slack in seconds, share of the range, and weight."""
        own = self.unit == SECONDS
        return self.need[own], self.share[own], self.weight[own]


def _on_grid(place: Float64s) -> Float64s:
    return np.ceil(place * _PLACES - 1e-6) / _PLACES
