"""The paper's search for K: an interval, cut into parts, each part's end tried over some windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infra.research.published.top_k.query import Options


@dataclass(frozen=True)
class Interval:
    """(``down_us``, ``up_us``], in which K is searched."""

    down_us: int
    up_us: int


def candidates_us(interval: Interval, options: Options) -> list[int]:
    """The slacks to try: the lower end, and the end of each part, ascending.

    There are m parts, or as many as are at least a grain wide, but at least one.

    >>> candidates_us(Interval(0, 4_500_000), Options(parts=3))
    [0, 1500000, 3000000, 4500000]
    >>> candidates_us(Interval(3_000_000, 3_500_000), Options())
    [3000000, 3250000, 3500000]
    """
    width_us = interval.up_us - interval.down_us
    parts = max(1, min(options.parts, width_us // options.grain_us))
    return [interval.down_us + round(width_us * part / parts) for part in range(parts + 1)]


def next_interval(interval: Interval, accuracies: Sequence[float], options: Options) -> tuple[Interval, int]:
    """Where to search next, and K until then.

    Args:
        interval: in which the candidates lay.
        accuracies: of ``candidates_us``, their mean over the windows of the round.
        options: ``target``, ``parts``, ``grain_us``, ``horizon_us``.

    Returns:
        The part whose end is the smallest candidate that reaches the target, and that end. If the lower end reaches it
        already, the interval moves down by a part; at 0 it becomes the first part, and K is 0. If no candidate reaches
        it, the interval moves up by a part, but not beyond the horizon. Then K is its upper end.

    **Source.** Wu and Fang, step 3. The print says "moves forward or back" without saying when it is which; that the
    lower end is tried too tells it. Limits by papers/04, "Settled here".

    >>> next_interval(Interval(0, 4_500_000), [0.61, 0.72, 0.83, 0.94], Options(parts=3, target=0.8))
    (Interval(down_us=1500000, up_us=3000000), 3000000)
    """
    tried = candidates_us(interval, options)
    part_us = tried[1] - tried[0]
    if accuracies[0] >= options.target:
        if interval.down_us == 0:
            return Interval(0, tried[1]), 0
        shift_us = -min(part_us, interval.down_us)
    elif accuracies[-1] < options.target:
        shift_us = min(part_us, options.horizon_us - interval.up_us)
    else:
        reached = next(index for index, accuracy in enumerate(accuracies) if accuracy >= options.target)
        return Interval(tried[reached - 1], tried[reached]), tried[reached]
    moved = Interval(interval.down_us + shift_us, interval.up_us + shift_us)
    return moved, moved.up_us
