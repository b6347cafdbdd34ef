"""What the live controller is told: streams, queries, budget, and what has been learnt about them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tidegate.declarations.models import Pipeline, Query, Stream, to_us
from tidegate.operators.window_sizing.needs import Needs, QueryNeed, WindowNeed
from tidegate.values.types import family_of

# Bytes that a stored value takes in the operators' columns, before anything has been measured.
_COLUMN_BYTES = {"string": 24, "integer": 8, "double": 8, "decimal": 16, "boolean": 1, "timestamp": 8, "date": 8}


@dataclass(frozen=True)
class SizedStream:
    """A stream as the controller knows it: declared ``rate`` (tuples/s), ``tuple_bytes``, greatest width.

    ``max_width_s`` is required: while a stream is silent its rate falls towards 0, and the memory that is left would
    pay for a window of any width.
    """

    name: str
    rate: float
    tuple_bytes: float
    max_width_s: float


@dataclass(frozen=True)
class SizedQuery:
    """A query as the controller knows it.

    Per stream its range and slack width; ``slack_s`` (K), how long after its window's end it answers, with updates for
    the last time; DURATION [active from, to). An answer at t + K sees the window ending at t, so the stream must still
    hold t − range at t + K: what is needed of the stream's window is wider by K than what is asked.
    """

    id: str
    ranges_s: Mapping[str, float]
    slack_widths_s: Mapping[str, float]
    delay_s: float
    active_from_us: int | None = None
    active_to_us: int | None = None
    weight: float = 1.0
    priority: int = 0
    slack_s: float = 0.0

    def active(self, t_us: int) -> bool:
        """Whether t lies in the query's DURATION."""
        begun = self.active_from_us is None or self.active_from_us <= t_us
        return begun and (self.active_to_us is None or t_us < self.active_to_us)

    def tolerable_s(self, stream: str) -> float:
        """Q_t − Q_e on the stream: the width with which an answer is still within its error."""
        return max(self.ranges_s[stream] - self.slack_widths_s.get(stream, 0.0), 0.0)

    def need_s(self, stream: str) -> float:
        """The width that the stream's window needs for an exact answer: range + K."""
        return self.ranges_s[stream] + self.slack_s

    def tolerable_need_s(self, stream: str) -> float:
        """The width that the stream's window needs for an answer within its error; 0 if it needs none at all."""
        tolerable = self.tolerable_s(stream)
        return tolerable + self.slack_s if tolerable > 0 else 0.0


@dataclass(frozen=True)
class ControllerSpec:
    """What the controller is to do.

    ``tick_us``: spacing of its ticks; widths are multiples of it. ``rate_change``: δ, by how much of the planned byte
    rate a stream's byte rate must have moved. ``half_life_s``: least of the exponentially weighted rates, and how much
    observation a declared rate is worth (:meth:`newness`). Hysteresis:
    ``hysteresis_ticks``, how many ticks in a row a moved rate or another level must last; ``level_margin``, the share
    of M by which a level must be out of reach (or within it) before it counts as another level. ``headroom_sd``: how
    many standard deviations of the bytes held surplus and turns leave free, so that chance alone seldom fills memory.
    """

    streams: tuple[SizedStream, ...]
    queries: tuple[SizedQuery, ...]
    memory_budget_bytes: float
    tick_us: int
    rate_change: float = 0.5
    half_life_s: float = 3600.0
    hysteresis_ticks: int = 2
    level_margin: float = 0.1
    headroom_sd: float = 2.0

    @classmethod
    def from_pipeline(
        cls,
        pipeline: Pipeline,
        tuple_bytes: Mapping[str, float] | None = None,
        slack_widths_s: Mapping[tuple[str, str], float] | None = None,
        slacks_s: Mapping[str, float] | None = None,
    ) -> ControllerSpec:
        """The spec that a pipeline declares.

        ``tuple_bytes``: stream → measured bytes per tuple, where known. What has been learnt from data:
        ``slack_widths_s``, (query, stream) → slack width, without it ERROR × range (0 for a query that promises no
        error bound); ``slacks_s``, query → K, without it the pipeline's initial slack (0 for a query that promises
        nothing).
        """
        measured, learnt, slacks = tuple_bytes or {}, slack_widths_s or {}, slacks_s or {}
        return cls(
            streams=tuple(
                SizedStream(s.name, s.rate, measured.get(s.name, declared_tuple_bytes(s)), pipeline.max_width_s(s.name))
                for s in pipeline.streams
            ),
            queries=tuple(
                SizedQuery(
                    id=q.id,
                    ranges_s=q.ranges_s(),
                    slack_widths_s={
                        s: learnt.get((q.id, s), (q.error or 0.0) * r) if q.is_narrowed and q.sessions is None else 0.0
                        for s, r in q.ranges_s().items()
                    },
                    delay_s=q.longest_gap_s,
                    active_from_us=None if q.active_from is None else to_us(q.active_from),
                    active_to_us=None if q.active_to is None else to_us(q.active_to) + _still_needed_us(pipeline, q),
                    priority=q.priority,
                    slack_s=longest_wait_s(
                        pipeline, q, slacks.get(q.id, pipeline.initial_slack_s if q.promised is not None else 0.0)
                    ),
                )
                for q in pipeline.queries
            ),
            memory_budget_bytes=pipeline.memory_budget_bytes,
            tick_us=pipeline.tick_s * 1_000_000,
            rate_change=pipeline.rate_change,
        )

    @property
    def tick_s(self) -> float:
        """The tick in seconds."""
        return self.tick_us / 1e6

    @cached_property
    def fingerprint(self) -> str:
        """Names what is declared; a state under another one starts a new plan.

        Not the budget, measured sizes and what is learnt, whose changes have triggers of their own, nor DURATIONs.
        """
        streams = [(s.name, s.max_width_s) for s in self.streams]
        queries = [(q.id, sorted(q.ranges_s.items()), q.delay_s, q.weight, q.priority) for q in self.queries]
        return hashlib.sha256(repr((streams, queries, self.tick_us)).encode()).hexdigest()[:16]

    @cached_property
    def by_id(self) -> Mapping[str, SizedQuery]:
        """Query id → query."""
        return {query.id: query for query in self.queries}

    @cached_property
    def _half_life_s(self) -> Mapping[str, float]:
        """Stream → half-life of its rate.

        With the time constant of the widest need, rate × width is never more than a burst that is still in the window
        really takes: what came in a tick is not taken for what comes in every tick.
        """
        half_lives_s = {stream.name: self.half_life_s for stream in self.streams}
        for query in self.queries:
            for name in query.ranges_s:
                half_lives_s[name] = max(half_lives_s[name], math.log(2.0) * query.need_s(name))
        return half_lives_s

    def newness(self, stream: str, seen_s: float) -> float:
        """The weight of a tick in the stream's rate, ``seen_s`` after its first arrival.

        At first every tick counts alike, the declared rate as ``half_life_s`` of them; then old ones are forgotten.
        """
        forgotten = -math.expm1(-math.log(2.0) * self.tick_s / self._half_life_s[stream])
        return max(forgotten, self.tick_s / (max(seen_s, self.tick_s) + self.half_life_s))

    def active(self, t_us: int) -> tuple[SizedQuery, ...]:
        """The queries whose DURATION holds t."""
        return tuple(query for query in self.queries if query.active(t_us))

    @cached_property
    def durations_us(self) -> tuple[int, ...]:
        """The instants at which queries start or end, ascending."""
        instants = {t for q in self.queries for t in (q.active_from_us, q.active_to_us) if t is not None}
        return tuple(sorted(instants))

    def whole_ticks_us(self, seconds: float) -> int:
        """So many seconds rounded up to ticks, in µs; 1e-9 of a tick above a multiple counts as that multiple."""
        ticks, rest = divmod(round(seconds * 1e6), self.tick_us)
        return int(ticks + (rest > 0)) * self.tick_us

    def needs_us(self, query: SizedQuery) -> dict[str, tuple[int, int]]:
        """Stream → widths in whole ticks that the query needs for an exact answer, and for one within its error.

        K and the width are rounded up each by itself, since at level C windows end a whole number of ticks before
        their answer.
        """
        wait_us = self.whole_ticks_us(query.slack_s)
        widths_us = {}
        for stream in query.ranges_s:
            tolerable_us = self.whole_ticks_us(query.tolerable_s(stream))
            exact_us = self.whole_ticks_us(query.ranges_s[stream]) + wait_us
            widths_us[stream] = exact_us, tolerable_us + wait_us if tolerable_us > 0 else 0
        return widths_us

    def needs(self, queries: Sequence[SizedQuery], byte_rates: Mapping[str, float]) -> Needs:
        """The planning problem of these queries at these byte rates, in whole ticks."""
        asked = []
        for query in queries:
            widths_us = self.needs_us(query)
            ranges_s = {stream: exact_us / 1e6 for stream, (exact_us, _) in widths_us.items()}
            slack_s = {stream: (exact_us - least_us) / 1e6 for stream, (exact_us, least_us) in widths_us.items()}
            asked.append(QueryNeed(query.id, ranges_s, slack_s, query.delay_s, query.weight, query.priority))
        windows = [WindowNeed(s.name, byte_rates[s.name], s.max_width_s) for s in self.streams]
        return Needs.of(windows, asked).in_quanta(self.tick_s)


def longest_wait_s(pipeline: Pipeline, query: Query, slack_s: float) -> float:
    """How long after its window's end a query needs its tuples: K, or with updates until the window is final."""
    return float(slack_s if query.emit_every_s is None else max(slack_s, pipeline.horizon_s))


def _still_needed_us(pipeline: Pipeline, query: Query) -> int:
    """How long after its last window a query with a bound still needs its tuples: until that has been answered."""
    return 0 if query.bounded is None else pipeline.final_after_us(query)


def declared_tuple_bytes(stream: Stream) -> float:
    """Bytes per tuple to plan with before anything has been measured: event id, two times, the declared columns."""
    keys = {stream.event_time, stream.arrival_time, *(stream.id if len(stream.id) == 1 else ())}
    return 24.0 + 8.0 + 8.0 + sum(_COLUMN_BYTES[family_of(c.type)] for c in stream.columns if c.name not in keys)
