"""Rows for every table of any pipeline, small and plausible, the same in every run."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

import pyarrow as pa

from tidegate.declarations.models import Pipeline, Query
from tidegate.store.intervals import Interval
from tidegate.store.warehouse import Warehouse

Row = dict[str, Any]
_TUPLES = 6
_TICKS = 2
_FRACTION = 0.5


def fill_warehouse(warehouse: Warehouse, intervals: tuple[Interval, ...]) -> None:
    """Write every table's partition of every interval."""
    with warehouse.commit("synthetic", intervals) as commit:
        for interval in intervals:
            for table in warehouse.tables():
                rows = rows_of(warehouse.pipeline, table, interval, warehouse.schema(table))
                data = pa.Table.from_pylist(rows, schema=warehouse.schema(table))
                if table == "run_metrics":
                    commit.put_file(table, interval, "synthetic", data)
                else:
                    commit.put_arrow(table, interval, data)


def replace_rows(warehouse: Warehouse, table: str, interval: Interval, rows: list[Row]) -> None:
    """Put other rows in the place of a partition's."""
    with warehouse.commit("synthetic", [interval]) as commit:
        commit.put_arrow(table, interval, pa.Table.from_pylist(rows, schema=warehouse.schema(table)))


def rows_of(pipeline: Pipeline, table: str, interval: Interval, schema: pa.Schema) -> list[Row]:
    """The rows of one partition."""
    random = Random(f"{table} {interval.label}")
    start, end = interval.start, interval.end
    tick = timedelta(seconds=pipeline.tick_s)
    window_ends = [start + tick * n for n in range(_TICKS)]
    streams = [s.name for s in pipeline.streams]
    with_history = [s.name for s in pipeline.streams if s.history is not None]
    queries = pipeline.queries
    kind, _, name = table.partition("_")

    if kind == "events":
        return [_tuple(random, schema, interval, n) for n in range(_TUPLES)]
    if kind == "kept":
        given = rows_of(pipeline, f"answers_{name}", interval, schema)
        return [row for row in given if row["window_end"] in window_ends[::2]]
    if kind in ("answers", "truth"):
        query = pipeline.query(name)
        return [row for window_end in window_ends for row in _answers(random, schema, query, window_end)]
    if kind == "corrections":
        at = {"emitted_at": end, "known_at": end}
        keys = dict.fromkeys(pipeline.query(name).answer_keys)
        return [{"window_end": window_end, **at, **keys} for window_end in window_ends]
    if table.startswith("history_samples_"):
        own = {"leaf_start": start, "fraction": _FRACTION, "weight": 1 / _FRACTION}
        # In their leaf, which is the interval's own stretch of time.
        at = [{"u": n / _TUPLES, "event_time": start + (end - start) * n / _TUPLES} for n in range(_TUPLES)]
        kept = range(int(_TUPLES * _FRACTION))
        return [{**_tuple(random, schema, interval, n), **own, **at[n]} for n in kept]
    match table:
        case "history_leaves":
            return [
                {**_filled(random, schema), "stream": s, "leaf_start": start, "leaf_end": end, "tuples": _TUPLES}
                | {"sampled": int(_TUPLES * _FRACTION), "fraction": _FRACTION}
                for s in with_history
            ]
        case "history_groups":
            group = {"leaf_start": start, "leaf_end": end, "group_column": "origin", "tuples": _TUPLES}
            grouped = [x.name for x in pipeline.streams if x.history is not None and x.history.group_by]
            return [
                {**_filled(random, schema), **group, "stream": name, "group_value": value}
                for name in grouped
                for value in ("EWR", None)
            ]
        case "quarantine":
            broken = {"stream": streams[0], "arrival_time": None, "reason": "broken_record", "record": "{"}
            refused = {"stream": streams[0], "arrival_time": start, "reason": "wrong_type", "column": "x"}
            refused |= {"source": f"{interval.label}.jsonl"}
            texts = ('{"x": "a"}', '{"x": "b"}')
            return [broken, *({**refused, "record": text, "position": n} for n, text in enumerate(texts, 1))]
        case "unknown_columns":
            return [{"stream": streams[0], "column": "colour", "records": _TUPLES, "first_seen": start}]
        case "source_files":
            file = {"path": f"{interval.label}.jsonl", "status": "ok", "bytes": 10, "modified": end, "rows": _TUPLES}
            kinds = ("missing", "unreadable", "changed", "empty")
            others = [{**file, "path": f"{interval.label}-{kind}.jsonl", "status": kind, "rows": 0} for kind in kinds]
            return [{"stream": s, **row} for s in streams for row in (file, *others)]
        case "stream_rates":
            return [
                {"stream": s, "tick": t, "tuples": 3, "rate": 0.5, "tuple_bytes": 64.0}
                | {"held_tuples": 3, "held_bytes": 192.0, "evicted_early": 0}
                for s in streams
                for t in window_ends
            ]
        case "window_plan":
            plan = {"effective_from": start, "support_level": "B", "width_s": 1800.0, "min_width_s": 900.0}
            rest = {"max_width_s": 3600.0, "byte_rate": 1.0, "planned_bytes": 1800.0, "trigger": "rate"}
            return [{"stream": s, **plan, **rest} for s in streams]
        case "query_plan":
            plan = {"effective_from": start, "support_level": "B", "slot_end": None, "period_s": None}
            tolerable = {q.id: [(s, 0.9 * r) for s, r in q.ranges_s().items()] for q in queries}
            return [{"query": q.id, **plan, "tolerable_s": tolerable[q.id], "extra_answer": None} for q in queries]
        case "accuracy":
            return [_accuracy(random, query, window_end) for query in queries for window_end in window_ends]
        case "accuracy_groups":
            group = {"group_key": '{"origin": "EWR"}', "metric": "relative_error", "value": 0.01, "tuples": _TUPLES}
            by_group = [query.id for query in queries if query.promises_by_group]
            return [{"query": q, "window_end": t, **group, "last_event": t} for q in by_group for t in window_ends]
        case "promise_periods":
            return [_period(query, number, interval) for number, query in enumerate(queries) if query.promised is not None]
        case "slack_plan":
            plan = {"effective_from": end, "slack_s": 600.0, "accuracy_target": 0.95, "accuracy_expected": 0.96}
            rest = {"oracle_slack_s": 480.0, "windows": _TICKS, "method": "needed_slack"}
            return [{"query": q.id, **plan, **rest} for q in queries]
        case "needed_slack":
            return [
                {"query": q.id, "window_end": t, "event_id": f"e{n}", "slack_s": float(n * 60)}
                for q in queries
                for t in window_ends
                for n in range(3)
            ]
        case "width_errors":
            return [
                {"query": q.id, "window_end": t, "share": share, "error": 1.0 - share}
                for q in queries
                for t in window_ends
                for share in (0.5, 1.0)
            ]
        case "error_width_plan":
            plan = {"effective_from": end, "tolerated_error": 0.02, "slack_width_s": 60.0, "coverage": 0.98}
            return [{"query": q.id, "stream": w.stream, **plan} for q in queries for w in q.windows[:1]]
        case "history_passes":
            leaf = {"pass_time": end, "tuples_before": 10, "leaf_start": start, "leaf_end": end, "fraction": 0.4}
            return [{"stream": s, **leaf} for s in with_history]
        case "history_accuracy":
            asked = {"question": f"SELECT COUNT(*) FROM {with_history[0]}", "tuples": 10, "fraction": 0.4, "truth": 10.0}
            found = {"estimate": 9.0, "low": 8.0, "high": 11.0, "exact": False, "holds": True}
            return [{"stream": s, "part_start": start, "part_end": end, **asked, **found} for s in with_history]
        case "run_metrics":
            row = {"started_at": end, "seconds": 2.5, "rows_in": 10, "rows_out": 9, "rows_late": 1}
            row |= {"rows_quarantined": 1, "peak_state_bytes": 500, "memory_budget_bytes": 1000}
            row |= {"peak_process_bytes": 2000, "process_budget_bytes": 3000}
            return [
                {"app": "ingest", "query": None, **row},
                *({"app": "answer", "query": q.id, **row} for q in queries),
            ]
        case "quality_results":
            row = {"table": "accuracy", "expectation": "promise_kept", "severity": "critical", "success": True}
            missed = {"success": False, "promised": 0.95, "measured": 0.9, "window_end": start, "detail": "missed"}
            return [{**row, "query": q.id, **(missed if q is queries[0] else {})} for q in queries]
    raise KeyError(table)


def _period(query: Query, number: int, interval: Interval) -> Row:
    """How the day of the interval stands; the first query's day is over."""
    day = interval.start.replace(hour=0, minute=0, second=0, microsecond=0)
    over = number == 0
    return {
        "query": query.id,
        "promise": f"ERROR {query.error}" if query.error is not None else f"ACCURACY {query.accuracy}",
        "period_start": day - timedelta(days=over),
        "period_end": day + timedelta(days=1 - over),
        "windows": 20,
        "promised": query.accuracy if query.error is None else 0.95,
        "measured": 0.95,
        "kept": True if over else None,
        "periods_judged": int(over),
        "periods_kept": int(over),
        "met_so_far": 1.0 if over else None,
        "judged_at": interval.end,
    }


def _filled(random: Random, schema: pa.Schema) -> Row:
    """A value of the right type for every column."""
    values = {}
    for field in schema:
        if pa.types.is_integer(field.type):
            values[field.name] = random.randrange(1, 100)
        elif pa.types.is_floating(field.type):
            values[field.name] = random.uniform(-10, 100)
        elif pa.types.is_string(field.type):
            values[field.name] = random.choice(["EWR", "JFK", 'it\'s \\ "LGA"'])
        else:
            values[field.name] = None
    return values


def _tuple(random: Random, schema: pa.Schema, interval: Interval, number: int) -> Row:
    arrival = interval.start + (interval.end - interval.start) * number / _TUPLES
    late = timedelta(seconds=random.randrange(-300, 3000))
    keys = {"event_id": f"{interval.label}-{number}", "event_time": arrival - late, "arrival_time": arrival}
    return {**_filled(random, schema), **keys}


def _answers(random: Random, schema: pa.Schema, query: Query, window_end: Any) -> list[Row]:
    widths = {w.alias: w.range_s / 2 for w in query.windows}
    held = {"window_end": window_end, "emitted_at": window_end + timedelta(minutes=10), "width_s": widths}
    held |= {"range_s": {w.alias: w.range_s for w in query.windows}}
    held |= {"coverage": 0.5 ** len(widths), "support_level": "B", "slack_s": 600.0, "accuracy_expected": 0.9}
    own = {name: value for name, value in held.items() if name in schema.names}
    groups = list(query.group_outputs)
    count = 3 if query.kind == "top_k" or groups else 1
    rows = []
    for number in range(1, count + 1):
        row = {**_filled(random, schema), **own, **{group: f"group {number}" for group in groups}}
        # Of a top-k per group, the first of each group.
        rows.append({**row, "rank": 1 if groups else number} if query.kind == "top_k" else row)
    return rows


def _accuracy(random: Random, query: Query, window_end: Any) -> Row:
    top_k = query.kind == "top_k"
    value = random.choice([0.9, 1.0]) if top_k else random.choice([0.0, 0.01, 0.03])
    promised = query.promised
    kept = None if promised is None else (value >= promised if top_k else value <= promised)
    row = {"query": query.id, "window_end": window_end, "metric": "hit_rate" if top_k else "relative_error"}
    widths = {w.alias: w.range_s / 2 for w in query.windows}
    return {**row, "value": value, "promised": promised, "kept": kept, "slack_s": 600.0, "width_s": widths}
