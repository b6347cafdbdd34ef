"""The one judge of promises: from the accuracy of windows to periods kept and missed.

**Idea.** What is promised is promised for a period (a day): the mean hit rate of its windows is at least ACCURACY, or
at least 95 of 100 of them lie within ERROR. A period is judged once, when the last window that can end in it is final;
until then it is open, and what is known of it is shown as such.

Both sides are rounded to ``DIGITS`` digits and then compared exactly, and the rounded numbers are what is stored: SQL
that compares the columns finds what the judge has found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.declarations.promises import DIGITS, Terms
from tidegate.operators.schedule import Int64s

Float64s = npt.NDArray[np.float64]
_NEAR = 1000.0


@dataclass(frozen=True)
class Tally:
    """How many periods were judged so far, and in how many of them the promise was kept."""

    judged: int = 0
    kept: int = 0

    @property
    def met(self) -> float | None:
        """The share kept; None before any is judged."""
        return round(self.kept / self.judged, DIGITS) if self.judged else None


@dataclass(frozen=True)
class Judgement:
    """What is known of one period [start, end), microseconds.

    ``measured``: mean hit rate, or share of windows within ERROR, or of groups that reach ACCURACY; None without
    windows. ``kept``: None while the period is open. ``tally``: of all periods judged up to then, this one included.
    """

    start_us: int
    end_us: int
    windows: int
    promised: float
    measured: float | None
    kept: bool | None
    tally: Tally


def rounded(values: Float64s) -> Float64s:
    """To ``DIGITS`` digits after the point; from a thousand on as they are, where no bound is.

    >>> rounded(np.array([0.1 + 0.2, 1e300])).tolist()
    [0.3, 1e+300]
    """
    near = np.abs(values) < _NEAR
    return np.where(near, np.round(np.where(near, values, 0.0), DIGITS), values)


def within(terms: Terms, values: Float64s) -> npt.NDArray[np.bool_]:
    """Which windows meet the bound, each for itself.

    Args:
        terms: what is promised.
        values: float64[n], hit rates or relative errors.

    >>> within(Terms("q", "ERROR 5 %", "relative_error", 0.05, 1), np.array([0.05 + 1e-16, 0.0501])).tolist()
    [True, False]
    """
    bound, found = round(terms.bound, DIGITS), rounded(values)
    return found >= bound if terms.metric == "hit_rate" else found <= bound


def measure(terms: Terms, values: Float64s) -> float:
    """What is measured over the windows of a period, at least one: their mean hit rate, or the share within ERROR.

    The order of the windows does not matter, to the last bit.

    >>> measure(Terms("q", "ACCURACY 95 %", "hit_rate", 0.95, 1), np.array([1.0, 0.9, 0.95]))
    0.95
    """
    each = values if terms.metric == "hit_rate" else within(terms, values)
    return round(math.fsum(each.tolist()) / len(values), DIGITS)


@dataclass(frozen=True, eq=False)
class OfGroups:
    """The hit rates of groups, window by window, of those with a truth.

    ``ends_us`` int64[n], ascending; ``group`` int64[n]; ``values`` float64[n].
    """

    ends_us: Int64s
    group: Int64s
    values: Float64s

    def between(self, start_us: int, end_us: int) -> OfGroups:
        """Those of windows with an end in [start, end)."""
        own = slice(*np.searchsorted(self.ends_us, [start_us, end_us]))
        return OfGroups(self.ends_us[own], self.group[own], self.values[own])


def measure_groups(terms: Terms, own: OfGroups) -> float:
    """The share of a period's groups whose mean hit rate, each over its own windows, reaches ACCURACY; 1 of none.

    The order of the windows does not matter, to the last bit.

    >>> rates = OfGroups(np.array([1, 1, 2]), np.array([7, 8, 8]), np.array([1.0, 1.0, 0.7]))
    >>> measure_groups(Terms("q", "ACCURACY 90 % FOR EACH depot", "hit_rate", 0.9, 1, True), rates)
    0.5
    """
    if len(own.values) == 0:
        return 1.0
    order = np.lexsort((own.values, own.group))
    _, first, count = np.unique(own.group[order], return_index=True, return_counts=True)
    means = np.add.reduceat(own.values[order], first) / count
    return round(float(within(terms, means).mean()), DIGITS)


def meets(measured: float, least: float) -> bool:
    """Whether what was measured is at least what was promised: the one comparison."""
    return round(measured, DIGITS) >= round(least, DIGITS)


def judge(
    terms: Terms,
    ends_us: Int64s,
    values: Float64s,
    final_from_us: int,
    final_until_us: int,
    tally: Tally,
    of_groups: OfGroups | None = None,
) -> Iterator[Judgement]:
    """Judge the periods that have become final, and tell how the open one stands.

    Args:
        terms: what is promised.
        ends_us: int64[n], ascending: windows that are final, as far back as the period that holds ``final_from_us``.
        values: float64[n], their hit rates or relative errors.
        final_from_us: windows that ended before this instant were final when it was judged last.
        final_until_us: windows that ended before this instant are final now. Those that end later are not looked at.
        tally: as it was left then.
        of_groups: of a promise for each group, the hit rates of all groups.

    Yields:
        The periods that ended since, by start, those without windows left out: nothing was promised in them. Then the
        one period that is open, with windows or without.

    **Cost.** O(n). **Guarantee.** A period's judgement depends on its windows and the tally alone.

    >>> hour = Terms("q", "ACCURACY 90 %", "hit_rate", 0.9, 3_600_000_000)
    >>> ends, values = np.arange(3) * 1_800_000_000, np.array([1.0, 0.8, 0.7])
    >>> [(j.windows, j.measured, j.kept) for j in judge(hour, ends, values, 0, 5_400_000_000, Tally())]
    [(2, 0.9, True), (1, 0.7, None)]
    """
    periods = terms.periods
    end_us = periods.begin_us(final_from_us)
    while end_us <= final_until_us:
        start_us, end_us = end_us, periods.next_us(end_us)
        first, last = np.searchsorted(ends_us, [start_us, min(end_us, final_until_us)])
        own = values[first:last]
        measured = measure(terms, own) if len(own) else None
        if measured is not None and of_groups is not None:
            measured = measure_groups(terms, of_groups.between(start_us, min(end_us, final_until_us)))
        kept = None
        if end_us <= final_until_us:
            if measured is None:
                continue
            kept = meets(measured, terms.least)
            tally = Tally(tally.judged + 1, tally.kept + kept)
        yield Judgement(start_us, end_us, len(own), terms.least, measured, kept, tally)
