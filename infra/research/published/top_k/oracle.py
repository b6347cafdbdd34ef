"""The answers by definition, and how near to them others come."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from infra.research.published.top_k.query import Answer, Arrival, Query


def truth(
    query: Query, stream: Sequence[Arrival], windows: range, horizon_us: int | None = None
) -> dict[int, list[Arrival]]:
    """Per window its winners, best first, once all tuples are in: all of it sorted.

    Args:
        query: what is asked.
        stream: in any order.
        windows: which to answer.
        horizon_us: tuples that arrive more than so much after the window's end are not in; None for all.
    """
    by_event = sorted(stream, key=lambda one: one.event_us)
    events_us = [one.event_us for one in by_event]
    winners = {}
    for window in windows:
        end_us = query.end_us(window)
        inside = by_event[bisect_left(events_us, end_us - query.width_us) : bisect_left(events_us, end_us)]
        if horizon_us is not None:
            inside = [one for one in inside if one.arrival_us <= end_us + horizon_us]
        winners[window] = sorted(inside)[: query.k]
    return winners


def accuracy(answer: Answer, winners: Sequence[Arrival]) -> float:
    """|answer ∩ truth| / |truth|; 1 if the truth is empty."""
    ids = {one.rank[2] for one in winners}
    return len(ids & set(answer.ids)) / len(ids) if ids else 1.0


def mean_accuracy(answers: Iterable[Answer], winners: Mapping[int, Sequence[Arrival]]) -> float:
    """Mean over the windows answered."""
    return fmean(accuracy(one, winners[one.window]) for one in answers)


def mean_delay_s(answers: Iterable[Answer]) -> float:
    """How long after their windows' ends the answers were given, on average."""
    return fmean(one.delay_us for one in answers) / 1e6


def needed_slacks_us(query: Query, winners: Mapping[int, Sequence[Arrival]]) -> dict[int, list[int]]:
    """Per window the slack that each of its winners would have needed, the best winner first."""
    return {
        window: [max(0, one.arrival_us - query.end_us(window)) for one in found] for window, found in winners.items()
    }
