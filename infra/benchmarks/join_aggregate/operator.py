"""The join-aggregate operator alone, in memory, beside a plain numpy kernel.

``python -m infra.benchmarks.join_aggregate.operator`` prints a table: tuples per second of one core, and what share of
the kernel's speed that is. The kernel is the physical limit: one query, small integer keys, all tuples in arrays at
once, in order of event time; it knows no Arrow, no arrival, no state.
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
import pstats
import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from infra.benchmarks.generator.keys import Uniform, Zipf
from infra.benchmarks.generator.lateness import Exponential
from infra.benchmarks.generator.randomness import Floats, Integers, uniforms

from tidegate.operators.join_aggregate import Measure, Side, Spec, finish, start, step
from tidegate.operators.schedule import Schedule

SECOND_US = 1_000_000
SHAPES = {"60 s by 5 s": (60, 5), "600 s by 1 s": (600, 1)}
BATCH_ROWS = 1 << 18


@dataclass(frozen=True)
class Feed:
    """Tuples of all sides in order of arrival; ``slack_s`` is as large as the largest lateness."""

    side: Integers
    event_us: Integers
    arrival_us: Integers
    key: Integers
    value: Floats
    slack_s: int
    seconds: int


def feed(sides: int, rows: int, rate: float, keys: Uniform | Zipf, late: bool, whole: bool, seed: int) -> Feed:
    """``rows`` tuples a side at ``rate`` tuples/s a side; values are whole numbers or any doubles below 1000."""
    seconds = round(rows / rate)
    columns = []
    for side in range(sides):
        name = f"side {side}"
        event_us = np.sort((uniforms(seed, f"{name}/events", rows) * seconds * SECOND_US).astype(np.int64))
        late_s = Exponential(5.0).quantile_s(uniforms(seed, f"{name}/lateness", rows)) if late else np.zeros(rows)
        value = uniforms(seed, f"{name}/values", rows) * 1000
        value = np.floor(value) if whole else value
        key = keys.columns(rows, seed, name)["key"]
        columns.append(
            (np.full(rows, side), event_us, event_us + (late_s * SECOND_US).astype(np.int64), key, value, late_s)
        )
    side, event_us, arrival_us, key, value, late_s = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    order = np.lexsort((event_us, arrival_us))
    return Feed(
        side[order],
        event_us[order],
        arrival_us[order],
        key[order],
        value[order],
        int(np.ceil(late_s.max())),
        seconds,
    )


def query(functions: tuple[str, ...], sides: int) -> Spec:
    """The functions over a value of the first side, joined with the others on the key; all in one group."""
    measures = tuple(
        Measure(f"a{i}", f, None if f == "count" else "s0")  # type: ignore[arg-type]
        for i, f in enumerate(functions)
    )
    columns = [pa.field(m.slot, pa.float64()) for m in measures if m.alias is not None]
    if sides == 1:
        return Spec((Side("s0"),), measures, pa.schema(columns))
    aliases = tuple(Side(f"s{i}", classes=("j0",)) for i in range(sides))
    return Spec(aliases, measures, pa.schema([pa.field("j0", pa.int64()), *columns]))


def batches(spec: Spec, tuples: Feed) -> list[pa.Table]:
    """The feed as the operator is given it."""
    columns = {"side": tuples.side.astype(np.int8), "event_us": tuples.event_us, "arrival_us": tuples.arrival_us}
    for name in spec.columns.names:
        columns[name] = tuples.key if name == "j0" else tuples.value
    table = pa.table(columns)
    return [table.slice(begin, BATCH_ROWS) for begin in range(0, len(table), BATCH_ROWS)]


def through_operator(spec: Spec, schedule: Schedule, fed: list[pa.Table]) -> tuple[pa.Table, int, float]:
    """All answers, the most bytes held, and the CPU seconds that it took."""
    began = time.process_time()
    state, parts = start(spec, schedule), []
    for batch in fed:
        state, answered = step(state, batch)
        parts.append(answered)
    state, answered = finish(state)
    return pa.concat_tables([*parts, answered]), state.peak_bytes, time.process_time() - began


def through_numpy(tuples: Feed, sides: int, keys: int, range_s: int, every_s: int) -> tuple[Floats, float]:
    """COUNT(*) per window of the join, and the CPU seconds that it took."""
    began = time.process_time()
    pane = tuples.event_us // (every_s * SECOND_US)
    panes, width = tuples.seconds // every_s, range_s // every_s
    counts = []
    for side in range(sides):
        own = tuples.side == side if sides > 1 else slice(None)
        cells = pane[own] * keys + tuples.key[own]
        counts.append(np.bincount(cells, minlength=panes * keys).reshape(-1, keys))
    totals = [np.zeros(keys, dtype=np.int64) for _ in counts]
    answers = np.zeros(panes)
    for window in range(panes):
        for total, count in zip(totals, counts, strict=True):
            total += count[window]
            if window >= width:
                total -= count[window - width]
        product = totals[0]
        for total in totals[1:]:
            product = product * total
        answers[window] = product.sum()
    return answers, time.process_time() - began


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
    asked = parser.parse_args()
    print(
        f"{'sides':>5} {'keys':8} {'order':9} {'window':13} {'functions':10} {'Mtuples/s':>9} {'kernel':>7}"
        f" {'share':>6} {'ns':>5} {'peak MB':>8} {'α+β MB':>7}"
    )
    for sides, distribution, order in itertools.product(asked.sides, asked.distributions, asked.orders):
        keys = Uniform(asked.keys) if distribution == "uniform" else Zipf(asked.keys, 1.1)
        tuples = feed(sides, asked.rows, asked.rate, keys, order == "late", not asked.any_doubles, asked.seed)
        for shape in asked.shapes:
            range_s, every_s = SHAPES[shape]
            expected, kernel_s = through_numpy(tuples, sides, asked.keys, range_s, every_s)
            ends = np.arange(every_s, tuples.seconds + 1, every_s, dtype=np.int64) * SECOND_US
            aliases = {f"s{i}": range_s * SECOND_US for i in range(sides)}
            schedule = Schedule.from_ticks(ends, tuples.slack_s * SECOND_US, aliases)
            for functions in asked.functions:
                spec = query(tuple(functions.split(",")), sides)
                fed = batches(spec, tuples)
                profile = cProfile.Profile()
                if asked.profile:
                    profile.enable()
                answers, peak_bytes, took_s = through_operator(spec, schedule, fed)
                profile.disable()
                window, pairs = answers.column("window_index").to_numpy(), answers.column("pairs").to_numpy()
                found = np.bincount(window, pairs.astype(np.float64), len(expected))
                if (found != expected).any():
                    raise SystemExit(f"{sides} sides, {shape}, {functions}: the answers differ from the kernel's")
                count = len(tuples.side)
                per_tuple_bytes = peak_bytes_of(spec)
                windows_mb = sides * range_s * asked.rate * per_tuple_bytes / 1e6
                print(
                    f"{sides:5} {distribution:8} {order:9} {shape:13} {functions:10} {count / took_s / 1e6:9.2f}"
                    f" {count / kernel_s / 1e6:7.1f} {kernel_s / took_s:6.0%} {took_s / count * 1e9:5.0f}"
                    f" {peak_bytes / 1e6:8.2f} {windows_mb:7.2f}",
                    flush=True,
                )
                if asked.profile:
                    pstats.Stats(profile).sort_stats("tottime").print_stats(18)


def peak_bytes_of(spec: Spec) -> float:
    """Bytes of one tuple, averaged over the sides: two times, and key and values if any, with a validity bit each."""
    columns = [2 + len(side.classes) + len(spec.measures_of(side.alias)) for side in spec.sides]
    return float(np.mean(columns)) * 8.125


if __name__ == "__main__":
    main()
