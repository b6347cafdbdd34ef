"""From a question about the past to estimates: what the leaves know exactly, and what the samples have to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.aggregates import AGGREGATES, shapes
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import from_us
from tidegate.declarations.names import EVENT_COLUMNS
from tidegate.history.past import Bools, Past, View, event_us_in
from tidegate.history.store import Samples, Strata
from tidegate.operators.codes import NULL, encode
from tidegate.operators.expressions import columns_of, evaluate, truth
from tidegate.operators.history.complete import of_all_tuples
from tidegate.operators.history.estimating import Leaves, Sampled, estimating
from tidegate.operators.history.estimators import Bounds, Estimate, Known, LeafSample
from tidegate.operators.history.laws import Float64s
from tidegate.operators.history.query import HistoryAggregate, HistoryGroup, HistoryQuery
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
        return query.group_by[0].name if single and query.group_by[0].name in self.past.spec.group_by else None

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
        """From the samples: one row a group, ascending, NULLs last; one row if there are no groups.

        Raises:
            UserError: an aggregate needs every tuple, and not all are kept.
        """
        query = self.query
        selected = event_us_in(samples, self.start_us, self.end_us)
        if query.predicate is not None:
            selected = selected & truth(query.predicate, samples.rows)
        sample = leaf_sample(view, samples, self.confidence)
        names = [group.name for group in query.group_by]
        found = groups_of(columns_of_groups(query.group_by, samples.rows), selected)
        exact = self._exact(sample, samples, [members for _, members in found])
        rows = []
        for number, (keys, members) in enumerate(found):
            row: Row = {name: keys[names.index(group)] for name, group in query.groups}
            for aggregate in query.aggregates:
                if aggregate.name in exact:
                    row[aggregate.name] = exact[aggregate.name][number]
                    continue
                seen = sampled_of(aggregate, sample, samples, members, view)
                row[aggregate.name] = estimating(aggregate.function).sampled(seen)
            rows.append(row)
        return rows

    def _exact(self, sample: LeafSample, samples: Samples, groups: Sequence[Bools]) -> dict[str, list[Estimate]]:
        """The aggregates that samples do not show, a value a group: of all tuples, or by what leaves know of groups."""
        own = [aggregate for aggregate in self.query.aggregates if not aggregate.estimated]
        if sample.complete:
            values = of_all_tuples(own, samples.rows, groups) if own else {}
            return {name: [Estimate.exactly(value) for value in column] for name, column in values.items()}
        found = {}
        for aggregate in own:
            if not self._leaves_know_values(aggregate):
                raise UserError(self._not_all_kept(aggregate))
            found[aggregate.name] = [self._values_in_leaves(str(aggregate.column), samples)]
        return found

    def _leaves_know_values(self, aggregate: HistoryAggregate) -> bool:
        """Whether how many different values there are is how many groups the leaves have."""
        counts = AGGREGATES[aggregate.function].counts_values
        return counts and self.query.selects_all and aggregate.column in self.past.spec.group_by

    def _values_in_leaves(self, column: str, samples: Samples) -> Estimate:
        """How many values of a declared group column there are: all of whole leaves; of cut ones what samples show.

        What a cut leaf has and its sample does not show inside may lie inside, too.
        """
        text = samples.rows.column(column).cast(pa.string())
        inside = pa.array(event_us_in(samples, self.start_us, self.end_us))
        shown = set(text.filter(inside).drop_null().to_pylist())
        known = possible = 0
        for value, view in self.past.groups(column, self.start_us, self.end_us):
            if value is None:
                continue
            whole = view.touched(self.start_us, self.end_us) & ~view.cut(self.start_us, self.end_us)
            certain = value in shown or bool((view.strata.tuples[whole] > 0).any())
            known, possible = known + certain, possible + 1
        return Estimate(known, known, possible, exact=known == possible)

    def _not_all_kept(self, aggregate: HistoryAggregate) -> str:
        """Why an aggregate has no value, and what can be asked instead."""
        view = self.past.view
        strata = view.only(view.touched(self.start_us, self.end_us)).strata
        lacking = (strata.fraction < 1) & (strata.tuples > 0)
        kept, first = strata.sampled.sum() / strata.tuples.sum(), int(strata.end_us[lacking].max())
        instead = shapes(estimated=True)
        if first < self.end_us:
            instead = f"the same --from {from_us(first):%Y-%m-%dT%H:%M:%SZ} on, where all are kept, or {instead}"
        return (
            f"history keeps {kept:.3g} of the tuples of that time, and '{aggregate.text}' needs each of them: "
            f"a sample does not show it; expected {instead}"
        )

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
        seen = sampled_of(aggregate, sample, samples, inside, cut)
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
    expressions = [e for a in query.aggregates for e in (a.expression, a.by) if e is not None]
    expressions += [group.expression for group in query.group_by if group.expression is not None]
    expressions += [query.predicate] if query.predicate is not None else []
    plain = [group.name for group in query.group_by if group.expression is None]
    return list(dict.fromkeys([*plain, *(c for e in expressions for c in columns_of(e, known))]))


def leaf_sample(view: View, samples: Samples, confidence: float) -> LeafSample:
    """The leaves of a view as strata, with the sampled tuples in them."""
    strata = view.strata
    fraction = strata.fraction[samples.stratum] if len(samples.stratum) else np.empty(0)
    return LeafSample(strata.tuples, strata.fraction, fraction, confidence, samples.stratum)


def _in_leaves(aggregate: HistoryAggregate, columns: Sequence[str]) -> bool:
    """Whether the leaves hold the aggregate."""
    held = aggregate.expression is None or aggregate.column in columns
    return held and aggregate.estimated and estimating(aggregate.function).in_leaves


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
    shown = AGGREGATES[aggregate.function].shown(np.where(finite, values, 0.0), aggregate.parameters)
    return shown, valid & finite


def _bounds_of_aggregate(aggregate: HistoryAggregate, view: View) -> Bounds:
    """Least and greatest value of a bare column in the leaves; None if the leaves do not know."""
    column = _column_of(aggregate, view)
    bounds = None if column is None else _bounds_of(view, column)
    if bounds is None:
        return None
    low, high = AGGREGATES[aggregate.function].shown(np.array(bounds), aggregate.parameters)
    return float(low), float(high)


def _bounds_of(view: View, column: int) -> Bounds:
    low = float(view.values[:, column, MIN].min(initial=np.inf))
    high = float(view.values[:, column, MAX].max(initial=-np.inf))
    return (low, high) if low <= high else None


def sampled_of(
    aggregate: HistoryAggregate, sample: LeafSample, samples: Samples, selected: Bools, view: View
) -> Sampled:
    """What the samples show of an aggregate over the ``selected`` tuples."""
    values, valid = values_of(aggregate, samples.rows)
    bounds, known = _bounds_of_aggregate(aggregate, view), _known_sum(aggregate, values, valid, view)
    return Sampled(sample, selected & valid, values, bounds, known, aggregate.parameters)


def _known_sum(aggregate: HistoryAggregate, values: Float64s, valid: Bools, view: View) -> Known:
    """A bare column's values in all sampled tuples, and its exact sum over the leaves that have a sample."""
    column = _column_of(aggregate, view)
    if column is None or estimating(aggregate.function).counts_rows:
        return None
    has_sample = view.strata.fraction > 0
    return np.where(valid, values, 0.0), float(view.values[has_sample, column, SUM].sum())


def _added(view: View, rows: Bools) -> Totals:
    """The totals of some rows."""
    (values,) = added_up(view.values[rows], np.zeros(int(rows.sum()), np.int64), 1)
    return Totals(int(view.strata.tuples[rows].sum()), values)


def _known(aggregate: HistoryAggregate, totals: Totals, column: int | None) -> float | None:
    return estimating(aggregate.function).of_leaves(totals.tuples, None if column is None else totals.values[column])


def columns_of_groups(group_by: Sequence[HistoryGroup], rows: pa.Table) -> list[pa.ChunkedArray]:
    """The groups' values, a column a group."""
    return [
        rows.column(group.name)
        if group.expression is None
        else pa.chunked_array([evaluate(group.expression, rows, arrow_type(group.kind))])
        for group in group_by
    ]


def groups_of(columns: Sequence[pa.ChunkedArray], selected: Bools) -> list[tuple[tuple[Any, ...], Bools]]:
    """Each group's key and its selected tuples, ascending, NULL last; without columns one group, empty or not."""
    if not columns:
        return [((), selected)]
    codes, keys = np.zeros(len(selected), np.int64), []
    for column in columns:
        own, values = encode(column)
        keys.append([*values.to_pylist(), None])
        codes = codes * len(keys[-1]) + np.where(own == NULL, len(values), own)
    found = []
    for code in np.unique(codes[selected]).tolist():
        members, key = selected & (codes == code), []
        for known in reversed(keys):
            code, index = divmod(code, len(known))
            key.append(known[index])
        found.append((tuple(reversed(key)), members))
    return found
