"""Aggregates by value: from how many there are of each value of each group to columns of the partial answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.aggregates.accumulators import DISTINCT, VALUES, ranked, value_lists
from tidegate.aggregates.by_value import ByValue
from tidegate.aggregates.exact import Part, totals
from tidegate.operators.codes import NULL, decode
from tidegate.operators.join_aggregate.histories import Histories
from tidegate.operators.join_aggregate.joins import combined, product
from tidegate.operators.join_aggregate.ranking import Ranking
from tidegate.operators.join_aggregate.spec import Measure, Spec
from tidegate.operators.join_aggregate.summing import Summing
from tidegate.operators.schedule import Int64s
from tidegate.values.limbs import is_decimal, limbs


@dataclass(frozen=True, eq=False)
class OfValues:
    """One aggregate by value of a block's answers.

    Args:
        spec: the query.
        measure: the aggregate.
        histories: per combination of the groups and of all values.
        values: what the codes of its slot stand for.
        groups: the histories per group.
        window, owner: int64[n], of each row of the answers its window, and its group's place in ``groups``.
    """

    spec: Spec
    measure: Measure
    histories: Histories
    values: pa.Array
    groups: Histories
    window: Int64s
    owner: Int64s

    def lists(self, order: Int64s) -> dict[str, pa.Array]:
        """The values of each row in ascending order, and how many there are of each; ``order``: the codes' ranks.

        **Cost**: O(values of all rows · log).
        """
        own = self._own
        lengths = np.where(own.pairs == 0, 0, own.lasting) * self._known
        row = np.repeat(np.arange(len(lengths)), lengths)
        window = own.window[row] + np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        history = self._history[row]
        mine = self.owner * own.windows + self.window
        rows = np.argsort(mine)
        at = rows[np.searchsorted(mine[rows], self._group[history] * own.windows + window)]
        code = self._codes[history]
        by_value = np.lexsort((order[code], at))
        values = self.values.take(pa.array(code[by_value]))
        column = value_lists(at[by_value], len(self.window), values, own.pairs[row][by_value])
        return {f"{self.measure.slot}_{VALUES}": column}

    def ranked(self, order: Int64s, numbers: Int64s) -> dict[str, pa.Array]:
        """The values of the ranks that the aggregate asks for; NULL where a row has none.

        ``order``: the codes' ranks. ``numbers``: how many values each row has. **Cost**: that of ``Ranking``.
        """
        own, some = self._own, np.flatnonzero(numbers)
        valued = np.flatnonzero(self._codes != NULL)
        rows, owner = own.rows_of(valued)
        lengths = np.bincount(owner, minlength=len(valued))
        ranking = Ranking(
            self._group[valued],
            order[self._codes[valued]],
            np.cumsum(lengths) - lengths,
            own.window[rows],
            own.pairs[rows],
            len(self.groups),
            own.windows,
        )
        wanted = self.measure.called.ranks(numbers[some], self.measure.parameters)
        # Most rows' ranks are not the same; those that are need but one look.
        differs = [np.ones(len(some), dtype=bool), *(rank != wanted[0] for rank in wanted[1:])]
        looked_at = [some[mine] for mine in differs]
        at = np.concatenate(looked_at)
        ranks = np.concatenate([rank[mine] for rank, mine in zip(wanted, differs, strict=True)])
        history = ranking.histories_of(self.owner[at], self.window[at], ranks)
        code = np.append(self._codes[valued], NULL)[history]
        lowest = np.full(len(numbers), NULL, dtype=np.int64)
        lowest[some] = code[: len(some)]
        columns, begin = {}, 0
        for place, mine in enumerate(looked_at):
            chosen = lowest.copy()
            chosen[mine] = code[begin : begin + len(mine)]
            begin += len(mine)
            columns[f"{self.measure.slot}_{ranked(place)}"] = decode(chosen, self.values)
        return columns

    def distinct(self) -> dict[str, pa.Array]:
        """How many different values each row has, and their sums.

        **Idea.** A value counts from where its first tuple comes to where its last one goes. So these are totals of
        histories that change only there.
        **Cost**: O(changes of the values' histories + rows · log), however many values the windows have.
        """
        own, slot = self._own, self.measure.slot
        summing = Summing(own.first, own.window, self._group, len(self.groups), own.windows)
        owner = np.repeat(np.arange(len(self.groups)), np.diff(summing.first, append=len(summing.window)))
        places = owner * own.windows + summing.window
        at = np.searchsorted(places, self.owner * own.windows + self.window, side="right") - 1
        there = ((own.pairs > 0) & self._known).astype(np.int64)
        number = summing.totals(there)[at]
        columns = {f"{slot}_{DISTINCT}": pa.array(number)}
        for total in self.measure.called.of_distinct or ():
            parts: dict[Part, Int64s] = {}
            for part, numbers in total.split(numbers_of(self.values)).items():
                of_code = np.append(numbers.astype(np.int64), 0)  # NULL is the last
                parts[part] = summing.totals(there * of_code[self._codes][self._history])[at]
            kind = self.spec.sum_type(slot)
            columns[f"{slot}_{total.name}"] = totals(parts, len(number), kind, number == 0)
        return columns

    @cached_property
    def _own(self) -> Histories:
        """Per combination of the groups and of the slot's values."""
        keep = list(dict.fromkeys([*self.spec.group_keys.values(), self.measure.slot]))
        return product([replace(self.histories, parts={}, extremes={})], keep, {})

    @cached_property
    def _codes(self) -> Int64s:
        """int64[own histories], each one's value."""
        return self._own.keys[self.measure.slot]

    @cached_property
    def _history(self) -> Int64s:
        """int64[own rows], each one's history."""
        return np.repeat(np.arange(len(self._own)), self._own.lengths)

    @cached_property
    def _known(self) -> npt.NDArray[np.bool_]:
        """bool[own rows], where the value is not NULL."""
        known: npt.NDArray[np.bool_] = self._codes != NULL
        return known[self._history]

    @cached_property
    def _group(self) -> Int64s:
        """int64[own histories], the place of each one's group."""
        known, keys = len(self.groups), self._own.keys
        together = [np.concatenate([column, keys[name]]) for name, column in self.groups.keys.items()]
        ids = combined(together, known + len(self._own))
        order = np.argsort(ids[:known])
        return order[np.searchsorted(ids[:known][order], ids[known:])]


def numbers_of(values: pa.Array) -> npt.NDArray[np.int64] | npt.NDArray[np.float64]:
    """Values as ``exact.split`` takes them."""
    return limbs(values) if is_decimal(values.type) else values.to_numpy(zero_copy_only=False)


def distinct_of(spec: Spec, measure: Measure, lists: pa.Array, rows: int) -> Mapping[str, pa.Array]:
    """How many different values each row has, and their sums, from its list of them."""
    lengths = np.diff(lists.offsets.to_numpy())
    values, owner = lists.flatten().field("value"), np.repeat(np.arange(rows), lengths)
    columns = {f"{measure.slot}_{DISTINCT}": pa.array(lengths.astype(np.int64))}
    for total in measure.called.of_distinct or ():
        parts: dict[Part, Int64s] = {}
        for part, numbers in total.split(numbers_of(values)).items():
            parts[part] = np.zeros(rows, dtype=np.int64)
            np.add.at(parts[part], owner, numbers.astype(np.int64))
        kind = spec.sum_type(measure.slot)
        columns[f"{measure.slot}_{total.name}"] = totals(parts, rows, kind, lengths == 0)
    return columns


def ranked_of(measure: Measure, lists: pa.Array, numbers: Int64s) -> Mapping[str, pa.Array]:
    """The values of the ranks that an aggregate asks for, from each row's list of values and how many they are."""
    by_value = ByValue.of(lists)
    wanted = measure.called.ranks(np.maximum(numbers, 1), measure.parameters)
    none = pa.array(numbers == 0)
    columns = {}
    for place, rank in enumerate(wanted):
        if not len(by_value.values):
            columns[f"{measure.slot}_{ranked(place)}"] = pa.nulls(len(numbers), by_value.values.type)
            continue
        at = pc.if_else(none, None, pa.array(by_value.places(rank)))
        columns[f"{measure.slot}_{ranked(place)}"] = by_value.values.take(at)
    return columns
