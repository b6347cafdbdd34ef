"""Which windows had to be answered, or had to become final, in an interval.

Derived anew from the declaration and the slack plans, so that an application that leaves windows out cannot hide it.
"""

from __future__ import annotations

from datetime import timedelta

from expectations.tables import Case
from tidegate.declarations.models import Query, to_us


def always_answers(query: Query) -> bool:
    """Whether each window has exactly one row: no groups, no HAVING, no ranks that may be empty."""
    return query.kind != "top_k" and not query.group_by and query.having is None


def due_answers(case: Case, query: Query) -> frozenset[int]:
    """Ends (µs since 1970) of the windows whose emission, end + K in effect at the end, lies in the interval."""
    begin, end = to_us(case.interval.start), to_us(case.interval.end)
    earliest = begin - case.pipeline.horizon_s * 1_000_000
    slacks = _slacks(case, query, earliest)
    due = []
    for tick in _asked(case, query, earliest, end):
        slack = next((slack for from_us, slack in reversed(slacks) if from_us <= tick), None)
        if slack is None:
            # A query that promises nothing waits for nothing.
            slack = 0 if query.promised is None else case.pipeline.initial_slack_s * 1_000_000
        if begin <= tick + slack < end:
            due.append(tick)
    return frozenset(due)


def due_truth(case: Case, query: Query) -> frozenset[int]:
    """Ends of the windows that became final (end + horizon) in the interval."""
    horizon = case.pipeline.horizon_s * 1_000_000
    return frozenset(_asked(case, query, to_us(case.interval.start) - horizon, to_us(case.interval.end) - horizon))


def _asked(case: Case, query: Query, begin: int, end: int) -> list[int]:
    """Ticks in [begin, end) at which the query is asked: within its DURATION, after the first arrival on a stream."""
    pipeline, every = case.pipeline, round(query.every_s * 1_000_000)
    length, tick = timedelta(seconds=pipeline.interval_s), pipeline.tick_s * 1_000_000
    arrivals = [case.cached.first_arrival(stream, case.interval.label, length) for stream in query.streams]
    began = [to_us(first) // tick * tick + tick for first in arrivals if first is not None]
    if not began:
        return []
    first = max(begin, min(began), begin if query.active_from is None else to_us(query.active_from))
    last = end if query.active_to is None else min(end, to_us(query.active_to))
    return list(range(-(-first // every) * every, last, every))


def _slacks(case: Case, query: Query, until_us: int) -> list[tuple[int, int]]:
    """(effective from, K) in µs, ascending; reaches back to the plan in effect at ``until_us``, if there is one."""
    found: list[tuple[int, int]] = []
    for label in reversed(case.cached.tables.labels("slack_plan")):
        if label >= case.interval.label:
            continue
        steps = [step for step in case.cached.slacks(label) if step[0] == query.id]
        found += [(from_us, slack_us) for _, from_us, slack_us in steps]
        # Every interval has a row a promised query: one without says that there will be none further back.
        if not steps or any(from_us <= until_us for _, from_us, _ in steps):
            break
    return sorted(found)
