"""The slack that keeps a promise, period after period: what the calibration of K decides.

**Idea.** Two things are known: how long past winners would have had to be waited for (late, and few), and how late
tuples are now (at once, and many). The first says what is right, the second how it has changed since. A promise is
kept or broken over a *period* (a day, an hour): the mean accuracy of its windows reaches the target or not. For each
past period the least slack that would have kept it is known exactly, its *oracle slack*. If periods are exchangeable,
the conformal quantile of the past oracle slacks keeps the next period's promise with the wanted confidence, however
dependent the winners within a period are (a storm delays them all). Where the delays of all tuples foretell a period's
oracle slack, the oracle slacks are measured in units of them, and K follows the delays of now. In the same way
they are measured on scales of what is to be expected at the time of the period and with the delays of late
(``likeness``), and K is what stands at that place of a scale now, where that has meant less waiting.

**Source.** papers/04, "Beyond the paper" (the noise matters: pool with decay, add a margin from the confidence bound).
Conformal quantiles: Vovk, Gammerman & Shafer 2005; the level that adapts to what was kept: Gibbs & Candès 2021,
"Adaptive conformal inference under distribution shift".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from scipy.special import fdtri, stdtrit

from tidegate.operators.accuracy.judge import meets
from tidegate.operators.accuracy.likeness import SCALES, SLOTS, Moments, places_of, scales, slack_at
from tidegate.operators.accuracy.outlook import RATIO, SECONDS, Outlook
from tidegate.operators.accuracy.slack import (
    Float64s,
    Int64s,
    choose_slack,
    least_covering,
    least_covering_groups,
    rounded_up,
    share_of_groups,
)
from tidegate.values.calendar import Calendar, Periods

_LEAST_PERIODS = 5
"""With fewer, the spread between periods cannot be told: the largest counts, and what was pooled."""
_PERIODS_UNLEARNT = 2
"""Before so many are known K is not below the declared ``initial_s``."""
_PERIODS_KEPT = 60
_LEVEL_STEP = 0.01
_SPARED = 0.8
"""So much of what may be missed is: who aims at just what is promised is below it half of the time."""
_LEVELS = (0.5, 0.999)
_FORETELLS = 0.95
"""With so much confidence the delays of all tuples must foretell what periods need before K follows them."""
_UNLIKE_AT_SD = 2.5
_BLOCKS = 20
_LEAST_BLOCK = 5

STATE_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("at_us", pa.int64()),
        ("slack_s", pa.float64()),
        ("unit_s", pa.float64()),
        ("level", pa.float64()),
    ]
)
_PLAN, _PERIOD, _CLOSED, _MOMENT, _UNTIL = "plan", "period", "closed", "moment", "until"
_TRIED, _RECENT, _PLACE, _WAITED, _OTHER = "tried", "recent", "place", "waited", "other"
_NEED, _HELD = "need", "held"
_KINDS = (_PLAN, _PERIOD, _TRIED, _RECENT, _PLACE, _WAITED, _OTHER, _MOMENT, _CLOSED, _UNTIL, _NEED, _HELD)
_REMEMBERED = 14
"""Periods after which what windows needed counts e times less for what is expected."""
_LEAST_LIKE = 10
"""So many periods must be known by their places on the scales before K is chosen by them."""
_SHORTER = 0.9
"""By so much less waiting must have done: less may be chance."""


@dataclass(frozen=True)
class Promise:
    """What is promised, and over what.

    ``target``: least mean accuracy (top-k), or least share of windows within ERROR. ``period_s``: over which it is to
    be reached. ``confidence``: share of the periods in which it is to be reached; None: on average over all of them, no
    more. ``horizon_s``: a window is final so long after its end; K is never more. ``offset_s``: added to slacks before
    they are compared as ratios, so that 0 is no special case; a tenth of the range, or so. ``waits_for_tuples``:
    whether what is waited for are tuples, so that slacks asked for by the law of all delays mean anything by
    themselves. ``calendar``: the periods, where they are a calendar's; ``period_s`` is then their usual length.
    themselves. ``groups_within``: of a promise for each group the share of the groups whose mean accuracy is to reach
    the target; None: it is promised of all together.
    """

    target: float
    period_s: float
    horizon_s: float
    confidence: float | None = 0.95
    offset_s: float = 1.0
    waits_for_tuples: bool = True
    calendar: Calendar | None = None
    groups_within: float | None = None

    @property
    def periods(self) -> Periods:
        """The periods, one after the other."""
        return Periods(round(self.period_s * 1e6), self.calendar)


@dataclass(frozen=True, eq=False)
class Needed:
    """Needed slacks of true winners, or windows, by window end.

    ``end_us`` int64[n], ascending; ``slack_s`` float64[n]; ``weight`` float64[n]: 1/|truth of the window|. ``share``
    float64[n]: of the range, the least that had to be held (NaN: not measured). ``group`` int64[n], of a promise for
    each group: which one; ``group_weight`` float64[n]: 1/|truth of the window and group|. ``has_rows`` bool[n]: whether
    the window has anything, so that somebody waits for its answer; None: each has.
    """

    end_us: Int64s
    slack_s: Float64s
    weight: Float64s
    share: Float64s | None = None
    group: Int64s | None = None
    group_weight: Float64s | None = None
    has_rows: np.ndarray | None = None

    def between(self, start_us: int, end_us: int) -> Needed:
        """Those of windows with an end in [start, end)."""
        own = slice(*np.searchsorted(self.end_us, [start_us, end_us]))
        share = None if self.share is None else self.share[own]
        group = None if self.group is None else self.group[own]
        of_group = None if self.group_weight is None else self.group_weight[own]
        has_rows = None if self.has_rows is None else self.has_rows[own]
        return Needed(self.end_us[own], self.slack_s[own], self.weight[own], share, group, of_group, has_rows)

    @property
    def waiting(self) -> Float64s:
        """float64[n], the weight of each where waits are averaged: nobody waits for a window that has nothing.

        >>> Needed(np.arange(2), np.zeros(2), np.ones(2), has_rows=np.array([True, False])).waiting.tolist()
        [1.0, 0.0]
        """
        if self.has_rows is None or not self.has_rows.any():
            return self.weight
        return np.where(self.has_rows, self.weight, 0.0)

    @property
    def windows(self) -> int:
        """How many windows."""
        return int(np.count_nonzero(np.diff(self.end_us))) + (len(self.end_us) > 0)


def oracle(promise: Promise, needed: Needed, slack_s: Float64s | None = None) -> float:
    """The least slack that would have kept the promise over these, at least one.

    ``slack_s``: of each, if what it needed is measured otherwise than in seconds.
    """
    slack_s = needed.slack_s if slack_s is None else slack_s
    if promise.groups_within is None or needed.group is None or needed.group_weight is None:
        return least_covering(slack_s, promise.target, needed.weight)
    return least_covering_groups(slack_s, needed.group, promise.target, needed.group_weight, promise.groups_within)


def _kept(promise: Promise, needed: Needed, slack_s: Float64s) -> bool:
    """Whether the promise was kept over these, with such a slack at each."""
    in_time = needed.slack_s <= slack_s
    if promise.groups_within is None or needed.group is None or needed.group_weight is None:
        return meets(float(needed.weight[in_time].sum() / needed.weight.sum()), promise.target)
    reached = share_of_groups(in_time, needed.group, promise.target, needed.group_weight)
    return meets(reached, promise.groups_within)


@dataclass(frozen=True)
class Choice:
    """K in seconds; the accuracy to expect with it (None before anything is known); how it was chosen.

    ``accuracy_expected``: what this K would have had over the windows of late; where K follows the delays, what
    following them in this way would have had (``outlook``). At the horizon answers are the truth.

    ``method``: ``initial`` (nothing is known), ``carried`` (nothing new), ``warm_up`` (too few periods), ``periods``
    (the quantile over past periods), ``scaled`` (the same in units of all delays), ``changed`` (the delays of all
    tuples ask for more than that), ``alike`` (the quantile of the places on a scale of what is expected of windows like
    those that end now), ``all_delays``, ``winners`` (without a confidence: on average).
    """

    slack_s: float
    accuracy_expected: float | None
    method: str


@dataclass(frozen=True, eq=False)
class PromiseState:
    """What is carried from one choice to the next.

    ``plan_us``, ``plan_slack_s``, ``plan_unit_s`` [n]: choices by the instant from which they hold; the slack that the
    law of all delays asked for then; ``plan_recent_s``: how late tuples were of late; ``plan_like_s`` [n, scales],
    ``plan_other_s``: K by each scale, and without them. ``period_us``, ``oracle_s``, ``unit_s`` [m]: past periods by
    start; ``place`` [m, scales]: where on each scale they would have been kept; ``like_s`` [m, scales], ``other_s``:
    those K on average over the windows that have anything. NaN: unknown. ``moments``: of the same periods, and open
    ones. ``level``: at which the quantile over periods is taken. ``closed_us``: start of the first period not yet
    judged. ``outlook``: what windows of late have needed.
    """

    plan_us: Int64s
    plan_slack_s: Float64s
    plan_unit_s: Float64s
    period_us: Int64s
    oracle_s: Float64s
    unit_s: Float64s
    plan_recent_s: Float64s
    plan_like_s: Float64s
    plan_other_s: Float64s
    place: Float64s
    like_s: Float64s
    other_s: Float64s
    moments: Moments
    level: float
    closed_us: int | None = None
    outlook: Outlook = field(default_factory=Outlook.initial)

    @classmethod
    def initial(cls, promise: Promise) -> PromiseState:
        """Before anything was learnt."""
        none = (np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
        nothing, on_scales = np.zeros(0), np.zeros((0, SCALES))
        return cls(
            *none, *none, nothing, on_scales, nothing, on_scales, on_scales, nothing, Moments(*none), aim(promise)
        )

    def to_arrow(self) -> pa.Table:
        """``STATE_SCHEMA``."""
        closed = np.array([] if self.closed_us is None else [self.closed_us], np.int64)
        ahead = self.outlook
        until = np.array([] if ahead.until_us is None else [ahead.until_us], np.int64)
        parts = [
            (_PLAN, self.plan_us, self.plan_slack_s, self.plan_unit_s),
            (_PERIOD, self.period_us, self.oracle_s, self.unit_s),
            (_TRIED, self.plan_us, *self.plan_like_s.T),
            (_RECENT, self.plan_us, self.plan_recent_s, self.plan_other_s),
            (_PLACE, self.period_us, *self.place.T),
            (_WAITED, self.period_us, *self.like_s.T),
            (_OTHER, self.period_us, self.other_s, np.full(len(self.period_us), np.nan)),
            (_MOMENT, self.moments.at_us, self.moments.needed_s, self.moments.recent_s),
            (_CLOSED, closed, np.full(len(closed), np.nan), np.full(len(closed), np.nan)),
            (_UNTIL, until, np.full(len(until), ahead.count), np.full(len(until), np.nan)),
            (_NEED, ahead.unit, ahead.need, ahead.weight),
            (_HELD, ahead.unit, ahead.share, np.full(len(ahead.unit), np.nan)),
        ]
        columns = [np.concatenate([part[i] for part in parts]) for i in (1, 2, 3)]
        kinds = np.repeat([kind for kind, *_ in parts], [len(at) for _, at, *_ in parts])
        return pa.table([kinds, *columns, np.full(len(kinds), self.level)], schema=STATE_SCHEMA)

    @classmethod
    def from_arrow(cls, table: pa.Table, promise: Promise) -> PromiseState:
        """The inverse of ``to_arrow``; what an older state does not have is not known."""
        if table.num_rows == 0:
            return cls.initial(promise)
        kind = np.array(table.column("kind").to_pylist(), dtype=object)
        columns = [table.column(n).to_numpy() for n in ("at_us", "slack_s", "unit_s")]
        at = {k: tuple(c[kind == k] for c in columns) for k in _KINDS}
        plans, periods = at[_PLAN], at[_PERIOD]

        def beside(kind: str, others: Int64s) -> tuple[Float64s, Float64s]:
            unknown = np.full(len(others), np.nan)
            return at[kind][1:] if len(at[kind][0]) else (unknown, unknown)

        plan_recent_s, plan_other_s = beside(_RECENT, plans[0])
        return cls(
            plan_us=plans[0],
            plan_slack_s=plans[1],
            plan_unit_s=plans[2],
            period_us=periods[0],
            oracle_s=periods[1],
            unit_s=periods[2],
            plan_recent_s=plan_recent_s,
            plan_like_s=np.column_stack(beside(_TRIED, plans[0])),
            plan_other_s=plan_other_s,
            place=np.column_stack(beside(_PLACE, periods[0])),
            like_s=np.column_stack(beside(_WAITED, periods[0])),
            other_s=beside(_OTHER, periods[0])[0],
            moments=Moments(*at[_MOMENT]),
            level=table.column("level")[0].as_py(),
            closed_us=int(at[_CLOSED][0][0]) if len(at[_CLOSED][0]) else None,
            outlook=Outlook(
                int(at[_UNTIL][0][0]) if len(at[_UNTIL][0]) else None,
                at[_NEED][0],
                at[_NEED][1],
                at[_HELD][1],
                at[_NEED][2],
                float(at[_UNTIL][1].sum()),
            ),
        )


def step(
    promise: Promise,
    state: PromiseState,
    now_us: int,
    needed: Needed,
    unit_s: float | None,
    initial_s: float = 0.0,
    recent_s: float | None = None,
    largest_s: float | None = None,
) -> tuple[PromiseState, Choice]:
    """The slack in effect from now on.

    Args:
        promise: what is promised.
        state: of the choice before.
        now_us: the instant, microseconds; windows with end + horizon up to it are final.
        needed: of the final windows, as far back as a period plus what has passed since the choice before.
        unit_s: the slack that the law of all delays asks for (``delay_law``); None: unknown.
        initial_s: K as long as nothing is known, and the least K before two periods are.
        recent_s: the mean delay of the tuples that have just arrived; None: unknown.
        largest_s: the largest delay of any tuple seen, which K does not pass but for ``initial_s``; None: unknown.

    **Cost.** O(n log n) time, O(n) space.

    **Guarantee.** With a confidence c, exchangeable periods and at least c/(1 − c) of them: a period's promise is kept
    with probability ≥ c. Without exchangeability: the share of periods kept tends to ``aim`` > c (the level adapts), as
    long as the horizon allows. The choice is a function of its arguments alone.

    >>> promise = Promise(target=0.95, period_s=3600, horizon_s=600)
    >>> hour = np.arange(720) * 5_000_000
    >>> evidence = Needed(hour, np.linspace(0, 60, 720), np.ones(720))
    >>> state, choice = step(promise, PromiseState.initial(promise), 4200_000_000, evidence, None)
    >>> choice.method, choice.slack_s
    ('warm_up', 58.0)
    """
    state = _observed(promise, state, now_us, needed, recent_s)
    state = _judged(promise, replace(state, outlook=_outlook(promise, state, now_us, needed)), now_us, needed)
    choice = _choice(promise, state, needed, unit_s, initial_s)
    scales_s = _to_expect(promise, state, now_us, recent_s)
    most_s = _most_s(promise, state, initial_s, largest_s)
    at_places = _like(promise, state, scales_s)
    like_s, other_s = np.minimum([one.slack_s for one in at_places], most_s), min(choice.slack_s, most_s)
    choice, scale = _shorter(state, choice, like_s)
    slack_s = min(float(rounded_up(choice.slack_s)), most_s)
    first_us = now_us - round((2 * promise.period_s + 2 * promise.horizon_s) * 1e6)
    if len(needed.end_us):
        first_us = min(first_us, int(needed.end_us[0]))
    followed = None
    if scale is not None and at_places[scale].slack_s <= most_s:
        followed = RATIO + 1 + scale, at_places[scale].place
    elif unit_s is not None and choice.method == "scaled":
        followed = RATIO, (slack_s + promise.offset_s) / (unit_s + promise.offset_s)
    choice = replace(choice, slack_s=slack_s)
    choice = replace(choice, accuracy_expected=_expected(promise, state.outlook, choice, followed))
    kept = (state.plan_us >= first_us) & (state.plan_us < now_us)
    return replace(
        state,
        plan_us=np.append(state.plan_us[kept], now_us),
        plan_slack_s=np.append(state.plan_slack_s[kept], slack_s),
        plan_unit_s=np.append(state.plan_unit_s[kept], np.nan if unit_s is None else unit_s),
        plan_recent_s=np.append(state.plan_recent_s[kept], np.nan if recent_s is None else recent_s),
        plan_like_s=np.vstack([state.plan_like_s[kept], like_s]),
        plan_other_s=np.append(state.plan_other_s[kept], other_s),
    ), choice


def aim(promise: Promise) -> float:
    """The share of periods to be kept in the long run: more than is promised, so that it is seldom less."""
    return 0.5 if promise.confidence is None else 1 - _SPARED * (1 - promise.confidence)


def _most_s(promise: Promise, state: PromiseState, initial_s: float, largest_s: float | None) -> float:
    """What K is not to pass: nothing is later than the horizon, and nothing was later than the latest tuple."""
    if largest_s is None:
        return promise.horizon_s
    if len(state.oracle_s) < _PERIODS_UNLEARNT:
        largest_s = max(largest_s, initial_s)
    return min(largest_s, promise.horizon_s)


def _outlook(promise: Promise, state: PromiseState, now_us: int, needed: Needed) -> Outlook:
    """What windows of late have needed, with those that have become final since."""
    before, until_us = state.outlook, now_us - round(promise.horizon_s * 1e6)
    since_us = -(2**62) if before.until_us is None else before.until_us
    own = needed.between(since_us, until_us)
    if len(own.end_us) == 0:
        return before
    kept = 1.0 if before.until_us is None else math.exp((since_us - until_us) / (_REMEMBERED * promise.period_s * 1e6))
    needs = {SECONDS: own.slack_s}
    if len(state.plan_us):
        at = _in_force(state, own)
        needs[RATIO] = (own.slack_s + promise.offset_s) / (state.plan_unit_s[at] + promise.offset_s)
        for scale, places in enumerate(_places(promise, state, own, at)):
            needs[RATIO + 1 + scale] = places
    return before.after(until_us, kept, needs, own.weight, own.share)


def _expected(promise: Promise, outlook: Outlook, choice: Choice, followed: tuple[int, float] | None) -> float | None:
    """The accuracy to expect; ``followed``: where K follows the delays, by how much of which unit."""
    if choice.slack_s >= promise.horizon_s:
        return 1.0  # nothing is later in the truth
    found = None if followed is None else outlook.accuracy(*followed)
    if found is None:
        found = outlook.accuracy(SECONDS, choice.slack_s)
    if found is not None and choice.method == "warm_up":
        found *= outlook.next_within(choice.slack_s)
    return found


def _in_force(state: PromiseState, needed: Needed) -> Int64s:
    """Which of the choices held at each window's end; the first before it."""
    found: Int64s = np.maximum(np.searchsorted(state.plan_us, needed.end_us, side="right") - 1, 0)
    return found


def _observed(
    promise: Promise, state: PromiseState, now_us: int, needed: Needed, recent_s: float | None
) -> PromiseState:
    """The state with what is known of past moments, and now as one of them if it is another time of the period."""
    past, slot_us = state.moments, round(promise.period_s * 1e6) / SLOTS
    at_us, slack_s, recent = past.at_us, past.needed_s.copy(), past.recent_s
    final_us = now_us - round(promise.horizon_s * 1e6)
    for i in np.flatnonzero(np.isnan(slack_s[:-1]) & (at_us[1:] <= final_us)).tolist():
        own = needed.between(int(at_us[i]), int(at_us[i + 1]))
        if len(own.end_us):
            slack_s[i] = oracle(promise, own)
    if len(at_us) == 0 or now_us // slot_us > int(at_us[-1]) // slot_us:
        at_us, slack_s = np.append(at_us, now_us), np.append(slack_s, np.nan)
        recent = np.append(recent, np.nan if recent_s is None else recent_s)
    kept = at_us >= now_us - round(_PERIODS_KEPT * promise.period_s * 1e6)
    # Windows that were none will not become known any more.
    kept &= ~np.isnan(slack_s) | (at_us > final_us - round(2 * promise.period_s * 1e6))
    return replace(state, moments=Moments(at_us[kept], slack_s[kept], recent[kept]))


@dataclass(frozen=True)
class _AtPlace:
    """A place on a scale, and the slack at it; NaN as long as too little is known."""

    place: float
    slack_s: float


def _like(promise: Promise, state: PromiseState, scales_s: Float64s | None) -> list[_AtPlace]:
    """Of each scale: K by what is to be expected of the windows that end now."""
    known = ~np.isnan(state.place).any(axis=1)
    if promise.confidence is None or known.sum() < _LEAST_LIKE or scales_s is None:
        return [_AtPlace(math.nan, math.nan)] * SCALES
    places = [max(_quantile(own, state.level), 0.0) for own in state.place[known].T]
    return [
        _AtPlace(place, slack_at(one, place, promise.offset_s)) for one, place in zip(scales_s, places, strict=True)
    ]


def _to_expect(promise: Promise, state: PromiseState, at_us: int, recent_s: float | None) -> Float64s | None:
    """The scales at an instant, from what was known then."""
    until_us = at_us - round(promise.horizon_s * 1e6)
    return scales(state.moments, at_us, recent_s, until_us, round(promise.period_s * 1e6), promise.offset_s)


def _shorter(state: PromiseState, choice: Choice, like_s: Float64s) -> tuple[Choice, int | None]:
    """The choice, or the K of the scale with which waiting was the least, where that was less over the past periods.

    And which scale that is; None: K is not by a scale.
    """
    both = ~np.isnan(state.like_s).any(axis=1)
    if np.isnan(like_s).any() or not both.any() or choice.method not in ("periods", "scaled", "changed"):
        return choice, None
    waited_s = state.like_s[both].mean(axis=0)
    scale = int(waited_s.argmin())
    if waited_s[scale] > _SHORTER * state.other_s[both].mean():
        return choice, None
    if choice.method == "changed" and choice.slack_s > like_s[scale]:
        return choice, None
    return Choice(float(like_s[scale]), None, "alike"), scale


def _judged(promise: Promise, state: PromiseState, now_us: int, needed: Needed) -> PromiseState:
    """The state after the periods that have become final since."""
    period_us, horizon_us = round(promise.period_s * 1e6), round(promise.horizon_s * 1e6)
    periods = promise.periods
    until_us = periods.begin_us(now_us - horizon_us)
    first_us = state.closed_us
    if first_us is None:
        first_us = periods.begin_us(int(needed.end_us[0])) if len(needed.end_us) else until_us
    end_us = max(first_us, periods.begin_us(until_us - _PERIODS_KEPT * period_us))
    while end_us < until_us:
        start_us, end_us = end_us, periods.next_us(end_us)
        own = needed.between(start_us, end_us)
        if len(own.end_us) == 0:
            continue
        at = _in_force(state, own)
        level = state.level
        if len(state.plan_us) and promise.confidence is not None:
            broken = not _kept(promise, own, state.plan_slack_s[at])
            level = float(np.clip(level + _LEVEL_STEP * (aim(promise) - 1 + broken), *_LEVELS))
        units = state.plan_unit_s[(state.plan_us > start_us) & (state.plan_us <= end_us)]
        known = units[~np.isnan(units)]
        oracle_s = oracle(promise, own)
        nothing: Float64s = np.full(SCALES + 1, np.nan)
        tried = np.column_stack([state.plan_like_s, state.plan_other_s])
        waited = np.average(tried[at], axis=0, weights=own.waiting) if len(tried) else nothing
        state = replace(
            state,
            period_us=np.append(state.period_us, start_us)[-_PERIODS_KEPT:],
            oracle_s=np.append(state.oracle_s, oracle_s)[-_PERIODS_KEPT:],
            unit_s=np.append(state.unit_s, known.mean() if len(known) else np.nan)[-_PERIODS_KEPT:],
            place=np.vstack([state.place, _place(promise, own, _places(promise, state, own, at))])[-_PERIODS_KEPT:],
            like_s=np.vstack([state.like_s, waited[:-1]])[-_PERIODS_KEPT:],
            other_s=np.append(state.other_s, waited[-1])[-_PERIODS_KEPT:],
            level=level,
        )
    return replace(state, closed_us=until_us)


def _places(promise: Promise, state: PromiseState, own: Needed, at: Int64s) -> Float64s:
    """float64[scales, n]: where on each scale the needed slacks lie; NaN where that is not known.

    ``at``: which choice each was under.
    """
    places: Float64s = np.full((SCALES, len(at)), np.nan)
    for plan in np.unique(at).tolist() if len(state.plan_us) and promise.confidence is not None else ():
        recent_s = float(state.plan_recent_s[plan])
        expected_s = _to_expect(promise, state, int(state.plan_us[plan]), None if math.isnan(recent_s) else recent_s)
        if expected_s is None:
            continue
        for scale, slacks_s in enumerate(expected_s):
            places[scale, at == plan] = places_of(slacks_s, own.slack_s[at == plan], promise.offset_s)
    return places


def _place(promise: Promise, own: Needed, places: Float64s) -> Float64s:
    """float64[scales]: where on each a period would have been kept; NaN if that is not known."""
    if np.isnan(places).any():
        return np.full(SCALES, np.nan)
    return np.array([oracle(promise, own, one) for one in places])


def _choice(promise: Promise, state: PromiseState, needed: Needed, unit_s: float | None, initial_s: float) -> Choice:
    if len(needed.end_us) == 0 and len(state.period_us) == 0:
        if len(state.plan_us):
            initial_s = float(state.plan_slack_s[-1])
        if unit_s is not None and promise.waits_for_tuples and unit_s > initial_s:
            return Choice(unit_s, None, "all_delays")
        return Choice(initial_s, None, "carried" if len(state.plan_us) else "initial")
    if promise.confidence is None:
        return _on_average(promise, state, needed, unit_s)
    steady_s, scaled_s, foretells = _over_periods(promise, state, unit_s)
    if steady_s is None:
        return _warming_up(promise, state, needed, unit_s, initial_s)
    if scaled_s is not None and foretells:
        return Choice(scaled_s, None, "scaled")
    if scaled_s is not None and unit_s is not None and promise.waits_for_tuples:
        changed_s = min(unit_s, scaled_s)
        if changed_s > steady_s:
            return Choice(changed_s, None, "changed")
    return Choice(steady_s, None, "periods")


def _warming_up(
    promise: Promise, state: PromiseState, needed: Needed, unit_s: float | None, initial_s: float
) -> Choice:
    candidates = [float(state.oracle_s.max()) if len(state.oracle_s) else 0.0]
    # A few windows of a quiet hour say nothing about a whole period, and the first period is often a part of one.
    if len(state.oracle_s) < _PERIODS_UNLEARNT:
        candidates.append(initial_s)
    if len(needed.end_us):
        pooled = choose_slack(needed.slack_s, promise.target, confidence=promise.confidence, weights=needed.weight)
        candidates.append(pooled.slack_s)
        if promise.groups_within is not None:
            candidates.append(oracle(promise, needed))
    if unit_s is not None and promise.waits_for_tuples:
        candidates.append(unit_s)
    return Choice(max(candidates), None, "warm_up")


def _over_periods(
    promise: Promise, state: PromiseState, unit_s: float | None
) -> tuple[float | None, float | None, bool]:
    """The quantile of the past oracle slacks, the same in units of all delays, and whether these foretell them."""
    if len(state.oracle_s) < _LEAST_PERIODS:
        return None, None, False
    offset_s = promise.offset_s
    steady = np.log(state.oracle_s + offset_s)
    steady_s = math.exp(_quantile(steady, state.level)) - offset_s
    known = ~np.isnan(state.unit_s)
    if unit_s is None or known.sum() < _LEAST_PERIODS:
        return steady_s, None, False
    scaled = steady[known] - np.log(state.unit_s[known] + offset_s)
    scaled_s = (unit_s + offset_s) * math.exp(_quantile(scaled, state.level)) - offset_s
    # By chance the ratios of a few periods spread less than their slacks quite often: Fisher's test of two variances.
    least = fdtri(len(scaled) - 1, len(scaled) - 1, _FORETELLS)
    return steady_s, scaled_s, bool(scaled.var() * least < steady[known].var())


def _quantile(scores: Float64s, level: float) -> float:
    """The conformal quantile; where there are too few scores for it Student's prediction bound."""
    count = len(scores)
    rank = math.ceil((count + 1) * level - 1e-9)
    if rank <= count:
        return float(np.sort(scores)[rank - 1])
    reach = stdtrit(count - 1, level) * scores.std(ddof=1) * math.sqrt(1 + 1 / count)
    return float(max(scores.mean() + reach, scores.max() if count >= 1 / (1 - level) - 1 else -math.inf))


def _on_average(promise: Promise, state: PromiseState, needed: Needed, unit_s: float | None) -> Choice:
    """What the winners' needed slacks ask for; what all delays ask for where winners are late like any tuple."""
    if unit_s is None or len(state.plan_us) == 0:
        return Choice(least_covering(needed.slack_s, promise.target, needed.weight), None, "winners")
    # In units of what all delays asked for at the first choice after the window's end, which knew of that time.
    at = np.searchsorted(state.plan_us, needed.end_us, side="left")
    then_s = np.append(state.plan_unit_s, unit_s)[at]
    own = ~np.isnan(then_s)
    if not own.any():
        return Choice(least_covering(needed.slack_s, promise.target, needed.weight), None, "winners")
    slack_s, weight, then_s = needed.slack_s[own], needed.weight[own], then_s[own]
    if promise.waits_for_tuples and _late_like_any(promise.target, needed.end_us[own], slack_s > then_s, weight):
        return Choice(unit_s, None, "all_delays")
    ratio = least_covering((slack_s + promise.offset_s) / (then_s + promise.offset_s), promise.target, weight)
    return Choice(max((unit_s + promise.offset_s) * ratio - promise.offset_s, 0.0), None, "winners")


def _late_like_any(target: float, end_us: Int64s, missed: np.ndarray, weight: Float64s) -> bool:
    """Whether the winners missed as often as the law of all delays says; judged on blocks of successive windows."""
    window = np.concatenate([[0], np.cumsum(np.diff(end_us) > 0)])
    windows = int(window[-1]) + 1
    if windows < _BLOCKS * _LEAST_BLOCK:
        return False
    block = window * _BLOCKS // windows
    share = np.bincount(block, weight * missed, _BLOCKS) / np.bincount(block, weight, _BLOCKS)
    spread = share.std(ddof=1) / math.sqrt(_BLOCKS)
    return bool(abs(share.mean() - (1 - target)) <= _UNLIKE_AT_SD * spread)
