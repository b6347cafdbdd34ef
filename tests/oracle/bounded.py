"""Joins with a bound in time: answered by Tidegate, and by DuckDB's joins of what had arrived by each window's instant.

Every window's result of the join is written as tuples of a stream ``pairs``, which the rest of the query is over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from infra.oracle.answers import Comparison, Row, aggregate_sql, arrow, compare, duck, register
from infra.oracle.schedule import ExpectedWindow, connect, parquet
from tests.oracle.evaluation import MINUTE_US, answers, parse, parsed
from tests.oracle.meanings import by_hand, text_by_hand, write_rows
from tests.oracle.queries import BoundedText
from tests.oracle.streams import BEGIN, COLUMNS

from tidegate.declarations.models import ColumnType, to_us
from tidegate.declarations.scope import StreamSchema
from tidegate.operators.schedule import Schedule
from tidegate.queries.questions import Question
from tidegate.queries.scan import EventFiles

_NUMBER = 8_765_432_109
"""Stands for a window's number."""
_LEFT = re.compile(r"^(\w+) \[")


def compared_bounded(
    of: BoundedText, files: Mapping[str, EventFiles], folder: Path, slack: int, cut: str
) -> Comparison | None:
    """How a join's answers, so many minutes after the last match may happen, differ from DuckDB's; None: no rows."""
    query = parse(of.text)
    assert query.lag_s == of.lag_s
    ends = np.arange(5, 55, 5, dtype=np.int64) * MINUTE_US + to_us(BEGIN)
    emit_us = ends + (60 * slack + of.lag_s) * 1_000_000
    schedule = Schedule(ends, emit_us, {"l": ends - of.range_s * 1_000_000})
    question = Question(query, schedule, np.ones(len(ends)), files, MINUTE_US)
    rows = pa.concat_tables(answers(question, "pooled" if cut == "pooled" else "whole"))
    instants = pa.array(ends, pa.timestamp("us", "UTC"))
    answered = rows.append_column("window_end", instants.take(rows.column("_window_index"))).drop_columns(
        "_window_index"
    )
    rows_of_answers = answered.to_pylist()
    with TemporaryDirectory(prefix="tidegate-oracle-") as made:
        expected = _by_hand(of, folder, Path(made), ends.tolist(), emit_us.tolist())
    if not expected and not rows_of_answers:
        return None
    return compare(of.text, rows_of_answers, expected, ["window_end", *query.group_outputs], atol=1e-6)


def _by_hand(of: BoundedText, folder: Path, made: Path, ends: list[int], emit_us: list[int]) -> list[Row]:
    connection = connect()
    instants = [pa.array(times, pa.timestamp("us", "UTC")) for times in (ends, emit_us)]
    connection.register("oracle_ends", pa.table([pa.array(range(len(ends))), *instants], ["s", "t", "emitted"]))
    write_rows(connection, _pairs_sql(of, folder), made, "pairs")
    times: dict[str, ColumnType] = {"event_time": "timestamp"}
    columns = {**by_hand()["x_goods"].columns, "s": "integer"}
    columns |= {
        f"r_{name}": kind for name, kind in ({**times, **COLUMNS} if of.kind in ("inner", "left") else {}).items()
    }
    query = parsed(of.by_hand, {"pairs": StreamSchema("pairs", columns)}, {})
    predicate = query.predicates.get("l", "TRUE")
    sql = aggregate_sql(query.model_copy(update={"predicates": {"l": f"({predicate}) AND s = {_NUMBER}"}}), made)
    rows = []
    for number, end_us in enumerate(ends):
        end = datetime.fromtimestamp(end_us / 1e6, UTC)
        lower = end - timedelta(seconds=of.range_s)
        register(connection, query, [ExpectedWindow(end, end + timedelta(days=1), 0.0, {"l": lower}, {}, {}, 1.0, "A")])
        rows += arrow(connection, sql.replace(str(_NUMBER), str(number))).to_pylist()
    return rows


def _pairs_sql(of: BoundedText, folder: Path) -> str:
    """What the join has in each window, numbered ``s``: of tuples that had arrived by its instant."""
    left = _LEFT.match(text_by_hand(of.left))
    assert left is not None
    tuples, others = (parquet(folder, f"events_{name}") for name in (left[1], of.right))
    known = "greatest({0}.arrival_time, {0}.event_time) <= {1}.emitted"
    windows = f"""(
      SELECT e.*, w.s, w.emitted FROM oracle_ends AS w JOIN {tuples} AS e
      ON e.event_time >= w.t - INTERVAL {of.range_s} SECONDS AND e.event_time < w.t AND {known.format("e", "w")}
    ) AS l"""
    on = f"{duck(of.on.replace('g.', 'l.'))} AND {known.format('r', 'l')}"
    if of.kind in ("semi", "anti"):
        word = "" if of.kind == "semi" else "NOT "
        return f"SELECT l.* EXCLUDE (emitted) FROM {windows} WHERE {word}EXISTS (FROM {others} AS r WHERE {on})"
    shown = ", ".join(f"r.{name} AS r_{name}" for name in ("event_time", *COLUMNS))
    return f"SELECT l.* EXCLUDE (emitted), {shown} FROM {windows} {of.kind.upper()} JOIN {others} AS r ON {on}"
