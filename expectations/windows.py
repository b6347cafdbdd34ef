"""Which windows had to be answered, or had to become final, in an interval.

Derived anew from the declaration and the effective-dated plans, so that an application that leaves windows out cannot
hide it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import timedelta
from typing import Any

from expectations.tables import Case
from tidegate.declarations.models import Query, to_us


def always_answers(query: Query) -> bool:
    """Whether each window has exactly one row: no groups, no HAVING, no ranks that may be empty."""
    return not query.is_ranked and not query.group_by and query.having is None and query.sessions is None


def due_windows(case: Case, query: Query) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    """Ends (µs since 1970) of the windows whose instant of emission lies in the interval, and of those that became
    final (end + lag of a bound + horizon) in it: of all multiples of EVERY, or begins of the calendar; with those of
    the slots that were answered.
    """
    horizon, tick = case.pipeline.final_after_us(query), case.pipeline.tick_s * 1_000_000
    begin, end = to_us(case.interval.start), to_us(case.interval.end)
    emitted = _emissions(case, query, begin - horizon, end + tick)
    answers = frozenset(window for window, at in emitted.items() if begin <= at < end)
    final = frozenset(_regular(case, query, begin - horizon, end - horizon))
    slots = (window for window in emitted if begin - horizon <= window < end - horizon)
    return answers, final, final.union(slots)


def _emissions(case: Case, query: Query, begin: int, end: int) -> dict[int, int]:
    """Window end → when it is answered first, for the instants in [begin, end), and for some before.

    Under a regular plan windows end at multiples of EVERY and are answered K later; under a plan of level C at the ends
    of its slots, and the windows end K (in whole ticks) before. A plan reigns over (its own instant, the next one's].
    """
    pipeline, tick = case.pipeline, case.pipeline.tick_s * 1_000_000
    horizon = pipeline.final_after_us(query)
    earliest = begin - horizon - tick
    slacks = _steps(case, query, "slack_plan", earliest - horizon)
    plans = _steps(case, query, "query_plan", earliest) or [(earliest, (None, None, None))]

    def waits(at: int) -> int:
        known = next((slack for from_us, slack in reversed(slacks) if from_us <= at), None)
        if known is not None:
            return int(known)
        # A query that promises nothing waits for nothing.
        return 0 if query.promised is None else pipeline.initial_slack_s * 1_000_000

    asked = set(_asked(case, query, earliest - horizon, end, tick))
    regular = _regular(case, query, earliest - horizon, end)
    # With a bound windows are answered, and K is looked up, once its lag is over.
    offered = [(window, window + query.lag_us + waits(window + query.lag_us)) for window in regular]
    given: dict[int, int] = {}
    for index, (from_us, (slot_end, period, extra)) in enumerate(plans):
        until = min(plans[index + 1][0] if index + 1 < len(plans) else end, end - 1)
        # Before the first plan nothing had arrived.
        first = from_us if index else -(2**62)
        found = [(window, at) for window, at in offered if period is None and first < at <= until]
        at = [] if extra is None or extra > until else [extra]
        if slot_end is not None and period is not None:
            turns = max(0, (max(from_us, earliest) - slot_end) // period + 1)
            at += range(slot_end + turns * period, until + 1, period)
        # What a new K changes at an instant is not in effect yet for the answer of that instant.
        found += [(t - -(-waits(t - 1) // tick) * tick, t) for t in at]
        for window, t in found:
            if window in asked and t >= earliest:
                given[window] = min(t, given.get(window, t))
    return given


def _regular(case: Case, query: Query, begin: int, end: int) -> list[int]:
    """The ends of windows in [begin, end) that EVERY names and at which the query is asked."""
    if query.calendar is None:
        return _asked(case, query, begin, end, round(query.every_s * 1_000_000))
    asked = set(_asked(case, query, begin, end, case.pipeline.tick_s * 1_000_000))
    return [at for at in query.calendar.starts_us(begin, end).tolist() if at in asked]


def _asked(case: Case, query: Query, begin: int, end: int, every: int) -> list[int]:
    """Multiples of ``every`` in [begin, end) at which the query is asked: within DURATION, after the first arrival."""
    pipeline = case.pipeline
    length, tick = timedelta(seconds=pipeline.interval_s), pipeline.tick_s * 1_000_000
    arrivals = [case.cached.first_arrival(stream, case.interval.label, length) for stream in query.streams]
    began = [to_us(first) // tick * tick + tick for first in arrivals if first is not None]
    if not began:
        return []
    first = max(begin, min(began), begin if query.active_from is None else to_us(query.active_from))
    last = end if query.active_to is None else min(end, to_us(query.active_to))
    return list(range(-(-first // every) * every, last, every))


def _steps(case: Case, query: Query, table: str, until_us: int) -> list[tuple[int, Any]]:
    """(effective from, what is in effect), ascending; reaches back to what was in effect at ``until_us``, if any was.

    Of ``slack_plan`` K; of ``query_plan`` slot end, period and extra answer, None where there is none. All in µs.
    """
    found: list[tuple[int, Any]] = []
    if table == "slack_plan" and query.promised is None:
        return found
    labels = case.cached.labels(table)
    # A slack that is learnt in an interval takes effect at its end, a plan within it.
    until = (bisect_left if table == "slack_plan" else bisect_right)(labels, case.interval.label)
    for label in reversed(labels[:until]):
        found += [(at, step) for owner, at, step in case.cached.steps(table, label) if owner == query.id]
        if any(at <= until_us for at, _ in found):
            break
    return sorted(found, key=lambda step: step[0])
