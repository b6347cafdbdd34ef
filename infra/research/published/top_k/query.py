"""What the published methods are asked, what they are fed, what can be set, and what they answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

SECOND_US = 1_000_000
Rank = tuple[float, int, Any]
"""(−score, event time, id): ascending it is the order of papers/04, and no two tuples have the same."""


class Arrival(NamedTuple):
    """A tuple that arrives: its rank, which holds event time and id, and when; never before its event time."""

    rank: Rank
    event_us: int
    arrival_us: int


@dataclass(frozen=True)
class Query:
    """The k tuples with the highest score of every window of ``width_us``, one each ``slide_us``.

    Window w is [(w + 1)·slide − width, (w + 1)·slide) of event time: it holds the slides w − n + 1 … w, n = width /
    slide, and its last slide has its own number.

    >>> Query(60, 25, 5)
    Traceback (most recent call last):
        ...
    ValueError: Query: the width must be a multiple of the slide, for windows consist of slides: not 60 and 25
    """

    width_us: int
    slide_us: int
    k: int

    def __post_init__(self) -> None:
        """Refuse a query that contradicts itself."""
        if self.slide_us < 1 or self.k < 1 or self.width_us < 1:
            raise ValueError("Query: width, slide and k are at least 1")
        if self.width_us % self.slide_us:
            raise ValueError(
                "Query: the width must be a multiple of the slide, for windows consist of slides: not "
                f"{self.width_us} and {self.slide_us}"
            )

    @property
    def slides(self) -> int:
        """How many slides a window holds."""
        return self.width_us // self.slide_us

    def end_us(self, window: int) -> int:
        """Where a window ends."""
        return (window + 1) * self.slide_us


@dataclass(frozen=True)
class Options:
    """What the methods can be set to; each reads only what its documentation names.

    ``slack_us``: K of K-SLACK, and where the search of MINTOPK-ADAPTIVE begins. ``target``: ε_min. ``horizon_us``: H,
    after which the truth is taken. ``parts``: m. ``windows``: n. ``grain_us``: parts do not get smaller. The defaults
    are the paper's; the grain, which it does not print, is its first part. ``gain``, ``damping``: of AQ-K-SLACK.
    """

    slack_us: int = 2 * SECOND_US
    target: float = 0.95
    horizon_us: int = 60 * SECOND_US
    parts: int = 10
    windows: int = 30
    grain_us: int = SECOND_US // 5
    gain: float = 0.5
    damping: float = 0.8

    def __post_init__(self) -> None:
        """Refuse options that contradict each other."""
        if min(self.parts, self.windows, self.grain_us, self.horizon_us) < 1 or not 0 < self.target <= 1:
            raise ValueError("Options: parts, windows, grain and horizon are at least 1, and the target in (0, 1]")
        if not 0 <= self.slack_us <= self.horizon_us or self.grain_us > self.horizon_us:
            raise ValueError(
                "Options: slack and grain must lie within the horizon: what comes later is not part of the truth"
            )


@dataclass(frozen=True)
class Answer:
    """One window's answer: when it was given, with which K in force, and the ids, the best first."""

    window: int
    window_end_us: int
    emit_us: int
    slack_us: int
    ids: tuple[Any, ...]

    @property
    def delay_us(self) -> int:
        """How long after its window's end it was given."""
        return self.emit_us - self.window_end_us


def arrivals(
    event_us: Sequence[int], arrival_us: Sequence[int], scores: Sequence[float], ids: Sequence[Any]
) -> list[Arrival]:
    """The stream as the methods take it: in order of arrival, then event time, then id.

    A tuple that arrives before its event time counts as arrived at it (papers/04, "Settled here").

    Raises:
        ValueError: an id twice, or a score that is not a number.

    >>> arrivals([5, 2], [4, 9], [1.0, 3.0], ["a", "b"])[0]
    Arrival(rank=(-1.0, 5, 'a'), event_us=5, arrival_us=5)
    """
    if len(set(ids)) < len(ids):
        raise ValueError("arrivals: ids must be unique, or the answer is not")
    if any(math.isnan(score) for score in scores):
        raise ValueError("arrivals: NaN has no rank")
    found = [
        Arrival((-score, event, key), event, max(event, arrival))
        for event, arrival, score, key in zip(event_us, arrival_us, scores, ids, strict=True)
    ]
    return sorted(found, key=lambda one: (one.arrival_us, one.event_us, one.rank[2]))
