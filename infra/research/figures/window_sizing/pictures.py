"""The figures of papers/01 as pictures: Figs. 2–7 of the paper, and what it did not have."""

from __future__ import annotations

from functools import lru_cache

import pandas as pd
from infra.research.figures.drawing import (
    AMBER,
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    Series,
    canvas,
    curve,
    finish,
    save,
)
from infra.research.figures.running import Figure, Settings, measured
from infra.research.figures.window_sizing import measures

CASE = ("queries", "windows", "seed")
QUERIES = (300, 600)
B_WINDOWS = tuple(range(2, 21, 2))
C_WINDOWS = tuple(range(2, 18))
MANY_WINDOWS = (5, 10, 15, 20, 30, 40, 60, 80, 100)
MANY_QUERIES = 1_000
MANY_SEEDS = 4
JOINT_WINDOWS = (2, 4, 8, 12, 16, 20)
PAPER_S_EXCESS = 0.20
MIB, KIB, HOUR_S = 2.0**-20, 2.0**-10, 1 / 3600


def _said(seeds: int) -> str:
    return f"Mean and middle half of {seeds} random instances a point (seeds 0 to {seeds - 1}). {measures.GENERATOR}."


def error_figure(number: int, queries: int) -> Figure:
    """Figs. 2 and 3: accumulated error before and after B-Support."""

    def draw(settings: Settings) -> None:
        cases = [(queries, windows, seed) for windows in B_WINDOWS for seed in range(settings.seeds)]
        rows = measured(measures.accumulated_error, cases, CASE, settings.processes)
        figure, (axes,) = canvas()
        series = (
            Series("random_s", "before: spare memory shared at random", AMBER, "^", "--"),
            Series("equal_s", "before: spare memory shared equally", ORANGE, "s"),
            Series("b_support_s", "after: B-Support", BLUE, "o"),
        )
        drawn = pd.concat([curve(axes, rows, "windows", one, HOUR_S) for one in series])
        title = f"Total accumulated error over {queries} queries"
        finish(axes, title, "windows", "Σ missing range of all queries (hours)", "lower right")
        caption = (
            f"Fig. {number} of Li & Zhang (2004). Accumulated error: over all queries, the range asked less the width "
            "held. Every window holds at least Min_T; the budget M lies halfway from what level B needs to what A "
            "needs. Before: what M leaves beyond Min_T goes to the windows equally, or at random (uniform weights), "
            f"none past its Max_T; after: where it mends most. {_said(settings.seeds)}"
        )
        save(figure, settings.out, f"figure_{number}", caption, {"": drawn, ".instances": rows})

    return Figure(f"figure_{number}", draw)


@lru_cache(maxsize=len(QUERIES))
def shared_of_all_windows(queries: int, seeds: int, processes: int) -> pd.DataFrame:
    """The instances of Figs. 4 to 7, computed once."""
    cases = [(queries, windows, seed) for windows in C_WINDOWS for seed in range(seeds)]
    return measured(measures.shared_memory, cases, CASE, processes)


def share_figure(number: int, queries: int) -> Figure:
    """Figs. 4 and 5: exchange memory before and after serial groups."""

    def draw(settings: Settings) -> None:
        rows = shared_of_all_windows(queries, settings.seeds, settings.processes)
        figure, (axes,) = canvas()
        series = (
            Series("exchange_bytes", "before: Σ Exch, every window for itself", ORANGE, "s"),
            Series("dp_share_bytes", "after: Σ Share, serial groups by C-Support-DP", BLUE, "o"),
        )
        drawn = pd.concat([curve(axes, rows, "windows", one, MIB) for one in series])
        finish(axes, f"Total shared memory over {queries} queries", "windows", "exchange memory (MiB)")
        caption = (
            f"Fig. {number} of Li & Zhang (2004). Memory that level C needs beside what is always held: before, every "
            "window may ask for its exchange memory at the same instant; after, the windows of a serial group take "
            f"turns, and a group needs that of its dearest window. {_said(settings.seeds)}"
        )
        save(figure, settings.out, f"figure_{number}", caption, {"": drawn, ".instances": rows})

    return Figure(f"figure_{number}", draw)


def excess_figure(number: int, queries: int) -> Figure:
    """Figs. 6 and 7: AP's excess over the optimum, in bytes and relative."""

    def draw(settings: Settings) -> None:
        rows = shared_of_all_windows(queries, settings.seeds, settings.processes)
        rows = rows.assign(excess_bytes=rows["ap_share_bytes"] - rows["dp_share_bytes"])
        rows = rows.assign(excess=rows["excess_bytes"] / rows["dp_share_bytes"])
        figure, (absolute, relative) = canvas(2)
        tables = []
        for axes, column, scale in ((absolute, "excess_bytes", KIB), (relative, "excess", 100.0)):
            drawn = curve(axes, rows, "windows", Series(column, "mean", BLUE), scale)
            axes.plot(drawn["windows"], drawn["most"] * scale, "v:", color=ORANGE, label="worst instance")
            tables.append(drawn)
        relative.axhline(100 * PAPER_S_EXCESS, color=INK, lw=1.2, ls="--")
        relative.text(C_WINDOWS[0], 100 * PAPER_S_EXCESS + 0.4, "the paper's worst: 20 %", color=INK)
        relative.set_ylim(top=115 * max(PAPER_S_EXCESS, rows["excess"].max()))
        finish(absolute, f"AP − DP, {queries} queries", "windows", "shared memory above the optimum (KiB)")
        finish(relative, "(AP − DP) / DP", "windows", "shared memory above the optimum (%)", None)
        caption = (
            f"Fig. {number} of Li & Zhang (2004). Shared memory by first fit (C-Support-AP) against the optimum "
            f"(C-Support-DP). AP finds the optimum in {(rows['excess'] <= 1e-12).mean():.0%} of all instances, so the "
            f"middle half is mostly 0. {_said(settings.seeds)}"
        )
        save(figure, settings.out, f"figure_{number}", caption, {"": pd.concat(tables), ".instances": rows})

    return Figure(f"figure_{number}", draw)


def _draw_many_windows(settings: Settings) -> None:
    seeds = min(settings.seeds, MANY_SEEDS)
    # The longest first, so that no process waits for another's last.
    cases = [(MANY_QUERIES, windows, seed) for windows in reversed(MANY_WINDOWS) for seed in range(seeds)]
    rows = measured(measures.many_windows, cases, CASE, settings.processes).sort_values(list(CASE), ignore_index=True)
    figure, (axes,) = canvas()
    series = (
        Series("ap_excess", "AP: first fit", ORANGE, "s"),
        Series("exact_excess", "exact: at most this far from the optimum", BLUE, "o"),
        Series("dp_excess", "DP: the optimum, up to 20 windows", GREEN, "D", "--"),
    )
    drawn = pd.concat([curve(axes, rows, "windows", one, 100.0) for one in series])
    finish(axes, f"Shared memory over the proved lower bound, {MANY_QUERIES} queries", "windows", "excess (%)")
    axes.set_ylim(top=1.35 * axes.get_ylim()[1])  # room for the legend
    proved = (rows["exact_excess"] <= 1e-9).groupby(rows["windows"]).mean()
    shares = [(windows, share) for windows, share in zip(MANY_WINDOWS, proved, strict=True) if windows >= 20]
    most = ", ".join(f"{share:.0%} at {windows}" for windows, share in shares)
    caption = (
        "Not in the paper, which stops at 17 windows. Excess of each planner's shared memory over the lower bound that "
        f"the exact planner proves; the exact planner's own is the proved gap. Instances with gap 0: {most} windows. "
        f"{_said(seeds)}"
    )
    save(figure, settings.out, "many_windows", caption, {"": drawn, ".instances": rows})


def _draw_joint(settings: Settings) -> None:
    queries = QUERIES[0]
    cases = [(queries, windows, seed) for windows in JOINT_WINDOWS for seed in range(settings.seeds)]
    rows = measured(measures.level_c_memory, cases, CASE, settings.processes)
    saved = {name: 1 - rows[f"{name}_bytes"] / rows["static_bytes"] for name in ("paper", "joint")}
    rows = rows.assign(paper_saved=saved["paper"], joint_saved=saved["joint"])
    figure, (axes,) = canvas()
    series = (
        Series("joint_saved", "joint: free swings, staggered ramps", PURPLE, "D"),
        Series("paper_saved", "the paper's optimum (C-Support-DP)", BLUE, "o"),
    )
    drawn = pd.concat([curve(axes, rows, "windows", one, 100.0) for one in series])
    finish(axes, f"Memory that level C saves, {queries} queries", "windows", "saved of what level B needs (%)")
    means = rows.groupby("windows")[["joint_saved", "paper_saved"]].mean()
    some = means[means["paper_saved"] > 0]
    ratio = some["joint_saved"] / some["paper_saved"]
    times = f"{ratio.min():.1f} to {ratio.max():.1f} times" if len(ratio) else "any multiple of"
    caption = (
        "Not in the paper. Level C holds less than level B, for its widest queries answer only once every delay. The "
        "paper fixes every swing at its least and adds the groups' peaks; joint chooses swings and phases together, "
        f"and saves on average {times} what the paper's optimum saves (ratio of means a point). {_said(settings.seeds)}"
    )
    save(figure, settings.out, "joint", caption, {"": drawn, ".instances": rows})


RANDOM_FIGURES = (
    *(error_figure(2 + i, queries) for i, queries in enumerate(QUERIES)),
    *(share_figure(4 + i, queries) for i, queries in enumerate(QUERIES)),
    *(excess_figure(6 + i, queries) for i, queries in enumerate(QUERIES)),
    Figure("many_windows", _draw_many_windows),
    Figure("joint", _draw_joint),
)
