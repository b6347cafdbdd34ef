"""Running totals of sides with the same keys in one chain of windows: tuples in and out become histories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.aggregates.accumulators import Extreme
from tidegate.aggregates.exact import Part
from tidegate.operators.join_aggregate.chains import Bounds, rank
from tidegate.operators.join_aggregate.flows import Flow, flows
from tidegate.operators.join_aggregate.held import Held
from tidegate.operators.join_aggregate.histories import NULLS, Histories
from tidegate.operators.join_aggregate.rows import added, extreme_over, rows_for, running
from tidegate.operators.join_aggregate.spec import Measure
from tidegate.operators.schedule import Int64s

Orders = Mapping[str, Int64s]
# Sums of a code and an event time below this do not overflow.
PACKED_LIMIT = 2**62


@dataclass(frozen=True, eq=False)
class Crest:
    """The tuples that can still be an extreme: none with their code is as good and leaves later.

    Args:
        code, event_us, value: int64[n], in ascending order of (code, event time); values as in ``Tuples``.
    """

    code: Int64s
    event_us: Int64s
    value: Int64s

    @staticmethod
    def of(extreme: Extreme, code: Int64s, event_us: Int64s, value: Int64s, order: Int64s | None) -> Crest:
        """The crest of some tuples. ``order``: rank of each value's code, None if values are in order themselves."""
        if not len(code):
            return Crest(code, event_us, value)
        first_us, span_us = int(event_us.min()), int(event_us.max()) - int(event_us.min()) + 1
        if (int(code.max()) + 1) * span_us < PACKED_LIMIT:
            sequence = np.argsort(code * span_us + (event_us - first_us))
        else:
            sequence = np.lexsort((event_us, code))
        code, event_us, value = code[sequence], event_us[sequence], value[sequence]
        rank = np.empty(len(code), dtype=np.int64)
        rank[np.argsort(value if order is None else order[value])] = np.arange(len(code))
        # From the latest back, code by code: a later code's offset keeps it below every earlier one.
        height = ((-rank if extreme.sign > 0 else rank) - code * (len(code) + 1))[::-1]
        new = np.ones(len(code), dtype=bool)
        new[1:] = height[1:] > np.maximum.accumulate(height)[:-1]
        rows = np.flatnonzero(new[::-1])
        return Crest(code[rows], event_us[rows], value[rows])


@dataclass(frozen=True, eq=False)
class Running:
    """Totals per code of a side's tuples that the last window answered has seen and the next one still will.

    Codes behind the end have none.
    """

    pairs: Int64s = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    parts: Mapping[tuple[str, Part], Int64s] = field(default_factory=dict)
    crests: Mapping[str, Crest] = field(default_factory=dict)

    def renamed(self, codes: Int64s, count: int, values: Mapping[str, Int64s]) -> Running:
        """The same totals under new codes (old → new; −1 for codes without tuples), also of the slots' values."""

        def moved(column: Int64s) -> Int64s:
            new = codes[: len(column)]
            result = np.zeros(count, dtype=np.int64)
            result[new[new >= 0]] = column[new >= 0]
            return result

        crests = {
            slot: Crest(codes[c.code], c.event_us, values[slot][c.value] if slot in values else c.value)
            for slot, c in self.crests.items()
        }
        return Running(moved(self.pairs), {key: moved(column) for key, column in self.parts.items()}, crests)


@dataclass(frozen=True, eq=False)
class Member:
    """A side in a block: its number, its tuples, its aggregates, and its totals before the block."""

    side: int
    held: Held
    measures: Sequence[Measure]
    base: Running


def through_block(
    members: Sequence[Member], bounds: Bounds, keys: Mapping[str, Int64s], codes: int, orders: Orders
) -> tuple[list[Histories], list[Running]]:
    """The histories of some sides' totals through the windows of ``bounds``, and the totals behind the last of them.

    **Idea.** In a chain a tuple is seen by consecutive windows. It adds its numbers where it is first seen and takes
    them back where it is no longer; in between nothing is done for it. An extreme cannot be taken back: it is put
    over the interval of its tuple, and of the tuples from before the block only the crest is looked at.

    Args:
        members: sides whose codes mean the same.
        bounds: the block's windows.
        keys: slot → int64[codes], what the codes are combinations of.
        codes: how many codes have been given out.
        orders: slot → rank of each code's value, for extremes that have a codebook.

    Returns:
        Per side its histories, all with the same rows, and its totals.

    **Cost**: O(tuples that come or go + codes), for extremes times the logarithm of the block's windows.
    """
    windows = len(bounds)
    moving = [flows(bounds, member.side, member.held, member.measures) for member in members]
    spans = [_Spans.of(member, bounds, coming, windows) for member, (coming, _, _) in zip(members, moving, strict=True)]
    marks = [flow.code * windows + flow.window for coming, going, _ in moving for flow in (coming, going)]
    own_marks = len(marks)
    marks += [mark for span in spans for s in span.values() for mark in (s.begin, s.stop)]
    first, window, places = rows_for(marks, codes, windows)
    rest = iter(places[own_marks:])
    end = np.append(first[1:], len(window))
    histories, after = [], []
    for index, (member, span) in enumerate(zip(members, spans, strict=True)):
        totals = Totals(first, len(window), moving[index], (places[2 * index], places[2 * index + 1]))
        pairs, parts, last = totals.of(member.measures, member.base)
        extremes, crests = {}, {}
        for measure in (m for m in member.measures if m.slot in span):
            assert measure.extreme is not None
            own, begin, stop = span[measure.slot], next(rest), next(rest)
            stop = np.where(own.leave < windows, stop, end[own.code])
            order = orders.get(measure.slot)
            value = own.value if order is None else order[own.value]
            extremes[measure.slot] = extreme_over(measure.extreme, begin, stop, value, len(window))
            stays = np.flatnonzero(own.leave > windows)
            kept = own.code[stays], own.event_us[stays], own.value[stays]
            crests[measure.slot] = Crest.of(measure.extreme, *kept, order)
        histories.append(Histories(windows, keys, first, window, pairs, parts, extremes))
        after.append(Running(last.pairs, last.parts, crests))
    return histories, after


class Totals:
    """Totals through the windows, from what comes and goes at which rows, and goes behind the last one."""

    def __init__(
        self, first: Int64s, rows: int, moving: tuple[Flow, Flow, Flow], places: tuple[Int64s, Int64s]
    ) -> None:
        self._first, self._rows, self._moving, self._places = first, rows, moving, places

    def of(self, measures: Sequence[Measure], base: Running) -> tuple[Int64s, dict[tuple[str, Part], Int64s], Running]:
        """Pairs and parts of the sums row by row, and the totals behind the last window; ``base``: those before."""
        coming, going, behind = (_parts(flow, measures) for flow in self._moving)
        at_in, at_out = self._places
        arriving, leaving, last_leaving = self._moving
        came, went = _counted(at_in, arriving, self._rows), _counted(at_out, leaving, self._rows)
        pairs, last_pairs = self._run(base.pairs, came - went)
        last_pairs -= _counted(last_leaving.code, last_leaving, len(self._first))
        parts, last_parts = {}, {}
        for key in dict.fromkeys([*base.parts, *coming, *going]):
            changes = np.zeros(self._rows, dtype=np.int64)
            if key in coming:
                changes += added(at_in, coming[key], self._rows)
            if key in going:
                changes -= added(at_out, going[key], self._rows)
            parts[key], last = self._run(base.parts.get(key), changes)
            if key in behind:
                last -= added(self._moving[2].code, behind[key], len(self._first))
            if last.any():
                last_parts[key] = last
        return pairs, parts, Running(last_pairs, last_parts)

    def _run(self, before: Int64s | None, changes: Int64s) -> tuple[Int64s, Int64s]:
        if before is not None:
            changes[self._first[: len(before)]] += before
        return running(changes, self._first)


def _counted(rows: Int64s, flow: Flow, size: int) -> Int64s:
    counts = flow.sign if flow.weight is None else flow.weight
    return np.bincount(rows, minlength=size) if counts is None else added(rows, counts, size)


def _parts(flow: Flow, measures: Sequence[Measure]) -> dict[tuple[str, Part], npt.NDArray[Any]]:
    found: dict[tuple[str, Part], npt.NDArray[Any]] = {}
    for measure in measures:
        slot = measure.slot
        if slot in flow.nulls and flow.nulls[slot].any():
            found[slot, NULLS] = signed(flow.nulls[slot].astype(np.int64), flow.sign)
        if flow.weight is None:
            for name, total in measure.sums:
                split = total.split(flow.values[slot]).items()
                found |= {(name, part): signed(column, flow.sign) for part, column in split}
    if flow.weight is not None:
        found |= {key: column for key, column in flow.values.items() if isinstance(key, tuple)}
    return found


def signed(numbers: npt.NDArray[Any], sign: Int64s | None) -> npt.NDArray[Any]:
    """Numbers of tuples, negative of those that take back others."""
    return numbers if sign is None else numbers * sign


@dataclass(frozen=True, eq=False)
class _Spans:
    """The tuples that an extreme is taken of, from where to where (history · windows + window; any if they stay)."""

    code: Int64s
    event_us: Int64s
    value: Int64s
    leave: Int64s
    begin: Int64s
    stop: Int64s

    @staticmethod
    def of(member: Member, bounds: Bounds, coming: Flow, windows: int) -> dict[str, _Spans]:
        spans = {}
        for measure in member.measures:
            if measure.extreme is None:
                continue
            slot = measure.slot
            known: Any = slice(None)
            if slot in coming.nulls:
                known = np.flatnonzero(coming.nulls[slot] != (True if coming.weight is None else coming.weight))
            code, event_us, value = coming.code[known], coming.event_us[known], coming.values[slot][known]
            begin = code * windows + coming.window[known]
            if (crest := member.base.crests.get(slot)) is not None:
                code, event_us = np.concatenate([crest.code, code]), np.concatenate([crest.event_us, event_us])
                value = np.concatenate([crest.value, value])
                begin = np.concatenate([crest.code * windows, begin])
            leave = rank(bounds.lower_us[member.side], event_us)
            stop = code * windows + np.where(leave < windows, leave, 0)
            spans[slot] = _Spans(code, event_us, value, leave, begin, stop)
        return spans
