"""Questions about sessions: tuples from files, through the operator, to the columns of the query's answers.

Sessions have no ticks, so there is no schedule: which sessions are answered, and when, follows from the tuples
(``operators.sessions``). What they consist of is aggregated as any group is (``operators.join_aggregate``), the session
being the group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tidegate.declarations.models import Query, to_us
from tidegate.declarations.tables import WIDTHS, instants
from tidegate.engine.context import RunContext
from tidegate.operators import join_aggregate
from tidegate.operators.arrivals import int64s
from tidegate.operators.codes import codes, group_ids
from tidegate.operators.expressions import Failed
from tidegate.operators.schedule import Int64s, Schedule
from tidegate.operators.sessions import Answered, Spec, Tuples
from tidegate.operators.window_sizing import EffectiveBounds
from tidegate.queries import scan
from tidegate.queries.questions import Question, aggregate_spec, sides_of, valued
from tidegate.queries.slacks import Waits
from tidegate.queries.slices import slices_worth
from tidegate.values.types import arrow_type

_UNIT = "g0"


@dataclass(frozen=True, eq=False)
class Asked:
    """The sessions of a query whose instants of emission lie in [from_us, until_us), and the files to find them in.

    Args:
        waits: K by the end of a session.
        tick_us: the pipeline's tick.
        files: stream → its tuples.
        held: what each stream's window holds at an instant: a session of which it has let something go is not answered.
            Empty: whatever there is.
    """

    query: Query
    files: Mapping[str, scan.EventFiles]
    waits: Waits
    from_us: int
    until_us: int
    tick_us: int
    held: Sequence[EffectiveBounds] = ()

    @property
    def spec(self) -> Spec:
        """What a session is."""
        assert self.query.sessions is not None
        return Spec(self.query.sessions.gap_us, self.query.sessions.longest_us)

    @property
    def first_us(self) -> int:
        """The least event time that can matter."""
        return self.from_us - self.waits.longest_us - self.spec.gap_us - self.spec.reach_us

    def question(self) -> Question:
        """The tuples that are read, as those of one window."""
        (window,) = self.query.windows
        bounds = (np.array([us], dtype=np.int64) for us in (self.until_us, self.until_us, self.first_us))
        end_us, emit_us, lower_us = bounds
        schedule = Schedule(end_us, emit_us, {window.alias: lower_us})
        return Question(self.query, schedule, np.ones(1), self.files, self.tick_us)

    def rows(self) -> int:
        """How many rows the files have together."""
        return sum(files.rows() for files in self.files.values())


def asked_of(
    context: RunContext,
    query: Query,
    waits: Waits,
    from_us: int,
    until_us: int,
    held: Sequence[EffectiveBounds] = (),
) -> Asked:
    """What to ask of the warehouse's tuples for the sessions that are answered in [from_us, until_us)."""
    warehouse, pipeline = context.warehouse, context.pipeline
    asked = Asked(query, {}, waits, from_us, until_us, pipeline.tick_s * 1_000_000, held)
    files = {
        stream.name: scan.EventFiles.between(
            warehouse, stream, warehouse.labels(f"events_{stream.name}"), asked.first_us, until_us
        )
        for stream in map(pipeline.stream, query.streams)
    }
    return replace(asked, files=files)


def session_cuts(asked: Asked, most: int) -> list[tuple[int, int]]:
    """How the instants of an :class:`Asked` are cut into slices, each as long as sessions and waits reach back."""
    reach_us = asked.from_us - asked.first_us
    span_us = asked.until_us - asked.from_us
    number = max(1, min(slices_worth(asked.rows(), most), span_us // max(reach_us, 1)))
    bounds = [asked.from_us + span_us * part // number for part in range(number + 1)]
    return list(zip(bounds[:-1], bounds[1:], strict=True))


class SessionTuples:
    """The tuples of an :class:`Asked`, read once, and answers from them.

    **Memory**: the tuples, encoded as the operator has them, and some times that in integers.
    """

    def __init__(self, asked: Asked):
        self.asked, self.query = asked, asked.query
        self.aggregates = replace(
            aggregate_spec(asked.query),
            sides=(join_aggregate.Side(asked.query.windows[0].alias, (), (_UNIT,)),),
            columns=self._columns(),
        )
        schema = aggregate_spec(self.query).input_schema
        question = asked.question()
        batches = scan.in_order_of_arrival(sides_of(question, [question.schedule]), schema)
        self.rows = pa.concat_tables([schema.empty_table(), *batches]).combine_chunks()
        self.event_us, self.arrival_us = (int64s(self.rows.column(name)) for name in ("event_us", "arrival_us"))
        groups = [codes(self.rows.column(group.slot))[0] for group in self.query.group_by]
        self.key = group_ids(groups, len(self.rows)) if groups else np.zeros(len(self.rows), np.int64)
        self.tuples = Tuples.of(asked.spec, self.key, self.event_us, self.arrival_us)

    def _columns(self) -> pa.Schema:
        own = aggregate_spec(self.query)
        measured = [own.columns.field(m.slot) for m in own.aggregates if m.alias is not None]
        return pa.schema([pa.field(_UNIT, pa.int64()), *measured])

    def found(self) -> Answered:
        """The sessions that are asked for."""
        return self.answered(self.asked.waits, self.asked.from_us, self.asked.until_us)

    def answered(self, waits: Waits, from_us: int, until_us: int) -> Answered:
        """Those that would be answered in [from_us, until_us) after other waits, none longer."""
        end_us = self.event_us + self.asked.spec.gap_us
        found = self.tuples.answered(end_us + waits.of(end_us), from_us, until_us)
        kept = np.ones(len(found), dtype=bool)
        if self.query.active_from is not None:
            kept &= found.end_us >= to_us(self.query.active_from)
        if self.query.active_to is not None:
            kept &= found.end_us < to_us(self.query.active_to)
        for held in self.asked.held:
            kept &= held.held_from_us(found.emit_us, self.asked.tick_us) <= found.start_us
        return found if kept.all() else found.of(kept)

    def rows_of(self, found: Answered) -> tuple[pa.Table, Int64s]:
        """Answers of sessions: the query's outputs and ``_number``, the session's; and of each how many rows failed."""
        failed = np.zeros(len(found), dtype=np.int64)
        parts = [self._valued(found.of(slice(0)), 0, failed)]
        parts += [self._valued(found.of(some), some.start, failed) for some in self.tuples.portions(found)]
        return pa.concat_tables(parts), failed

    def _valued(self, found: Answered, first: int, failed: Int64s) -> pa.Table:
        query = self.query
        partial = self._partial(found)
        unit = int64s(partial.column(_UNIT))
        of = self._last_rows(found)[unit]
        groups = {group.slot: self.rows.column(group.slot).take(pa.array(of)) for group in query.group_by}
        number = pa.array(unit + first)
        named = partial.drop_columns(["window_index", _UNIT])
        for slot, column in groups.items():
            named = named.append_column(slot, column)
        # Sessions are held whole.
        named = named.append_column("window_index", pa.array(np.zeros(len(of), np.int64)))
        values, lost = valued(query, named, np.ones(1))
        values = values.append_column("_number", number)
        outcome = Failed(values, lost)
        left = outcome.filtered(query.having) if query.having else values
        columns = {o.name: outcome.value(o.expression, arrow_type(o.type)) for o in query.outputs}
        np.add.at(failed, int64s(values.column("_number"))[outcome.rows], 1)
        return pa.table({"_number": left.column("_number"), **columns})

    def _partial(self, found: Answered) -> pa.Table:
        """The operator's answers, a row a session: all of their tuples are those of one window."""
        schema = self.aggregates.input_schema
        session, places = self.tuples.tuples(found)
        rows = self.rows.take(pa.array(places))
        nothing = pa.array(np.zeros(len(rows), np.int64))
        own = {"side": nothing.cast(pa.int8()), "event_us": nothing, "arrival_us": nothing, _UNIT: pa.array(session)}
        columns = {field.name: own.get(field.name) for field in schema}
        batch = pa.table({n: rows.column(n) if c is None else c for n, c in columns.items()}, schema=schema)
        (alias,) = (side.alias for side in self.aggregates.sides)
        schedule = Schedule(*(np.array([1], np.int64),) * 2, {alias: np.array([0], np.int64)})
        state, answers = join_aggregate.step(join_aggregate.start(self.aggregates, schedule), batch)
        _, later = join_aggregate.finish(state)
        return pa.concat_tables([answers, later])

    def _last_rows(self, found: Answered) -> Int64s:
        """Of each session the row of its last tuple, which has its key."""
        rows: Int64s = self.tuples.order[found.behind - 1]
        return rows

    def keys_of(self, found: Answered) -> Int64s:
        """A number for the key of each session."""
        keys: Int64s = self.key[self._last_rows(found)]
        return keys

    def only_keys(self, found: Answered) -> pa.Table:
        """As ``rows_of`` has them, but NULL in all columns that are no groups."""
        taken = pa.array(self._last_rows(found))
        groups = {group.shown_as: self.rows.column(group.slot).take(taken) for group in self.query.group_by}
        columns = {"_number": pa.array(np.arange(len(found)))}
        for output in self.query.outputs:
            kind = arrow_type(output.type)
            known = groups.get(output.name)
            columns[output.name] = pa.nulls(len(found), kind) if known is None else known.cast(kind)
        return pa.table(columns)

    def most_bytes(self, found: Answered) -> int:
        """The most that these sessions hold at an instant."""
        taken = int(self.rows.drop_columns("side").nbytes)
        return self.tuples.most(found) * -(-taken // max(len(self.rows), 1))


def with_times(rows: pa.Table, found: Answered) -> pa.Table:
    """Answers with ``window_start`` and ``window_end``."""
    number = int64s(rows.column("_number"))
    rows = rows.append_column("window_start", instants(found.start_us[number]))
    return rows.append_column("window_end", instants(found.end_us[number]))


def lengths(alias: str, length_us: Int64s) -> pa.Array:
    """How long each session is, as tables have widths: alias → seconds."""
    keys, offsets = pa.repeat(alias, len(length_us)), pa.array(np.arange(len(length_us) + 1), pa.int32())
    return pa.MapArray.from_arrays(offsets, keys, pa.array(length_us / 1e6)).cast(WIDTHS)
