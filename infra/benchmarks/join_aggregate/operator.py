"""The join-aggregate operator alone, in memory, beside a plain numpy kernel.

``python -m infra.benchmarks.join_aggregate.operator`` prints a table: tuples per second of one core, and what share of
the kernel's speed that is. The kernel is the physical limit: one query, small integer keys, all tuples in arrays at
once, in order of event time; it knows no Arrow, no arrival, no state.

Queries: ``plain``, all in one group; ``group by key``, the join key itself; ``group by other``, a column of the first
side beside the key; ``chain``, s0.x = s1.x and s1.y = s2.y; ``chain by key``, the same, grouped by x. Where answers
abound, writing them down is no work on tuples: ``ns`` and ``Mtuples/s`` are without it, ``answers``, ``ns each`` and
``all ns`` tell how many there are, what one costs, and a tuple's time with its share of them.
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
import pstats
import time
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from infra.benchmarks.generator.keys import Uniform, Zipf
from infra.benchmarks.generator.lateness import Exponential
from infra.benchmarks.generator.randomness import Floats, Integers, uniforms

from tidegate.operators.join_aggregate import Measure, Side, Spec, finish, operator, start, step
from tidegate.operators.schedule import Schedule

SECOND_US = 1_000_000
SHAPES = {"60 s by 5 s": (60, 5), "600 s by 1 s": (600, 1)}
BATCH_ROWS = 1 << 18
# Query → how many sides it can have.
QUERIES = {"plain": (1, 2, 3), "group by key": (2, 3), "group by other": (2, 3), "chain": (3,), "chain by key": (3,)}


@dataclass(frozen=True)
class Feed:
    """Tuples of all sides in order of arrival; ``slack_s`` is as large as the largest lateness.

    ``second``: another key, drawn as ``key`` is. ``group``: any of 0 … ``groups`` − 1.
    """

    side: Integers
    event_us: Integers
    arrival_us: Integers
    key: Integers
    second: Integers
    group: Integers
    value: Floats
    slack_s: int
    seconds: int


def feed(
    sides: int, rows: int, rate: float, keys: Uniform | Zipf, groups: int, late: bool, whole: bool, seed: int
) -> Feed:
    """``rows`` tuples a side at ``rate`` tuples/s a side; values are whole numbers or any doubles below 1000."""
    seconds = round(rows / rate)
    columns = []
    for side in range(sides):
        name = f"side {side}"
        event_us = np.sort((uniforms(seed, f"{name}/events", rows) * seconds * SECOND_US).astype(np.int64))
        late_s = Exponential(5.0).quantile_s(uniforms(seed, f"{name}/lateness", rows)) if late else np.zeros(rows)
        value = uniforms(seed, f"{name}/values", rows) * 1000
        value = np.floor(value) if whole else value
        key, second = (keys.columns(rows, seed, f"{name}{which}")["key"] for which in ("", "/second"))
        group = (uniforms(seed, f"{name}/groups", rows) * groups).astype(np.int64)
        arrival_us = event_us + (late_s * SECOND_US).astype(np.int64)
        columns.append((np.full(rows, side), event_us, arrival_us, key, second, group, value, late_s))
    side, event_us, arrival_us, key, second, group, value, late_s = (
        np.concatenate(parts) for parts in zip(*columns, strict=True)
    )
    order = np.lexsort((event_us, arrival_us))
    return Feed(
        side[order],
        event_us[order],
        arrival_us[order],
        key[order],
        second[order],
        group[order],
        value[order],
        int(np.ceil(late_s.max())),
        seconds,
    )


def query(shape: str, functions: tuple[str, ...], sides: int) -> Spec:
    """The functions over a value of the first side, joined with the others."""
    measures = tuple(
        Measure(f"a{i}", f, None if f == "count" else "s0")  # type: ignore[arg-type]
        for i, f in enumerate(functions)
    )
    columns = [pa.field(m.slot, pa.float64()) for m in measures if m.alias is not None]
    if sides == 1:
        return Spec((Side("s0"),), measures, pa.schema(columns))
    columns.append(pa.field("j0", pa.int64()))
    by_class = (("g0", "j0"),) if shape.endswith("by key") else ()
    if shape.startswith("chain"):
        columns.append(pa.field("j1", pa.int64()))
        aliases: tuple[Side, ...] = (Side("s0", ("j0",)), Side("s1", ("j0", "j1")), Side("s2", ("j1",)))
        return Spec(aliases, measures, pa.schema(columns), by_class)
    groups = ("g0",) if shape == "group by other" else ()
    columns += [pa.field(name, pa.int64()) for name in groups]
    aliases = tuple(Side(f"s{i}", ("j0",), () if i else groups) for i in range(sides))
    return Spec(aliases, measures, pa.schema(columns), by_class)


def batches(spec: Spec, tuples: Feed) -> list[pa.Table]:
    """The feed as the operator is given it."""
    columns = {"side": tuples.side.astype(np.int8), "event_us": tuples.event_us, "arrival_us": tuples.arrival_us}
    slots = {"j0": tuples.key, "j1": tuples.second, "g0": tuples.group}
    for name in spec.columns.names:
        columns[name] = slots.get(name, tuples.value)
    table = pa.table(columns)
    return [table.slice(begin, BATCH_ROWS) for begin in range(0, len(table), BATCH_ROWS)]


@dataclass(frozen=True)
class Run:
    """Per window the pairs and the pairs times (group + 1); the most bytes held; CPU seconds, those for the rows of
    the answers apart; and how many rows that are."""

    pairs: Floats
    weighted: Floats
    peak_bytes: int
    work_s: float
    writing_s: float
    answers: int


def through_operator(spec: Spec, schedule: Schedule, fed: list[pa.Table]) -> Run:
    """The answers, and what they took. They are summed up as they come, off the clock: 20 million would fill memory."""
    writing_s = work_s = 0.0
    rows = 0
    pairs, weighted = np.zeros(len(schedule)), np.zeros(len(schedule))

    def writing(*arguments: Any) -> pa.Table:
        nonlocal writing_s
        began = time.process_time()
        result = answer_rows(*arguments)
        writing_s += time.process_time() - began
        return result

    answer_rows = operator.answer_rows
    with patch.object(operator, "answer_rows", writing):
        state = start(spec, schedule)
        for batch in [*fed, None]:
            began = time.process_time()
            state, answered = finish(state) if batch is None else step(state, batch)
            work_s += time.process_time() - began
            window, number = answered.column("window_index").to_numpy(), answered.column("pairs").to_numpy()
            group = answered.column("g0").to_numpy() + 1.0 if "g0" in answered.column_names else np.ones(len(window))
            rows += len(window)
            pairs += np.bincount(window, number.astype(np.float64), len(pairs))
            weighted += np.bincount(window, number * group, len(pairs))
    return Run(pairs, weighted, state.peak_bytes, work_s - writing_s, writing_s, rows)


def through_numpy(
    shape: str, tuples: Feed, sides: int, keys: int, groups: int, range_s: int, every_s: int
) -> tuple[Floats, Floats, float]:
    """Per window the pairs of the join and the pairs times (group + 1), and the CPU seconds that it took."""
    began = time.process_time()
    pane = tuples.event_us // (every_s * SECOND_US)
    panes, width = tuples.seconds // every_s, range_s // every_s
    own = [tuples.side == side if sides > 1 else slice(None) for side in range(sides)]

    def per_pane(side: int, column: Integers, size: int) -> Integers:
        return np.bincount(pane[own[side]] * size + column[own[side]], minlength=panes * size).reshape(-1, size)

    chain, by_other = shape.startswith("chain"), shape == "group by other"
    first = tuples.key * groups + tuples.group if by_other else tuples.key
    counts = [per_pane(0, first, keys * groups if by_other else keys)] if not by_other else []
    counts += [per_pane(side, tuples.key, keys) for side in range(1, sides) if not (chain and side == 1)]
    if chain:
        counts[1] = per_pane(2, tuples.second, keys)
        place = np.argsort(pane[own[1]], kind="stable")
        x, y = tuples.key[own[1]][place], tuples.second[own[1]][place]
        cuts = np.searchsorted(pane[own[1]][place], np.arange(panes + 1))
    if by_other:
        place = np.argsort(pane[own[0]], kind="stable")
        cell = first[own[0]][place]
        cuts = np.searchsorted(pane[own[0]][place], np.arange(panes + 1))
        cells = np.zeros((keys, groups))
    totals = [np.zeros(count.shape[1], dtype=np.int64) for count in counts]
    pairs, weighted = np.zeros(panes), np.zeros(panes)
    key_weight, group_weight = np.arange(1.0, keys + 1), np.arange(1.0, groups + 1)
    for window in range(panes):
        for total, count in zip(totals, counts, strict=True):
            total += count[window]
            if window >= width:
                total -= count[window - width]
        since = max(window - width + 1, 0)
        if by_other:
            np.add.at(cells.reshape(-1), cell[cuts[window] : cuts[window + 1]], 1.0)
            if window >= width:
                np.subtract.at(cells.reshape(-1), cell[cuts[window - width] : cuts[since]], 1.0)
            product = np.prod(totals, axis=0) @ cells
            pairs[window], weighted[window] = product.sum(), product @ group_weight
            continue
        if chain:
            inside = slice(cuts[since], cuts[window + 1])
            product = totals[0][x[inside]] * totals[1][y[inside]]
            weight = x[inside] + 1.0
        else:
            product, weight = np.prod(totals, axis=0), key_weight
        pairs[window] = product.sum()
        weighted[window] = product @ weight if shape.endswith("key") else pairs[window]
    return pairs, weighted, time.process_time() - began


def main() -> None:
    """Run every case that the arguments leave."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000, help="tuples a side")
    parser.add_argument("--rate", type=float, default=1000.0, help="tuples a second and side")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--sides", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--functions", nargs="*", default=["count", "sum", "avg", "min", "max", "count,sum"])
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES))
    parser.add_argument("--distributions", nargs="*", default=["uniform", "zipf"])
    parser.add_argument("--orders", nargs="*", default=["in order", "late"])
    parser.add_argument("--any-doubles", action="store_true", help="values with all 53 bits instead of whole numbers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profile", action="store_true", help="print where the time of each case goes")
    parser.add_argument("--queries", nargs="*", choices=list(QUERIES), default=list(QUERIES))
    parser.add_argument("--groups", type=int, default=50, help="values of the column beside the key")
    asked = parser.parse_args()
    print(
        f"{'query':14} {'sides':>5} {'keys':8} {'order':9} {'window':13} {'functions':10} {'Mtuples/s':>9}"
        f" {'kernel':>7} {'share':>6} {'ns':>6} {'answers':>9} {'ns each':>7} {'all ns':>6} {'peak MB':>8}"
        f" {'α+β MB':>7}"
    )
    for sides, distribution, order in itertools.product(asked.sides, asked.distributions, asked.orders):
        keys = Uniform(asked.keys) if distribution == "uniform" else Zipf(asked.keys, 1.1)
        whole = not asked.any_doubles
        tuples = feed(sides, asked.rows, asked.rate, keys, asked.groups, order == "late", whole, asked.seed)
        for shape, window in itertools.product(asked.queries, asked.shapes):
            if sides not in QUERIES[shape]:
                continue
            range_s, every_s = SHAPES[window]
            *expected, kernel_s = through_numpy(shape, tuples, sides, asked.keys, asked.groups, range_s, every_s)
            ends = np.arange(every_s, tuples.seconds + 1, every_s, dtype=np.int64) * SECOND_US
            aliases = {f"s{i}": range_s * SECOND_US for i in range(sides)}
            schedule = Schedule.from_ticks(ends, tuples.slack_s * SECOND_US, aliases)
            for functions in asked.functions:
                spec = query(shape, tuple(functions.split(",")), sides)
                fed = batches(spec, tuples)
                profile = cProfile.Profile()
                if asked.profile:
                    profile.enable()
                run = through_operator(spec, schedule, fed)
                profile.disable()
                if not all(map(np.allclose, (run.pairs, run.weighted), expected, itertools.repeat(1e-12))):
                    raise SystemExit(f"{shape}, {sides} sides, {window}, {functions}: not the kernel's answers")
                count = len(tuples.side)
                windows_mb = sides * range_s * asked.rate * peak_bytes_of(spec) / 1e6
                print(
                    f"{shape:14} {sides:5} {distribution:8} {order:9} {window:13} {functions:10}"
                    f" {count / run.work_s / 1e6:9.2f} {count / kernel_s / 1e6:7.1f} {kernel_s / run.work_s:6.0%}"
                    f" {run.work_s / count * 1e9:6.0f} {run.answers:9} {run.writing_s / max(run.answers, 1) * 1e9:7.0f}"
                    f" {(run.work_s + run.writing_s) / count * 1e9:6.0f} {run.peak_bytes / 1e6:8.2f} {windows_mb:7.2f}",
                    flush=True,
                )
                if asked.profile:
                    pstats.Stats(profile).sort_stats("tottime").print_stats(18)


def peak_bytes_of(spec: Spec) -> float:
    """Bytes of one tuple, averaged over the sides: two times, keys, groups and values, with a validity bit each."""
    columns = [2 + len(side.classes) + len(side.groups) + len(spec.measures_of(side.alias)) for side in spec.sides]
    return float(np.mean(columns)) * 8.125


if __name__ == "__main__":
    main()
