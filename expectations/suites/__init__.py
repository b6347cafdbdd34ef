"""The suites, in the order in which a reader wants them: promises first."""

from __future__ import annotations

from expectations.suites import accuracy, answers, arrivals, completeness, history, plans, promises, run_metrics
from expectations.suites.suite import Suite

SUITES: tuple[Suite, ...] = (
    promises.SUITE,
    run_metrics.SUITE,
    completeness.SUITE,
    arrivals.SUITE,
    answers.SUITE,
    accuracy.SUITE,
    plans.SUITE,
    history.SUITE,
)
