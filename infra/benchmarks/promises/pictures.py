"""What was expected beside what was measured, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from infra.benchmarks.generator.randomness import Floats
from infra.research.figures.drawing import AMBER, BLUE, GREEN, INK, ORANGE, PURPLE, SKY, canvas, finish, save

POINTS = 0.02
"""What was expected may differ so much from what was measured."""
PARTS = 8
COLORS = (BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER, "#882255", "#117733")
LEAST = 0.9

Expectations = Mapping[str, list[tuple[Floats, Floats]]]
"""Data set → of each of its queries what was expected of each window, and what it reached."""


def pooled(found: list[tuple[Floats, Floats]]) -> tuple[float, float]:
    """Mean of what was expected and of what was reached, over the windows of all queries of which something was."""
    expected, reached = (np.concatenate(columns) for columns in zip(*found, strict=True))
    known = ~np.isnan(expected)
    return float(expected[known].mean()), float(reached[known].mean())


def parted(expected: Floats, reached: Floats) -> pd.DataFrame:
    """The windows by what was expected of them, in parts of about equal size: means of both."""
    known = ~np.isnan(expected)
    order = np.argsort(expected[known], kind="stable")
    parts = [own for own in np.array_split(order, PARTS) if len(own)]
    rows = [(float(expected[known][own].mean()), float(reached[known][own].mean()), len(own)) for own in parts]
    return pd.DataFrame(rows, columns=["expected", "measured", "windows"])


def draw(found: Expectations, out: Path, said: str) -> None:
    """``calibration.png`` and the numbers, ``calibration.csv``."""
    figure, (axes,) = canvas(heights=(1,))
    figure.set_size_inches(8.6, 8.0)
    axes.fill_between([0, 1], [-POINTS, 1 - POINTS], [POINTS, 1 + POINTS], color=INK, alpha=0.08, lw=0)
    axes.plot([0, 1], [0, 1], color=INK, lw=0.9, ls=":")
    tables = []
    for color, (data, queries) in zip(COLORS, found.items(), strict=False):
        for number, (expected, reached) in enumerate(queries):
            table = parted(expected, reached).assign(data=data, query=number)
            axes.plot(table["expected"], table["measured"], "o", ms=3.5, color=color, alpha=0.55)
            tables.append(table)
        axes.plot(*pooled(queries), "D", ms=9, color=color, mec=INK, label=data)
    finish(axes, "Accuracy expected and measured", "expected", "measured", "upper left")
    axes.set_xlim(LEAST, 1.003)
    axes.set_ylim(LEAST, 1.003)
    axes.grid(axis="x")
    drawn = pd.concat(tables)
    outside = int(((drawn["expected"] < LEAST) | (drawn["measured"] < LEAST)).sum())
    caption = (
        f"{said} Diamonds: all windows of a data set. Points: an eighth of a query's windows, by what was expected of "
        f"them; {outside} of {len(drawn)} lie outside. Shaded: within {POINTS * 100:g} points."
    )
    save(figure, out, "calibration", caption, {"": drawn})
