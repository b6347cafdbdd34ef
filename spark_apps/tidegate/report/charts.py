"""Charts and numbers of the report: figures as JSON, values as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from markupsafe import Markup

from tidegate.readable import format_bytes, format_seconds
from tidegate.report.page import Numbers

MOST_ROWS = 200

# Told apart by people with every kind of colour vision, and legible on light and dark.
COLORS = (
    "#3b82c4",
    "#e07b39",
    "#2a9d74",
    "#b6569b",
    "#8a6fd1",
    "#a08a1f",
    "#5f9ea8",
    "#c4564a",
    "#6b7a8f",
    "#9c6b3f",
    "#3fa7d6",
    "#7d9b3a",
)


def rows_of(frame: pd.DataFrame) -> Iterable[Any]:
    """The rows of a small frame, each with its columns as attributes."""
    return frame.itertuples(index=False)


def numbers(columns: Sequence[str], rows: Sequence[tuple[str, ...]], numeric: Sequence[str]) -> Numbers:
    """The newest rows of a table, as many as a page can bear."""
    left_out = f"The last {MOST_ROWS} of {len(rows):,} rows." if len(rows) > MOST_ROWS else ""
    return Numbers(tuple(columns), tuple(rows[-MOST_ROWS:]), frozenset(numeric), left_out)


def reference(figure: go.Figure, x: Any, value: float, name: str) -> None:
    """A dashed line at a promise or a budget, in the page's ink."""
    line = {"dash": "dash", "width": 1.5}
    figure.add_scatter(x=[min(x), max(x)], y=[value, value], name=name, mode="lines", line=line, meta="reference")


def chart(figure: go.Figure, together: bool = True) -> Markup:
    """The figure as JSON that is safe inside a script element; ``together``: pointing shows all values at one x."""
    figure.update_layout(
        template=None, margin={"l": 8, "r": 8, "t": 8, "b": 8}, hovermode="x unified" if together else "closest",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}, showlegend=True,
    )  # fmt: skip
    text = json.dumps(json.loads(figure.to_json()), separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def byte_unit(largest: float) -> tuple[str, float]:
    """The unit for an axis that reaches to so many bytes, and its size."""
    for unit, size in (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)):
        if largest >= size:
            return unit, size
    return "bytes", 1.0


def shown_time(at: Any) -> str:
    """An instant to the minute, empty if none."""
    return "" if pd.isna(at) else pd.Timestamp(at).strftime("%Y-%m-%d %H:%M")


def shown_text(value: Any) -> str:
    """A text, empty if none."""
    return "" if pd.isna(value) else str(value)


def shown_number(value: Any) -> str:
    """A number in four digits, empty if none."""
    return "" if pd.isna(value) else f"{value:.4g}" if isinstance(value, float) else f"{value:,}"


def shown_seconds(value: Any) -> str:
    """Seconds with a unit, empty if none."""
    return "" if pd.isna(value) else format_seconds(float(value))


def shown_bytes(value: Any) -> str:
    """Bytes with a unit, empty if none."""
    return "" if pd.isna(value) else format_bytes(float(value))
