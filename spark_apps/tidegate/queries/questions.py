"""What a query asks of its tuples, and its answers: tuples from files, through its operator, to the query's columns.

There is one way, for stages, live steps, calibration and tests: a `Question` is read from the tables' files in order of
arrival, its operator holds what its windows need, and answers come window by window, with values as emitted, HAVING and
outputs computed by ``operators.expressions``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.aggregates.accumulators import Partial
from tidegate.declarations.models import Aggregate, Branch, Query, Window
from tidegate.operators import best_groups, bounded_join, join_aggregate, top_k
from tidegate.operators.arrivals import is_text, layout_bytes
from tidegate.operators.expressions import Failed
from tidegate.operators.schedule import Schedule
from tidegate.operators.tuple_bytes import Held
from tidegate.queries import scan
from tidegate.queries.sieves import Sieve
from tidegate.store.places import mapped, place
from tidegate.store.references import References
from tidegate.values.types import arrow_type

_ROWS_AT_ONCE = 1 << 18
# Of a value, or what it is chosen by, that is no text, where both are held together.
_PACKED_BYTES = 10


@dataclass(frozen=True, eq=False)
class Question:
    """Windows of a query, and the files with the tuples that they can need.

    Args:
        schedule: which windows, when, from which event times on.
        coverage: float64[n], share of the ranges that each window holds; COUNT and SUM are divided by it.
        files: stream → its tuples.
        pane_us: the pipeline's tick, which divides every bound of the schedule.
        waited_us: what every window waits at least, or less. It is taken off arrivals and instants: of tuples within a
            window those that arrive by its instant stay the same, but the operator holds what the windows span, and
            not what comes while they wait. Its peak then says nothing of what answering in time takes.
        part: which of how many parts of the tuples, by ``shared_key``; there are partial answers only.
        with_ties: of best groups, those too that are as good as the last of them.
    """

    query: Query
    schedule: Schedule
    coverage: np.ndarray
    files: Mapping[str, scan.EventFiles]
    pane_us: int
    waited_us: int = 0
    part: tuple[int, int] | None = None
    with_ties: bool = False

    def rows(self) -> int:
        """How many rows the files have together."""
        return sum(files.rows() for files in self.files.values())


class Answering:
    """A question's answers, part by part: tables of whole windows, in the order in which they are emitted.

    Columns: ``_window_index`` and the query's outputs, which may bear any name that begins with a letter; for top-k
    also ``rank``, ``_event_id``, ``_event_us`` and ``_arrival_us``. Windows of an aggregate without GROUP BY have a
    row each, also if they hold nothing.

    ``windows``: [first, last) of those that the part taken last answers; some may have no rows. ``failed``: int64[n],
    how many rows of each window there were on which an output or HAVING failed. ``peak_state_bytes``: what the operator
    held at most, once all parts have been taken.

    ``cells``: the question's tuples as :func:`pooled` has them, if it has been asked; ``partials``: files of partial
    answers of all parts. Where there are either, no tuples are read.

    **Memory**: O(what the windows hold), and a part.
    """

    def __init__(self, question: Question, cells: join_aggregate.Cells | None = None, partials: Sequence[str] = ()):
        self.question, self.cells, self.files = question, cells, partials
        self.windows = 0, 0
        self.failed = np.zeros(len(question.schedule), dtype=np.int64)
        self.peak_state_bytes = 0

    def __iter__(self) -> Iterator[pa.Table]:
        """Read, and answer."""
        for first, last, partial in self.partials():
            yield self._told(partial, first, last)

    @property
    def partial_schema(self) -> pa.Schema:
        """Of an aggregate's partial answers."""
        return self._aggregate_spec().output_schema

    def _aggregate_spec(self) -> join_aggregate.Spec:
        return replace(aggregate_spec(self.question.query), in_parts=self.question.part is not None)

    def partials(self) -> Iterator[tuple[int, int, pa.Table]]:
        """The operator's answers of the windows [first, last), part by part."""
        if self.cells is not None:
            yield from self.cells.answers(self.question.schedule)
            return
        if self.files:
            in_parts = replace(aggregate_spec(self.question.query), in_parts=True)
            yield from _together(in_parts, self.files, len(self.question.schedule))
            return
        query, schedule = self.question.query, self.question.schedule
        early = replace(schedule, emit_us=schedule.emit_us - self.question.waited_us)
        spec: Any = self._aggregate_spec() if query.kind != "top_k" else top_k_spec(query, self.question.pane_us)
        batches, matching = _arriving(self.question, [schedule], [early], spec.input_schema)
        operate = _ranked if query.kind == "top_k" else _aggregated
        first = 0
        for state, partial in operate(spec, early, batches):
            if state.next_window > first:
                yield first, state.next_window, partial
            first = state.next_window
        self.peak_state_bytes = int(state.peak_bytes) + (0 if matching is None else matching.peak_bytes)

    def table(self) -> pa.Table:
        """All answers at once."""
        return pa.concat_tables(self)

    def _told(self, partial: pa.Table, first: int, last: int) -> pa.Table:
        """The query's columns of the answers of the windows ``first`` … ``last`` − 1."""
        self.windows = first, last
        query = self.question.query
        if query.kind == "top_k":
            slots, names = zip(("window_index", "_window_index"), *_top_k_columns(query), strict=True)
            return partial.select(slots).rename_columns(names)
        if not query.group_by:
            partial = _with_empty(partial, first, last)
        emitted, lost = valued(query, partial, self.question.coverage)
        failed, index = Failed(emitted, lost), emitted.column("window_index").to_numpy()
        if query.having:
            emitted = failed.filtered(query.having)
        columns = {o.name: failed.value(o.expression, arrow_type(o.type)) for o in query.outputs}
        terms = [failed.value(o.expression, arrow_type(o.type)) for o in query.order_by]
        np.add.at(self.failed, index[failed.rows], 1)
        answers = pa.table({"_window_index": emitted.column("window_index"), **columns})
        return self._best(answers, terms) if query.ranks_groups else answers

    def _best(self, answers: pa.Table, terms: Sequence[Any]) -> pa.Table:
        """The best groups of each window, with their ranks."""
        window = answers.column("_window_index").to_numpy()
        rows, rank = best_groups.ranked(
            ranking_of(self.question.query), answers, window, terms, self.question.with_ties
        )
        return answers.take(pa.array(rows)).append_column("rank", pa.array(rank))


def ranking_of(query: Query) -> best_groups.Ranking:
    """How a query ranks its groups."""
    assert query.limit is not None
    descending = tuple(order.descending for order in query.order_by)
    return best_groups.Ranking(query.limit, descending, query.group_outputs, query.within)


def _ranked(spec: Any, schedule: Schedule, batches: Iterable[pa.Table]) -> Iterator[tuple[Any, pa.Table]]:
    """States of the operator, and the answers since the one before."""
    state = top_k.start(spec, schedule)
    for batch in batches:
        state, answers = top_k.step(state, batch)
        yield state, answers
    yield top_k.finish(state)


def _aggregated(spec: Any, schedule: Schedule, batches: Iterable[pa.Table]) -> Iterator[tuple[Any, pa.Table]]:
    """The same of an aggregate."""
    state = join_aggregate.start(spec, schedule)
    larger = join_aggregate.rebatched(batches, lambda: join_aggregate.rows_at_once(state))
    for batch in larger:
        for reached, answers in join_aggregate.blockwise(state, batch):
            state = reached
            yield state, answers
    yield from join_aggregate.blockwise(state, None)


def pooled(questions: Sequence[Question]) -> join_aggregate.Cells | None:
    """The tuples of several questions about a query's windows, read once; None if that is not worth it.

    **Memory**: the cells, no more than an eighth of the tuples.
    """
    asked = [question for question in questions if len(question.schedule)]
    if len(asked) < 2 or asked[0].query.kind == "top_k":
        return None
    # Files' names ascend by arrival.
    paths = {s: tuple(sorted({p for q in asked for p in q.files[s].paths})) for s in asked[0].files}
    files = {
        stream: replace(asked[0].files[stream], paths=own, references=_references(asked, stream))
        for stream, own in paths.items()
    }
    every = replace(asked[0], files=files, waited_us=0)
    spec, schedules = aggregate_spec(every.query), [question.schedule for question in asked]
    batches, _ = _arriving(every, schedules, schedules, spec.input_schema)
    return join_aggregate.Cells.of(spec, schedules, batches)


def _arriving(
    question: Question, schedules: Sequence[Schedule], early: Sequence[Schedule], schema: pa.Schema
) -> tuple[Iterator[pa.Table], bounded_join.Matching | None]:
    """What the operator receives, in order of arrival; and of a join with a bound what it is matched by.

    ``early``: the schedules, less what is taken off arrivals.
    """
    query, sides = question.query, sides_of(question, schedules)
    if query.bounded is None:
        return scan.in_order_of_arrival(sides, schema), None
    matching = bounded_join.Matching(_bounded_join(query, sides), early)
    return matching.matched(scan.in_order_of_arrival(sides, _matched_schema(query))), matching


def _matched_schema(query: Query) -> pa.Schema:
    """The columns of both sides of a join with a bound, as they come."""
    times = [pa.field("side", pa.int8()), pa.field("event_us", pa.int64()), pa.field("arrival_us", pa.int64())]
    return pa.schema([*times, *(pa.field(slot, kind) for slot, kind in _slot_types(query).items())])


def _bounded_join(query: Query, sides: Sequence[scan.Side]) -> bounded_join.BoundedJoin:
    """The operator's view of a join with a bound. ``sides``: what is read of both."""
    bounded = query.bounded
    assert bounded is not None and bounded.bound is not None
    bound, types = bounded.bound, _slot_types(query)
    keys = tuple(j.slot for j in query.join_classes)
    of = {alias: tuple(s for s in _slots_of(query, alias) if s not in keys) for alias in (bound.to, bounded.alias)}
    shown = aggregate_spec(query).columns
    return bounded_join.BoundedJoin(
        kind=bound.kind,
        alias=bound.to,
        low_us=bound.low_us,
        high_us=bound.high_us,
        keys=keys,
        left=of[bound.to],
        right=of[bounded.alias],
        conditions=tuple(condition.expression for condition in query.conditions),
        shown=pa.schema([pa.field(name, types[name]) for name in shown.names]),
        missing=_of_nothing(query, bounded, sides) if bound.kind == "left" else None,
    )


def _of_nothing(query: Query, window: Window, sides: Sequence[scan.Side]) -> pa.Table:
    """What the columns of a window are where there is no tuple; of a union its own columns are NULL."""
    side = sides_of_alias(query, sides, window.alias)[0]
    if not window.branches:
        return side.of_nothing()
    (branch, *_) = window.branches
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in branch.columns])
    times = pa.schema([side.files.schema.field(name) for name in ("event_time", "arrival_time")])
    known = set(schema.names)
    files = scan.EventFiles((), pa.schema([*schema, *(field for field in times if field.name not in known)]))
    return replace(side, files=files, columns=_columns(query, computations(query, window.alias))).of_nothing()


def _slot_types(query: Query) -> dict[str, pa.DataType]:
    """Slot → type of all that tuples have, of whatever alias."""
    types = {j.slot: arrow_type(j.type) for j in query.join_classes}
    types |= {g.slot: arrow_type(g.type) for g in query.group_by}
    types |= {c.slot: arrow_type(c.type) for c in query.compared}
    return types | {a.slot: a.held_type for a in query.aggregates if a.alias is not None}


def _slots_of(query: Query, alias: str) -> list[str]:
    """The slots that an alias has, in the order of their types."""
    own = {j.slot for j in query.join_classes if alias in {a for a, _ in j.columns}}
    own |= {g.slot for g in query.group_by if g.alias == alias} | {c.slot for c in query.compared if c.alias == alias}
    own |= {a.slot for a in query.aggregates if a.alias == alias}
    return [slot for slot in _slot_types(query) if slot in own]


def _references(asked: Sequence[Question], stream: str) -> References:
    first, *others = (question.files[stream].references for question in asked)
    return first.and_others(others)


def _together(spec: join_aggregate.Spec, files: Sequence[str], windows: int) -> Iterator[tuple[int, int, pa.Table]]:
    """The partial answers that all parts make together; some ``_ROWS_AT_ONCE`` of them at a time."""
    tables = []
    for path in files:
        with mapped(place(path)) as file:
            tables.append(pa.ipc.open_file(file).read_all())
    bounds = [np.searchsorted(table.column("window_index").to_numpy(), np.arange(windows + 1)) for table in tables]
    rows = np.sum(bounds, axis=0)
    first = 0
    while first < windows:
        last = max(first + 1, int(np.searchsorted(rows, rows[first] + _ROWS_AT_ONCE, side="right")) - 1)
        own = [table.slice(at[first], at[last] - at[first]) for table, at in zip(tables, bounds, strict=True)]
        yield first, last, join_aggregate.combined(spec, pa.concat_tables(own))
        first = last


def shared_key(query: Query) -> str | None:
    """The column by whose values an aggregate's tuples can be cut; None if there is none.

    Of a join a class that all sides have; without a join the event time. What a bound matches stays together.
    """
    if query.kind == "top_k" or query.bounded is not None:
        return None
    if len(query.windows) == 1:
        return "event_us"
    aliases = {window.alias for window in query.windows}
    return next((j.slot for j in query.join_classes if {alias for alias, _ in j.columns} == aliases), None)


def _with_empty(partial: pa.Table, first: int, last: int) -> pa.Table:
    """With a row of NULLs for each window that has none."""
    missing = np.setdiff1d(np.arange(first, last), partial.column("window_index").to_numpy())
    if len(missing) == 0:
        return partial
    rows = pa.table({"window_index": pa.array(missing, partial.schema.field("window_index").type)})
    return pa.concat_tables([partial, rows], promote_options="default").sort_by("window_index")


def valued(query: Query, partial: pa.Table, coverage: np.ndarray) -> tuple[pa.Table, np.ndarray]:
    """Groups and aggregates as emitted, and bool[n]: where an aggregate has a value that its type cannot express."""
    index = partial.column("window_index")
    # A window that holds nothing of its range says nothing of it: NULL, not a division by zero.
    share = pa.array(coverage, mask=coverage == 0).take(index.combine_chunks())
    columns = {group.slot: partial.column(group.slot) for group in query.group_by}
    failed = np.zeros(len(partial), dtype=bool)
    for aggregate in query.aggregates:
        own = Partial(aggregate.slot, partial, share, arrow_type(aggregate.type), aggregate.parameters)
        columns[aggregate.slot] = value = aggregate.called.finish(own)
        lost = aggregate.called.lost(own, value)
        if lost is not None:
            failed |= np.asarray(lost.to_numpy(zero_copy_only=False), dtype=bool)
    return pa.table({"window_index": index, **columns}), failed


def sides_of(question: Question, schedules: Sequence[Schedule]) -> list[scan.Side]:
    """What is read for all windows of some schedules, an entry an alias; of a union one for each branch."""
    query = question.query
    sides = []
    for index, window, source in [(n, w, source) for n, w in enumerate(query.windows) for source in w.sources]:
        asked = computations(query, window.alias, source)
        conditions = tuple(sql for slot, sql, _ in asked if slot is None)
        firsts, ends, lasts = zip(*(_bounds_us(schedule, window) for schedule in schedules), strict=True)
        bounds_us = min(firsts), max(ends), max(lasts)
        constants = {"side": pa.scalar(index, pa.int8())}
        files, waited_us = question.files[source.stream], question.waited_us
        held = {
            a.slot: scan.HeldOf(a.called.held, _by(a) if a.by is not None else None, a.parameters)
            for a in query.aggregates
            if a.alias == window.alias and a.called.valued
        }
        columns = _columns(query, asked)
        side = scan.Side(files, bounds_us, conditions, columns, constants, held, waited_us=waited_us)
        side = replace(side, lookups=source.lookups)
        if question.part is not None:
            key = shared_key(query)
            assert key is not None
            side = replace(side, part=(key, *question.part))
        sides.append(side)
    kept_in = sides[0].files.kept_in
    if query.kind != "top_k" or kept_in is None:
        return sides
    spec = top_k_spec(query, question.pane_us)
    (window,) = query.windows
    sifting = []
    for number, (side, source) in enumerate(zip(sides, window.sources, strict=True), 1):
        computed: Any = computations(query, window.alias, source)
        if source.lookups:
            computed = computed, source.lookups
        # A file may be of two branches, and what is kept of it is another thing for each.
        name = f"{query.id}.{number}" if window.branches else query.id
        sifting.append(replace(side, sieve=Sieve.of(kept_in, name, spec, computed)))
    return sifting


def sides_of_alias(query: Query, sides: Sequence[scan.Side], alias: str) -> list[scan.Side]:
    """The sides of one alias: one, or of a union one for each branch."""
    index = pa.scalar([window.alias for window in query.windows].index(alias), pa.int8())
    return [side for side in sides if side.constants["side"] == index]


def _columns(
    query: Query, asked: Sequence[tuple[str | None, str, pa.DataType | None]]
) -> dict[str, tuple[str, pa.DataType]]:
    """Slot → SQL and type of its value."""
    counted = _counted(query)
    return {
        slot: (f"CASE WHEN ({sql}) IS NOT NULL THEN TRUE END" if slot in counted else sql, kind or pa.bool_())
        for slot, sql, kind in asked
        if slot is not None
    }


def least_event_us(schedule: Schedule, window: Window) -> int:
    """The least event time that any window of a schedule can need of an alias."""
    if window.bound is None:
        return int(schedule.lower_us[window.alias].min())
    # An open end: a stream without a lower bound has no instant to compare with.
    return max(int(schedule.lower_us[window.bound.to].min()), -(2**55)) + window.bound.low_us


def _bounds_us(schedule: Schedule, window: Window) -> tuple[int, int, int]:
    """Of the tuples of an alias that any window can need: least event time, end of event time, last arrival."""
    first_us = max(least_event_us(schedule, window), -(2**55))
    later_us = 0 if window.bound is None else window.bound.high_us
    return first_us, int(schedule.window_end_us.max()) + later_us, int(schedule.emit_us.max())


def aggregate_spec(query: Query) -> join_aggregate.Spec:
    """The operator's view of an aggregate query; of a join with a bound, of what is matched."""
    bounded = query.bounded
    if bounded is not None and bounded.bound is not None:
        of = bounded.bound.to
        side = join_aggregate.Side(of, groups=tuple(g.slot for g in query.group_by))
        columns = [(g.slot, arrow_type(g.type)) for g in query.group_by]
        columns += [(a.slot, a.held_type) for a in query.aggregates if a.alias is not None]
        return join_aggregate.Spec((side,), _measures(query, of), pa.schema(columns), signed=bounded.bound.is_optional)
    keys = _groups_of_keys(query)
    columns = [(j.slot, arrow_type(j.type)) for j in query.join_classes]
    columns += [(g.slot, arrow_type(g.type)) for g in query.group_by if g.slot not in keys]
    columns += [(c.slot, arrow_type(c.type)) for c in query.compared]
    columns += [(a.slot, a.held_type) for a in query.aggregates if a.alias is not None]
    sides = tuple(
        join_aggregate.Side(
            w.alias,
            tuple(j.slot for j in query.join_classes if any(alias == w.alias for alias, _ in j.columns)),
            tuple(g.slot for g in query.group_by if g.alias == w.alias and g.slot not in keys),
            tuple(c.slot for c in query.compared if c.alias == w.alias),
        )
        for w in query.windows
    )
    conditions = tuple(condition.expression for condition in query.conditions)
    schema = pa.schema(columns)
    return join_aggregate.Spec(sides, _measures(query), schema, tuple(keys.items()), conditions=conditions)


def _measures(query: Query, of: str | None = None) -> tuple[join_aggregate.Measure, ...]:
    """The aggregates of a query; ``of``: the one alias that has the columns of all."""
    aliases = [a.alias if a.alias is None or of is None else of for a in query.aggregates]
    return tuple(
        join_aggregate.Measure(a.slot, a.function, alias, a.parameters)
        for a, alias in zip(query.aggregates, aliases, strict=True)
    )


def _groups_of_keys(query: Query) -> dict[str, str]:
    """Group slot → class slot, for the groups that are join keys: the operator needs no column of theirs.

    Of a join with a bound they are columns like any other: a tuple without a match has its own alone.
    """
    if query.bounded is not None:
        return {}
    classes = {(column, join.type): join.slot for join in query.join_classes for column in join.columns}
    known = {g.slot: classes.get(((g.alias, g.column), g.type)) for g in query.group_by if not g.computed}
    return {slot: found for slot, found in known.items() if found is not None}


def _counted(query: Query) -> set[str]:
    """Slots of which it only matters whether there is a value."""
    return {aggregate.slot for aggregate in query.aggregates if not aggregate.called.valued}


def _by(aggregate: Aggregate) -> str:
    """What the column is called of what an aggregate chooses by."""
    return f"{aggregate.slot}_by"


def computations(
    query: Query, alias: str, source: Branch | None = None
) -> list[tuple[str | None, str, pa.DataType | None]]:
    """(slot, SQL, type) of all that is computed from an alias' tuples, by whomever; conditions have no slot.

    Conditions come first; nothing else is computed of a tuple for which one of them is not true. ``source``: of which
    of the alias' sources the tuples are.
    """
    asked = _computations(query, alias)
    if source is None:
        return asked
    own = [(slot, source.over(sql), kind) for slot, sql, kind in asked]
    return own if source.predicate is None else [(None, source.predicate, pa.bool_()), *own]


def _computations(query: Query, alias: str) -> list[tuple[str | None, str, pa.DataType | None]]:
    """The same over the alias' columns, whatever they stand for."""
    asked: list[tuple[str | None, str, pa.DataType | None]] = []
    if query.predicates.get(alias):
        asked.append((None, query.predicates[alias], pa.bool_()))
    if query.kind == "top_k":
        asked += [(o.slot, o.expression, arrow_type(o.type)) for o in query.order_by]
        asked += [(f"p{i}", o.expression, arrow_type(o.type)) for i, o in enumerate(query.outputs)]
        return [*asked, ("event_id", "`event_id`", pa.string())]
    for join in query.join_classes:
        own = join.sql(alias)
        asked += [(None, f"{own[0]} = {other}", pa.bool_()) for other in own[1:]]
        asked += [(join.slot, sql, arrow_type(join.type)) for sql in own[:1]]
    keys = _groups_of_keys(query)
    groups = [g for g in query.group_by if g.alias == alias and g.slot not in keys]
    asked += [(g.slot, g.sql, arrow_type(g.type)) for g in groups]
    asked += [(c.slot, c.sql, arrow_type(c.type)) for c in query.compared if c.alias == alias]
    for aggregate in query.aggregates:
        if aggregate.expression is not None and aggregate.alias == alias:
            kind = arrow_type(aggregate.measured) if aggregate.called.valued else None
            asked.append((aggregate.slot, aggregate.expression, kind))
            if aggregate.by is not None:
                asked.append((_by(aggregate), aggregate.by, arrow_type(aggregate.by_type)))
    return asked


def _top_k_columns(query: Query) -> list[tuple[str, str]]:
    """Of the operator's columns, those that answers have, and by which names."""
    keys = ["rank", *([] if "event_id" in {o.name for o in query.outputs} else ["event_id"])]
    outputs = [(f"p{i}", o.name) for i, o in enumerate(query.outputs)]
    own = [(name, f"_{name}") for name in ("event_id", "event_us", "arrival_us")]
    return [*((key, key) for key in keys), *own, *outputs]


def top_k_spec(query: Query, pane_us: int) -> top_k.Spec:
    """The operator's view of a top-k query; its outputs travel as p0, p1 …, since names may clash with the keys.

    A group's values are those of the output that shows it.
    """
    assert query.limit is not None
    columns = [(o.slot, arrow_type(o.type)) for o in query.order_by]
    columns += [(f"p{i}", arrow_type(o.type)) for i, o in enumerate(query.outputs)]
    terms = tuple(top_k.Term(o.slot, o.descending) for o in query.order_by)
    slots = {o.name: f"p{i}" for i, o in enumerate(query.outputs)}
    groups = tuple(slots[name] for name in query.group_outputs)
    return top_k.Spec(query.limit, terms, pa.schema(columns), pane_us, query.windows[0].alias, groups)


def held(query: Query, alias: str, source: Branch | None = None) -> Held:
    """What the query's operator holds of a tuple of the alias' stream; of a union, of a branch's."""
    fixed_bytes, values = 0, []
    for schema in held_schemas(query, alias):
        texts = {field.name for field in schema if is_text(field.type)}
        texts |= {f"{name}_by" for name in texts}
        asked = [(sql, kind) for slot, sql, kind in computations(query, alias, source) if slot in texts]
        values += [sql for sql, kind in asked if kind == pa.string()]
        packed = sum(_PACKED_BYTES for _, kind in asked if kind != pa.string())
        fixed_bytes += int(layout_bytes(schema, 1, 0)) + packed
    predicate = query.predicates.get(alias)
    if source is not None:
        parts = [source.predicate, source.over(predicate or "")]
        predicate = " AND ".join(sql for sql in parts if sql) or None
    return Held(fixed_bytes, tuple(values), predicate)


def held_schemas(query: Query, alias: str) -> list[pa.Schema]:
    """The columns in which a tuple of the alias' stream is held.

    A join with a bound holds a tuple that may still match, and beside it what is in the result: its left tuples.
    """
    if query.kind == "top_k":
        return [top_k_spec(query, 1).input_schema]
    spec = aggregate_spec(query)
    if query.bounded is None:
        return [spec.side_schema([w.alias for w in query.windows].index(alias))]
    types = _slot_types(query)
    times = [pa.field("event_us", pa.int64()), pa.field("arrival_us", pa.int64())]
    own = pa.schema([*times, *(pa.field(slot, types[slot]) for slot in _slots_of(query, alias))])
    return [own] if alias == query.bounded.alias else [own, spec.side_schema(0)]
