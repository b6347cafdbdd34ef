"""The planner's figures in one table: ``python -m infra.benchmarks.window_sizing``."""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from infra.benchmarks.window_sizing.instances import random_needs, random_swings
from scipy.optimize import linprog
from scipy.sparse import csr_array, vstack

from tidegate.operators.window_sizing.b_support import b_support
from tidegate.operators.window_sizing.c_support import SerialGroups, Swings, serial_groups, swings
from tidegate.operators.window_sizing.needs import Needs, QueryNeed, WindowNeed
from tidegate.operators.window_sizing.planning import plan
from tidegate.operators.window_sizing.slots import slot_schedule

EXAMPLES = """examples:
  python -m infra.benchmarks.window_sizing
  python -m infra.benchmarks.window_sizing --only b dp joint --seeds 5

Instances: infra/benchmarks/window_sizing/instances.py; seeds 0, 1, … per row. A gap is that of the exchange memory that
the method shares out, not of all memory, which would be smaller. "needs" are the swings of random_needs with six
queries a window, the other families those of random_swings. Times are wall times of one process.
"""

FAMILIES = ("needs", "random", "uniform", "similar", "tight")

Row = tuple[str, str, str]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the parts that were asked for and print one table."""
    parts: dict[str, Callable[[int], Iterator[Row]]] = {
        "b": level_b,
        "speed": speed,
        "dp": dynamic_program,
        "exact40": exact_40,
        "exact100": exact_100,
        "ap": first_fit,
        "joint": joint,
    }
    parser = argparse.ArgumentParser(
        prog="python -m infra.benchmarks.window_sizing",
        description="Figures of the window planner.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts), metavar="PART", help=", ".join(parts))
    parser.add_argument("--seeds", type=int, default=20, help="instances per row (default 20)")
    arguments = parser.parse_args(argv)
    print(f"{'what':<44} {'instances':<52} figure", flush=True)
    for part in arguments.only:
        for what, instances, figure in parts[part](arguments.seeds):
            print(f"{what:<44} {instances:<52} {figure}", flush=True)


def level_b(seeds: int) -> Iterator[Row]:
    """B-Support against the linear program."""
    count, worst = 20 * seeds, 0.0
    for seed in range(count):
        needs = random_needs(seed, 1 + seed % 12, 40, join_fraction=0.3, slack_fraction=(0.0, 1.0))
        low, high = needs.bytes_of(needs.min_t), needs.bytes_of(needs.max_t)
        budget = low + (high - low) * float(np.random.default_rng(seed).random())
        mine = needs.accumulated_error_s(b_support(needs, budget, needs.min_t))
        least = least_error_by_program(needs, budget)
        worst = max(worst, abs(mine - least) / max(least, 1e-9 * float(needs.range_s.sum())))
    return [
        ("B against linear program, worst difference", f"seeds 0–{count - 1}, 1–12 windows, 40 queries", f"{worst:.1e}")
    ]


def least_error_by_program(needs: Needs, budget_bytes: float) -> float:
    """The least accumulated error: widths and what each query misses as one linear program."""
    d, e = len(needs.window_ids), len(needs.entry_window)
    rows = np.arange(e)
    missing = csr_array(
        (
            -np.ones(2 * e),
            (np.concatenate([rows, rows]), np.concatenate([needs.entry_window, d + rows])),
        ),
        shape=(e, d + e),
    )
    memory = csr_array((needs.byte_rate, (np.zeros(d, dtype=int), np.arange(d))), shape=(1, d + e))
    solved = linprog(
        np.concatenate([np.zeros(d), needs.weight[needs.entry_query]]),
        A_ub=vstack([missing, memory]),
        b_ub=np.append(-needs.range_s, budget_bytes),
        bounds=[*zip(needs.min_t, needs.max_t, strict=True), *([(0, None)] * e)],
        method="highs",
    )
    return float(solved.fun)


def speed(seeds: int) -> Iterator[Row]:
    """100 000 queries over 100 windows at level B."""
    needs = random_needs(0, 100, 100_000)
    budget = (needs.bytes_of(needs.min_t) + needs.bytes_of(needs.max_t)) / 2
    windows = [WindowNeed(w, float(c)) for w, c in zip(needs.window_ids, needs.byte_rate, strict=True)]
    columns = zip(
        needs.query_ids,
        needs.entry_window.tolist(),
        needs.range_s.tolist(),
        (needs.range_s - needs.tolerable_s).tolist(),
        needs.delay_s.tolist(),
        strict=True,
    )
    queries = [QueryNeed(q, {needs.window_ids[w]: r}, s, delay) for q, w, r, s, delay in columns]
    instances = "seed 0, 100 000 queries, 100 windows, level B"
    # A fresh copy each time, so that nothing remembered (Max_T, Min_T) is reused.
    yield "plan(needs, M), median", instances, _median_ms(lambda: plan(replace(needs), budget), seeds)
    built = _median_ms(lambda: plan(Needs.of(windows, queries), budget), seeds)
    yield "plan(Needs.of(windows, queries), M), median", instances, built


def _median_ms(run: Callable[[], object], times: int) -> str:
    run()
    gc.collect()
    wall, cpu = [], []
    for _ in range(times):
        began, began_cpu = time.perf_counter(), time.process_time()
        run()
        wall.append(1000 * (time.perf_counter() - began))
        cpu.append(1000 * (time.process_time() - began_cpu))
    return f"{statistics.median(wall):.0f} ms wall, {statistics.median(cpu):.0f} ms of CPU"


def instance(family: str, seed: int, windows: int) -> Swings:
    """One grouping problem of that family."""
    return (
        swings(random_needs(seed, windows, 6 * windows)) if family == "needs" else random_swings(seed, windows, family)
    )


def _solved(family: str, windows: int, seeds: int, method: str) -> list[tuple[float, Swings, SerialGroups]]:
    solved = []
    for seed in range(seeds):
        swing = instance(family, seed, windows)
        began = time.perf_counter()
        groups = serial_groups(swing, method)  # type: ignore[arg-type]
        solved.append((time.perf_counter() - began, swing, groups))
    return solved


def dynamic_program(seeds: int) -> Iterator[Row]:
    """C-Support-DP for 20 windows."""
    for family in FAMILIES:
        seconds = [s for s, _, _ in _solved(family, 20, seeds, "dp")]
        figure = f"median {statistics.median(seconds):.2f} s, worst {max(seconds):.2f} s"
        yield "dp, d = 20", f"{family}, seeds 0–{seeds - 1}", figure


def _exact(windows: int, seeds: int, family: str) -> Row:
    solved = _solved(family, windows, seeds, "exact")
    seconds = sorted(s for s, _, _ in solved)
    gaps = [g.share_bytes / g.share_bound_bytes - 1 for _, _, g in solved]
    p95 = seconds[math.ceil(0.95 * len(seconds)) - 1]
    figure = (
        f"{sum(gap <= 0 for gap in gaps)}/{len(gaps)} proved, worst gap {max(gaps):.2%}; "
        f"median {statistics.median(seconds):.2f} s, p95 {p95:.1f} s, worst {seconds[-1]:.1f} s"
    )
    return f"exact, d = {windows}", f"{family}, seeds 0–{seeds - 1}", figure


def exact_40(seeds: int) -> Iterator[Row]:
    """Branch and price for 40 windows; fewer instances of the families that are hard on purpose."""
    for family in FAMILIES:
        yield _exact(40, seeds if family in ("needs", "random") else max(seeds // 4, 1), family)


def exact_100(seeds: int) -> Iterator[Row]:
    """Branch and price for 100 windows."""
    for family in ("needs", "random", "uniform"):
        yield _exact(100, max(seeds // 4, 1), family)


def first_fit(seeds: int) -> Iterator[Row]:
    """C-Support-AP's excess over the optimum."""
    for windows in (10, 17, 40):
        for family in FAMILIES[:2]:
            method = "dp" if windows <= 20 else "exact"
            solved = _solved(family, windows, seeds, method)
            excess = [serial_groups(s, "ap").share_bytes / g.share_bytes - 1 for _, s, g in solved if g.share_bytes > 0]
            figure = f"mean {statistics.mean(excess):.2%}, worst {max(excess):.2%}"
            yield f"ap's excess over the least share, d = {windows}", f"{family}, seeds 0–{seeds - 1}", figure


def joint(seeds: int) -> Iterator[Row]:
    """What free swings and staggered ramps save, against the paper's optimum; both relative to all static."""
    for windows, queries in ((3, 6), (6, 12), (10, 30), (20, 60)):
        paper, mine, most, seconds = [], [], [], []
        for seed in range(seeds):
            needs = random_needs(seed, windows, queries)
            whole = needs.bytes_of(needs.min_t)
            paper.append(1 - slot_schedule(needs, "exact").peak_bytes / whole)
            began = time.perf_counter()
            schedule = slot_schedule(needs, "joint")
            seconds.append(time.perf_counter() - began)
            mine.append(1 - schedule.peak_bytes / whole)
            most.append(1 - schedule.bound_bytes / whole)
        means = [statistics.mean(values) for values in (mine, paper, most)]
        times = f"{means[0] / means[1]:.1f} times" if means[1] > 0 else "the paper's saves nothing"
        figure = (
            f"saves {means[0]:.1%}, the paper's optimum {means[1]:.1%} ({times}), nothing more than {means[2]:.1%}; "
            f"median {statistics.median(seconds):.2f} s"
        )
        yield f"joint, d = {windows}", f"random_needs, {queries} queries, seeds 0–{seeds - 1}", figure


if __name__ == "__main__":
    main()
