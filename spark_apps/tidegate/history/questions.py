"""Any aggregate over any past period, from the history store, with an interval that says how far to trust it.

Nothing here needs Spark: the leaves and samples are small, and pyarrow reads them in about a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import UserError
from tidegate.declarations.interval_labels import interval_label
from tidegate.declarations.models import Pipeline, Stream, from_us, to_us
from tidegate.history.answers import Question, Row
from tidegate.history.past import Past
from tidegate.operators.history.bands import Bands
from tidegate.operators.history.estimators import Estimate
from tidegate.operators.history.query import parse_history_query
from tidegate.store.places import Place
from tidegate.store.warehouse import Warehouse
from tidegate.values.types import arrow_type


def query_history(
    pipeline: Pipeline,
    warehouse_root: str | Place,
    sql: str,
    start: datetime,
    end: datetime,
    confidence: float = 0.95,
    within: float | None = None,
    as_of: str | datetime | None = None,
) -> dict[str, Any]:
    """Estimate the aggregates of a query over the event times [start, end).

    Without predicate and groups the exact aggregates of whole leaves answer, through the HDS-Tree, and only leaves that
    the period cuts are estimated; the same for GROUP BY one of the stream's declared group columns. Everything else
    comes from the samples of the leaves that the period touches. What a sample does not show, such as COUNT(DISTINCT),
    is answered where these hold every tuple, and of group columns by what leaves know. Tuples that are still in their
    windows have not entered history yet.

    Args:
        within: stop reading as soon as every interval is at most this share of its estimate to either side. The bands
            are read from the sparsest; what has been read is a smaller sample of the same tuples.
        as_of: what had been committed by that instant, or with that run, is asked; None: all.

    Returns:
        ``{"confidence", "leaves", "sampled_rows", "rows": [{group columns…, "<column>": {"estimate", "low", "high",
        "exact"}}]}``: leaves touched, sampled tuples read. A None estimate: nothing sampled qualifies. A None bound:
        none is known. Groups of which no tuple was sampled are not listed, unless the leaves know them. With
        ``within`` also ``"within"`` and ``"steps": [{"sampled_rows", "widest"}]``, the widest interval's share of its
        estimate after each step (None: unknown).

    Raises:
        UserError: the query is not understood, names something unknown, asks about a past that is not there, or for
            what a sample does not show.
    """
    if within is not None and not within > 0:
        raise UserError(f"--within must be a positive percentage (such as 1%), not {within}")
    require_confidence(confidence)
    if end <= start:
        raise UserError(f"--to {end:%Y-%m-%dT%H:%M:%SZ} must be later than --from {start:%Y-%m-%dT%H:%M:%SZ}")
    query, warehouse = (
        parse_history_query(sql, pipeline.streams, pipeline.derived),
        Warehouse(warehouse_root, pipeline, as_of),
    )
    past = _opened(warehouse, query.stream, start, end)
    return _answered(Question(query, past, to_us(start), to_us(end), confidence), within)


def _answered(question: Question, within: float | None) -> dict[str, Any]:
    result: dict[str, Any] = {"confidence": question.confidence, "leaves": _touched(question)}
    if within is None:
        rows, sampled = question.answer()
    else:
        steps = []
        for rows, sampled in _progressive(question):
            widest = _widest(rows)
            steps.append({"sampled_rows": sampled, "widest": widest})
            if widest is not None and widest <= within:
                break
        result |= {"within": within, "steps": steps}
    return {**result, "sampled_rows": sampled, "rows": [json_row(row) for row in rows]}


def estimate(
    pipeline: Pipeline | Path | str,
    warehouse: str | Place,
    sql: str,
    start: datetime,
    end: datetime,
    confidence: float = 0.95,
    within: float | None = None,
) -> pa.Table:
    """The same as an Arrow table, for notebooks and programs; no Spark session is needed.

    Args:
        pipeline: a pipeline, or its folder.
        warehouse: the folder given as ``--warehouse``.
        sql, start, end, confidence, within: as ``query_history`` has them; times without a zone are UTC.

    Returns:
        One row a group (one row without GROUP BY): the group columns, and for every aggregate ``<name>`` (double, but
        as answers have it of conditions and of what needs every tuple; NULL: no estimate), ``<name>_low``,
        ``<name>_high`` (NULL: no bound is known) and ``<name>_exact``. The schema's
        metadata say ``confidence``, ``leaves`` and ``sampled_rows``.

    For example::

        from datetime import datetime
        from tidegate.history.questions import estimate

        estimate("dags/pipelines/flights", ".tidegate/warehouse",
                 "SELECT carrier, AVG(dep_delay) FROM departures WHERE origin = 'JFK' GROUP BY carrier",
                 datetime(2013, 1, 1), datetime(2013, 7, 1))
    """
    loaded = pipeline if isinstance(pipeline, Pipeline) else load_pipeline(Path(pipeline))
    begin, until = (t if t.tzinfo else t.replace(tzinfo=UTC) for t in (start, end))
    result = query_history(loaded, warehouse, sql, begin, until, confidence, within)
    query = parse_history_query(sql, loaded.streams, loaded.derived)
    columns: dict[str, pa.Array] = {}
    for name, group in query.groups:
        columns[name] = pa.array([row[name] for row in result["rows"]], arrow_type(query.group(group).kind))
    for aggregate in query.aggregates:
        for suffix, key in (("", "estimate"), ("_low", "low"), ("_high", "high"), ("_exact", "exact")):
            kind = pa.bool_() if key == "exact" else arrow_type(aggregate.kind)
            columns[aggregate.name + suffix] = pa.array([row[aggregate.name][key] for row in result["rows"]], kind)
    told = {key: str(result[key]) for key in ("confidence", "leaves", "sampled_rows")}
    return pa.table(columns).replace_schema_metadata(told)


def require_confidence(confidence: float) -> None:
    """UserError unless it is a level that an interval can have."""
    if not 0 < confidence < 1:
        raise UserError(f"--confidence must lie between 0 and 1 (such as 0.95), not {confidence}")


def _opened(warehouse: Warehouse, stream: Stream, start: datetime, end: datetime) -> Past:
    """The leaves that the period may touch."""
    pipeline = warehouse.pipeline
    every = warehouse.labels("history_leaves")
    if not every:
        raise UserError(
            f"pipeline {pipeline.name} has no history in {warehouse.folder.parent}: "
            "run the stages ingest and sample_history first (tidegate run)"
        )
    # A tuple enters history after its event time: what entered before the period lies before it.
    length = timedelta(seconds=pipeline.interval_s)
    oldest = interval_label(start - length, length)
    past = Past.open(warehouse, stream, [label for label in every if label >= oldest])
    if not past.view.touched(to_us(start), to_us(end)).any():
        raise UserError(_nothing_there(warehouse, stream, start, end))
    return past


def _touched(question: Question) -> int:
    view = question.past.view
    return len(np.unique(view.strata.start_us[view.touched(question.start_us, question.end_us)]))


def _progressive(question: Question) -> Iterator[tuple[list[Row], int]]:
    """The answers from ever more bands, beginning with the sparsest; the last one has read everything."""
    if not all(aggregate.estimated for aggregate in question.query.aggregates):
        yield question.answer()
        return
    bands, touched = Bands.of(question.past.spec), question.past.view.touched(question.start_us, question.end_us)
    densest = float(question.past.view.strata.fraction[touched].max(initial=0.0))
    for fraction in bands.fractions[:-1][::-1]:
        if fraction < densest:
            yield replace(question, most_fraction=float(fraction)).answer()
    yield question.answer()


def _widest(rows: list[Row]) -> float | None:
    """The widest interval's reach to either side, as a share of its estimate; None if some are not known."""
    found = [0.0]
    for value in (value for row in rows for value in row.values() if isinstance(value, Estimate)):
        if value.exact:
            continue
        if value.estimate is None or value.low is None or value.high is None or not value.estimate:
            return None
        found.append(max(value.high - value.estimate, value.estimate - value.low) / abs(value.estimate))
    return max(found) if rows else None


def _nothing_there(warehouse: Warehouse, stream: Stream, start: datetime, end: datetime) -> str:
    strata = Past.open(warehouse, stream).view.strata
    asked = f"from {start:%Y-%m-%dT%H:%M:%SZ} to {end:%Y-%m-%dT%H:%M:%SZ}"
    if not len(strata.start_us):
        return f"the history of stream '{stream.name}' is still empty: tuples enter it when they leave their window"
    first, last = from_us(int(strata.start_us.min())), from_us(int(strata.end_us.max()))
    return (
        f"stream '{stream.name}' has no history {asked}; its history reaches from {first:%Y-%m-%dT%H:%M:%SZ} "
        f"to {last:%Y-%m-%dT%H:%M:%SZ}"
    )


def json_row(row: Row) -> dict[str, Any]:
    """A row's estimates as plain values."""
    return {name: value.as_dict() if isinstance(value, Estimate) else value for name, value in row.items()}


def render(result: dict[str, Any]) -> str:
    """The answer as a table for a terminal.

    >>> print(render({"confidence": 0.95, "leaves": 2, "sampled_rows": 9, "rows": [
    ...     {"origin": "JFK", "count": {"estimate": 12.34, "low": 9.0, "high": 17.0, "exact": False}}]}))
    origin  count
    ------  ---------------
    JFK     12.34 (9 to 17)
    <BLANKLINE>
    9 sampled tuples of 2 leaves; in brackets: the 95 % interval
    """
    rows = result["rows"]
    foot = f"{result['sampled_rows']} sampled tuples of {result['leaves']} leaves"
    foot += f"; in brackets: the {_number(100 * result['confidence'])} % interval"
    if not rows:
        return f"no sampled tuple qualifies\n\n{foot}"
    steps = [f"{step['sampled_rows']:>9,} sampled tuples: {_reach(step['widest'])}" for step in result.get("steps", [])]
    names = list(rows[0])
    lines = table_of(names, [[cell(row[name]) for name in names] for row in rows])
    return "\n".join([*steps, *([""] if steps else []), *lines, "", foot])


def table_of(names: list[str], rows: list[list[str]]) -> list[str]:
    """A table's lines: names, a rule, rows; columns as wide as they need."""
    cells = [names, *rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    cells.insert(1, ["-" * width for width in widths])
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def _reach(widest: float | None) -> str:
    return "no interval yet" if widest is None else f"± {100 * widest:.3g} %"


def cell(value: Any) -> str:
    """A value of an answer, or an estimate with its interval, as text."""
    if not isinstance(value, dict):
        return "NULL" if value is None else str(value)
    low, high = value["low"], value["high"]
    if value["exact"]:
        return "NULL (exact)" if value["estimate"] is None else f"{_number(value['estimate'])} (exact)"
    if value["estimate"] is None:
        return "no estimate" if high is None else f"no estimate ({_number(low)} to {_number(high)})"
    shown = ["unknown" if bound is None else _number(bound) for bound in (low, high)]
    return f"{_number(value['estimate'])} ({shown[0]} to {shown[1]})"


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:,.4g}"
