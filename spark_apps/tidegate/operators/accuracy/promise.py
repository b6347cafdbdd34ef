"""The slack that keeps a promise, period after period: what the calibration of K decides.

**Idea.** Two things are known: how long past winners would have had to be waited for (late, and few), and how late
tuples are now (at once, and many). The first says what is right, the second how it has changed since. A promise is
kept or broken over a *period* (a day, an hour): the mean accuracy of its windows reaches the target or not. For each
past period the least slack that would have kept it is known exactly, its *oracle slack*. If periods are exchangeable,
the conformal quantile of the past oracle slacks keeps the next period's promise with the wanted confidence, however
dependent the winners within a period are (a storm delays them all). Where the delays of all tuples foretell a period's
oracle slack, the oracle slacks are measured in units of them, and K follows the delays of now.

**Source.** papers/04, "Beyond the paper" (the noise matters: pool with decay, add a margin from the confidence bound).
Conformal quantiles: Vovk, Gammerman & Shafer 2005; the level that adapts to what was kept: Gibbs & Candès 2021,
"Adaptive conformal inference under distribution shift".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from scipy.special import stdtrit

from tidegate.operators.accuracy.judge import meets
from tidegate.operators.accuracy.slack import Float64s, Int64s, accuracy_at, choose_slack, least_covering

_LEAST_PERIODS = 5
"""With fewer, the spread between periods cannot be told: the largest counts, and what was pooled."""
_PERIODS_KEPT = 60
_LEVEL_STEP = 0.01
_LEVELS = (0.5, 0.999)
_FORETELLS = 0.9
_UNLIKE_AT_SD = 2.5
_BLOCKS = 20
_LEAST_BLOCK = 5
_SIGNIFICANT_DIGITS = 3

STATE_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("at_us", pa.int64()),
        ("slack_s", pa.float64()),
        ("unit_s", pa.float64()),
        ("level", pa.float64()),
    ]
)
_PLAN, _PERIOD, _CLOSED = "plan", "period", "closed"


@dataclass(frozen=True)
class Promise:
    """What is promised, and over what.

    ``target``: least mean accuracy (top-k), or least share of windows within ERROR. ``period_s``: over which it is to
    be reached. ``confidence``: share of the periods in which it is to be reached; None: on average over all of them, no
    more. ``horizon_s``: a window is final so long after its end; K is never more. ``offset_s``: added to slacks before
    they are compared as ratios, so that 0 is no special case; a tenth of the range, or so. ``waits_for_tuples``:
    whether what is waited for are tuples, so that slacks asked for by the law of all delays mean anything by
    themselves.
    """

    target: float
    period_s: float
    horizon_s: float
    confidence: float | None = 0.95
    offset_s: float = 1.0
    waits_for_tuples: bool = True


@dataclass(frozen=True, eq=False)
class Needed:
    """Needed slacks of true winners, or windows, by window end.

    ``end_us`` int64[n], ascending; ``slack_s`` float64[n]; ``weight`` float64[n]: 1/|truth of the window|.
    """

    end_us: Int64s
    slack_s: Float64s
    weight: Float64s

    def between(self, start_us: int, end_us: int) -> Needed:
        """Those of windows with an end in [start, end)."""
        own = slice(*np.searchsorted(self.end_us, [start_us, end_us]))
        return Needed(self.end_us[own], self.slack_s[own], self.weight[own])

    @property
    def windows(self) -> int:
        """How many windows."""
        return int(np.count_nonzero(np.diff(self.end_us))) + (len(self.end_us) > 0)


@dataclass(frozen=True)
class Choice:
    """K in seconds; the accuracy that it would have had over the evidence (None without); how it was chosen.

    ``method``: ``initial`` (nothing is known), ``carried`` (nothing new), ``warm_up`` (too few periods), ``periods``
    (the quantile over past periods), ``scaled`` (the same in units of all delays), ``changed`` (the delays of all
    tuples ask for more than that), ``all_delays``, ``winners`` (without a confidence: on average).
    """

    slack_s: float
    accuracy_expected: float | None
    method: str


@dataclass(frozen=True, eq=False)
class PromiseState:
    """What is carried from one choice to the next.

    ``plan_us``, ``plan_slack_s``, ``plan_unit_s`` [n]: choices by the instant from which they hold; the slack that the
    law of all delays asked for then (NaN: unknown). ``period_us``, ``oracle_s``, ``unit_s`` [m]: past periods by start.
    ``level``: at which the quantile over periods is taken. ``closed_us``: start of the first period not yet judged.
    """

    plan_us: Int64s
    plan_slack_s: Float64s
    plan_unit_s: Float64s
    period_us: Int64s
    oracle_s: Float64s
    unit_s: Float64s
    level: float
    closed_us: int | None = None

    @classmethod
    def initial(cls, promise: Promise) -> PromiseState:
        """Before anything was learnt."""
        none = (np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
        return cls(*none, *none, promise.confidence or 0.5)

    def to_arrow(self) -> pa.Table:
        """``STATE_SCHEMA``."""
        plans, periods = len(self.plan_us), len(self.period_us)
        closed = [] if self.closed_us is None else [self.closed_us]
        columns = [
            [_PLAN] * plans + [_PERIOD] * periods + [_CLOSED] * len(closed),
            np.concatenate([self.plan_us, self.period_us, np.array(closed, np.int64)]),
            np.concatenate([self.plan_slack_s, self.oracle_s, np.full(len(closed), np.nan)]),
            np.concatenate([self.plan_unit_s, self.unit_s, np.full(len(closed), np.nan)]),
            np.full(plans + periods + len(closed), self.level),
        ]
        return pa.table(columns, schema=STATE_SCHEMA)

    @classmethod
    def from_arrow(cls, table: pa.Table, promise: Promise) -> PromiseState:
        """The inverse of ``to_arrow``."""
        if table.num_rows == 0:
            return cls.initial(promise)
        kind = np.array(table.column("kind").to_pylist(), dtype=object)
        at, slack, unit = (table.column(n).to_numpy() for n in ("at_us", "slack_s", "unit_s"))
        plan, period, closed = kind == _PLAN, kind == _PERIOD, at[kind == _CLOSED]
        return cls(
            at[plan], slack[plan], unit[plan], at[period], slack[period], unit[period],
            table.column("level")[0].as_py(), int(closed[0]) if len(closed) else None,
        )  # fmt: skip


def step(
    promise: Promise, state: PromiseState, now_us: int, needed: Needed, unit_s: float | None, initial_s: float = 0.0
) -> tuple[PromiseState, Choice]:
    """The slack in effect from now on.

    Args:
        promise: what is promised.
        state: of the choice before.
        now_us: the instant, microseconds; windows with end + horizon up to it are final.
        needed: of the final windows, as far back as a period plus what has passed since the choice before.
        unit_s: the slack that the law of all delays asks for (``delay_law``); None: unknown.
        initial_s: K as long as nothing is known.

    **Cost.** O(n log n) time, O(n) space.

    **Guarantee.** With a confidence c, exchangeable periods and at least c/(1 − c) of them: a period's promise is kept
    with probability ≥ c. Without exchangeability: the share of periods kept tends to c (the level adapts), as long as
    the horizon allows. The choice is a function of its arguments alone.

    >>> promise = Promise(target=0.95, period_s=3600, horizon_s=600)
    >>> hour = np.arange(720) * 5_000_000
    >>> evidence = Needed(hour, np.linspace(0, 60, 720), np.ones(720))
    >>> state, choice = step(promise, PromiseState.initial(promise), 4200_000_000, evidence, None)
    >>> choice.method, choice.slack_s
    ('warm_up', 58.0)
    """
    state = _judged(promise, state, now_us, needed)
    choice = _choice(promise, state, needed, unit_s, initial_s)
    slack_s = min(rounded_up(choice.slack_s), promise.horizon_s)
    first_us = now_us - round((2 * promise.period_s + 2 * promise.horizon_s) * 1e6)
    if len(needed.end_us):
        choice = replace(choice, accuracy_expected=accuracy_at(needed.slack_s, slack_s, needed.weight))
        first_us = min(first_us, int(needed.end_us[0]))
    kept = (state.plan_us >= first_us) & (state.plan_us < now_us)
    return replace(
        state,
        plan_us=np.append(state.plan_us[kept], now_us),
        plan_slack_s=np.append(state.plan_slack_s[kept], slack_s),
        plan_unit_s=np.append(state.plan_unit_s[kept], np.nan if unit_s is None else unit_s),
    ), replace(choice, slack_s=slack_s)


def rounded_up(slack_s: float) -> float:
    """To three significant digits, upwards, and to whole microseconds.

    >>> rounded_up(12.0301), rounded_up(0.0), rounded_up(13176.2)
    (12.1, 0.0, 13200.0)
    """
    if slack_s <= 0:
        return 0.0
    digits = max(_SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(slack_s)), -6)
    digits = min(digits, 6)
    scale = 10.0**digits
    return math.ceil(slack_s * scale - 1e-6) / scale


def _judged(promise: Promise, state: PromiseState, now_us: int, needed: Needed) -> PromiseState:
    """The state after the periods that have become final since."""
    period_us, horizon_us = round(promise.period_s * 1e6), round(promise.horizon_s * 1e6)
    until_us = (now_us - horizon_us) // period_us * period_us
    first_us = state.closed_us
    if first_us is None:
        first_us = int(needed.end_us[0]) // period_us * period_us if len(needed.end_us) else until_us
    for start_us in range(max(first_us, until_us - _PERIODS_KEPT * period_us), until_us, period_us):
        own = needed.between(start_us, start_us + period_us)
        if len(own.end_us) == 0:
            continue
        at = np.maximum(np.searchsorted(state.plan_us, own.end_us, side="right") - 1, 0)
        level = state.level
        if len(state.plan_us) and promise.confidence is not None:
            reached = own.weight[own.slack_s <= state.plan_slack_s[at]].sum() / own.weight.sum()
            broken = not meets(float(reached), promise.target)
            level = float(np.clip(level + _LEVEL_STEP * (promise.confidence - 1 + broken), *_LEVELS))
        units = state.plan_unit_s[(state.plan_us > start_us) & (state.plan_us <= start_us + period_us)]
        known = units[~np.isnan(units)]
        oracle_s = least_covering(own.slack_s, promise.target, own.weight)
        state = replace(
            state,
            period_us=np.append(state.period_us, start_us)[-_PERIODS_KEPT:],
            oracle_s=np.append(state.oracle_s, oracle_s)[-_PERIODS_KEPT:],
            unit_s=np.append(state.unit_s, known.mean() if len(known) else np.nan)[-_PERIODS_KEPT:],
            level=level,
        )
    return replace(state, closed_us=until_us)


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
        return _warming_up(promise, state, needed, unit_s)
    if scaled_s is not None and foretells:
        return Choice(scaled_s, None, "scaled")
    if scaled_s is not None and unit_s is not None and promise.waits_for_tuples:
        changed_s = min(unit_s, scaled_s)
        if changed_s > steady_s:
            return Choice(changed_s, None, "changed")
    return Choice(steady_s, None, "periods")


def _warming_up(promise: Promise, state: PromiseState, needed: Needed, unit_s: float | None) -> Choice:
    candidates = [float(state.oracle_s.max()) if len(state.oracle_s) else 0.0]
    if len(needed.end_us):
        pooled = choose_slack(needed.slack_s, promise.target, confidence=promise.confidence, weights=needed.weight)
        candidates.append(pooled.slack_s)
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
    return steady_s, scaled_s, bool(scaled.std() < _FORETELLS * steady[known].std())


def _quantile(scores: Float64s, level: float) -> float:
    """The conformal quantile; Student's prediction bound where there are too few scores for it."""
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
