"""K of MP-K-slack, AQ-K-slack and Wu and Fang's search at the end of every window, without the answers themselves.

An answer is what had arrived by window end + K, whoever chose K, so the needed slacks say what each is worth. Each is
tried at several settings, and the best of them counts that keeps at least as many periods as Tidegate: known only
afterwards, which nobody who runs it knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from infra.benchmarks.generator.randomness import Floats
from infra.benchmarks.promises.replay import Windows
from infra.research.published.top_k import Arrival, Options, Query
from infra.research.published.top_k.buffered import AqKSlack
from infra.research.published.top_k.interval_search import Interval, candidates_us, next_interval

from tidegate.operators.accuracy.slack import accuracy_at

SECOND_US = 1_000_000
TARGETS = (0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999)
"""What AQ-K-slack and Wu and Fang's search are asked for: more than is promised: they keep it on average at best."""
PARTS, ROUND = 10, 30


@dataclass(frozen=True)
class Tried:
    """A rival at one setting: the share of the judged periods that it keeps, and its mean K over their windows."""

    kept: float
    slack_s: float


def tried(windows: Windows, slack_s: Floats) -> Tried:
    """What came of a K for each window."""
    return Tried(float(windows.kept(slack_s).mean()), float(slack_s[windows.judged].mean()))


def best(found: list[Tried], kept: float) -> Tried:
    """The shortest mean K that keeps so many; if none does, the one that keeps most."""
    enough = [one for one in found if one.kept >= kept]
    if enough:
        return min(enough, key=lambda one: one.slack_s)
    return max(found, key=lambda one: (one.kept, -one.slack_s))


def mp_k_slack(windows: Windows) -> Floats:
    """The largest delay that has been seen."""
    of = windows.case.stream
    order = np.argsort(of.arrival_s, kind="stable")
    largest_s = np.append(0.0, np.maximum.accumulate(of.delay_s[order]))
    seen = np.searchsorted(of.arrival_s[order], windows.end_us / 1e6, side="right")
    return np.minimum(largest_s[seen], windows.case.asked.horizon_s)


class _Controller(AqKSlack):
    """AQ-K-slack's K alone: no tuple is buffered, no answer given."""

    def absorb(self, arrival: Arrival) -> None:
        self._observe(arrival)

    def close(self, now_us: int) -> int:
        """K once a window was answered."""
        self._adapt(now_us)
        return self.slack_us


class AqKSlackCourses:
    """Of each stream, range and target once: K does not depend on what is asked of the windows."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int, int, float], tuple[Floats, Floats]] = {}

    def of(self, windows: Windows, target: float) -> Floats:
        """K of every window."""
        asked, of = windows.case.asked, windows.case.stream
        key = id(of), asked.range_s, asked.every_s, asked.horizon_s, target
        if key not in self._known:
            self._known[key] = self._run(windows, target)
        end_s, slack_s = self._known[key]
        return slack_s[np.searchsorted(end_s, windows.end_us / 1e6, side="right") - 1]

    @staticmethod
    def _run(windows: Windows, target: float) -> tuple[Floats, Floats]:
        asked, of = windows.case.asked, windows.case.stream
        query = Query(asked.range_s * SECOND_US, asked.every_s * SECOND_US, 1)
        options = Options(horizon_us=asked.horizon_s * SECOND_US, target=target)
        controller = _Controller(query, 0, options)
        order = np.argsort(of.arrival_s, kind="stable")
        rank = (0.0, 0, 0)
        events, arrivals = ((s[order] * 1e6).astype(np.int64).tolist() for s in (of.event_s, of.arrival_s))
        end_s = np.arange(0, windows.end_us[-1] // SECOND_US + asked.every_s, asked.every_s, dtype=np.float64)
        upto = np.searchsorted(of.arrival_s[order], end_s, side="right").tolist()
        slack_s, done = [], 0
        for end, last in zip((end_s * 1e6).astype(np.int64).tolist(), upto, strict=True):
            for at in range(done, last):
                controller.absorb(Arrival(rank, events[at], arrivals[at]))
            done = last
            slack_s.append(controller.close(end) / 1e6)
        return end_s, np.array(slack_s)


def interval_search(windows: Windows, target: float) -> Floats:
    """Wu and Fang's: rounds of 30 windows, judged once their truth is known; from (0, the first K], grain an EVERY/10.

    **Source.** papers/04; ``infra.research.published.top_k.adaptive`` is the method with its buffers.
    """
    asked = windows.case.asked
    first_us = round(max(asked.initial_s, asked.horizon_s / 3) * SECOND_US)
    grain_us = round(min(asked.every_s, asked.horizon_s / PARTS) * SECOND_US / 10)
    options = replace(
        Options(horizon_us=asked.horizon_s * SECOND_US), slack_us=first_us, grain_us=grain_us, target=target
    )
    interval, slack_us = Interval(0, first_us), first_us
    end_us, needed = windows.end_us, windows.needed
    slack_s, at, begins = np.empty(len(end_us)), 0, np.append(windows.begins, len(needed.end_us))
    while at < len(end_us):
        last = min(at + ROUND, len(end_us))
        own = slice(int(begins[at]), int(begins[last]))
        reached = [
            accuracy_at(needed.slack_s[own], one / SECOND_US, needed.weight[own])
            for one in candidates_us(interval, options)
        ]
        # In force until the truth of the round's last window is known.
        until = int(np.searchsorted(end_us, end_us[last - 1] + options.horizon_us, side="right"))
        slack_s[at:until] = slack_us / SECOND_US
        interval, slack_us = next_interval(interval, reached, options)
        at = until
    return slack_s


def rivals(windows: Windows, courses: AqKSlackCourses, kept: float) -> Iterator[tuple[str, Tried]]:
    """Each rival at its best setting that keeps so many."""
    yield "MP-K-slack", tried(windows, mp_k_slack(windows))
    yield "AQ-K-slack", best([tried(windows, courses.of(windows, target)) for target in TARGETS], kept)
    yield "Wu and Fang", best([tried(windows, interval_search(windows, target)) for target in TARGETS], kept)
