"""The answers themselves, by DuckDB: every window against every tuple, straight from the definition of a query.

The one source of tuples are the tables ``events_<stream>``: what was refused is the business of other tests. Times of
answers come from :mod:`infra.oracle.schedule`, which recomputes them from the plans.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from infra.oracle.schedule import ExpectedWindow, begin_of, connect, expected_windows, final_windows, parquet
from sqlglot import exp

from tidegate.declarations.models import Pipeline, Query, Window
from tidegate.values.types import is_decimal

Row = dict[str, Any]


def duck(fragment: str) -> str:
    """A fragment of Spark SQL in DuckDB's dialect; sums and products that overflow are NULL."""

    def step(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.UnixSeconds):
            # sqlglot would round to the nearest second; Spark rounds down.
            seconds = exp.Anonymous(this="EPOCH", expressions=[node.this.transform(step)])
            return exp.cast(exp.Floor(this=seconds), "BIGINT")
        if isinstance(node, exp.TimestampDiff):
            # sqlglot would count the borders of units that lie between; Spark counts whole units.
            unit = exp.Literal.string(node.args["unit"].name)
            ends = (node.expression.transform(step), node.this.transform(step))
            return exp.Anonymous(this="DATE_SUB", expressions=[unit, *ends])
        if type(node) not in (exp.Add, exp.Sub, exp.Mul) or isinstance(node.expression, exp.Interval):
            return node
        return exp.Anonymous(
            this="TRY", expressions=[type(node)(**{k: v.transform(step) for k, v in node.args.items()})]
        )

    return sqlglot.parse_one(fragment, read="spark").transform(step).sql("duckdb")


def duck_type(kind: str) -> str:
    """DuckDB's name of a type."""
    kinds = {"string": "VARCHAR", "integer": "BIGINT", "timestamp": "TIMESTAMPTZ"}
    return kinds.get(kind, kind.upper())


def quoted(name: str) -> str:
    """A name that no keyword collides with."""
    return '"' + name.replace('"', '""') + '"'


def group_outputs(query: Query) -> list[str]:
    """The columns of the answer that are made of GROUP BY columns alone; they tell its rows apart."""
    groups = {g.column if query.kind == "top_k" else g.slot for g in query.group_by}
    names = [o.name for o in query.outputs if slots_of(o.expression) and slots_of(o.expression) <= groups]
    computed = [g.shown_as for g in query.group_by if g.computed and g.shown_as not in names]
    return [o.name for o in query.outputs if o.name in (*names, *computed)]


@cache
def slots_of(expression: str) -> frozenset[str]:
    """The slots (a0, g0 …), or of a top-k the columns, that an output's expression reads; parsed once."""
    return frozenset(column.name for column in sqlglot.parse_one(expression, read="spark").find_all(exp.Column))


def key_columns(query: Query) -> list[str]:
    """The columns that name one row of an answer."""
    return ["window_end", *group_outputs(query), *(["rank"] if query.kind == "top_k" else [])]


def value_columns(query: Query) -> list[str]:
    """The columns of an answer that the tuples decide."""
    names = [o.name for o in query.outputs]
    return [*key_columns(query), *(["event_id"] if query.kind == "top_k" else []), *names]


def arrow(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """What a statement gives, as an Arrow table."""
    found = connection.sql(sql).to_arrow_table()
    assert isinstance(found, pa.Table)
    return found


def register(connection: duckdb.DuckDBPyConnection, query: Query, windows: Sequence[ExpectedWindow]) -> None:
    """Put the windows into a table ``oracle_windows``: window_end, visible_until, coverage, lower_<alias>."""
    utc = pa.timestamp("us", tz="UTC")
    columns = {
        "window_end": pa.array([w.window_end for w in windows], utc),
        "visible_until": pa.array([w.emitted_at for w in windows], utc),
        "coverage": pa.array([w.coverage for w in windows], pa.float64()),
        **{
            f"lower_{alias}": pa.array([w.lower[alias] for w in windows], utc)
            for alias in (w.alias for w in query.windows)
        },
    }
    connection.register("oracle_windows", pa.table(columns))


def met_by(condition: str, query: Query) -> str:
    """A condition over several aliases, in DuckDB's dialect."""
    columns = {c.slot: (c.alias, c.sql) for c in query.compared}

    def step(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Column) and node.name in columns:
            alias, sql = columns[node.name]
            own = sqlglot.parse_one(sql, read="spark")
            for column in own.find_all(exp.Column):
                column.set("table", exp.to_identifier(alias, quoted=True))
            return own
        return node

    return f"({duck(sqlglot.parse_one(condition, read='spark').transform(step).sql('spark'))})"


def near(alias: str) -> str:
    """True of the tuples between the first window's begin and the last one's end: no other can be in a window."""
    first, last = (f"(SELECT {bound} FROM oracle_windows)" for bound in (f"min(lower_{alias})", "max(window_end)"))
    return f"event_time BETWEEN {first} AND {last}"


def tuples_of(window: Window, folder: Path) -> str:
    """The tuples of a window's stream; of a union those of all its branches."""
    if not window.branches:
        return parquet(folder, f"events_{window.stream}")
    selects = []
    for branch in window.branches:
        keys = [("event_id", branch.id), ("event_time", "event_time"), ("arrival_time", "arrival_time")]
        columns = dict([*keys, *((column.name, column.expression) for column in branch.columns)])
        listed = ", ".join(f"({duck(sql)}) AS {quoted(name)}" for name, sql in columns.items())
        condition = duck(branch.predicate) if branch.predicate else "TRUE"
        selects.append(f"SELECT {listed} FROM {parquet(folder, f'events_{branch.stream}')} WHERE {condition}")
    return f"({' UNION ALL '.join(selects)})"


def aggregate_sql(query: Query, folder: Path) -> str:
    """The brute-force statement of an aggregate or join-aggregate: windows × tuples × tuples, then GROUP BY."""
    joins, on_keys = [], []
    for window in query.windows:
        alias = window.alias
        predicate = duck(query.predicates[alias]) if query.predicates.get(alias) else "TRUE"
        own = "".join(
            f", ({duck(a.expression)}) AS {a.slot}_value" for a in query.aggregates if a.alias == alias and a.expression
        )
        own += "".join(f", ({duck(a.by)}) AS {a.slot}_by" for a in query.aggregates if a.alias == alias and a.by)
        own += "".join(
            f", ({duck(g.column)}) AS {g.slot}_value" for g in query.group_by if g.alias == alias and g.computed
        )
        own += "".join(
            f", ({duck(column)}) AS {j.slot}_{n}_value"
            for j in query.join_classes
            for n, (of, column) in enumerate(j.columns)
            if of == alias and (of, column) in j.computed
        )
        events = tuples_of(window, folder)
        tuples = f"SELECT *{own} FROM {events} WHERE ({predicate}) AND {near(alias)}"
        name = quoted(alias)
        joins.append(
            f"""JOIN ({tuples}) AS {name}
              ON {name}.event_time >= oracle_windows.lower_{alias} AND {name}.event_time < oracle_windows.window_end
             AND greatest({name}.arrival_time, {name}.event_time) <= oracle_windows.visible_until"""
        )
    for join_class in query.join_classes:
        columns = [
            (alias, f"{join_class.slot}_{n}_value" if (alias, column) in join_class.computed else column)
            for n, (alias, column) in enumerate(join_class.columns)
        ]
        (first_alias, first_column), *others = columns
        for alias, column in others:
            on_keys.append(f"{quoted(first_alias)}.{quoted(first_column)} = {quoted(alias)}.{quoted(column)}")
    on_keys += [met_by(condition.expression, query) for condition in query.conditions]
    # An id is kept as text, whatever it was declared as.
    values = {g.slot: f"{g.slot}_value" if g.computed else g.column for g in query.group_by}
    groups = [
        f"CAST({quoted(g.alias)}.{quoted(values[g.slot])} AS {duck_type(g.type)}) AS {g.slot}" for g in query.group_by
    ]
    totals, slots = [], []
    for a in query.aggregates:
        argument = "*" if a.expression is None else f"{quoted(a.alias or '')}.{a.slot}_value"
        by = f"{quoted(a.alias or '')}.{a.slot}_by"
        totals.append(f"{a.called.duckdb(argument, by, a.parameters)} AS {a.slot}_held")
        held = f"coalesce({a.slot}_held, {a.called.of_nothing})"
        if a.called.scaled:
            scaled = f"CAST({held} AS DOUBLE) / nullif(coverage, 0)"
            if a.type != "double":  # to the digit where all is held
                kind = duck_type(a.type)
                estimate = f"TRY_CAST({scaled if is_decimal(a.type) else f'round({scaled})'} AS {kind})"
                scaled = f"CASE coverage WHEN 1 THEN TRY_CAST({held} AS {kind}) ELSE {estimate} END"
            slots.append(f"{scaled} AS {a.slot}")
        else:
            slots.append(f"CAST({held} AS {duck_type(a.type)}) AS {a.slot}")
    group_slots = [g.slot for g in query.group_by]
    # An ungrouped query answers for an empty window too; a group without pairs does not exist.
    side = "JOIN" if group_slots else "LEFT JOIN"
    every = [*(f"oracle_totals.{g}" for g in group_slots), *slots]
    outputs = ", ".join(f"{duck(o.expression)} AS {quoted(o.name)}" for o in query.outputs)
    newline = "\n"
    return f"""
    WITH oracle_totals AS (
      SELECT oracle_windows.window_end{"".join(", " + one for one in (*groups, *totals))}
      FROM oracle_windows
      {newline.join(joins)}
      WHERE {" AND ".join(on_keys) or "TRUE"}
      GROUP BY ALL
    ), oracle_slots AS (
      SELECT oracle_windows.window_end{"".join(", " + one for one in every)}
      FROM oracle_windows {side} oracle_totals ON oracle_totals.window_end = oracle_windows.window_end
    )
    SELECT window_end, {outputs} FROM oracle_slots WHERE {duck(query.having) if query.having else "TRUE"}
    """


def top_k_sql(query: Query, folder: Path) -> str:
    """The brute-force statement of a top-k: windows × tuples, ranked, the first k."""
    (window,) = query.windows
    predicate = duck(query.predicates[window.alias]) if query.predicates.get(window.alias) else "TRUE"
    terms = [f"({duck(o.expression)}) {'DESC' if o.descending else 'ASC'} NULLS LAST" for o in query.order_by]
    order = ", ".join([*terms, "event_time", "event_id"])
    outputs = [f"{duck(o.expression)} AS {quoted(o.name)}" for o in query.outputs if o.name != "event_id"]
    columns = ", ".join(["window_end", "tuples.event_id", *outputs])
    events = tuples_of(window, folder)
    tuples = f"SELECT * FROM {events} WHERE ({predicate}) AND {near(window.alias)}"
    groups = (f"({duck(g.column)})" if g.computed else f"tuples.{quoted(g.column)}" for g in query.group_by)
    parts = ", ".join(["window_end", *groups])
    return f"""
    SELECT * FROM (
      SELECT {columns},
             row_number() OVER (PARTITION BY {parts} ORDER BY {order}) AS rank
      FROM oracle_windows
      JOIN ({tuples}) AS tuples
        ON tuples.event_time >= oracle_windows.lower_{window.alias} AND tuples.event_time < oracle_windows.window_end
       AND greatest(tuples.arrival_time, tuples.event_time) <= oracle_windows.visible_until
    ) WHERE rank <= {query.limit}
    """


def brute_force(pipeline: Pipeline, query: Query, folder: Path, windows: Sequence[ExpectedWindow]) -> list[Row]:
    """The rows that a query must give for these windows, in order of window and row."""
    if not windows:
        return []
    connection = connect()
    register(connection, query, windows)
    sql = top_k_sql(query, folder) if query.kind == "top_k" else aggregate_sql(query, folder)
    found, names = arrow(connection, sql).to_pylist(), value_columns(query)
    return sorted(found, key=lambda row: sort_key(row, names))


def expected_answers(pipeline: Pipeline, query: Query, folder: Path, start: datetime, end: datetime) -> list[Row]:
    """Every row that ``answers_<query>`` must hold for the instants [start, end), with the columns of the schedule.

    ``folder`` is the pipeline's folder in the warehouse.
    """
    windows = expected_windows(pipeline, query, folder, start, end)
    by_end = {w.window_end: w for w in windows}
    return [
        {**row, **schedule_columns(by_end[row["window_end"]])} for row in brute_force(pipeline, query, folder, windows)
    ]


def schedule_columns(window: ExpectedWindow) -> Row:
    """The columns of an answer that the plans decide."""
    return {
        "emitted_at": window.emitted_at,
        "width_s": window.width_s,
        "range_s": window.range_s,
        "coverage": window.coverage,
        "support_level": window.support_level,
        "slack_s": window.slack_s,
    }


def expected_truth(pipeline: Pipeline, query: Query, folder: Path, start: datetime, end: datetime) -> list[Row]:
    """Every row that ``truth_<query>`` must hold: whole ranges, every tuple that arrived within the horizon."""
    horizon = timedelta(seconds=pipeline.horizon_s)
    windows = [
        ExpectedWindow(
            window_end=tick,
            emitted_at=tick + horizon,
            slack_s=horizon.total_seconds(),
            lower={w.alias: begin_of(w, tick) for w in query.windows},
            width_s={w.alias: (tick - begin_of(w, tick)).total_seconds() for w in query.windows},
            range_s={w.alias: (tick - begin_of(w, tick)).total_seconds() for w in query.windows},
            coverage=1.0,
            support_level="A",
        )
        for tick in final_windows(pipeline, query, folder, start, end)
    ]
    return brute_force(pipeline, query, folder, windows)


def accuracy_of(query: Query, answer: Sequence[Row], truth: Sequence[Row]) -> float:
    """How good the answer for one window is: the hit rate of a top-k, the relative error of an aggregate.

    The error is the largest over the truth's groups and aggregate columns; a missing or an extra group counts 1.
    """
    if query.kind == "top_k":
        winners = {row["event_id"] for row in truth}
        return len(winners & {row["event_id"] for row in answer}) / len(winners) if winners else 1.0
    keys = group_outputs(query)
    given = {tuple(row[k] for k in keys): row for row in answer}
    true = {tuple(row[k] for k in keys): row for row in truth}
    if given.keys() != true.keys():
        return max([1.0, *errors(query, given, true)])
    return max(errors(query, given, true), default=0.0)


def errors(query: Query, given: dict[tuple, Row], true: dict[tuple, Row]) -> list[float]:
    """The relative error of every aggregate column of every group that both have."""
    groups = group_outputs(query)
    names = [o.name for o in query.outputs if o.name not in groups]
    return [relative_error(given[key][name], true[key][name]) for key in true if key in given for name in names]


def relative_error(answer: Any, truth: Any) -> float:
    """|answer − truth| / |truth|; a truth of 0, NULL, NaN, an infinity or no number is met or missed by 1."""
    if answer == truth or (answer != answer and truth != truth):
        return 0.0
    if answer is None or truth is None or isinstance(truth, str | bool | date) or truth == 0:
        return 1.0
    error = float(abs(answer - truth) / abs(truth))
    return 1.0 if math.isnan(error) else error


NOTHING_DUE = "nothing is expected: no window was due, so nothing was checked"


@dataclass
class Comparison:
    """What was compared, and what differs, in words."""

    subject: str
    windows: int = 0
    rows: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether everything was as it must be."""
        return not self.differences

    @property
    def empty(self) -> bool:
        """Whether no row was due and none was there, so that nothing could be compared."""
        return self.differences == [NOTHING_DUE]

    def __str__(self) -> str:
        if self.equal:
            return f"{self.subject}: {self.windows} windows, {self.rows} rows, all equal"
        shown = "\n  ".join(self.differences[:10])
        more = f"\n  … and {len(self.differences) - 10} more" if len(self.differences) > 10 else ""
        return f"{self.subject}: {len(self.differences)} differences over {self.windows} windows\n  {shown}{more}"


def compare(
    subject: str,
    actual: Iterable[Row],
    expected: Iterable[Row],
    keys: Sequence[str],
    rtol: float = 1e-9,
    atol: float = 1e-12,
) -> Comparison:
    """Every expected row must be there once, equal in every expected column, and no other row.

    Rows are matched by ``keys``; rows with equal keys in order of their other columns. Floats may differ by ``rtol``
    relatively, or by ``atol``. Nothing expected is a difference too: a check of nothing proves nothing.
    """
    mine, theirs = rows_by_key(actual, keys), rows_by_key(expected, keys)
    ends = {row["window_end"] for row in (r for group in theirs.values() for r in group) if "window_end" in row}
    result = Comparison(subject, windows=len(ends), rows=sum(map(len, theirs.values())))
    if not theirs:
        result.differences.append(NOTHING_DUE)
    for key in sorted({*mine, *theirs}, key=lambda k: [order_value(v) for v in k]):
        where = ", ".join(f"{name}={show(value)}" for name, value in zip(keys, key, strict=True))
        ours, wanted = mine.get(key, []), theirs.get(key, [])
        if len(ours) != len(wanted):
            example = (ours or wanted)[0]
            kind = "missing" if len(ours) < len(wanted) else "not expected"
            result.differences.append(
                f"{where}: {len(ours)} rows, expected {len(wanted)}; {kind}: {show_row(example, keys)}"
            )
            continue
        for our_row, wanted_row in zip(ours, wanted, strict=True):
            result.differences += [
                f"{where}: {name} is {show(our_row.get(name))}, expected {show(value)}"
                for name, value in wanted_row.items()
                if not same(our_row.get(name), value, rtol, atol)
            ]
    return result


def rows_by_key(rows: Iterable[Row], keys: Sequence[str]) -> dict[tuple, list[Row]]:
    """Rows by their key, those of one key in order of their other columns."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[k] for k in keys), []).append(row)
    for group in groups.values():
        group.sort(key=lambda row: sort_key(row, sorted(row)))
    return groups


def sort_key(row: Row, names: Sequence[str]) -> list:
    """Something that sorts rows, whatever they hold."""
    return [order_value(row.get(name)) for name in names]


def order_value(value: Any) -> tuple:
    """NULLs last; maps and odd things by their text."""
    if value is None:
        return (1, "")
    if isinstance(value, bool | int | float | Decimal):
        return (0, "number", float(value))
    return (0, type(value).__name__, value if isinstance(value, str | datetime) else str(value))


def same(actual: Any, expected: Any, rtol: float, atol: float = 1e-12) -> bool:
    """Whether two values are equal; floats within ``rtol`` or ``atol``, maps entry by entry."""
    if isinstance(expected, dict):
        entries = dict(actual or ())
        return entries.keys() == expected.keys() and all(same(entries[k], v, rtol, atol) for k, v in expected.items())
    if isinstance(actual, Decimal) and isinstance(expected, float | Decimal):
        # DuckDB divides and averages decimals as doubles: the last digit may be another.
        digit = Fraction(1, 10 ** -int(actual.as_tuple().exponent))
        return abs(Fraction(actual) - Fraction(expected)) <= max(Fraction(rtol) * abs(Fraction(expected)), digit)
    if isinstance(expected, float | Decimal) and isinstance(actual, int | float):
        return math.isclose(actual, expected, rel_tol=rtol, abs_tol=atol) or (
            math.isnan(expected) and math.isnan(actual)
        )
    return bool(actual == expected)


def show(value: Any) -> str:
    """A value as a reader of a failed test wants to see it."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S}".removesuffix(":00")
    return repr(value)


def show_row(row: Row, without: Sequence[str]) -> str:
    """The rest of a row, on one line."""
    return ", ".join(f"{name}={show(value)}" for name, value in row.items() if name not in without)


def read_rows(folder: Path, table: str, condition: str = "true") -> list[Row]:
    """The rows of a table, over all its partitions, for which a condition in DuckDB's SQL holds."""
    if not any(folder.glob(f"{table}/*/*.parquet")):
        return []
    return arrow(connect(), f"SELECT * FROM {parquet(folder, table)} WHERE {condition}").to_pylist()


def check_answers(pipeline: Pipeline, query: Query, folder: Path, start: datetime, end: datetime) -> Comparison:
    """Compare the table ``answers_<query>`` as a whole with what it must hold."""
    table = f"answers_{query.id}"
    within = f"emitted_at >= '{start.isoformat()}' AND emitted_at < '{end.isoformat()}'"
    actual = read_rows(folder, table, within)
    expected = expected_answers(pipeline, query, folder, start, end)
    comparison = compare(table, actual, expected, key_columns(query))
    # All windows that were due, also those whose answer is rightly without rows.
    comparison.windows = len(expected_windows(pipeline, query, folder, start, end))
    return comparison


def check_truth(pipeline: Pipeline, query: Query, folder: Path, start: datetime, end: datetime) -> Comparison:
    """Compare the table ``truth_<query>`` as a whole with what it must hold."""
    table = f"truth_{query.id}"
    comparison = compare(
        table, read_rows(folder, table), expected_truth(pipeline, query, folder, start, end), key_columns(query)
    )
    comparison.windows = len(final_windows(pipeline, query, folder, start, end))
    return comparison


def check_accuracy(pipeline: Pipeline, query: Query, folder: Path, start: datetime, end: datetime) -> Comparison:
    """Compare the query's rows of ``accuracy`` with the accuracy of its answers, both recomputed here.

    A window counts if it was answered and its truth is known, both within [start, end). Windows in which neither the
    answer nor the truth has a row need no row; if they have one, it must say that all is well.
    """
    answers, truths = (
        by_window(with_decimals(rows, read_rows(folder, f"{table}_{query.id}"), key_columns(query)))
        for table, rows in (
            ("answers", expected_answers(pipeline, query, folder, start, end)),
            ("truth", expected_truth(pipeline, query, folder, start, end)),
        )
    )
    answered = {w.window_end: w for w in expected_windows(pipeline, query, folder, start, end)}
    final = [t for t in final_windows(pipeline, query, folder, start, end) if t in answered]
    actual = [row for row in read_rows(folder, "accuracy") if row["query"] == query.id]
    present = {row["window_end"]: row for row in actual}
    expected = []
    for tick in final:
        if tick not in present and not answers.get(tick) and not truths.get(tick):
            continue
        value = accuracy_of(query, answers.get(tick, []), truths.get(tick, []))
        is_hit_rate = query.kind == "top_k"
        promised = query.accuracy if is_hit_rate else query.error
        kept = None if promised is None else (value >= promised if is_hit_rate else value <= promised)
        if promised is not None and math.isclose(value, promised, rel_tol=1e-9) and tick in present:
            kept = present[tick]["kept"]  # on the very edge the last bit of a sum decides
        expected.append(
            {
                "window_end": tick,
                "metric": "hit_rate" if is_hit_rate else "relative_error",
                "value": value,
                "promised": promised,
                "kept": kept,
                "slack_s": answered[tick].slack_s,
                "width_s": answered[tick].width_s,
            }
        )
    # Answers and truths that may differ by a part in 10^9 are at distances that differ by two.
    return compare(f"accuracy of {query.id}", actual, expected, ["window_end"], atol=2e-9)


def with_decimals(rows: Iterable[Row], written: Iterable[Row], keys: Sequence[str]) -> list[Row]:
    """Recomputed rows, with the decimals of the written ones where both are the same to the last digit.

    DuckDB divides decimals as doubles. The error of 2E-8 beside 1E-8 is 1, that of the doubles which were rounded to
    them is any from 0 to 2.
    """
    decimals = rows_by_key(written, keys)
    result = []
    for key, group in rows_by_key(rows, keys).items():
        for row, other in zip_longest(group, decimals.get(key, [])[: len(group)], fillvalue={}):
            result.append(
                {
                    name: other[name]
                    if isinstance(other.get(name), Decimal) and same(other[name], value, 1e-9)
                    else value
                    for name, value in row.items()
                }
            )
    return result


def by_window(rows: Iterable[Row]) -> dict[datetime, list[Row]]:
    """Rows by the window that they belong to."""
    windows: dict[datetime, list[Row]] = {}
    for row in rows:
        windows.setdefault(row["window_end"], []).append(row)
    return windows
