"""The top-k operator alone, in memory, beside a plain numpy kernel, and checked against brute force.

``python -m infra.benchmarks.top_k.operator`` prints a table: tuples per second of one core, CPU nanoseconds a tuple,
and what share of the kernel's speed that is. The kernel is the physical limit: all tuples in arrays at once, in order
of event time, the k best of every pane by ``numpy.partition`` and of every window from its panes; it knows no Arrow,
no arrival, no ties, no state. Brute force sorts whole windows by definition; of many windows it takes every n-th, and
all that differs in any of those is an error.

Orders: ``in order``, a tuple arrives when it happens; ``late``, an exponential delay of 5 s, answered at once (K = 0);
``late, K``, the same, and every window waits for the last of its tuples. Pane = tick = EVERY.
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
from infra.benchmarks.generator.lateness import Exponential
from infra.benchmarks.generator.randomness import Floats, Integers, uniforms

from tidegate.operators.schedule import Schedule
from tidegate.operators.top_k import Spec, Term, finish, start, step

SECOND_US = 1_000_000
SHAPES = {"60 s by 5 s": (60, 5), "600 s by 1 s": (600, 1)}
ORDERS = ("in order", "late", "late, K")
MEAN_DELAY_S = 5.0


@dataclass(frozen=True)
class Feed:
    """Tuples in order of arrival; the id of a tuple is its number in order of event time."""

    number: Integers
    event_us: Integers
    arrival_us: Integers
    score: Floats
    group: Integers
    slack_us: int
    seconds: int


def feed(rows: int, rate: float, groups: int, order: str, seed: int) -> Feed:
    """``rows`` tuples at ``rate`` tuples/s; scores are uniform, groups too."""
    seconds = round(rows / rate)
    event_us = np.sort((uniforms(seed, "events", rows) * seconds * SECOND_US).astype(np.int64))
    late = order.startswith("late")
    late_s = Exponential(MEAN_DELAY_S).quantile_s(uniforms(seed, "lateness", rows)) if late else np.zeros(rows)
    arrival_us = event_us + (late_s * SECOND_US).astype(np.int64)
    score = uniforms(seed, "scores", rows)
    group = (uniforms(seed, "groups", rows) * groups).astype(np.int64)
    place = np.argsort(arrival_us, kind="stable")
    slack_us = int(np.ceil(late_s.max())) * SECOND_US if order.endswith("K") else 0
    return Feed(place, event_us[place], arrival_us[place], score[place], group[place], slack_us, seconds)


def query(k: int, groups: int, every_s: int) -> Spec:
    """ORDER BY score DESC LIMIT k, with a text that comes along; per group, if there are several."""
    columns = [("o0", pa.float64()), ("p0", pa.string())]
    grouped = groups > 1
    columns += [("p1", pa.string())] if grouped else []
    return Spec(k, (Term("o0"),), pa.schema(columns), every_s * SECOND_US, "s", groups=("p1",) if grouped else ())


def batches(spec: Spec, tuples: Feed, rows: int) -> list[pa.Table]:
    """The feed as the operator is given it."""
    names = pa.array([f"G{number:04}" for number in range(int(tuples.group.max()) + 1)])
    columns = {
        "event_us": tuples.event_us,
        "arrival_us": tuples.arrival_us,
        "event_id": pa.array(tuples.number).cast(pa.string()),
        "o0": tuples.score,
        "p0": names.take(pa.array(tuples.group)),
        "p1": names.take(pa.array(tuples.group)),
    }
    table = pa.table({name: columns[name] for name in spec.input_schema.names})
    return [table.slice(begin, rows) for begin in range(0, len(table), rows)]


def through_operator(spec: Spec, schedule: Schedule, fed: list[pa.Table]) -> tuple[pa.Table, int, float]:
    """The answers, the most bytes held, and CPU seconds."""
    began = time.process_time()
    state, parts = start(spec, schedule), []
    for batch in fed:
        state, answered = step(state, batch)
        parts.append(answered)
    state, answered = finish(state)
    parts.append(answered)
    seconds = time.process_time() - began
    return pa.concat_tables(parts).combine_chunks(), state.peak_bytes, seconds


def through_numpy(tuples: Feed, k: int, range_s: int, every_s: int) -> tuple[Floats, float]:
    """Per window the k best scores over all its tuples, and the CPU seconds that it took, sorting by event apart."""
    score = tuples.score[np.argsort(tuples.event_us, kind="stable")]
    event_us = np.sort(tuples.event_us)
    began = time.process_time()
    panes, width = tuples.seconds // every_s, range_s // every_s
    cuts = np.searchsorted(event_us, np.arange(panes + 1) * every_s * SECOND_US)
    best = np.full((width - 1 + panes, k), -np.inf)
    for pane in range(panes):
        own = score[cuts[pane] : cuts[pane + 1]]
        few = own if len(own) <= k else np.partition(own, len(own) - k)[-k:]
        best[width - 1 + pane, : len(few)] = few
    windows = np.lib.stride_tricks.sliding_window_view(best.reshape(-1), width * k)[::k]
    answers = np.concatenate([np.partition(part, width * k - k)[:, -k:] for part in np.array_split(windows, 64)])
    return np.sort(answers)[:, ::-1], time.process_time() - began


def check(answers: pa.Table, tuples: Feed, schedule: Schedule, k: int, grouped: bool, share: int) -> None:
    """Stop unless every ``share``-th window has exactly the tuples that a sort of all its contents gives."""
    window = answers.column("window_index").to_numpy()
    given = answers.column("event_id").cast(pa.int64()).to_numpy()
    cuts = np.searchsorted(window, np.arange(len(schedule) + 1))
    place = np.argsort(tuples.event_us, kind="stable")
    event_us, arrival_us = tuples.event_us[place], tuples.arrival_us[place]
    score, group, number = tuples.score[place], tuples.group[place], tuples.number[place]
    for index in range(0, len(schedule), share):
        bounds = schedule.lower_us["s"][index], schedule.window_end_us[index]
        inside = np.arange(*np.searchsorted(event_us, bounds))
        inside = inside[arrival_us[inside] <= schedule.emit_us[index]]
        if not grouped and len(inside) > k:
            least = np.partition(score[inside], len(inside) - k)[-k]
            inside = inside[score[inside] >= least]
        own = group[inside] if grouped else np.zeros(len(inside), dtype=np.int64)
        order = np.lexsort((event_us[inside], -score[inside], own))
        inside, own = inside[order], own[order]
        first = np.searchsorted(own, own)
        best = inside[np.arange(len(inside)) - first < k]
        if number[best].tolist() != given[cuts[index] : cuts[index + 1]].tolist():
            raise SystemExit(f"window {index}: not the answer of brute force")


def main() -> None:
    """Run every case that the arguments leave."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rate", type=float, default=1000.0, help="tuples a second")
    parser.add_argument("--k", type=int, nargs="*", default=[5])
    parser.add_argument("--groups", type=int, nargs="*", default=[1], help="1: no GROUP BY")
    parser.add_argument("--shapes", nargs="*", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--orders", nargs="*", choices=list(ORDERS), default=list(ORDERS))
    parser.add_argument("--batch-rows", type=int, nargs="*", default=[1 << 17], help="the host reads 131 072 at once")
    parser.add_argument("--check", type=int, default=0, help="every n-th window by brute force (default: by shape)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profile", action="store_true", help="print where the time of each case goes")
    asked = parser.parse_args()
    print(
        f"{'window':13} {'order':9} {'k':>4} {'groups':>6} {'batch':>7} {'Mtuples/s':>9} {'kernel':>7} {'share':>6}"
        f" {'ns':>6} {'answers':>8} {'peak MB':>8}"
    )
    for order, groups in itertools.product(asked.orders, asked.groups):
        tuples = feed(asked.rows, asked.rate, groups, order, asked.seed)
        for shape, k, batch_rows in itertools.product(asked.shapes, asked.k, asked.batch_rows):
            range_s, every_s = SHAPES[shape]
            ends = np.arange(every_s, tuples.seconds + 1, every_s, dtype=np.int64) * SECOND_US
            schedule = Schedule.from_ticks(ends, tuples.slack_us, {"s": range_s * SECOND_US})
            spec = query(k, groups, every_s)
            fed = batches(spec, tuples, batch_rows)
            profile = cProfile.Profile()
            if asked.profile:
                profile.enable()
            answers, peak_bytes, work_s = through_operator(spec, schedule, fed)
            profile.disable()
            check(answers, tuples, schedule, k, groups > 1, asked.check or range_s // 60 * (groups > 1 and 4 or 1))
            expected, kernel_s = through_numpy(tuples, k, range_s, every_s)
            if groups == 1 and order != "late":
                best = expected[np.isfinite(expected)]
                if not np.array_equal(best, answers.column("o0").to_numpy()):
                    raise SystemExit(f"{shape}, {order}: not the kernel's scores")
            count = len(tuples.score)
            print(
                f"{shape:13} {order:9} {k:4} {groups:6} {batch_rows:7} {count / work_s / 1e6:9.2f}"
                f" {count / kernel_s / 1e6:7.1f} {kernel_s / work_s:6.0%} {work_s / count * 1e9:6.0f}"
                f" {answers.num_rows:8} {peak_bytes / 1e6:8.3f}",
                flush=True,
            )
            if asked.profile:
                pstats.Stats(profile).sort_stats("tottime").print_stats(22)


if __name__ == "__main__":
    main()
