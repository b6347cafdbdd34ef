"""From a question about the past to estimates: what the leaves know exactly, and what the samples have to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.names import EVENT_COLUMNS
from tidegate.history.past import Bools, Past, View, event_us_in
from tidegate.history.store import Samples, Strata
from tidegate.operators.expressions import columns_of, evaluate, truth
from tidegate.operators.history.estimating import Leaves, Sampled, estimating
from tidegate.operators.history.estimators import Bounds, Estimate, Known, LeafSample
from tidegate.operators.history.laws import Float64s
from tidegate.operators.history.query import HistoryAggregate, HistoryQuery
from tidegate.operators.history.tree import MAX, MIN, SUM, Totals, added_up
from tidegate.values.types import arrow_type

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Question:
    """One query over one past and period; ``most_fraction`` < 1 answers from the sparser bands alone."""

    query: HistoryQuery
    past: Past
    start_us: int
    end_us: int
    confidence: float
    most_fraction: float = 1.0

    @property
    def exact_group(self) -> str | None:
        """The group column whose values have exact aggregates, if that is all that the query asks."""
        query = self.query
        single = len(query.group_by) == 1 and query.predicate is None
        return query.group_by[0] if single and query.group_by[0] in self.past.spec.group_by else None

    @property
    def from_leaves(self) -> bool:
        """Whether whole leaves answer alone, and only those that the period cuts are looked at more closely."""
        plain = self.query.selects_all or self.exact_group is not None
        return plain and all(_in_leaves(a, self.past.view.columns) for a in self.query.aggregates)

    def answer(self) -> tuple[list[Row], int]:
        """The rows, each with an ``Estimate`` an aggregate, and how many sampled tuples were read."""
        view = self.past.view.at_most(self.most_fraction)
        read = view.cut if self.from_leaves else view.touched
        looked_at = view.only(read(self.start_us, self.end_us))
        samples = self.past.samples(looked_at, columns_read(self.query))
        if self.from_leaves and self.exact_group is None:
            whole = view.covered(self.start_us, self.end_us).whole
            every = np.ones(samples.rows.num_rows, bool)
            rows = [self._from_leaves(whole, looked_at, samples, every, looked_at.strata)]
        elif self.from_leaves:
            rows = self._by_exact_group(samples, looked_at.strata)
        else:
            rows = self._by_group(looked_at, samples)
        return rows, samples.rows.num_rows

    def _by_group(self, view: View, samples: Samples) -> list[Row]:
        """From the samples: one row a group, ascending, NULLs last; one row if there are no groups."""
        query = self.query
        selected = event_us_in(samples, self.start_us, self.end_us)
        if query.predicate is not None:
            selected = selected & truth(query.predicate, samples.rows)
        sample = leaf_sample(view, samples, self.confidence)
        rows = []
        for keys, members in groups_of(samples.rows, query.group_by, selected):
            row: Row = {name: keys[query.group_by.index(column)] for name, column in query.groups}
            for aggregate in query.aggregates:
                row[aggregate.name] = _estimate(aggregate, sample, samples, members, view)
            rows.append(row)
        return rows

    def _by_exact_group(self, samples: Samples, read: Strata) -> list[Row]:
        """From the leaves of each value of a declared group column; ascending, NULL last."""
        column = self.exact_group
        assert column is not None
        kind = arrow_type(self.past.stream.column(column).type)
        text = samples.rows.column(column).cast(pa.string())
        found = []
        for value, view in self.past.groups(column, self.start_us, self.end_us):
            mine = pc.is_null(text) if value is None else pc.fill_null(pc.equal(text, value), False)
            member = np.asarray(mine.to_numpy(zero_copy_only=False), dtype=bool)
            own = view.at_most(self.most_fraction)
            cut = own.cut(self.start_us, self.end_us)
            whole = _added(own, own.touched(self.start_us, self.end_us) & ~cut)
            key = pa.scalar(value, pa.string()).cast(kind).as_py()
            row: Row = {name: key for name, _ in self.query.groups}
            row |= self._from_leaves(whole, own.only(cut), samples, member, read)
            # A value of the cut leaves alone whose tuples may all lie outside is no group of the period.
            if whole.tuples or (event_us_in(samples, self.start_us, self.end_us) & member).any():
                found.append((key, row))
        return [row for _, row in sorted(found, key=lambda item: (item[0] is None, "" if item[0] is None else item[0]))]

    def _from_leaves(self, whole: Totals, cut: View, samples: Samples, member: Bools, read: Strata) -> Row:
        """Exact over whole leaves; the cut ones from their samples, of which ``member`` are concerned.

        ``read``: the strata that the samples refer to.
        """
        if len(cut.strata.start_us) == 0:
            exact = [(a, _known(a, whole, _column_of(a, cut))) for a in self.query.aggregates]
            return {a.name: Estimate.exactly(value) for a, value in exact}
        own = Samples(samples.rows.filter(pa.array(member)), samples.stratum[member], samples.u[member])
        event_us = np.asarray(own.rows.column("event_time").cast(pa.int64()).to_numpy())
        # The strata of a group are fewer than those that were read: find them anew.
        label = {name: i for i, name in enumerate(cut.strata.labels)}
        labels = np.array([label.get(name, -1) for name in read.labels], np.int64)[read.label[own.stratum]]
        own = Samples(own.rows, cut.strata.of_tuples(labels, event_us), own.u)
        sample = leaf_sample(cut, own, self.confidence)
        inside = event_us_in(own, self.start_us, self.end_us)
        return {a.name: self._over_leaves(a, whole, cut, own, sample, inside) for a in self.query.aggregates}

    def _over_leaves(
        self, aggregate: HistoryAggregate, whole: Totals, cut: View, samples: Samples, sample: LeafSample, inside: Bools
    ) -> Estimate:
        column = _column_of(aggregate, cut)
        values, valid = values_of(aggregate, samples.rows)
        bounds, known = bounds_of_aggregate(aggregate, cut), known_sum_of(aggregate, samples, cut)
        leaves = Leaves(
            whole.tuples,
            None if column is None else whole.values[column],
            cut.strata.tuples.astype(np.float64),
            self._shares(cut),
            None if column is None else cut.values[:, column],
            float(cut.strata.fraction.min(initial=1.0)),
            self.start_us,
            self.end_us,
        )
        seen = Sampled(sample, inside & valid, values, bounds, known)
        return estimating(aggregate.function).over_leaves(leaves, seen)

    def _shares(self, cut: View) -> Float64s:
        """Covered length / length of each cut leaf."""
        start, end = cut.strata.start_us, cut.strata.end_us
        inside: Float64s = (np.minimum(end, self.end_us) - np.maximum(start, self.start_us)) / (end - start)
        return inside


def columns_read(query: HistoryQuery) -> list[str]:
    """The tuples' columns that a query reads."""
    declared = (c.name for c in query.stream.columns if c.name not in EVENT_COLUMNS)
    known = [*EVENT_COLUMNS, *declared]
    expressions = [a.expression for a in query.aggregates if a.expression is not None]
    expressions += [query.predicate] if query.predicate is not None else []
    return list(dict.fromkeys([*query.group_by, *(c for e in expressions for c in columns_of(e, known))]))


def leaf_sample(view: View, samples: Samples, confidence: float) -> LeafSample:
    """The leaves of a view as strata, with the sampled tuples in them."""
    strata = view.strata
    fraction = strata.fraction[samples.stratum] if len(samples.stratum) else np.empty(0)
    return LeafSample(strata.tuples, strata.fraction, fraction, confidence, samples.stratum)


def _in_leaves(aggregate: HistoryAggregate, columns: Sequence[str]) -> bool:
    """Whether the leaves hold the aggregate."""
    held = aggregate.expression is None or aggregate.column in columns
    return held and estimating(aggregate.function).in_leaves


def _column_of(aggregate: HistoryAggregate, view: View) -> int | None:
    return view.columns.index(aggregate.column) if aggregate.column in view.columns else None


def values_of(aggregate: HistoryAggregate, rows: pa.Table) -> tuple[Float64s, Bools]:
    """What an aggregate adds up for each tuple, and where there is anything (not NULL)."""
    if aggregate.expression is None:
        return np.ones(rows.num_rows), np.ones(rows.num_rows, bool)
    computed = evaluate(aggregate.expression, rows)
    valid = np.asarray(computed.is_valid().to_numpy(zero_copy_only=False), dtype=bool)
    if estimating(aggregate.function).counts_rows:
        return np.ones(rows.num_rows), valid
    values = pc.fill_null(computed.cast(pa.float64(), safe=False), 0.0).to_numpy()
    finite = np.isfinite(values)
    return np.where(finite, values, 0.0), valid & finite


def bounds_of_aggregate(aggregate: HistoryAggregate, view: View) -> Bounds:
    """Least and greatest value of a bare column in the leaves; None if the leaves do not know."""
    column = _column_of(aggregate, view)
    return None if column is None else _bounds_of(view, column)


def _bounds_of(view: View, column: int) -> Bounds:
    low = float(view.values[:, column, MIN].min(initial=np.inf))
    high = float(view.values[:, column, MAX].max(initial=-np.inf))
    return (low, high) if low <= high else None


def known_sum_of(aggregate: HistoryAggregate, samples: Samples, view: View) -> Known:
    """A bare column's values in all sampled tuples, and its exact sum over the leaves that have a sample."""
    column = _column_of(aggregate, view)
    if column is None or estimating(aggregate.function).counts_rows:
        return None
    values, valid = values_of(aggregate, samples.rows)
    held = view.strata.fraction > 0
    return np.where(valid, values, 0.0), float(view.values[held, column, SUM].sum())


def _estimate(
    aggregate: HistoryAggregate, sample: LeafSample, samples: Samples, selected: Bools, view: View
) -> Estimate:
    values, valid = values_of(aggregate, samples.rows)
    bounds, known = bounds_of_aggregate(aggregate, view), known_sum_of(aggregate, samples, view)
    return estimating(aggregate.function).sampled(Sampled(sample, selected & valid, values, bounds, known))


def _added(view: View, rows: Bools) -> Totals:
    """The totals of some rows."""
    (values,) = added_up(view.values[rows], np.zeros(int(rows.sum()), np.int64), 1)
    return Totals(int(view.strata.tuples[rows].sum()), values)


def _known(aggregate: HistoryAggregate, totals: Totals, column: int | None) -> float | None:
    return estimating(aggregate.function).of_leaves(totals.tuples, None if column is None else totals.values[column])


def groups_of(samples: pa.Table, group_by: Sequence[str], selected: Bools) -> list[tuple[tuple[Any, ...], Bools]]:
    """Each group's key and its selected tuples; without GROUP BY one group, empty or not."""
    if not group_by:
        return [((), selected)]
    codes, keys = np.zeros(samples.num_rows, np.int64), []
    for name in group_by:
        column = samples.column(name).combine_chunks()
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        keys.append(encoded.dictionary.to_pylist())
        codes = codes * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy(zero_copy_only=False)
    found = []
    for code in np.unique(codes[selected]).tolist():
        members, key = selected & (codes == code), []
        for values in reversed(keys):
            code, index = divmod(code, len(values))
            key.append(values[index])
        found.append((tuple(reversed(key)), members))
    return sorted(found, key=lambda group: [(value is None, "" if value is None else value) for value in group[0]])
