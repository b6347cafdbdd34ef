"""Aggregates of a past whose every tuple is kept: those that a sample shows nothing of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.aggregates import AGGREGATES
from tidegate.aggregates.accumulators import Partial
from tidegate.operators import join_aggregate
from tidegate.operators.arrivals import int64s
from tidegate.operators.expressions import evaluate
from tidegate.operators.history.estimators import Bools
from tidegate.operators.history.query import HistoryAggregate
from tidegate.operators.join_aggregate import Measure, Side, Spec
from tidegate.operators.schedule import Schedule
from tidegate.values.types import arrow_type

_SIDE, _GROUP = "past", "g0"


def of_all_tuples(
    aggregates: Sequence[HistoryAggregate], rows: pa.Table, groups: Sequence[Bools]
) -> dict[str, list[Any]]:
    """The values of aggregates, by their names, one for each group: those that a query's answers would have.

    **Idea.** All tuples are those of one window of the operator that answers queries.

    Args:
        aggregates: with an argument each.
        rows: the tuples, with the columns that the aggregates read.
        groups: bool[n], which tuples are each group's; they share none.

    >>> import sqlglot
    >>> distinct = HistoryAggregate("n", "count_distinct", sqlglot.column("k"), "k", "integer", measured="string")
    >>> rows = pa.table({"k": ["a", "b", "a"]})
    >>> of_all_tuples([distinct], rows, [np.array([True, False, True]), np.array([False, True, False])])
    {'n': [1, 1]}
    """
    group = np.full(rows.num_rows, -1)
    for number, members in enumerate(groups):
        group[members] = number
    chosen = group >= 0
    rows = rows.filter(pa.array(chosen))
    nothing = pa.array(np.zeros(rows.num_rows, np.int64))
    columns = {"side": nothing.cast(pa.int8()), "event_us": nothing, "arrival_us": nothing}
    columns[_GROUP] = pa.array(group[chosen])
    columns |= {f"a{number}": _held(aggregate, rows) for number, aggregate in enumerate(aggregates)}
    slots = pa.schema([(slot, column.type) for slot, column in list(columns.items())[3:]])
    measures = tuple(Measure(f"a{i}", a.function, _SIDE, a.parameters) for i, a in enumerate(aggregates))
    spec = Spec((Side(_SIDE, groups=(_GROUP,)),), measures, slots)
    schedule = Schedule(*(np.array([1], np.int64),) * 2, {_SIDE: np.array([0], np.int64)})
    state, first = join_aggregate.step(join_aggregate.start(spec, schedule), pa.table(columns))
    _, later = join_aggregate.finish(state)
    partial = pa.concat_tables([first, later])
    without = np.setdiff1d(np.arange(len(groups)), int64s(partial.column(_GROUP)))
    # A group without tuples is a row of NULLs, as is a window without any.
    partial = pa.concat_tables([partial, pa.table({_GROUP: without})], promote_options="default").sort_by(_GROUP)
    share = pa.array(np.ones(len(groups)))
    return {
        aggregate.name: AGGREGATES[aggregate.function]
        .finish(Partial(f"a{number}", partial, share, arrow_type(aggregate.kind), aggregate.parameters))
        .to_pylist()
        for number, aggregate in enumerate(aggregates)
    }


def _held(aggregate: HistoryAggregate, rows: pa.Table) -> pa.Array:
    """What the operator is given of the tuples."""
    assert aggregate.expression is not None
    values = evaluate(aggregate.expression, rows, arrow_type(aggregate.measured))
    by = None if aggregate.by is None else evaluate(aggregate.by, rows)
    return AGGREGATES[aggregate.function].held(values, by, aggregate.parameters)
