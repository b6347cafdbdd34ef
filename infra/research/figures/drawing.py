"""How the figures look, and how a figure becomes files."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

# Okabe and Ito: told apart by people with every kind of colour vision.
BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
INK, PALE_INK = "#222222", "#666666"
WIDTH_IN, WIDE_IN, HEIGHT_IN, DOTS_PER_INCH = 8.0, 9.6, 5.4, 150
CAPTION_FONT, CAPTION_LINE_IN, CHARACTERS_PER_INCH = 8.5, 0.155, 15.5

matplotlib.rcParams |= {
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": PALE_INK,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.xmargin": 0.02,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "text.color": INK,
}


@dataclass(frozen=True)
class Series:
    """One curve: a column of the numbers, what it is called, and how it looks."""

    column: str
    label: str
    color: str
    marker: str = "o"
    line: str = "-"


def canvas(panels: int = 1, heights: Sequence[float] | None = None) -> tuple[Canvas, list[Axes]]:
    """An empty figure with its panels: side by side, or below each other if relative ``heights`` are given."""
    if heights is None:
        size = (WIDE_IN if panels > 1 else WIDTH_IN, HEIGHT_IN)
        figure, axes = plt.subplots(1, panels, squeeze=False, figsize=size)
    else:
        size = (WIDE_IN, HEIGHT_IN)
        figure, axes = plt.subplots(len(heights), squeeze=False, sharex=True, figsize=size, height_ratios=heights)
    return figure, list(axes.ravel())


def curve(axes: Axes, rows: pd.DataFrame, x: str, series: Series, scale: float = 1.0) -> pd.DataFrame:
    """Mean over the seeds and the band that holds the middle half of them; returns what is drawn, in the rows' unit."""
    drawn = rows.groupby(x)[series.column].agg(
        mean="mean",
        quartile_25=lambda values: values.quantile(0.25),
        quartile_75=lambda values: values.quantile(0.75),
        least="min",
        most="max",
        seeds="count",
    )
    at = drawn.index.to_numpy()
    low, high = drawn["quartile_25"] * scale, drawn["quartile_75"] * scale
    axes.fill_between(at, low, high, color=series.color, alpha=0.14, lw=0)
    axes.plot(at, drawn["mean"] * scale, series.line, marker=series.marker, color=series.color, label=series.label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    table: pd.DataFrame = drawn.reset_index()
    table.insert(0, "series", series.column)
    return table


def finish(axes: Axes, title: str, x: str, y: str, legend: str | None = "upper left") -> None:
    """Title and axes with their units; every axis of amounts begins at 0."""
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_ylim(bottom=0)
    if legend:
        axes.legend(loc=legend)


def save(figure: Canvas, out: Path, name: str, caption: str, tables: dict[str, pd.DataFrame]) -> None:
    """Write ``<name>.png`` with its caption, and each table as ``<name><suffix>.csv`` with the caption as comment.

    A reader of the CSV skips the lines that begin with ``#``.
    """
    out.mkdir(parents=True, exist_ok=True)
    width_in, height_in = figure.get_size_inches()
    lines = textwrap.wrap(caption, int(width_in * CHARACTERS_PER_INCH))
    below = (len(lines) * CAPTION_LINE_IN + 0.15) / height_in
    figure.tight_layout(rect=(0, below, 1, 1))
    x, y = 0.1 / width_in, 0.07 / height_in
    figure.text(x, y, "\n".join(lines), fontsize=CAPTION_FONT, color=PALE_INK, va="bottom", linespacing=1.25)
    # No version of the library in the file: the same numbers make the same bytes.
    figure.savefig(out / f"{name}.png", dpi=DOTS_PER_INCH, metadata={"Software": None, "Description": caption})
    plt.close(figure)
    comment = "".join(f"# {line}\n" for line in textwrap.wrap(caption, 118))
    for suffix, table in tables.items():
        text = table.to_csv(index=False, float_format="%.10g", lineterminator="\n")
        (out / f"{name}{suffix}.csv").write_text(comment + text, encoding="utf-8")
