"""The exact aggregates of every leaf of history, by adding up tuple after tuple."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from infra.oracle.answers import Comparison, Row, compare, read_rows
from infra.oracle.schedule import lower_bounds, rows

from tidegate.declarations.models import Pipeline, Stream

LEAF_COLUMNS = ("count", "sum", "min", "max", "sum_squares")


def entered(pipeline: Pipeline, stream: Stream, folder: Path, start: datetime, end: datetime) -> list[Row]:
    """The tuples that entered history in [start, end).

    A tuple enters at the first instant at which it has arrived, has happened, and has left its window: its event time
    lies before the window's lower bound at some tick.
    """
    bounds = lower_bounds(pipeline, stream.name, folder, start, end)
    ticks = sorted(tick for tick in bounds if bounds[tick] is not None)
    lowers = [bounds[tick] for tick in ticks]
    found = []
    for row in read_rows(folder, f"events_{stream.name}"):
        left = bisect_right(lowers, row["event_time"])
        if left == len(ticks):
            continue
        if start <= max(ticks[left], row["arrival_time"], row["event_time"]) < end:
            found.append(row)
    return found


def leaf_totals(stream: Stream, leaves: Sequence[tuple[datetime, datetime]], tuples: Sequence[Row]) -> list[Row]:
    """One row a leaf [start, end): how many tuples, and per numeric column its aggregates over all of them."""
    totals = []
    for leaf_start, leaf_end in leaves:
        own = [row for row in tuples if leaf_start <= row["event_time"] < leaf_end]
        total: Row = {"stream": stream.name, "leaf_start": leaf_start, "leaf_end": leaf_end, "tuples": len(own)}
        for name in stream.numeric_columns:
            values = [float(row[name]) for row in own if row[name] is not None]
            total |= {
                f"{name}_count": len(values),
                f"{name}_sum": sum(values) if values else None,
                f"{name}_min": min(values, default=None),
                f"{name}_max": max(values, default=None),
                f"{name}_sum_squares": sum(v * v for v in values) if values else None,
            }
        totals.append(total)
    return totals


def added_up(found: Sequence[Row], stream: Stream) -> list[Row]:
    """Rows of ``history_leaves`` with those of one leaf, from several intervals, added up."""
    leaves: dict[tuple, Row] = {}
    for row in found:
        # Tables do not tell case apart: the column may be spelled as another stream has it.
        value = {column.lower(): row[column] for column in row}
        key = (row["stream"], row["leaf_start"], row["leaf_end"])
        kept = leaves.setdefault(
            key, {**dict(zip(("stream", "leaf_start", "leaf_end"), key, strict=True)), "tuples": 0}
        )
        kept["tuples"] += row["tuples"]
        for name in stream.numeric_columns:
            for part in LEAF_COLUMNS:
                column = f"{name}_{part}"
                mine, theirs = kept.get(column), value[column.lower()]
                if mine is None or theirs is None:
                    kept[column] = theirs if mine is None else mine
                else:
                    kept[column] = {"min": min, "max": max}.get(part, lambda a, b: a + b)(mine, theirs)
    for row in leaves.values():
        for name in stream.numeric_columns:
            if not row[f"{name}_count"]:  # 0 and NULL both say that a column had no value
                row |= {f"{name}_{part}": None for part in LEAF_COLUMNS[1:]}
    return list(leaves.values())


def check_history(pipeline: Pipeline, stream: Stream, folder: Path, start: datetime, end: datetime) -> Comparison:
    """Compare a stream's rows of ``history_leaves`` with totals over the tuples that must have entered.

    The leaves are taken as they stand, since passes merge them; each tuple must lie in exactly one of them.
    """
    actual = added_up([row for row in read_rows(folder, "history_leaves") if row["stream"] == stream.name], stream)
    leaves = sorted((row["leaf_start"], row["leaf_end"]) for row in actual)
    tuples = entered(pipeline, stream, folder, start, end)
    comparison = compare(f"history of {stream.name}", actual, leaf_totals(stream, leaves, tuples), ["leaf_start"])
    covered = [any(a <= row["event_time"] < b for a, b in leaves) for row in tuples]
    if not all(covered):
        comparison.differences.append(f"{covered.count(False)} of {len(tuples)} tuples are in no leaf")
    overlaps = [
        f"leaf from {b[0]} overlaps the one before" for a, b in zip(leaves, leaves[1:], strict=False) if b[0] < a[1]
    ]
    comparison.differences += overlaps
    return comparison


def tuple_key(row: Row) -> tuple[str, datetime, datetime]:
    """What tells a tuple from all others: beyond ``max_late``, a repeated id is a tuple of its own."""
    return row["event_id"], row["event_time"], row["arrival_time"]


def check_samples(pipeline: Pipeline, stream: Stream, folder: Path, start: datetime, end: datetime) -> Comparison:
    """Every sampled tuple must have entered, be one of the stream's, and come once; leaves say how many they keep."""
    known = {tuple_key(row) for row in entered(pipeline, stream, folder, start, end)}
    sampled = read_rows(folder, f"history_samples_{stream.name}")
    comparison = Comparison(f"samples of {stream.name}", rows=len(sampled))
    keys = [tuple_key(row) for row in sampled]
    if not keys:
        comparison.differences.append("nothing was sampled")
    if len(set(keys)) != len(keys):
        comparison.differences.append(f"{len(keys) - len(set(keys))} tuples were sampled twice")
    comparison.differences += [f"{key} was sampled but has not entered history" for key in sorted(set(keys) - known)]
    comparison.differences += [
        f"{row['event_id']}: u={row['u']} is not below its fraction {row['fraction']}"
        for row in sampled
        if not row["u"] < row["fraction"]
    ]
    counts = rows(folder, f"SELECT sum(sampled) FROM {{t}} WHERE stream = '{stream.name}'", "history_leaves")
    if counts and (counts[0][0] or 0) != len(keys):
        comparison.differences.append(f"the leaves say {counts[0][0]} sampled tuples, the samples hold {len(keys)}")
    return comparison
