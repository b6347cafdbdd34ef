"""The figures of papers/02 as pictures: Figs. 2–7 of the paper, the production operator beside."""

from __future__ import annotations

from functools import lru_cache

import pandas as pd
from infra.research.figures.drawing import Series, canvas, curve, finish, save
from infra.research.figures.join_aggregate import measures
from infra.research.figures.join_aggregate.panels import (
    LOOKS,
    PRODUCTION,
    curves,
    logarithmic,
    stated,
    time_and_touched,
)
from infra.research.figures.join_aggregate.streams import GENERATOR
from infra.research.figures.running import Figure, Settings, measured

WIDTHS_S = (20, 50, 100, 150, 200)
GROUP_WIDTHS_S = (2, 5, 10, 15)
WAYS = (2, 3, 4, 5, 6)
# The most seeds a point: enough that the means' order is plain, few enough that all figures take a minute or two.
WIDTH_SEEDS, RATE_SEEDS, GROUP_SEEDS, WAYS_SEEDS = 4, 40, 3, 10
KIB = 2.0**-10
EQUATIONS = {"ic": "eq. 3", "tc": "eq. 6"}
READINGS = ("500 / 2ⁱ", "500 / i²")

TIMES = (
    "Times are CPU time on the machine that drew this, the published algorithms in plain Python: they mean something "
    "only beside each other. Accesses do not depend on the machine."
)


def _said(seeds: int) -> str:
    return f"Mean and middle half of {seeds} runs a point (seeds 0 to {seeds - 1}). Generator: {GENERATOR}."


def _production(tuples: str) -> str:
    return (
        f"The production operator takes {measures.PRODUCTION_TUPLES:,} tuples {tuples} in one batch, with an answer "
        "after each; by its documentation it changes a total twice a tuple, which is not counted here."
    )


@lru_cache(maxsize=1)
def widths(seeds: int, processes: int) -> pd.DataFrame:
    """The runs of Figs. 2 and 3, the longest first so that no process waits for another's last."""
    cases = [(width_s, seed) for width_s in reversed(WIDTHS_S) for seed in range(seeds)]
    return _sorted(measured(measures.by_width, cases, ("width_s", "seed"), processes), ["width_s", "seed"])


def _sorted(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    return rows.sort_values(by, ignore_index=True)


@lru_cache(maxsize=1)
def rates(seeds: int, processes: int) -> pd.DataFrame:
    """The runs of Figs. 4 and 5: a row a reading, seed and second."""
    cases = [(squared, seed) for squared in range(len(READINGS)) for seed in range(seeds)]
    wide = measured(measures.by_rate, cases, ("squared", "seed"), processes)
    stubs = sorted({name.rpartition("_")[0] for name in wide.columns} - {""})
    long = pd.wide_to_long(wide, stubs, ["squared", "seed"], "second", sep="_")
    return _sorted(long.reset_index(), ["squared", "second", "seed"])


def _draw_width_time(settings: Settings) -> None:
    seeds = min(settings.seeds, WIDTH_SEEDS)
    rows = widths(seeds, settings.processes)
    titles = ("Time as the windows grow", "Touched tuples as the windows grow")
    figure, drawn = time_and_touched(
        rows, "width_s", measures.PAIR_METHODS, "width of both windows (s)", titles, EQUATIONS
    )
    caption = (
        f"Fig. 2 of Wang et al. (2006). COUNT over two windows, {measures.WIDTH_BYTE_RATE} bytes/s a stream, M = "
        f"{measures.BUCKETS} buckets; the selectivity is not printed, here 1/{measures.WIDTH_KEYS}. Measured: about "
        f"{measures.WIDTH_TUPLES} tuples after the windows are full, an answer after each. The paper's order holds: PC "
        "over TC over IC; but IC, too, scans both windows (eq. 3), so it is not flat. "
        f"{_production('of the same streams')} {TIMES} {_said(seeds)}"
    )
    save(figure, settings.out, "width_time", caption, {"": drawn, ".instances": rows})


def _draw_width_memory(settings: Settings) -> None:
    seeds = min(settings.seeds, WIDTH_SEEDS)
    rows = widths(seeds, settings.processes)
    figure, (axes,) = canvas()
    drawn = [curves(axes, rows, "width_s", measures.PAIR_METHODS, "bytes", KIB)]
    own = Series("production_bytes", "production operator (its own peak)", *PRODUCTION)
    drawn.append(curve(axes, rows, "width_s", own, KIB))
    finish(axes, "Memory as the windows grow", "width of both windows (s)", "bytes held (KiB)")
    caption = (
        "Fig. 3 of Wang et al. (2006). Bytes by the paper's count: 18 a tuple, 4 a counter of TC, 4 a join result of "
        "PC; the expired tuples in IC's sets count too. The production operator's are what its columns really take "
        f"(times, key), at its fullest. {_said(seeds)}"
    )
    save(figure, settings.out, "width_memory", caption, {"": pd.concat(drawn), ".instances": rows})


def rate_figure(name: str, squared: int) -> Figure:
    """Fig. 4 by one reading of the rate."""

    def draw(settings: Settings) -> None:
        seeds = min(settings.seeds, RATE_SEEDS)
        rows = rates(seeds, settings.processes)
        rows = rows[rows["squared"] == squared]
        titles = (f"Time as the rate falls, {READINGS[squared]}", "Touched tuples")
        axis = "second i after the window was full"
        figure, drawn = time_and_touched(rows, "second", measures.PAIR_METHODS, axis, titles, EQUATIONS)
        means = rows.groupby("second")[["ic_us", "tc_us", "ic_touched", "tc_touched"]].mean()
        caption = (
            f"Fig. 4 of Wang et al. (2006), the rate in second i read as {READINGS[squared]} bytes/s. COUNT over two "
            f"windows of {measures.RATE_WIDTH_S} s, M = {measures.BUCKETS}, filled at {measures.RATE_BYTE_RATE} "
            f"bytes/s; selectivity 1/{measures.WIDTH_KEYS}. The slower the rate, the more tuples expire an arrival; "
            f"IC joins them all, and costs more than TC {_overtaken(means, 'us')} in time, "
            f"{_overtaken(means, 'touched')} in accesses; the paper: from the third second on. "
            f"{_production('at the full rate')} {TIMES} {_said(seeds)} Seconds without an arrival are left out."
        )
        save(figure, settings.out, name, caption, {"": drawn, ".instances": rows})

    return Figure(name, draw)


def _overtaken(means: pd.DataFrame, column: str) -> str:
    over = means.index[means[f"ic_{column}"] > means[f"tc_{column}"]]
    return (
        f"in seconds {', '.join(map(str, over))}" if len(over) > 1 else f"in second {over[0]}" if len(over) else "never"
    )


def _draw_rate_memory(settings: Settings) -> None:
    seeds = min(settings.seeds, RATE_SEEDS)
    rows = rates(seeds, settings.processes)
    figure, panels = canvas(2)
    drawn = []
    for squared, axes in enumerate(panels):
        of_reading = rows[rows["squared"] == squared]
        tables = [curves(axes, of_reading, "second", measures.PAIR_METHODS, "bytes", KIB)]
        tables.append(
            curve(axes, of_reading, "second", Series("production_bytes", "production operator", *PRODUCTION), KIB)
        )
        drawn.append(pd.concat(tables).assign(squared=squared))
        title = f"Memory, rate {READINGS[squared]}"
        finish(axes, title, "second i after the window was full", "bytes held (KiB)", "upper right")
        axes.set_ylim(top=1.25 * axes.get_ylim()[1])
    caption = (
        "Fig. 5 of Wang et al. (2006): the memory of Fig. 4's runs, by the paper's count as in Fig. 3, mean over the "
        "arrivals of a second; of the production operator, what its columns take at the second's end. "
        f"{_said(seeds)} Seconds without an arrival are left out."
    )
    save(figure, settings.out, "rate_memory", caption, {"": pd.concat(drawn), ".instances": rows})


def _draw_group_time(settings: Settings) -> None:
    seeds = min(settings.seeds, GROUP_SEEDS)
    cases = [(width_s, seed) for width_s in reversed(GROUP_WIDTHS_S) for seed in range(seeds)]
    rows = measured(measures.by_group, cases, ("width_s", "seed"), settings.processes)
    rows = _sorted(rows, ["width_s", "seed"])
    titles = ("Time with GROUP BY", "Touched tuples with GROUP BY")
    figure, drawn = time_and_touched(rows, "width_s", measures.GROUP_METHODS, "width of both windows (s)", titles, {})
    caption = (
        f"Fig. 6 of Wang et al. (2006). COUNT by join key over two windows, {measures.GROUP_RATE} tuples/s a stream, "
        f"selectivity 1/{measures.GROUP_KEYS}, M = {measures.BUCKETS}; {measures.GROUP_KEYS} groups in the paper's "
        "linked list, whose nodes count as accesses. "
        f"Measured: about {measures.GROUP_TUPLES} tuples after the windows are full. "
        f"{_production('of the same streams')} An answer has up to {measures.GROUP_KEYS} groups. {TIMES} {_said(seeds)}"
    )
    save(figure, settings.out, "group_time", caption, {"": drawn, ".instances": rows})


def _draw_ways_time(settings: Settings) -> None:
    seeds = min(settings.seeds, WAYS_SEEDS)
    cases = [(ways, identical, seed) for ways in reversed(WAYS) for identical in (0, 1) for seed in range(seeds)]
    keys = ["ways", "identical", "seed"]
    rows = _sorted(measured(measures.by_ways, cases, tuple(keys), settings.processes), keys)
    figure, panels = canvas(2)
    drawn = []
    for column, label, axes in zip(
        ("us", "touched"), ("CPU time per tuple (µs)", "accesses per tuple"), panels, strict=True
    ):
        series = [
            Series(f"{prefix}_{column}", f"{name}, {streams} streams", LOOKS[prefix][0], LOOKS[prefix][1], line)
            for prefix, name in measures.MANY_METHODS.items()
            for streams, line in (("identical", "-"), ("independent", ":"))
        ]
        if column == "us":
            series.append(Series("production_us", "production operator, independent", *PRODUCTION, ":"))
            series.append(Series("production_us", "production operator, identical", *PRODUCTION))
        for one in series:
            identical = int("identical" in one.label)
            of_kind = rows[rows["identical"] == identical]
            drawn.append(curve(axes, of_kind, "ways", one).assign(identical=identical))
        title = "Time of joins of n windows" if column == "us" else "Touched tuples"
        if column == "touched":
            stated(axes)
        logarithmic(axes, title, "windows joined, n", label)
    caption = (
        f"Fig. 7 of Wang et al. (2006). COUNT over n windows of {measures.WAYS_WIDTH_S} s, all joined on one key, "
        f"{measures.WAYS_BYTE_RATE} bytes/s a stream, selectivity 1/{measures.WAYS_KEYS}, M = {measures.BUCKETS}. With "
        "these numbers a tuple has 0.56 partners in a window, so that of independent streams the joins get smaller "
        "with n and MPC does not explode; it does if the same stream comes n times, every tuple at once, for frequent "
        "keys are then frequent in all windows. "
        f"{_production('of the same streams')} {TIMES} {_said(seeds)}"
    )
    save(figure, settings.out, "ways_time", caption, {"": pd.concat(drawn), ".instances": rows})


FIGURES = (
    Figure("width_time", _draw_width_time),
    Figure("width_memory", _draw_width_memory),
    rate_figure("rate_time", 0),
    rate_figure("rate_time_squared", 1),
    Figure("rate_memory", _draw_rate_memory),
    Figure("group_time", _draw_group_time),
    Figure("ways_time", _draw_ways_time),
)
