"""What is known afterwards: how long answers waited beside the best fixed wait, and what exact ones would have held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.promises import Row, newest_of_each
from tidegate.declarations.units import show_bytes
from tidegate.operators.accuracy.slack import least_covering, least_covering_groups
from tidegate.readable import duration


@dataclass(frozen=True)
class Waited:
    """How long a query's answers waited over the periods that are judged.

    ``mean_s``: on average over their windows. ``fixed_s``: the shortest K with which, the same all the time and whole
    ranges held, as many of the periods would have been kept; None if none was.
    """

    query: str
    kept: int
    judged: int
    mean_s: float
    fixed_s: float | None

    @property
    def shown(self) -> tuple[str, str]:
        """The two waits for people."""
        return duration(self.mean_s), "" if self.fixed_s is None else duration(self.fixed_s)


@dataclass(frozen=True)
class Held:
    """Bytes that all windows together held at most, and would have with exact answers, which wait out the horizon."""

    most: float
    exact: float


@dataclass(frozen=True)
class Hindsight:
    """What is known afterwards of a pipeline: query → how long its answers waited, where that is judged; the memory."""

    waits: Mapping[str, Waited]
    memory: Held | None

    @classmethod
    def of(
        cls,
        pipeline: Pipeline,
        periods: Sequence[Row],
        needed: pd.DataFrame,
        accuracy: pd.DataFrame,
        rates: pd.DataFrame,
    ) -> Hindsight:
        """From ``promise_periods``, ``needed_slack``, ``accuracy`` and ``stream_rates`` of all queries and streams."""
        waits = {}
        for query in pipeline.queries:
            own = [row for row in periods if row["query"] == query.id]
            frames = (frame[frame["query"] == query.id] for frame in (needed, accuracy))
            if own and (one := waited(query, own, *frames)) is not None:
                waits[query.id] = one
        return cls(waits, held(pipeline, rates))


def waited(query: Query, periods: Iterable[Row], needed: pd.DataFrame, accuracy: pd.DataFrame) -> Waited | None:
    """What became of a query's waits; None before a period is judged.

    Args:
        query: one with a promise.
        periods: its rows of ``promise_periods``.
        needed: its rows of ``needed_slack``: window_end, slack_s, of a promise for each group also group_key.
        accuracy: its rows of ``accuracy``: window_end, slack_s.

    **Cost**: O(n log n) in the needed slacks.
    """
    judged = [row for row in newest_of_each(periods) if row["kept"] is not None]
    if not judged:
        return None
    needed, given = needed.sort_values("window_end"), accuracy.sort_values("window_end")
    # One window, one vote: windows with fewer winners than others count as much.
    keys, group = ["window_end"], np.zeros(len(needed), np.int64)
    if query.for_each:
        keys, group = [*keys, "group_key"], pd.factorize(needed["group_key"], use_na_sentinel=False)[0]
    by_key = needed.groupby(keys, dropna=False)["slack_s"]
    weight = 1 / by_key.transform("size").to_numpy() if len(needed) else np.zeros(0)
    if query.sessions is not None:  # each has a vote of its own
        weight = np.ones(len(needed))
    slack_s, oracles_s, waits_s = needed["slack_s"].to_numpy(), [], []
    for row in judged:
        first, last = needed["window_end"].searchsorted([row["period_start"], row["period_end"]])
        own = slice(int(first), int(last))
        if last <= first:
            oracles_s.append(0.0)
        elif query.for_each and query.accuracy is not None:
            of_groups = slack_s[own], group[own], query.accuracy, weight[own]
            oracles_s.append(least_covering_groups(*of_groups, row["promised"]))
        else:
            oracles_s.append(least_covering(slack_s[own], row["promised"], weight[own]))
        first, last = given["window_end"].searchsorted([row["period_start"], row["period_end"]])
        waits_s.append(given["slack_s"].to_numpy()[int(first) : int(last)])
    kept = sum(row["kept"] for row in judged)
    fixed_s = sorted(oracles_s)[kept - 1] if kept else None
    every = np.concatenate(waits_s)
    return Waited(query.id, kept, len(judged), float(every.mean()) if len(every) else 0.0, fixed_s)


def held(pipeline: Pipeline, rates: pd.DataFrame) -> Held | None:
    """What windows held, from the rows of ``stream_rates``; None before there are any.

    A window that is to give exact answers holds the widest range that is asked of its stream at the time, and all that
    arrives until the horizon.
    """
    if not len(rates):
        return None
    taken = (rates["tuples"] * rates["tuple_bytes"]).fillna(0.0)
    by_tick = rates.assign(taken=taken).pivot_table(index="tick", columns="stream", values="taken", aggfunc="sum")
    ticks = pd.DatetimeIndex(by_tick.index)
    exact = np.zeros(len(ticks))
    for stream in by_tick.columns:
        total = np.append(0.0, np.cumsum(by_tick[stream].fillna(0.0).to_numpy()))
        height = _heights(pipeline, stream, ticks)
        exact += total[1:] - total[ticks.searchsorted(ticks - height, side="right")]
    return Held(float(rates.groupby("tick")["held_bytes"].sum().max()), float(exact.max()))


def _heights(pipeline: Pipeline, stream: str, ticks: pd.DatetimeIndex) -> pd.TimedeltaIndex:
    """How far back exact answers reach at each tick."""
    height_s = np.zeros(len(ticks))
    for query in pipeline.queries:
        range_s = query.ranges_s().get(stream)
        if range_s is None:
            continue
        asked = np.ones(len(ticks), dtype=bool)
        if query.active_from is not None:
            asked &= ticks >= pd.Timestamp(query.active_from) - pd.Timedelta(seconds=range_s)
        if query.active_to is not None:
            asked &= ticks < pd.Timestamp(query.active_to) + pd.Timedelta(seconds=pipeline.horizon_s)
        height_s = np.maximum(height_s, np.where(asked, range_s + pipeline.horizon_s, 0.0))
    return pd.to_timedelta(height_s, unit="s")


def sentences(pipeline: Pipeline, known: Hindsight) -> tuple[str, ...]:
    """What to say of it, for people."""
    said, memory = [], known.memory
    both = [(one.mean_s, one.fixed_s) for one in known.waits.values() if one.fixed_s is not None]
    if both:
        mean_s, fixed_s = (sum(column) / len(both) for column in zip(*both, strict=True))
        said.append(
            f"Answers waited {duration(mean_s)} on average over the queries; the best fixed waits that keep as many "
            f"periods, known only afterwards: {duration(fixed_s)}."
        )
    if memory is not None:
        said.append(
            f"Windows held at most {show_bytes(round(memory.most))} of {show_bytes(pipeline.memory_budget_bytes)}; "
            f"exact answers, which wait {duration(pipeline.horizon_s)}, would have needed "
            f"{show_bytes(round(memory.exact))}."
        )
    return tuple(said)
