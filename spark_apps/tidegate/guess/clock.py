"""The interval, tick, horizon, rate and limits that fit what was seen of a stream's times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MINUTE, HOUR, DAY = 60, 3600, 86_400
NICE_S = (
    1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR,
    3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 365 * DAY,
    1000 * DAY, 3650 * DAY,
)  # fmt: skip
_SECOND_US = 1_000_000
_MOST_INTERVALS = 2000
# Up to this span of arrivals, seconds → interval and tick, seconds.
_SPANS = (
    (2 * MINUTE, MINUTE, 1),
    (20 * MINUTE, 5 * MINUTE, 10),
    (3 * HOUR, 10 * MINUTE, MINUTE),
    (14 * DAY, HOUR, MINUTE),
    (math.inf, DAY, 10 * MINUTE),
)
LATE_SHARE = 0.01
"""A stream is late if so many of its records are."""


@dataclass(frozen=True)
class Lateness:
    """How far arrivals were behind event times, seconds. ``share``: of records behind by more than a second."""

    typical_s: float
    most_s: float
    early_s: float
    share: float


@dataclass(frozen=True)
class Clock:
    """The pipeline's times, seconds.

    ``slack_s``: how long answers with a promise wait at first. ``from_s``, ``to_s``: the range to run first, since
    1970. ``cut``: whether it leaves out what is older.
    """

    interval_s: int
    tick_s: int
    horizon_s: int
    from_s: int
    to_s: int
    slack_s: int = 0
    cut: bool = False


def span_us(arrivals: Sequence[int]) -> tuple[int, int]:
    """The first and last arrival, without a few that lie far from all others.

    >>> span_us([0, *range(10**12, 10**12 + 1000)])
    (1000000000000, 1000000000999)
    """
    ordered = sorted(arrivals)
    first, last = ordered[0], ordered[-1]
    low, high = ordered[len(ordered) // 100], ordered[-1 - len(ordered) // 100]
    width = max(high - low, 60 * _SECOND_US)
    inside = [us for us in ordered if low - 10 * width <= us <= high + 10 * width]
    return (inside[0], inside[-1]) if last - first > 20 * width else (first, last)


def lateness_of(events: Sequence[int | None], arrivals: Sequence[int | None]) -> Lateness:
    """The differences of two columns."""
    waits = sorted((a - e) / 1e6 for e, a in zip(events, arrivals, strict=True) if e is not None and a is not None)
    if not waits:
        return Lateness(0.0, 0.0, 0.0, 0.0)
    # A few far from all others are what max_late is to refuse.
    nearly = waits[min(int(len(waits) * 0.99), len(waits) - 1)]
    most = waits[-1] if waits[-1] <= max(10 * nearly, 1.0) else nearly
    least = waits[0] if -waits[0] <= 10 * max(-waits[len(waits) // 100], 30.0) else waits[len(waits) // 100]
    share = sum(wait > 1 for wait in waits) / len(waits)
    return Lateness(max(waits[int(len(waits) * 0.95)], 0.0), max(most, 0.0), max(-least, 0.0), share)


def clock_of(spans: Sequence[tuple[int, int]], units_s: Sequence[int | None], late: Sequence[Lateness]) -> Clock:
    """The pipeline's clock. ``spans``: of each stream; ``units_s``: what one of its files holds, by their names."""
    first_s, last_s = min(a for a, _ in spans) // _SECOND_US, max(b for _, b in spans) // _SECOND_US
    interval_s, tick_s = next((i, t) for span, i, t in _SPANS if last_s - first_s <= span)
    named = [unit for unit in units_s if unit]
    if named:
        interval_s = max(named)
        tick_s = {MINUTE: 1, HOUR: MINUTE}.get(interval_s, 10 * MINUTE)
    # The margin: half as much again.
    behind = max((1.5 * one.most_s for one in late), default=0.0)
    most = max(7 * DAY // interval_s, 1)
    horizon_s = interval_s * min(max(math.ceil(behind / interval_s), 1), most)
    typical_s = max((one.typical_s for one in late if one.share >= LATE_SHARE), default=0.0)
    slack_s = min(math.ceil(typical_s / tick_s) * tick_s, horizon_s)
    from_s = first_s // interval_s * interval_s
    # Windows that end later would be empty: the range ends with the data, unless none would be answered by then.
    wait_s = slack_s if 2 * slack_s > last_s - first_s else 0
    to_s = ((last_s + wait_s) // interval_s + 1) * interval_s
    cut = (to_s - from_s) // interval_s > _MOST_INTERVALS
    from_s = to_s - _MOST_INTERVALS * interval_s if cut else from_s
    return Clock(interval_s, tick_s, horizon_s, from_s, to_s, slack_s, cut)


def limits_s(late: Lateness, clock: Clock) -> tuple[int, int]:
    """``max_early`` and ``max_late``: twice what was seen, and not less than what any feed needs."""
    early = up(max(2 * late.early_s, MINUTE))
    return early, up(max(2 * late.most_s, DAY if clock.interval_s <= HOUR else 7 * DAY, clock.horizon_s))


def up(seconds: float) -> int:
    """The least round duration of so many seconds.

    >>> up(61), up(0.2)
    (120, 1)
    """
    return next((nice for nice in NICE_S if nice >= seconds), NICE_S[-1])


def window_s(span_s: float, rate: float, clock: Clock) -> tuple[int, int]:
    """The range and the slide of a first query: several windows in the data, each with some records.

    >>> window_s(2400, 1.0, Clock(3600, 60, 3600, 0, 7200))
    (300, 60)
    """
    fitting = [s for s in NICE_S if s % clock.tick_s == 0 and s <= max(span_s / 4, 10 * clock.tick_s)] or [clock.tick_s]
    most = DAY if clock.interval_s >= DAY else HOUR
    fitting = [s for s in fitting if s <= most] or fitting[:1]
    range_s = next((s for s in fitting if s * rate >= 200 and s * 20 >= span_s), fitting[-1])
    slides = [s for s in NICE_S if s % clock.tick_s == 0 and range_s % s == 0 and s <= range_s / 2]
    return range_s, slides[-1] if slides else range_s


def rate_words(rate: float) -> str:
    """A rate as pipeline.yml has it, to two digits.

    >>> rate_words(1 / 60), rate_words(12.34), rate_words(1e-7)
    ('1 per minute', '13 per second', '1 per day')
    """
    for unit, seconds in (("second", 1), ("minute", MINUTE), ("hour", HOUR), ("day", DAY)):
        count = rate * seconds
        digits = 10 ** max(math.floor(math.log10(max(count, 1))) - 1, 0)
        rounded = max(math.ceil(count / digits - 1e-9) * digits, 1)
        if rounded <= 1.1 * count or unit == "day":
            return f"{rounded} per {unit}"
    raise AssertionError(rate)
