"""More than one answer a window: early ones, updates until the window is final, and the final one.

An answer of a window at an instant is a function of the tuples that had arrived by then and of the bounds within which
they count. So each of a window's answers is a row of a schedule: the early one at the window's end, with what is held
then; the promised one; the updates after it, within the promised one's bounds; the final one over the whole range at
the horizon, which is what truth is. What is written of one is what differs from the one before, so it depends on no
run: it is computed for whatever instants a run, or a live step, covers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.tables import instants
from tidegate.engine import Slice
from tidegate.engine.context import RunContext, StageRun
from tidegate.operators.changes import changes
from tidegate.operators.schedule import Int64s, Schedule, window_ranges_us
from tidegate.queries.plans import Emissions, PlanHistory
from tidegate.queries.questions import Answering, Question
from tidegate.queries.slacks import SlackHistory
from tidegate.queries.slices import PartFile, Staged, by_interval, cuts, question
from tidegate.store.intervals import Interval, interval_labelled, labels_holding

EARLY, UPDATE, FINAL = "early", "update", "final"
PROMISED = 1
"""The revision of the promised answer; that of an early one is 0, updates follow, the final one is the last."""


@dataclass(frozen=True, eq=False)
class Revisions:
    """Answers of a query's windows: those that instants of a range bring, and of each the one before.

    int64[n], by window end and revision: ``window_end_us``, ``revision``, ``emit_us`` (when it is given), ``known_us``
    (what has arrived by then counts). ``wanted`` bool[n]: it is given in the range; else it is there to compare with.
    ``final`` bool[n]. ``lower_us``: alias → int64[n], from which event times on tuples count. ``share``, ``coverage``
    float64[n]: the least share of a range that is held, and the product of all.
    """

    window_end_us: Int64s
    revision: Int64s
    emit_us: Int64s
    known_us: Int64s
    wanted: np.ndarray
    final: np.ndarray
    lower_us: Mapping[str, Int64s]
    share: np.ndarray
    coverage: np.ndarray

    def __len__(self) -> int:
        """Count the answers."""
        return len(self.revision)

    def at(self, rows: Int64s) -> Revisions:
        """Some of them."""
        return Revisions(
            self.window_end_us[rows],
            self.revision[rows],
            self.emit_us[rows],
            self.known_us[rows],
            self.wanted[rows],
            self.final[rows],
            {alias: lower[rows] for alias, lower in self.lower_us.items()},
            self.share[rows],
            self.coverage[rows],
        )


def revisions(
    query: Query, plans: PlanHistory, slacks: SlackHistory, start_us: int, end_us: int, first_us: int
) -> Revisions:
    """The answers of a query's windows but the promised ones that are given in [start, end).

    Args:
        plans: those in effect from a horizon before ``start_us`` on.
        first_us: the first instant that was ever answered; what would have been answered before never was.
    """
    horizon_us = plans.pipeline.horizon_s * 1_000_000
    promised = plans.emissions(query, slacks, start_us - horizon_us, end_us)
    known = promised.emit_us >= first_us
    promised = Emissions(promised.window_end_us[known], promised.emit_us[known], promised.row[known])
    ends_us, emit_us = promised.window_end_us, promised.emit_us
    final_us = np.maximum(ends_us + horizon_us, emit_us)
    early_us = np.zeros(0, dtype=np.int64)
    if query.emit_early:
        since_us = min(start_us, int(ends_us.min(initial=start_us)))
        early_us = plans.early_ends_us(query, slacks, max(since_us, first_us), end_us)
        early_us = np.setdiff1d(early_us, ends_us[emit_us == ends_us])
    had_early = np.isin(ends_us, early_us)
    # Of each window the first and the last revision that is given in the range.
    first = np.where(had_early & (emit_us >= start_us), PROMISED, PROMISED + 1)
    last = np.full(len(ends_us), PROMISED)
    if query.emit_every_s is not None:
        every_us = round(query.emit_every_s * 1e6)
        updates = np.maximum(-(-(ends_us + horizon_us - emit_us) // every_us) - 1, 0)
        begun = np.maximum(-(-(start_us - emit_us) // every_us), 1)
        first = np.where(first == PROMISED, first, PROMISED + np.minimum(begun, updates + 1))
        first = np.where((first == PROMISED + updates + 1) & (final_us < start_us), first + 1, first)
        begun_before_end = np.clip(-(-(end_us - emit_us) // every_us) - 1, 0, updates)
        last = PROMISED + np.where(final_us < end_us, updates + 1, begun_before_end)
    some = np.flatnonzero(first <= last)
    counts = last[some] - first[some] + 2
    window = np.repeat(some, counts)
    revision = np.arange(len(window)) - np.repeat(np.cumsum(counts) - counts, counts) + first[window] - 1
    at_us = emit_us[window]
    final = np.zeros(len(window), dtype=bool)
    if query.emit_every_s is not None:
        final = revision == (PROMISED + updates + 1)[window]
        at_us = at_us + (revision - PROMISED) * every_us
    at_us = np.where(final, final_us[window], np.where(revision < PROMISED, ends_us[window], at_us))
    known_us = np.where(final, ends_us[window] + horizon_us, at_us)
    bounds_at_us = np.where(revision < PROMISED, ends_us[window], emit_us[window])
    wanted = revision >= first[window]
    # Early answers of the range, whether the promised one is in it or not.
    early_here_us = early_us[early_us >= start_us]
    fresh_us = np.setdiff1d(early_here_us, ends_us[window][revision < PROMISED])
    wanted |= (revision < PROMISED) & np.isin(ends_us[window], early_here_us)
    new = np.zeros(len(fresh_us), dtype=np.int64)
    order = np.lexsort((np.append(revision, new), np.append(ends_us[window], fresh_us)))
    ends_us, final = np.append(ends_us[window], fresh_us)[order], np.append(final, new > 0)[order]
    lower_us, share, coverage = _bounds(query, plans, ends_us, final, np.append(bounds_at_us, fresh_us)[order])
    return Revisions(
        window_end_us=ends_us,
        revision=np.append(revision, new)[order],
        emit_us=np.append(at_us, fresh_us)[order],
        known_us=np.append(known_us, fresh_us)[order],
        wanted=np.append(wanted, new == 0)[order],
        final=final,
        lower_us=lower_us,
        share=share,
        coverage=coverage,
    )


def _bounds(
    query: Query, plans: PlanHistory, ends_us: Int64s, final: np.ndarray, bounds_at_us: Int64s
) -> tuple[dict[str, Int64s], np.ndarray, np.ndarray]:
    """From which event times on answers hold what, the least share of a range that is held, and the coverage.

    Of final ones the whole ranges, else what is held at ``bounds_at_us``.
    """
    lower_us: dict[str, Int64s] = {}
    share, coverage = np.ones(len(ends_us)), np.ones(len(ends_us))
    ranges_us = window_ranges_us(query, ends_us)
    for window in query.windows:
        range_us = ranges_us[window.alias]
        held_from_us = np.maximum(ends_us - range_us, plans.window_from_us(window, bounds_at_us))
        lower_us[window.alias] = np.where(final, ends_us - range_us, np.minimum(held_from_us, ends_us))
        part = (ends_us - lower_us[window.alias]) / range_us
        share, coverage = np.minimum(share, part), coverage * part
    return lower_us, share, coverage


@dataclass(frozen=True, eq=False)
class Updates:
    """Answers of some windows, each compared with the one before, and where what differs goes.

    Args:
        regular: the answers, in the order of their instants; ``finals``: those final ones that are known no later than
            their promised ones, None: there are none.
        of_regular, of_finals: int64[n], the row of ``about`` of each.
        about: a row an answer, by window and revision: what its rows say of it, with ``interval`` and ``wanted``.
        files: interval → the file to write its rows to.
        schema: of the table.
        order: columns that its rows are sorted by.
    """

    regular: Question
    finals: Question | None
    of_regular: Int64s
    of_finals: Int64s
    about: pa.Table
    files: Mapping[str, str]
    schema: pa.Schema
    order: tuple[str, ...]


def updates_of(context: RunContext, query: Query, slacks: SlackHistory, answers: Revisions) -> Updates:
    """Some of a query's answers as questions, and what their rows say of them; no files yet."""
    pipeline, schema = context.pipeline, context.warehouse.schema(f"updates_{query.id}")
    # Before a final answer stands its window's promised one, or the last update.
    late = answers.final & (answers.known_us <= np.append(-1, answers.known_us[:-1]))
    questions = []
    for rows in (np.flatnonzero(~late), np.flatnonzero(late)):
        rows = rows[np.lexsort((answers.window_end_us[rows], answers.known_us[rows]))]
        bounds = {alias: lower[rows] for alias, lower in answers.lower_us.items()}
        schedule = Schedule(answers.window_end_us[rows], answers.known_us[rows], bounds)
        one = question(context, query, schedule, answers.coverage[rows]) if len(rows) else None
        questions.append((one, rows))
    (regular, of_regular), (finals, of_finals) = questions
    assert regular is not None
    about = _about(pipeline, query, slacks, answers)
    order = ("emitted_at", "window_end", "revision", "deleted", *query.answer_keys)
    return Updates(regular, finals, of_regular, of_finals, about, {}, schema, order)


def _about(pipeline: Pipeline, query: Query, slacks: SlackHistory, answers: Revisions) -> pa.Table:
    ends_us, wait_s = answers.window_end_us, (answers.known_us - answers.window_end_us) / 1e6
    expected = slacks.accuracy_after(query, ends_us, answers.share, wait_s)
    if query.promised is not None:
        expected = np.where(answers.final, 1.0, expected)
    kind = np.where(answers.final, FINAL, np.where(answers.revision < PROMISED, EARLY, UPDATE))
    widest_us: Int64s = np.max(list(window_ranges_us(query, ends_us).values()), axis=0)
    return pa.table(
        {
            "interval": labels_holding(pipeline, answers.emit_us),
            "wanted": pa.array(answers.wanted),
            "window_start": instants(ends_us - widest_us),
            "window_end": instants(ends_us),
            "revision": pa.array(answers.revision, pa.int64()),
            "kind": pa.array(kind.tolist(), pa.string()),
            "emitted_at": instants(answers.emit_us),
            "coverage": pa.array(answers.coverage),
            "accuracy_expected": pa.array(expected, from_pandas=True),
        }
    )


def _differences(updates: Updates) -> Iterator[pa.Table]:
    """What differs from the answers before, part by part: rows of the table with ``interval``.

    **Memory**: a part of the answers, and of each window the newest answer.
    """
    about, query = updates.about, updates.regular.query
    count = about.num_rows
    ends, wanted = about.column("window_end").cast(pa.int64()).to_numpy(), about.column("wanted").to_numpy()
    follows = np.append(ends[1:] == ends[:-1], False)[:count]
    after = np.where(follows, np.arange(count) + 1, -1)
    before = np.where(np.append(False, follows[:-1])[:count], np.arange(count) - 1, -1)
    is_promised = about.column("revision").to_numpy() == PROMISED
    answered = np.zeros(count, dtype=bool)
    carried: pa.Table | None = None
    for asking, of in ((updates.regular, updates.of_regular), (updates.finals, updates.of_finals)):
        if asking is None:
            continue
        answering = Answering(asking)
        for answers in answering:
            fresh = of[slice(*answering.windows)]
            answered[fresh] = True
            state = of[answers.column("_window_index").to_numpy()]
            rows = _content(updates.schema, answers).append_column("_state", pa.array(state))
            rows = rows if carried is None else pa.concat_tables([carried, rows])
            state = rows.column("_state").to_numpy()
            content = rows.drop_columns("_state")
            known_after = np.where((after >= 0) & answered[after], after, -1)
            new, left, left_in = changes(content, query.answer_keys, state, before, known_after)
            # The rows of an earlier part were compared when they came.
            new = new[np.isin(state[new], fresh) & wanted[state[new]] & ~is_promised[state[new]]]
            gone = wanted[left_in]
            left, left_in = left[gone], left_in[gone]
            yield _rows(updates, content, new, state[new], deleted=False)
            yield _rows(updates, content, left, left_in, deleted=True)
            carried = rows.filter(pa.array((after[state] >= 0) & ~answered[after[state]]))


def _content(schema: pa.Schema, answers: pa.Table) -> pa.Table:
    """An answer's columns, as the table has them."""
    names = [name for name in schema.names if name in answers.schema.names]
    return pa.table({name: answers.column(name).cast(schema.field(name).type) for name in names})


def _rows(updates: Updates, content: pa.Table, which: Int64s, state: Int64s, deleted: bool) -> pa.Table:
    """Rows of the table, with ``interval``: of rows that left the keys alone."""
    about, columns = updates.about.take(pa.array(state)), {}
    keys = updates.regular.query.answer_keys
    for field in updates.schema:
        if field.name == "deleted":
            columns[field.name] = pa.array(np.full(len(which), deleted))
        elif field.name not in content.schema.names:
            columns[field.name] = about.column(field.name)
        elif deleted and field.name not in keys:
            columns[field.name] = pa.nulls(len(which), field.type)
        else:
            columns[field.name] = content.column(field.name).take(pa.array(which))
    return pa.table({**columns, "interval": about.column("interval")})


def write(part: Slice) -> dict[str, int]:
    """Answer, compare, and write what differs to the files; how many rows each interval has.

    **Memory**: a part of the answers, and of each window the newest one.
    """
    updates: Updates = part.of
    writers = {label: PartFile(file) for label, file in updates.files.items()}
    for rows in _differences(updates):
        for label, answers in by_interval(rows, updates.schema, updates.order):
            writers[label].add(answers)
    written = {label: writer.close() for label, writer in writers.items()}
    return {label: rows for label, rows in written.items() if rows}


def first_answered_us(context: RunContext, query: Query, here: Interval) -> int:
    """Start of the first interval that the query was ever answered in, the present one at the latest."""
    first = min([*context.warehouse.labels(f"answers_{query.id}"), here.label])
    return interval_labelled(context.pipeline, first).start_us


def write_updates(
    context: RunContext, stage: StageRun, queries: Sequence[Query], intervals: Sequence[Interval]
) -> None:
    """Put the answers but the promised ones that are given in the intervals into ``updates_<query>``."""
    emitting = [query for query in queries if query.emits_updates]
    if not emitting:
        return
    start_us, end_us = intervals[0].start_us, intervals[-1].end_us
    plans = PlanHistory.for_emissions(context.warehouse, start_us - context.pipeline.horizon_s * 1_000_000)
    slacks = SlackHistory.load(context.warehouse, intervals)
    staged = {query.id: Staged(stage.commit, f"updates_{query.id}", intervals) for query in emitting}
    parts: list[Updates] = []
    rows = 0
    for query in emitting:
        answers = revisions(query, plans, slacks, start_us, end_us, first_answered_us(context, query, intervals[0]))
        if len(answers) == 0:
            continue
        whole = updates_of(context, query, slacks, answers)
        # A window's answers stand together: they are compared with each other.
        windows = np.unique(answers.window_end_us)
        bounds = cuts(whole.regular, len(windows), context.most_slices(whole.regular.rows()))
        for number, (first, last) in enumerate(bounds):
            ends_us = answers.window_end_us
            some = answers.at(np.flatnonzero((ends_us >= windows[first]) & (ends_us <= windows[last - 1])))
            part = whole if last - first == len(windows) else updates_of(context, query, slacks, some)
            labels = part.about.filter(part.about.column("wanted")).column("interval").to_pylist()
            parts.append(replace(part, files=staged[query.id].files(number, labels)))
            rows += part.regular.rows()
    counts = context.run_slices(write, parts, rows)
    for query in emitting:
        written_rows = [n for n, part in zip(counts, parts, strict=True) if part.regular.query.id == query.id]
        written = staged[query.id].settle(written_rows)
        context.progress(f"{stage.stage}: {query.id}: {sum(written.values())} rows of further answers")


def updates_between(context: RunContext, query: Query, start_us: int, end_us: int, here: Interval) -> pa.Table:
    """The rows of ``updates_<query>`` that instants in [start, end) of an interval bring, without ``interval``."""
    plans = PlanHistory.for_emissions(context.warehouse, start_us - context.pipeline.horizon_s * 1_000_000)
    slacks = SlackHistory.load(context.warehouse, [here])
    schema = context.warehouse.schema(f"updates_{query.id}")
    answers = revisions(query, plans, slacks, start_us, end_us, first_answered_us(context, query, here))
    if len(answers) == 0:
        return schema.empty_table()
    updates = updates_of(context, query, slacks, answers)
    tables = [rows for part in _differences(updates) for _, rows in by_interval(part, schema, updates.order)]
    return pa.concat_tables([schema.empty_table(), *tables])
