"""Queries of sessions: answered by Tidegate, and by DuckDB from sessions that gaps and islands make.

Of each tuple's event as the last one: what had arrived of its key at its instant of emission, cut into islands where
more than the gap lies between two events, and long islands cut again. An island that ends with that event is answered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from infra.oracle.answers import Comparison, aggregate_sql, arrow, compare, duck, quoted, register
from infra.oracle.schedule import ExpectedWindow, connect, parquet
from tests.oracle.evaluation import MINUTE_US, parse, parsed
from tests.oracle.meanings import by_hand, text_by_hand, write_rows
from tests.oracle.streams import BEGIN

from tidegate.declarations.models import Query, to_us
from tidegate.declarations.scope import StreamSchema
from tidegate.queries.scan import EventFiles
from tidegate.queries.sessions import Asked, SessionTuples, with_times
from tidegate.queries.slacks import Waits

FROM, UNTIL = BEGIN - timedelta(days=1), BEGIN + timedelta(days=3)
_SESSION = re.compile(r"(, | GROUP BY )session_window\(event_time, '(\d+) seconds'\)")
_OF_FLINK = re.compile(
    r"TABLE\(SESSION\(TABLE (\w+)(?: PARTITION BY [\w, ]+)?, DESCRIPTOR\(event_time\), INTERVAL '(\d+)' SECONDS\)\)"
)
_RANGE = re.compile(r"\[(\d+) MINUTES\]")


def compared_sessions(
    text: str, files: Mapping[str, EventFiles], folder: Path, slack: int, cut: str
) -> Comparison | None:
    """How the sessions of a query differ from DuckDB's, answered so many minutes after their ends; None: none is."""
    query = parse(text)
    with TemporaryDirectory(prefix="tidegate-oracle-") as made:
        expected = _by_hand(text, folder, Path(made), slack)
    answered = _answers(query, files, slack, cut)
    if not expected and not answered:
        return None
    return compare(text, answered, expected, ["window_start", "window_end", *query.group_outputs], atol=1e-6)


def _answers(query: Query, files: Mapping[str, EventFiles], slack: int, cut: str) -> list[dict[str, Any]]:
    """The product's answers, from one slice of time or from several."""
    instants = [FROM, UNTIL]
    if cut != "whole":
        instants[1:1] = [BEGIN + timedelta(minutes=minutes) for minutes in (7, 15, 32)]
    rows = []
    for first, last in zip(instants, instants[1:], strict=False):
        waits = Waits.always(slack * MINUTE_US)
        tuples = SessionTuples(Asked(query, files, waits, to_us(first), to_us(last), 5 * MINUTE_US))
        sessions = tuples.found()
        answered = with_times(tuples.rows_of(sessions)[0], sessions)
        emitted = pa.array(sessions.emit_us, pa.timestamp("us", "UTC")).take(
            answered.column("_number").combine_chunks()
        )
        rows += answered.append_column("emitted_at", emitted).drop_columns("_number").to_pylist()
    return rows


def _by_hand(text: str, folder: Path, made: Path, slack: int) -> list[dict[str, Any]]:
    """The answers by DuckDB: its sessions' tuples are a stream that has the session's number as a group."""
    plain, gap_s = _plain(text)
    query = parsed(plain, by_hand(), {})
    longest_s = 60 * int(match[1]) if (match := _RANGE.search(text)) else 86_400
    connection = connect()
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE of_sessions AS {_sessions_sql(query, folder, gap_s, longest_s, slack)}"
    )
    (window,) = query.windows
    write_rows(connection, "SELECT * EXCLUDE (first, last, emitted) FROM of_sessions", made, "numbered")
    numbered = re.sub(rf"\b{window.stream}( \[|(?= ))", r"numbered\1", plain, count=1)
    numbered = re.sub(" FROM ", ", s AS s FROM ", numbered, count=1)
    numbered = re.sub(" GROUP BY (.*?)(?= HAVING| EVERY)", r" GROUP BY \1, s", numbered)
    if " GROUP BY " not in numbered:
        numbered = numbered.replace(" EVERY ", " GROUP BY s EVERY ")
    streams = by_hand()
    columns = {**streams["x_goods"].columns, "s": "integer"}
    numbered_query = parsed(numbered, {**streams, "numbered": StreamSchema("numbered", columns)}, {})
    (alias,) = (window.alias for window in numbered_query.windows)
    whole = ExpectedWindow(UNTIL, UNTIL, 0.0, {alias: FROM}, {}, {}, 1.0, "A")
    register(connection, numbered_query, [whole])
    rows = arrow(connection, aggregate_sql(numbered_query, made)).to_pylist()
    times = "SELECT DISTINCT s, first, last, emitted FROM of_sessions"
    of = {s: its_times for s, *its_times in connection.execute(times).fetchall()}
    answers = []
    for row in rows:
        first, last, emitted = of[row.pop("s")]
        times_of = {"window_start": first, "window_end": last + timedelta(seconds=gap_s), "emitted_at": emitted}
        answers.append({**row, **times_of})
    return answers


def _plain(text: str) -> tuple[str, int]:
    """The query without its sessions, over what DuckDB reads, and their gap in seconds."""
    flink, spark = _OF_FLINK.search(text), _SESSION.search(text)
    gap_s = int(flink[2] if flink else spark[2] if spark else 0)
    text = _OF_FLINK.sub(r"\1", _SESSION.sub(lambda at: "" if at[1] == ", " else "", text))
    if not _RANGE.search(text):
        text = re.sub(r" FROM (\w+)", r" FROM \1 [10 MINUTES]", text)
    return text_by_hand(text + " EVERY 5 MINUTES"), gap_s


def _sessions_sql(query: Query, folder: Path, gap_s: int, longest_s: int, slack: int) -> str:
    """Tuples with the number ``s``, first and last event, and instant of emission of a session that they are in."""
    (window,) = query.windows
    predicate = duck(query.predicates[window.alias]) if query.predicates.get(window.alias) else "TRUE"
    keys = [f"({duck(g.column) if g.computed else quoted(g.column)}) AS key_{n}" for n, g in enumerate(query.group_by)]
    names = [f"key_{n}" for n in range(len(keys))]
    of_key = "".join(f" AND c.{name} IS NOT DISTINCT FROM t.{name}" for name in names)
    gap, longest = f"INTERVAL {gap_s} SECONDS", f"INTERVAL {longest_s} SECONDS"
    multiple = f"to_timestamp(CAST(epoch_us(event_time) // {longest_s * 10**6} * {longest_s} AS BIGINT))"
    return f"""
    WITH t AS (
      SELECT {"".join(key + ", " for key in keys)}* FROM {parquet(folder, f"events_{window.stream}")} WHERE {predicate}
    ), c AS (
      SELECT *, last + {gap} + INTERVAL {slack} MINUTES AS emitted, row_number() OVER () AS s
      FROM (SELECT DISTINCT {"".join(name + ", " for name in names)}event_time AS last FROM t)
    ), arrived AS (
      SELECT t.*, c.s, c.last, c.emitted,
             lag(t.event_time) OVER (PARTITION BY c.s ORDER BY t.event_time, t.event_id) AS before
      FROM c JOIN t ON greatest(t.arrival_time, t.event_time) <= c.emitted{of_key}
    ), islands AS (
      SELECT *, count(*) FILTER (WHERE before IS NULL OR event_time - before > {gap})
                OVER (PARTITION BY s ORDER BY event_time, event_id) AS island
      FROM arrived
    ), begun AS (
      SELECT *, min(event_time) OVER (PARTITION BY s, island) AS began FROM islands
    ), parts AS (
      SELECT *, count(*) FILTER (WHERE before < {multiple} AND began <= {multiple} - {longest})
                OVER (PARTITION BY s, island ORDER BY event_time, event_id) AS part
      FROM begun
    ), bounds AS (
      SELECT *, min(event_time) OVER (PARTITION BY s, island, part) AS first,
                max(event_time) OVER (PARTITION BY s, island, part) AS newest
      FROM parts
    )
    SELECT * EXCLUDE ({"".join(name + ", " for name in names)}before, island, began, part, newest)
    FROM bounds WHERE newest = last
    """
