"""Calibrate: what comes of answers that missed their promise, for queries that declare ON MISS OMIT or CORRECT.

A miss is known once its window is final. OMIT: the answers that kept the promise go to ``kept_<query>``, from which the
marts are made. CORRECT: what was answered by mistake, what is true and the difference go to ``corrections_<query>``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import Query, from_us, to_us
from tidegate.declarations.names import CORRECTED
from tidegate.declarations.promises import terms_of
from tidegate.engine.context import RunContext, StageRun
from tidegate.operators.accuracy import within
from tidegate.operators.schedule import Int64s, instants_us
from tidegate.store.cut import read_file
from tidegate.store.intervals import Interval, labels_holding

Row = dict[str, Any]


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

    **Memory**: the answers and the truth of an interval's final windows.
    """
    pipeline = context.pipeline
    horizon_us = pipeline.horizon_s * 1_000_000
    for query in pipeline.queries:
        terms = terms_of(pipeline, query)
        if terms is None or query.on_miss not in ("omit", "correct"):
            continue
        ends_us, emit_us, values = judged[query.id]
        good = within(terms, values)
        final_in = np.array(labels_holding(pipeline, ends_us + horizon_us), dtype=object)
        for interval in intervals:
            own = np.array(final_in == interval.label, dtype=bool)
            which = own & (good if query.on_miss == "omit" else ~good)
            answers = _answers(context, query, ends_us[which], emit_us[which])
            if query.on_miss == "omit":
                stage.commit.put_arrow(f"kept_{query.id}", interval, answers)
                continue
            truth = _truth(context, stage, query, interval, ends_us[which])
            rows = corrections(query, answers.to_pylist(), truth.to_pylist(), horizon_us)
            table = f"corrections_{query.id}"
            stage.commit.put_arrow(table, interval, pa.Table.from_pylist(rows, schema=context.warehouse.schema(table)))


def corrections(query: Query, answers: Sequence[Row], truth: Sequence[Row], horizon_us: int) -> list[Row]:
    """Rows of ``corrections_<query>``: of the same windows, what was answered beside what is true.

    Rows that one of the two lacks have NULLs for it. Where the answer does not show all its groups, rows with equal
    keys are paired in their order.
    """
    answered, true = _by_key(query, answers), _by_key(query, truth)
    # The instants of an answer that had no row at all are not known here: those of its window are.
    emitted = {row["window_end"]: row["emitted_at"] for row in answers}
    rows = []
    for key in sorted(answered.keys() | true.keys()):
        before, now = answered.get(key, {}), true.get(key, {})
        either = before or now
        end = either["window_end"]
        row = {"window_end": end, "emitted_at": emitted.get(end), "known_at": from_us(to_us(end) + horizon_us)}
        row |= {name: either[name] for name in query.answer_keys}
        for name, kind in query.corrected.items():
            said, known = before.get(name), now.get(name)
            numbers = kind in ("integer", "double")
            difference = float(known - said) if numbers and said is not None and known is not None else None
            row |= dict(zip((pattern.format(name) for pattern in CORRECTED), (said, known, difference), strict=True))
        rows.append(row)
    return rows


def _by_key(query: Query, rows: Sequence[Row]) -> dict[tuple[Any, ...], Row]:
    """Window, keys and number among those with equal keys → the row; texts tell NULL and NaN apart."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        keys = (row["window_end"], *(_sortable(row[name]) for name in query.answer_keys))
        number = 0
        while (*keys, number) in found:
            number += 1
        found[*keys, number] = row
    return found


def _sortable(value: Any) -> tuple[str, Any, str]:
    number = isinstance(value, int) and not isinstance(value, bool)
    return type(value).__name__, value if number else 0, repr(value)


def _answers(context: RunContext, query: Query, ends_us: Int64s, emit_us: Int64s) -> pa.Table:
    """The answers of some windows, as they were given."""
    warehouse, table = context.warehouse, f"answers_{query.id}"
    labels = sorted(set(labels_holding(context.pipeline, emit_us))) if len(emit_us) else []
    return _of(ends_us, _read(warehouse.schema(table), warehouse.files(table, labels)))


def _truth(context: RunContext, stage: StageRun, query: Query, interval: Interval, ends_us: Int64s) -> pa.Table:
    """The truth of some windows that became final in an interval; what this run has put anew is not in the cut yet."""
    warehouse, table = context.warehouse, f"truth_{query.id}"
    own = [str(path) for path in stage.commit.written(table, interval.label)]
    return _of(ends_us, _read(warehouse.schema(table), own or warehouse.files(table, [interval.label])))


def _read(schema: pa.Schema, files: Sequence[str]) -> pa.Table:
    def parts() -> Iterator[pa.Table]:
        yield schema.empty_table()
        for file in files:
            yield read_file(file, schema)

    return pa.concat_tables(parts())


def _of(ends_us: Int64s, rows: pa.Table) -> pa.Table:
    wanted = pa.array(ends_us, pa.int64())
    return rows.filter(pc.is_in(pa.array(instants_us(rows.column("window_end"))), value_set=wanted))
