"""Calibrate: the slack K of every query with a promise, in effect from each interval's end.

From what past winners and windows would have needed (``needed_slack``), and from how late the tuples are that have
arrived (a sample, carried from interval to interval). The decision is ``operators.accuracy.promise``'s; where memory
cannot hold what it asks for, ``operators.window_sizing.waits``' (:mod:`tidegate.stages.calibrate_waits`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.promises import GROUPS_WITHIN, PERIODS_KEPT, terms_of
from tidegate.engine import Slice
from tidegate.engine.context import RunContext, StageRun, previous_label
from tidegate.operators.accuracy import (
    SAMPLE_TUPLES,
    DelaySample,
    Needed,
    Promise,
    PromiseState,
    Support,
    promise_oracle,
    promise_step,
    recent_delay,
)
from tidegate.operators.accuracy.promise import STATE_SCHEMA
from tidegate.operators.codes import codes, group_ids
from tidegate.operators.schedule import Int64s, instants_us
from tidegate.queries.scan import EventFiles
from tidegate.stages.calibrate_waits import footprints_at_end, support_of, within_memory
from tidegate.store.intervals import Interval, interval_at, interval_holding
from tidegate.store.warehouse import Warehouse

PROMISES, DELAYS, LARGEST = "promises", "delays", "largest_delays"
"""States: what each query's slack was chosen from; a sample of the newest tuples' delays; the largest that ever was."""
LARGEST_SCHEMA = pa.schema([("stream", pa.string()), ("delay_us", pa.int64())])
DELAYS_SCHEMA = pa.schema([("stream", pa.string()), ("arrival_us", pa.int64()), ("delay_us", pa.int64())])
# Arrivals ascend, delays come again: half the bytes and half the time of what Parquet does by itself.
_DELAYS_WRITTEN = {"use_dictionary": ["stream", "delay_us"], "column_encoding": {"arrival_us": "DELTA_BINARY_PACKED"}}
EVIDENCE_S = 24 * 3600
"""Needed slacks of windows that became final within so many seconds are pooled: a day holds every hour of the day."""
_LEAST_SAMPLED_S = 1200
_EVIDENCE = ["window_end", "slack_s", "share", "group_key", "has_rows"]
NEEDED_ORDER = [(name, "ascending") for name in ("query", "window_end", "slack_s", "event_id")]


def plan_slacks(context: RunContext, stage: StageRun, intervals: Sequence[Interval], fresh: pa.Table) -> None:
    """Write ``slack_plan`` of the intervals.

    Args:
        fresh: ``needed_slack`` of all queries, of the windows that became final in the intervals.

    **Guarantee.** The rows of an interval depend on the tuples that arrived before its end, not on how many intervals
    are run at once.
    """
    pipeline, warehouse = context.pipeline, context.warehouse
    promised = [q for q in pipeline.queries if q.promised is not None]
    streams = sorted({name for query in promised for name in query.streams})
    before = "" if context.cold_start else previous_label(pipeline, intervals[0])
    samples, largest_s = _samples(context, stage, streams, intervals, before)
    kept = warehouse.read_state(PROMISES, before)
    promises = {q.id: promise_of(pipeline, q) for q in promised}
    states = {query_id: _restored(kept, query_id, promise) for query_id, promise in promises.items()}
    footprints = footprints_at_end(context, stage, intervals, before) if promised else {}
    needed = _needed(pipeline, warehouse, intervals, fresh, promises)
    for interval in intervals:
        units_s = _units_s({q.id: _asked_of_laws(q, promises[q.id]) for q in promised}, samples[interval])
        rows, supports, known = [], {}, {}
        for query in promised:
            promise, after_us = promises[query.id], pipeline.final_after_us(query)
            final_us = interval.end_us - after_us
            newest = needed[query.id].between(final_us - _evidence_us(pipeline, promise), final_us)
            recent_s = _recent_s(query, promise, samples[interval], interval.end_us)
            state, choice = promise_step(
                promise,
                states[query.id],
                # With a bound all is as much later as answers are.
                interval.end_us - query.lag_us,
                newest,
                units_s[query.id],
                float(pipeline.initial_slack_s),
                recent_s,
                max(largest_s[interval][name] for name in query.streams),
            )
            states[query.id] = state
            supports[query.id] = support_of(query, newest.slack_s, newest.share, newest.weight)
            known[query.id] = support_of(query, *state.outlook.pairs)
            now = newest.between(interval.start_us - after_us, final_us)
            rows.append(
                {
                    "query": query.id,
                    "effective_from": interval.end,
                    "slack_s": choice.slack_s,
                    "accuracy_target": promise.target,
                    "accuracy_expected": choice.accuracy_expected,
                    "oracle_slack_s": float(math.ceil(promise_oracle(promise, now))) if now.windows else None,
                    "windows": newest.windows,
                    "method": choice.method,
                }
            )
        rows = within_memory(pipeline, interval, rows, supports, known, footprints.get(interval, {}))
        stage.commit.put_arrow(
            "slack_plan", interval, pa.Table.from_pylist(rows, schema=warehouse.schema("slack_plan"))
        )
        stage.commit.put_state(PROMISES, interval, _saved(promises, states))


def supports_after(warehouse: Warehouse, interval: Interval) -> dict[str, Support]:
    """Query → what past winners, or windows, needed that were known at the interval's end; of those with a promise."""
    pipeline = warehouse.pipeline
    promises = {q.id: promise_of(pipeline, q) for q in pipeline.queries if q.promised is not None}
    nothing = warehouse.read_arrow("needed_slack", [])
    needed = _needed(pipeline, warehouse, [interval_at(pipeline, interval.end)], nothing, promises)
    found = {}
    for query_id, promise in promises.items():
        final_us = interval.end_us - pipeline.final_after_us(pipeline.query(query_id))
        newest = needed[query_id].between(final_us - _evidence_us(pipeline, promise), final_us)
        found[query_id] = support_of(pipeline.query(query_id), newest.slack_s, newest.share, newest.weight)
    return found


def promise_of(pipeline: Pipeline, query: Query) -> Promise:
    """What the query promises, as the calibration sees it."""
    terms = terms_of(pipeline, query)
    assert terms is not None
    return Promise(
        target=terms.accuracy,
        period_s=terms.period_us / 1e6,
        horizon_s=float(pipeline.horizon_s),
        confidence=PERIODS_KEPT,
        offset_s=(max(w.range_s for w in query.ranged) if query.sessions is None else query.sessions.gap_us / 1e6) / 10,
        waits_for_tuples=query.accuracy is not None,
        calendar=terms.calendar,
        groups_within=GROUPS_WITHIN if terms.for_each else None,
    )


def _evidence_us(pipeline: Pipeline, promise: Promise) -> int:
    """How far back the windows go that are looked at: a day, or a whole period that ended within the interval."""
    return max(EVIDENCE_S * 1_000_000, promise.periods.longest_us + pipeline.interval_s * 1_000_000)


def _needed(
    pipeline: Pipeline,
    warehouse: Warehouse,
    intervals: Sequence[Interval],
    fresh: pa.Table,
    promises: Mapping[str, Promise],
) -> dict[str, Needed]:
    """Query → needed slacks of all windows that matter in the intervals, by window end."""
    evidence_us = max((_evidence_us(pipeline, promise) for promise in promises.values()), default=0)
    oldest = interval_holding(pipeline, intervals[0].end_us - evidence_us).label
    earlier = [x for x in warehouse.labels("needed_slack") if oldest <= x < intervals[0].label]
    columns = ["query", *_EVIDENCE]
    pool = pa.concat_tables(
        [warehouse.read_arrow("needed_slack", earlier, columns).select(columns), fresh.select(columns)]
    )
    # In one order, whatever runs the rows came from: sums of weights round alike.
    order = [(name, "ascending") for name in _EVIDENCE]
    found = {}
    for query_id in promises:
        own = pool.filter(pc.equal(pool.column("query"), query_id)).select(_EVIDENCE).sort_by(order)
        query, ends_us = pipeline.query(query_id), instants_us(own.column("window_end"))
        slack_s, share = own.column("slack_s").to_numpy(), own.column("share").to_numpy()
        group = codes(own.column("group_key"))[0] if query.for_each else None
        of_group = None if group is None else _one_vote([ends_us, group])
        # Rows of older versions do not say it.
        has_rows = np.asarray(pc.fill_null(own.column("has_rows"), True).to_numpy(), dtype=bool)
        found[query_id] = Needed(ends_us, slack_s, _weights(query, ends_us), share, group, of_group, has_rows)
    return found


def _weights(query: Query, ends_us: Int64s) -> np.ndarray:
    """One window, one vote: windows with fewer winners than others count as much."""
    return _one_vote([ends_us]) if query.is_ranked else np.ones(len(ends_us))


def _one_vote(keys: Sequence[Int64s]) -> np.ndarray:
    """Of each row one divided by how many have the same keys."""
    number = group_ids(keys, len(keys[0]))
    return np.asarray(1.0 / np.bincount(number)[number])


Asked = tuple[str, float, float]
"""Stream, range in seconds and target: what a law of delays is asked for."""


def _asked_of_laws(query: Query, promise: Promise) -> list[Asked]:
    """What the query asks of each of its streams."""
    target = promise.target if query.error is None else 1 - min(query.error, 0.99)
    return [(stream, range_s, target) for stream, range_s in _spans_s(query).items()]


def _spans_s(query: Query) -> dict[str, float]:
    """Stream → how long the window is whose tuples K waits for, seconds: of sessions the gap."""
    if query.sessions is None:
        return query.ranges_s()
    return dict.fromkeys(query.streams, query.sessions.gap_us / 1e6)


def _units_s(
    asked: Mapping[str, Sequence[Asked]], samples: Mapping[str, tuple[Int64s, np.ndarray]]
) -> dict[str, float | None]:
    """Query → the slack that all delays ask for: the longest of its streams'; None where one is not known.

    Queries often ask the same of the same stream; it is answered once.
    """
    found: dict[Asked, float | None] = {}
    known_of = {stream: DelaySample(*sample) for stream, sample in samples.items()}
    for stream, range_s, target in {one for several in asked.values() for one in several}:
        law = known_of[stream].newest_law(range_s, target)
        found[stream, range_s, target] = None if law is None else law.slack_s(target, range_s)
    units = {}
    for query_id, several in asked.items():
        known = [slack_s for one in several if (slack_s := found[one]) is not None]
        units[query_id] = max(known) if len(known) == len(several) else None
    return units


def _recent_s(
    query: Query, promise: Promise, samples: Mapping[str, tuple[Int64s, np.ndarray]], now_us: int
) -> float | None:
    """How late the tuples of late are, on average: the longest of the query's streams."""
    found = [
        recent_delay(*samples[name], now_us, range_s, promise.horizon_s) for name, range_s in _spans_s(query).items()
    ]
    return max((delay_s for delay_s in found if delay_s is not None), default=None)


def _samples(
    context: RunContext, stage: StageRun, streams: Sequence[str], intervals: Sequence[Interval], before: str
) -> tuple[dict[Interval, dict[str, tuple[Int64s, np.ndarray]]], dict[Interval, dict[str, float]]]:
    """Interval → stream → arrivals (µs) and delays (seconds) of the sample at its end, and the largest delay ever.

    Both are carried on as states.
    """
    pipeline, warehouse = context.pipeline, context.warehouse
    kept = warehouse.read_state(DELAYS, before)
    samples = {name: (np.zeros(0, np.int64), np.zeros(0, np.int64)) for name in streams}
    if kept is not None:
        names = np.array(kept.column("stream").to_pylist(), dtype=object)
        at, delay = (kept.column(n).to_numpy() for n in DELAYS_SCHEMA.names[1:])
        samples |= {name: (at[names == name], delay[names == name]) for name in samples}
    # So thin that it spans twice the horizon: a delay is seen only after it is over.
    span_s = max(2 * pipeline.horizon_s, _LEAST_SAMPLED_S)
    most = max(1, round(SAMPLE_TUPLES * pipeline.interval_s / span_s))
    asked = [(interval, name) for interval in intervals for name in samples]
    events = [EventFiles.of(warehouse, pipeline.stream(name), [interval.label]) for interval, name in asked]
    rows = sum(files.rows() for files in events)
    found = context.run_slices(delays, [Delays(files, most) for files in events], rows)
    sampled, at_end, largest_at_end = dict(zip(asked, found, strict=True)), {}, {}
    largest_us = _largest_before(context, streams, before)
    for interval in intervals:
        for name, sample in samples.items():
            *fresh, latest_us = sampled[interval, name]
            largest_us[name] = max(largest_us[name], latest_us)
            arrival_us, delay_us = (np.concatenate(both)[-SAMPLE_TUPLES:] for both in zip(sample, fresh, strict=True))
            samples[name] = arrival_us, delay_us
        at_end[interval] = {name: (at, delay / 1e6) for name, (at, delay) in samples.items()}
        largest_at_end[interval] = {name: us / 1e6 for name, us in largest_us.items()}
        largest = pa.table([list(largest_us), list(largest_us.values())], schema=LARGEST_SCHEMA)
        stage.commit.put_state(LARGEST, interval, largest)
        columns = [
            np.repeat(list(samples), [len(at) for at, _ in samples.values()]),
            *(np.concatenate([s[i] for s in samples.values()]) if samples else np.zeros(0, np.int64) for i in range(2)),
        ]
        sample = pa.table([pa.array(c) for c in columns], schema=DELAYS_SCHEMA)
        stage.commit.put_state(DELAYS, interval, sample, **_DELAYS_WRITTEN)
    return at_end, largest_at_end


def _largest_before(context: RunContext, streams: Sequence[str], before: str) -> dict[str, int]:
    """Stream → the largest delay of any tuple up to the end of an interval (µs); without a label 0.

    Of a stream of which it was not kept, as in a warehouse of an older version, all that is there is read once.
    """
    kept = context.warehouse.read_state(LARGEST, before)
    known = {} if kept is None else dict(zip(*(column.to_pylist() for column in kept.columns), strict=True))
    missing = [name for name in streams if name not in known]
    files = {}
    for name in missing if before else ():
        labels = [label for label in context.warehouse.labels(f"events_{name}") if label <= before]
        files[name] = EventFiles.of(context.warehouse, context.pipeline.stream(name), labels)
    rows = sum(of.rows() for of in files.values())
    found = context.run_slices(delays, [Delays(of, 1) for of in files.values()], rows)
    read = dict(zip(files, (latest_us for *_, latest_us in found), strict=True))
    return {name: int(known.get(name, read.get(name, 0))) for name in streams}


@dataclass(frozen=True)
class Delays:
    """An interval's tuples of a stream, of whose delays at most so many are asked for."""

    events: EventFiles
    most: int


def delays(part: Slice) -> tuple[Int64s, Int64s, int]:
    """Every so many-th tuple of a :class:`Delays`, by arrival: arrival and delay in microseconds; the largest delay."""
    own: Delays = part.of
    batches = list(own.events.batches(["event_time", "arrival_time"]))
    times = ([instants_us(batch.column(name)) for batch in batches] for name in ("event_time", "arrival_time"))
    event_us, arrival_us = (np.concatenate([np.zeros(0, np.int64), *parts]) for parts in times)
    order = np.argsort(arrival_us, kind="stable")[:: -(-max(len(arrival_us), 1) // own.most)]
    # An arrival before its event time counts as one at the event time.
    delay_us = np.maximum(arrival_us - event_us, 0)
    return arrival_us[order], delay_us[order], int(delay_us.max(initial=0))


def _key(promise: Promise) -> str:
    """What past periods were judged by: under another promise they say nothing."""
    of = promise.calendar
    period = f"{promise.period_s} s" if of is None else f"each {of.name} of {of.zone}"
    each = "" if promise.groups_within is None else f" for each of {promise.groups_within} of the groups"
    return f"{promise.target}{each} over {period}, final after {promise.horizon_s} s"


def _restored(kept: pa.Table | None, query_id: str, promise: Promise) -> PromiseState:
    if kept is None:
        return PromiseState.initial(promise)
    names, keys = (np.array(kept.column(n).to_pylist(), dtype=object) for n in ("query", "promise"))
    own = kept.filter(pa.array((names == query_id) & (keys == _key(promise))))
    return PromiseState.from_arrow(own.select(STATE_SCHEMA.names), promise)


def _saved(promises: Mapping[str, Promise], states: Mapping[str, PromiseState]) -> pa.Table:
    schema = pa.schema([("query", pa.string()), ("promise", pa.string()), *STATE_SCHEMA])
    parts: list[Any] = [schema.empty_table()]
    for query_id, promise in promises.items():
        rows = states[query_id].to_arrow()
        own = [pa.array([value] * rows.num_rows, pa.string()) for value in (query_id, _key(promise))]
        parts.append(pa.table([*own, *rows.columns], schema=schema))
    return pa.concat_tables(parts)
