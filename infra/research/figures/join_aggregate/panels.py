"""The panels that the figures of papers/02 share: methods beside each other over decades of cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from infra.research.figures.drawing import BLUE, GREEN, INK, ORANGE, PURPLE, Series, canvas, curve, finish
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

# A running total is changed when a tuple comes into view and when it goes: ``join_aggregate.operator.step``, Cost.
STATED_ACCESSES = 2
LEGEND_FONT, LEGEND_LINE, LEGEND_REACH = 9.5, 0.061, 0.65
LOOKS = {"pc": (ORANGE, "s"), "tc": (GREEN, "^"), "ic": (BLUE, "o")}
PRODUCTION = (PURPLE, "D")
Names = dict[str, str]


def curves(axes: Axes, rows: pd.DataFrame, x: str, names: Names, column: str, scale: float = 1.0) -> pd.DataFrame:
    """One curve a method."""
    series = [Series(f"{prefix}_{column}", name, *LOOKS[prefix]) for prefix, name in names.items()]
    return pd.concat([curve(axes, rows, x, one, scale) for one in series])


def models(axes: Axes, rows: pd.DataFrame, x: str, names: Names, equations: Names) -> pd.DataFrame:
    """What the paper's formulas say, as dashes without a band."""
    tables = []
    for prefix, equation in equations.items():
        drawn = rows.groupby(x)[f"{prefix}_model"].mean()
        axes.plot(drawn.index, drawn, "--", color=INK, lw=1.1, label=f"{names[prefix]} by {equation}", zorder=4)
        table = drawn.rename("mean").reset_index()
        table.insert(0, "series", f"{prefix}_model")
        tables.append(table)
    return pd.concat(tables)


def stated(axes: Axes) -> None:
    """The production operator's accesses, which are not counted, as a note: on the axis they would flatten the rest."""
    said = f"production operator: {STATED_ACCESSES}, by its documentation"
    axes.text(0.98, 0.03, said, color=PURPLE, fontsize=LEGEND_FONT, ha="right", transform=axes.transAxes)


def logarithmic(axes: Axes, title: str, x: str, y: str) -> None:
    """Finish axes whose amounts span decades; the legend gets room above the curves that pass below it."""
    low, high = axes.dataLim.intervaly
    low /= 2.0
    finish(axes, title, x, y, None)
    legend = axes.legend(loc="upper left", fontsize=LEGEND_FONT)
    covered = 0.04 + LEGEND_LINE * len(legend.get_texts())
    begin, end = axes.dataLim.intervalx
    below = np.linspace(begin, begin + LEGEND_REACH * (end - begin))
    passing = max(float(np.interp(below, *line.get_data()).max()) for line in axes.lines)
    axes.set_ylim(low, max(1.5 * high, low * (passing / low) ** (1.05 / (1 - covered))))
    axes.set_yscale("log")


def time_and_touched(
    rows: pd.DataFrame, x: str, names: Names, axis: str, titles: Sequence[str], equations: Names
) -> tuple[Canvas, pd.DataFrame]:
    """Two panels: CPU time a tuple with the production operator, accesses a tuple with the paper's formulas."""
    figure, (times, accesses) = canvas(2)
    tables = [curves(times, rows, x, names, "us")]
    tables.append(curve(times, rows, x, Series("production_us", "production operator", *PRODUCTION)))
    tables.append(curves(accesses, rows, x, names, "touched"))
    if equations:
        tables.append(models(accesses, rows, x, names, equations))
    stated(accesses)
    logarithmic(times, titles[0], axis, "CPU time per tuple (µs)")
    logarithmic(accesses, titles[1], axis, "accesses per tuple")
    return figure, pd.concat(tables)
