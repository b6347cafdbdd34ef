"""Any aggregate over any past period, from the history store, with an interval that says how far to trust it.

Nothing here needs Spark: the leaves and samples are small, and pyarrow reads them in about a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, from_us, to_us
from tidegate.declarations.tables import LEAF_AGGREGATES, STREAM_KEYS
from tidegate.hosts.intervals import label_format
from tidegate.hosts.warehouse import Warehouse
from tidegate.operators.history.estimators import Bounds, Estimate, LeafSample
from tidegate.operators.history.expressions import columns_of, evaluate, truth
from tidegate.operators.history.query import HistoryAggregate, HistoryQuery, parse_history_query
from tidegate.operators.history.thinning import Float64s, Int64s, instants_us
from tidegate.operators.history.tree import COUNT, MAX, MIN, SUM, Covered, HdsTree, Leaf, Totals

Bools = npt.NDArray[np.bool_]
_FAN_OUT = 6


def query_history(
    pipeline: Pipeline, warehouse_root: Path, sql: str, start: datetime, end: datetime, confidence: float = 0.95
) -> dict[str, Any]:
    """Estimate the aggregates of a query over the event times [start, end).

    Without predicate and groups the exact aggregates of whole leaves answer, through the HDS-Tree, and only leaves that
    the period cuts are estimated. Everything else comes from the samples of the leaves that the period touches. Tuples
    that are still in their windows have not entered history yet.

    Returns:
        ``{"confidence", "leaves", "sampled_rows", "rows": [{group columns…, "<column>": {"estimate", "low", "high",
        "exact"}}]}``: leaves touched, sampled tuples read. A None estimate: nothing sampled qualifies. A None bound:
        none is known. Groups of which no tuple was sampled are not listed.

    Raises:
        UserError: the query is not understood, names something unknown, or asks about a past that is not there.
    """
    if not 0 < confidence < 1:
        raise UserError(f"--confidence must lie between 0 and 1 (such as 0.95), not {confidence}")
    if end <= start:
        raise UserError(f"--to {end:%Y-%m-%dT%H:%M:%SZ} must be later than --from {start:%Y-%m-%dT%H:%M:%SZ}")
    query = parse_history_query(sql, pipeline.streams)
    past = _Past.read(Warehouse(warehouse_root, pipeline), query, to_us(start), to_us(end))
    answers = _Answers(query, past, confidence)
    rows = answers.simple() if query.selects_all else answers.by_group()
    return {
        "confidence": confidence,
        "leaves": len(past.leaves),
        "sampled_rows": past.samples.num_rows,
        "rows": rows,
    }


@dataclass(frozen=True, eq=False)
class _Past:
    """The leaves that a period touches, and the sampled tuples that the query has to read."""

    start_us: int
    end_us: int
    leaves: list[Leaf]
    columns: tuple[str, ...]
    covered: Covered
    samples: pa.Table

    @classmethod
    def read(cls, warehouse: Warehouse, query: HistoryQuery, start_us: int, end_us: int) -> _Past:
        stream = query.stream
        # A tuple enters history after its event time: what entered before the period lies before it.
        pipeline = warehouse.pipeline
        oldest = (from_us(start_us) - timedelta(seconds=pipeline.interval_s)).strftime(label_format(pipeline))
        every = warehouse.labels("history_leaves")
        if not every:
            raise UserError(
                f"pipeline {pipeline.name} has no history in {warehouse.folder.parent}: "
                "run the stages ingest and sample_history first (tidegate run)"
            )
        labels = [label for label in every if label >= oldest]
        columns = stream.numeric_columns
        wanted = ["stream", "leaf_start", "leaf_end", "tuples", "sampled", "fraction"]
        wanted += [f"{c}_{name}" for c in columns for name, _ in LEAF_AGGREGATES]
        rows = warehouse.read_arrow("history_leaves", labels, wanted)
        rows = rows.filter(pc.equal(rows.column("stream"), stream.name))
        leaves = [leaf for leaf in _leaves(rows, columns) if start_us < leaf.end_us and leaf.start_us < end_us]
        if not leaves:
            raise UserError(_nothing_there(warehouse, stream.name, start_us, end_us))
        tree = HdsTree.build(_FAN_OUT, columns, _adjoining(leaves, len(columns)))
        covered = tree.query(start_us, end_us)
        # Whole leaves answer a simple query alone; only those that the period cuts are looked at more closely.
        simple = query.selects_all and all(_in_leaves(a, columns) for a in query.aggregates)
        read = [leaf for leaf, _ in covered.cut] if simple else leaves
        starts = pa.array([leaf.start_us for leaf in read if leaf.totals.tuples], pa.int64())
        table = f"history_samples_{stream.name}"
        known = [*STREAM_KEYS, *(c.name for c in stream.columns if c.name not in STREAM_KEYS)]
        expressions = [a.expression for a in query.aggregates if a.expression is not None]
        expressions += [query.predicate] if query.predicate is not None else []
        named = dict.fromkeys(
            [
                "leaf_start",
                "fraction",
                "event_time",
                *query.group_by,
                *(c for e in expressions for c in columns_of(e, known)),
            ]
        )
        samples = warehouse.read_arrow(table, labels if len(starts) else [], list(named))
        mine = pc.is_in(samples.column("leaf_start").cast(pa.int64()), starts)
        return cls(start_us, end_us, leaves, columns, covered, samples.filter(mine))

    @property
    def in_period(self) -> Bools:
        """bool[m]: which sampled tuples lie in the period; edge leaves are filtered by tuple time."""
        event_us = instants_us(self.samples.column("event_time"))
        return (event_us >= self.start_us) & (event_us < self.end_us)


def _in_leaves(aggregate: HistoryAggregate, columns: Sequence[str]) -> bool:
    """Whether the leaves hold the aggregate."""
    return aggregate.expression is None or aggregate.column in columns


def _leaves(rows: pa.Table, columns: Sequence[str]) -> list[Leaf]:
    """Leaves in order of time; the rows of one leaf in several intervals add up."""
    start_us, leaf_of_row = np.unique(instants_us(rows.column("leaf_start")), return_inverse=True)
    end_us = np.zeros(len(start_us), np.int64)
    np.maximum.at(end_us, leaf_of_row, instants_us(rows.column("leaf_end")))
    fraction = np.ones(len(start_us))
    np.minimum.at(fraction, leaf_of_row, rows.column("fraction").to_numpy())
    tuples, sampled = (_added(rows, name, leaf_of_row, len(start_us)) for name in ("tuples", "sampled"))
    values = np.tile(Totals.empty(len(columns)).values, (len(start_us), 1, 1))
    for c, column in enumerate(columns):
        for a, (name, _) in enumerate(LEAF_AGGREGATES):
            if a in (MIN, MAX):
                combine = np.minimum if a == MIN else np.maximum
                nothing = np.inf if a == MIN else -np.inf
                part = pc.fill_null(rows.column(f"{column}_{name}"), nothing).to_numpy()
                combine.at(values[:, c, a], leaf_of_row, part)
            else:
                values[:, c, a] = _added(rows, f"{column}_{name}", leaf_of_row, len(start_us))
    return [
        Leaf(int(start_us[i]), int(end_us[i]), Totals(int(tuples[i]), values[i]), float(fraction[i]), int(sampled[i]))
        for i in range(len(start_us))
    ]


def _added(rows: pa.Table, name: str, leaf_of_row: Int64s, count: int) -> Float64s:
    part = pc.fill_null(rows.column(name), 0).to_numpy()
    return np.bincount(leaf_of_row, weights=part, minlength=count).astype(np.float64)


def _adjoining(leaves: Sequence[Leaf], columns: int) -> list[Leaf]:
    """The leaves with empty ones in the gaps: periods in which nothing happened."""
    filled: list[Leaf] = []
    for leaf in leaves:
        if filled and filled[-1].end_us < leaf.start_us:
            filled.append(Leaf(filled[-1].end_us, leaf.start_us, Totals.empty(columns), fraction=1.0))
        filled.append(leaf)
    return filled


def _nothing_there(warehouse: Warehouse, stream: str, start_us: int, end_us: int) -> str:
    rows = warehouse.read_arrow("history_leaves", columns=["stream", "leaf_start", "leaf_end"])
    rows = rows.filter(pc.equal(rows.column("stream"), stream))
    asked = f"from {from_us(start_us):%Y-%m-%dT%H:%M:%SZ} to {from_us(end_us):%Y-%m-%dT%H:%M:%SZ}"
    if not rows.num_rows:
        return f"nothing of stream '{stream}' has entered history yet"
    first = pc.min(rows.column("leaf_start")).as_py().astimezone(UTC)
    last = pc.max(rows.column("leaf_end")).as_py().astimezone(UTC)
    return (
        f"history holds nothing of stream '{stream}' {asked}; it reaches from {first:%Y-%m-%dT%H:%M:%SZ} "
        f"to {last:%Y-%m-%dT%H:%M:%SZ}"
    )


@dataclass(frozen=True, eq=False)
class _Answers:
    """The answers of one query over one past."""

    query: HistoryQuery
    past: _Past
    confidence: float

    def _sample(self, leaves: Sequence[Leaf]) -> LeafSample:
        return LeafSample(
            np.array([leaf.totals.tuples for leaf in leaves], dtype=np.int64),
            np.array([leaf.fraction for leaf in leaves]),
            self.past.samples.column("fraction").to_numpy(),
            self.confidence,
        )

    def _values(self, aggregate: HistoryAggregate) -> tuple[Float64s, Bools]:
        """What an aggregate adds up for each sampled tuple, and where there is anything (not NULL)."""
        rows = self.past.samples
        if aggregate.expression is None:
            return np.ones(rows.num_rows), np.ones(rows.num_rows, bool)
        computed = evaluate(aggregate.expression, rows)
        valid = np.asarray(computed.is_valid().to_numpy(), dtype=bool)
        if aggregate.function == "count":
            return np.ones(rows.num_rows), valid
        values = pc.fill_null(computed.cast(pa.float64()), 0.0).to_numpy()
        finite = np.isfinite(values)
        return np.where(finite, values, 0.0), valid & finite

    def _bounds(self, aggregate: HistoryAggregate, leaves: Sequence[Leaf]) -> Bounds:
        """Least and greatest value of a bare column in the leaves; None if the leaves do not know."""
        if aggregate.column not in self.past.columns:
            return None
        column = self.past.columns.index(aggregate.column)
        low = min((leaf.totals.values[column, MIN] for leaf in leaves), default=np.inf)
        high = max((leaf.totals.values[column, MAX] for leaf in leaves), default=-np.inf)
        return (float(low), float(high)) if low <= high else None

    def _estimate(
        self, aggregate: HistoryAggregate, sample: LeafSample, selected: Bools, leaves: list[Leaf]
    ) -> Estimate:
        values, valid = self._values(aggregate)
        qualifies, bounds = selected & valid, self._bounds(aggregate, leaves)
        match aggregate.function:
            case "count":
                return sample.count(qualifies)
            case "sum":
                return sample.total(qualifies, values, bounds)
            case "avg":
                return sample.mean(qualifies, values, bounds)
            case "min" | "max" as function:
                return sample.extreme(function, qualifies, values, bounds)

    def by_group(self) -> list[dict[str, Any]]:
        """From the samples: one row a group, ascending, NULLs last; one row if there are no groups."""
        past, query = self.past, self.query
        selected = past.in_period
        if query.predicate is not None:
            selected = selected & truth(query.predicate, past.samples)
        sample = self._sample(past.leaves)
        rows = []
        for keys, members in _groups(past.samples, query.group_by, selected):
            row: dict[str, Any] = {name: keys[query.group_by.index(column)] for name, column in query.groups}
            for aggregate in query.aggregates:
                row[aggregate.name] = _json(self._estimate(aggregate, sample, members, past.leaves))
            rows.append(row)
        return rows

    def simple(self) -> list[dict[str, Any]]:
        """From the tree, exact over whole leaves; aggregates that the leaves do not hold come from the samples."""
        row = {}
        for aggregate in self.query.aggregates:
            if _in_leaves(aggregate, self.past.columns):
                row[aggregate.name] = _json(self._over_leaves(aggregate))
            else:
                sample = self._sample(self.past.leaves)
                row[aggregate.name] = _json(self._estimate(aggregate, sample, self.past.in_period, self.past.leaves))
        return [row]

    def _over_leaves(self, aggregate: HistoryAggregate) -> Estimate:
        whole, shared = self.past.covered.whole, self.past.covered.shared
        cut = [leaf for leaf, _ in self.past.covered.cut if leaf.totals.tuples]
        column = None if aggregate.column is None else self.past.columns.index(aggregate.column)
        if not cut:
            return Estimate.exactly(_known(aggregate.function, whole, column))
        here = np.isin(instants_us(self.past.samples.column("leaf_start")), np.array([leaf.start_us for leaf in cut]))
        sample = LeafSample(
            np.array([leaf.totals.tuples for leaf in cut], dtype=np.int64),
            np.array([leaf.fraction for leaf in cut]),
            self.past.samples.column("fraction").to_numpy()[here],
            self.confidence,
        )
        values, valid = self._values(aggregate)
        qualifies, values = (self.past.in_period & valid)[here], values[here]
        bounds = self._bounds(aggregate, cut)
        counted = float(whole.tuples if column is None else whole.values[column, COUNT])
        if aggregate.function == "count":
            found = sample.count(qualifies)
            share = (shared.tuples if column is None else shared.values[column, COUNT]) - counted
            return _filled(found, float(share)).plus(counted)
        assert column is not None
        added = float(whole.values[column, SUM])
        if aggregate.function == "sum":
            found = sample.total(qualifies, values, bounds)
            if found.exact and found.estimate is None:
                return Estimate.exactly(added if counted else None)
            return _filled(found, float(shared.values[column, SUM]) - added).plus(added)
        if aggregate.function == "avg":
            found = sample.mean(qualifies, values, bounds, counted, added)
            if found.estimate is None and not found.exact and bounds is not None:
                mean = float(shared.values[column, SUM] / shared.values[column, COUNT])
                return Estimate(mean, *bounds)
            return found
        return _extreme(aggregate.function, whole, column, sample, qualifies, values, bounds)


def _known(function: str, totals: Totals, column: int | None) -> float | None:
    if column is None:
        return float(totals.tuples)
    values = totals.values[column]
    if function == "count":
        return float(values[COUNT])
    if values[COUNT] == 0:
        return None
    by_function = {"sum": values[SUM], "avg": values[SUM] / values[COUNT], "min": values[MIN], "max": values[MAX]}
    return float(by_function[function])


def _filled(found: Estimate, share: float) -> Estimate:
    """Where the sample shows nothing, the share of the cut leaves, which assumes uniform arrival, within its bounds."""
    if found.estimate is not None:
        return found
    low = share if found.low is None else max(share, found.low)
    return Estimate(low if found.high is None else min(low, found.high), found.low, found.high)


def _extreme(
    function: str, whole: Totals, column: int, sample: LeafSample, qualifies: Bools, values: Float64s, bounds: Bounds
) -> Estimate:
    """MIN or MAX over whole leaves and cut ones: the cut leaves' own extremes are bounds only."""
    sign = 1.0 if function == "min" else -1.0
    known = sign * float(whole.values[column, MIN if function == "min" else MAX])
    seen = min([known, *(sign * values[qualifies]).tolist()])
    if not np.isfinite(seen):
        return Estimate(None, *(bounds or (None, None)))
    reach = seen
    if bounds is not None and not sample.complete:
        reach = min(seen, sign * (bounds[0] if function == "min" else bounds[1]))
    low, high = sorted((sign * seen, sign * reach))
    return Estimate(sign * seen, low, high, exact=seen == reach)


def _groups(samples: pa.Table, group_by: Sequence[str], selected: Bools) -> list[tuple[tuple[Any, ...], Bools]]:
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


def _json(estimate: Estimate) -> dict[str, Any]:
    return {"estimate": estimate.estimate, "low": estimate.low, "high": estimate.high, "exact": estimate.exact}


def render(result: dict[str, Any]) -> str:
    """The answer as a table for a terminal.

    >>> print(render({"confidence": 0.95, "leaves": 2, "sampled_rows": 9, "rows": [
    ...     {"origin": "JFK", "count": {"estimate": 12.34, "low": 9.0, "high": 17.0, "exact": False}}]}))
    origin  count
    ------  ---------------
    JFK     12.34 (9 to 17)
    <BLANKLINE>
    9 sampled tuples of 2 leaves; in brackets the 95 % interval
    """
    rows = result["rows"]
    foot = f"{result['sampled_rows']} sampled tuples of {result['leaves']} leaves"
    foot += f"; in brackets the {_number(100 * result['confidence'])} % interval"
    if not rows:
        return f"no sampled tuple qualifies\n\n{foot}"
    names = list(rows[0])
    cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    cells.insert(1, ["-" * width for width in widths])
    lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join([*lines, "", foot])


def _cell(value: Any) -> str:
    if not isinstance(value, dict):
        return "NULL" if value is None else str(value)
    low, high = value["low"], value["high"]
    if value["exact"]:
        return "NULL (exact)" if value["estimate"] is None else f"{_number(value['estimate'])} (exact)"
    if value["estimate"] is None:
        return "no estimate" if high is None else f"no estimate ({_number(low)} to {_number(high)})"
    shown = ["unknown" if bound is None else _number(bound) for bound in (low, high)]
    return f"{_number(value['estimate'])} ({shown[0]} to {shown[1]})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:,.4g}"
