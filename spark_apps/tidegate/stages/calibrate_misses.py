"""Calibrate: what comes of answers that missed their promise, for queries that declare ON MISS OMIT or CORRECT.

A miss is known once its window is final. OMIT: the answers that kept the promise go to ``kept_<query>``, from which the
marts are made. CORRECT: what was answered by mistake, what is true and the difference go to ``corrections_<query>``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import Query
from tidegate.declarations.names import CORRECTED
from tidegate.declarations.promises import terms_of
from tidegate.engine import Slice
from tidegate.engine.context import RunContext, StageRun
from tidegate.operators.accuracy import within
from tidegate.operators.codes import NULL, codes, decode, group_ids
from tidegate.operators.schedule import Int64s
from tidegate.queries.answers import rows_of_windows
from tidegate.queries.slices import PartFile, Staged, in_order, windows_by_rows
from tidegate.store.intervals import Interval, labels_holding
from tidegate.values.limbs import is_decimal, unscaled
from tidegate.values.types import is_number


@dataclass(frozen=True, eq=False)
class OnMiss:
    """Windows of a query that became final in an interval, and what is to be written of them.

    ``ends_us``: OMIT: of those that kept the promise; CORRECT: of those that missed it. ``answers``, ``truth``: of the
    tables; truth is of CORRECT alone. ``file``: where the rows go, of the schema ``written``.
    """

    query: Query
    horizon_us: int
    ends_us: Int64s
    answers_files: tuple[str, ...]
    truth_files: tuple[str, ...]
    answers: pa.Schema
    truth: pa.Schema
    written: pa.Schema
    file: str


def put_misses(
    context: RunContext,
    stage: StageRun,
    judged: Mapping[str, tuple[Int64s, Int64s, np.ndarray]],
    intervals: Sequence[Interval],
) -> None:
    """Write ``kept_<query>`` and ``corrections_<query>`` of the intervals.

    Args:
        judged: query → ends of the windows that became final (µs), when they were answered (µs), the hit rate or the
            largest error of each.
    """
    parts: list[tuple[Staged, str, OnMiss]] = []
    rows = 0
    tables: list[Staged] = []
    for query in context.pipeline.queries:
        terms = terms_of(context.pipeline, query)
        if terms is None or query.on_miss not in ("omit", "correct"):
            continue
        omit = query.on_miss == "omit"
        table = Staged(stage.commit, f"{'kept' if omit else 'corrections'}_{query.id}", intervals)
        tables.append(table)
        ends_us, emit_us, values = judged[query.id]
        wanted = within(terms, values) == omit
        for interval in intervals:
            own, read = _of_interval(context, query, ends_us[wanted], emit_us[wanted], table, interval)
            parts += [(table, interval.label, part) for part in own]
            rows += read
    counts = context.run_slices(write_on_miss, [part for *_, part in parts], rows)
    for table in tables:
        table.settle([{label: n} for (of, label, _), n in zip(parts, counts, strict=True) if of is table])


def _of_interval(
    context: RunContext, query: Query, ends_us: Int64s, emit_us: Int64s, table: Staged, interval: Interval
) -> tuple[list[OnMiss], int]:
    """What is to be written of those of the windows that became final in an interval; and how many rows that reads."""
    pipeline, warehouse = context.pipeline, context.warehouse
    answers, truth = f"answers_{query.id}", f"truth_{query.id}"
    horizon_us = pipeline.final_after_us(query)
    own = (ends_us + horizon_us >= interval.start_us) & (ends_us + horizon_us < interval.end_us)
    if not own.any():
        return [], 0
    labels = sorted(set(labels_holding(pipeline, emit_us[own])))
    files, rows = warehouse.files(answers, labels), sum(warehouse.rows(answers, label) for label in labels)
    true_files: tuple[str, ...] = ()
    if query.on_miss == "correct":
        true_files = table.commit.files(truth, [interval.label])
        rows += warehouse.rows(truth, interval.label)
    answered, true, written = (warehouse.schema(name) for name in (answers, truth, table.table))
    parts = []
    for number, some in enumerate(windows_by_rows(ends_us[own], rows)):
        (file,) = table.files(number, [interval.label]).values()
        parts.append(OnMiss(query, horizon_us, some, files, true_files, answered, true, written, file))
    return parts, rows


def write_on_miss(part: Slice) -> int:
    """Write what is asked for of an :class:`OnMiss`; how many rows. **Memory**: their answers and their truth."""
    own: OnMiss = part.of
    rows = rows_of_windows(own.answers_files, own.answers, own.ends_us)
    if own.query.on_miss == "correct":
        truth = rows_of_windows(own.truth_files, own.truth, own.ends_us)
        rows = corrections(own.query, rows, truth, own.written, own.horizon_us)
    written = PartFile(own.file)
    written.add(rows)
    return written.close()


def corrections(query: Query, answers: pa.Table, truth: pa.Table, schema: pa.Schema, horizon_us: int) -> pa.Table:
    """Rows of ``corrections_<query>``: of the same windows, what was answered beside what is true.

    Args:
        answers: rows of ``answers_<query>``.
        truth: rows of ``truth_<query>``.
        schema: of the result.
        horizon_us: how long after its end a window is final.

    Returns:
        A row for each window and key that either has, in their order; what the other lacks is NULL.

    **Cost.** O(n log n) time, O(n) space for n rows.
    """
    keys = ["window_end", *query.answer_keys]
    both = pa.concat_tables([answers.select(keys), truth.select(keys)])
    window, pair = codes(both.column("window_end"))[0], group_ids([codes(c)[0] for c in both.columns], both.num_rows)
    split, pairs = answers.num_rows, int(pair.max(initial=-1)) + 1
    said = _rows(pair[:split], np.arange(split), pairs)
    known = _rows(pair[split:], np.arange(truth.num_rows), pairs)
    # The answer's own, where it has the key: 0.0 and -0.0 are one.
    either = both.take(pa.array(_rows(pair[::-1], np.arange(both.num_rows)[::-1], pairs)))
    # The instant of an answer that had no row at all is not known here: that of its window's other rows is.
    emitted = _rows(window[:split], np.arange(split), int(window.max(initial=-1)) + 1)
    columns = {name: either.column(name) for name in keys}
    end_us = columns["window_end"].cast(pa.int64())
    columns["known_at"] = pc.add(end_us, horizon_us).cast(schema.field("known_at").type)
    columns["emitted_at"] = decode(emitted[_rows(pair, window, pairs)], answers.column("emitted_at"))
    for name, kind in query.corrected.items():
        as_said, as_known = decode(said, answers.column(name)), decode(known, truth.column(name))
        values = [as_said, as_known, _difference(as_said, as_known) if is_number(kind) else None]
        columns |= {pattern.format(name): value for pattern, value in zip(CORRECTED, values, strict=True)}
    found = pa.table({name: columns[name] for name in schema.names})
    return in_order(found.cast(schema), keys)


def _rows(at: Int64s, values: Int64s, count: int) -> Int64s:
    """Of each number below ``count`` the value that stands at it, or −1."""
    found = np.full(count, NULL, dtype=np.int64)
    found[at] = values
    return found


def _difference(said: pa.ChunkedArray, known: pa.ChunkedArray) -> pa.ChunkedArray:
    """true − answered, as a double; exact before that of decimals, and of whole numbers as far as 64 bits hold it."""
    if is_decimal(said.type):
        one, other = (unscaled(column.combine_chunks()) for column in (known, said))
        there = pc.and_(pc.is_valid(known), pc.is_valid(said)).to_numpy()
        differences = [(a - b) / 10**said.type.scale for a, b in zip(one, other, strict=True)]
        return pa.chunked_array([pa.array(differences, pa.float64(), mask=~there)])
    rounded = pc.subtract(known.cast(pa.float64(), safe=False), said.cast(pa.float64(), safe=False))
    if not pa.types.is_integer(said.type):
        return rounded
    exact = pc.subtract(known, said).cast(pa.float64(), safe=False)
    return pc.if_else(pc.less(pc.abs(rounded), 2.0**62), exact, rounded)
