"""What Tidegate would have chosen, interval by interval, and what became of it beside those who know what comes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from infra.benchmarks.generator.randomness import Floats
from infra.benchmarks.promises.cases import Case
from infra.benchmarks.slack.replay import Tuples, asked_by_law, by_arrival, replayed

from tidegate.declarations.promises import PERIODS_KEPT
from tidegate.operators.accuracy import Needed, Promise
from tidegate.operators.accuracy.judge import meets
from tidegate.operators.accuracy.slack import least_covering
from tidegate.operators.schedule import Int64s

WARM_UP = 21
"""Periods that are left out: three weeks of days."""


@dataclass(frozen=True, eq=False)
class Windows:
    """The windows of a case whose truth holds something, those of the first periods left out.

    ``end_us`` int64[w], ascending; ``period`` int64[w], from 0; ``oracle_s``: of each period the least K that keeps it.
    """

    case: Case
    needed: Needed

    @cached_property
    def begins(self) -> Int64s:
        """Position of the first needed slack of each window."""
        return np.flatnonzero(np.append(True, np.diff(self.needed.end_us) > 0))

    @cached_property
    def end_us(self) -> Int64s:
        """End of each window."""
        return self.needed.end_us[self.begins]

    @cached_property
    def judged(self) -> np.ndarray:
        """Which windows are judged: those of whole periods after the first ones."""
        length_us = self.case.asked.period_s * 1_000_000
        period = self.end_us // length_us
        whole = period < (self.end_us[-1] + 1) // length_us
        return np.asarray((period >= WARM_UP) & whole)

    @cached_property
    def period(self) -> Int64s:
        """Of each judged window."""
        own = self.end_us[self.judged] // (self.case.asked.period_s * 1_000_000)
        return np.unique(own, return_inverse=True)[1]

    def accuracy(self, slack_s: Floats) -> Floats:
        """Of every window, with its K."""
        of = np.repeat(np.arange(len(self.begins)), np.diff(np.append(self.begins, len(self.needed.end_us))))
        hits = self.needed.weight * (self.needed.slack_s <= slack_s[of])
        return np.asarray(np.add.reduceat(hits, self.begins))

    def kept(self, slack_s: Floats) -> np.ndarray:
        """Which judged periods are kept, with the K of every window."""
        by_period = np.bincount(self.period, self.accuracy(slack_s)[self.judged]) / np.bincount(self.period)
        return np.array([meets(one, self.case.asked.target) for one in by_period.tolist()])

    @cached_property
    def oracle_s(self) -> Floats:
        """Of each judged period the least K that keeps it."""
        own = np.repeat(self.judged, np.diff(np.append(self.begins, len(self.needed.end_us))))
        slack_s, weight = self.needed.slack_s[own], self.needed.weight[own]
        _, period = np.unique(self.needed.end_us[own] // (self.case.asked.period_s * 1_000_000), return_inverse=True)
        target = self.case.asked.target
        return np.array([least_covering(slack_s[period == p], target, weight[period == p]) for p in np.unique(period)])

    def fixed_s(self, kept: int) -> float:
        """The shortest K with which, the same all the time, so many judged periods are kept."""
        return float(np.sort(self.oracle_s)[max(kept, 1) - 1])

    def as_accurate_s(self, accuracy: float) -> float:
        """The shortest K with which, the same all the time, the judged windows have this mean accuracy."""
        own = np.repeat(self.judged, np.diff(np.append(self.begins, len(self.needed.end_us))))
        return least_covering(self.needed.slack_s[own], accuracy, self.needed.weight[own])


@dataclass(frozen=True, eq=False)
class Course:
    """K, what was expected (NaN: nothing was known) and what was reached, of every window."""

    slack_s: Floats
    expected: Floats
    accuracy: Floats


class Laws:
    """What the delays of all tuples ask for, of each stream once."""

    def __init__(self) -> None:
        self._tuples: dict[int, Tuples] = {}
        self._asked: dict[tuple[int, int, float], list[float | None]] = {}

    def tuples(self, case: Case) -> Tuples:
        """Of the case's stream, by arrival."""
        key = id(case.stream)
        if key not in self._tuples:
            self._tuples[key] = by_arrival(case.stream.arrival_us, case.stream.delay_s)
        return self._tuples[key]

    def units_s(self, case: Case, at_us: Int64s) -> list[float | None]:
        """At each instant."""
        asked = case.asked
        key = id(case.stream), asked.range_s, asked.law_target
        if key not in self._asked:
            self._asked[key] = asked_by_law(self.tuples(case), asked.range_s, asked.law_target, at_us)
        return self._asked[key]


def course(windows: Windows, laws: Laws) -> Course:
    """As ``calibrate`` would have chosen."""
    case, asked = windows.case, windows.case.asked
    promise = Promise(
        asked.target,
        asked.period_s,
        asked.horizon_s,
        confidence=PERIODS_KEPT,
        offset_s=asked.range_s / 10,
        waits_for_tuples=asked.error is None,
    )
    every_us = asked.chosen_every_s * 1_000_000
    at_us = np.arange(0, windows.end_us[-1] + every_us, every_us)
    units_s = laws.units_s(case, at_us)
    # A day, or a whole period that ended within the interval.
    evidence_s = max(86_400 if asked.period_s >= 86_400 else 0, asked.period_s + asked.chosen_every_s)
    choices = replayed(
        promise, asked.range_s, laws.tuples(case), windows.needed, at_us, evidence_s, asked.initial_s, units_s
    )
    which = windows.end_us // every_us
    slack_s = np.array([choice.slack_s for choice in choices])[which]
    expected = np.array([np.nan if c.accuracy_expected is None else c.accuracy_expected for c in choices])[which]
    return Course(slack_s, expected, windows.accuracy(slack_s))
