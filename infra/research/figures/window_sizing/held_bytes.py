"""Bytes that a pipeline's windows really held, against its memory budget, over time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.dataset as ds
from infra.oracle.schedule import live
from infra.research.figures.drawing import AMBER, BLUE, GREEN, INK, ORANGE, PURPLE, SKY, canvas, finish, save
from infra.research.figures.running import Settings, Skipped
from matplotlib.colors import ListedColormap
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.patches import Patch

PIPELINE = "flights"
MOST_POINTS = 1_500
COLORS = (BLUE, GREEN, AMBER, PURPLE, SKY)
# The less support, the darker; not the colours of the streams above.
LEVELS = {"A": "#d5e3f0", "B": "#8fb4d6", "C": "#2f6291", "infeasible": ORANGE}
KIB = 2.0**-10


def held_bytes(folder: Path) -> pd.DataFrame:
    """Per tick: bytes held by each stream's window, their ``total``, ``budget`` M, ``level``, tuples ``evicted_early``.

    Arguments: ``folder``: the pipeline's tables. :class:`Skipped` if they are not there or do not say.
    """
    rates = _table(folder, "stream_rates", ["stream", "tick", "held_bytes", "evicted_early"])
    held = rates.pivot_table(index="tick", columns="stream", values="held_bytes", aggfunc="sum").fillna(0.0)
    ticks = held.assign(
        total=held.sum(axis=1), evicted_early=rates.groupby("tick")["evicted_early"].sum()
    ).reset_index()
    plans = _table(folder, "window_plan", ["effective_from", "support_level"]).drop_duplicates("effective_from")
    plans = plans.rename(columns={"effective_from": "tick", "support_level": "level"}).sort_values("tick")
    runs = _table(folder, "run_metrics", ["app", "memory_budget_bytes"], interval=True)
    budgets = runs[runs["app"] == "ingest"].drop_duplicates("interval").sort_values("interval")
    budgets = pd.DataFrame({"tick": _starts(budgets["interval"]), "budget": budgets["memory_budget_bytes"].to_numpy()})
    # A tick speaks of the slot before it, so what was in force then counts, not what begins at the tick itself.
    for since in (plans, budgets):
        ticks = pd.merge_asof(ticks, since.astype({"tick": ticks["tick"].dtype}), on="tick", allow_exact_matches=False)
    return ticks


def _table(folder: Path, name: str, columns: list[str], interval: bool = False) -> pd.DataFrame:
    if not (folder / name).is_dir():
        raise Skipped(f"there is no table {name} under {folder}")
    table = ds.dataset(live(folder, name), partitioning="hive").to_table()
    missing = sorted(set(columns) - set(table.column_names))
    if missing:
        raise Skipped(f"{name} under {folder} has no column {', '.join(missing)}: an older version wrote it")
    return table.select([*columns, "interval"] if interval else columns).to_pandas()


def _starts(labels: pd.Series) -> pd.DatetimeIndex:
    """The instants that labels of intervals name, as 2013-02-08T10 or 2013-02-08T1030."""
    whole = labels.astype(str).str.pad(15, side="right", fillchar="0")
    return pd.DatetimeIndex(pd.to_datetime(whole, format="%Y-%m-%dT%H%M", utc=True))


def fullest(ticks: pd.DataFrame, most: int = MOST_POINTS) -> pd.DataFrame:
    """At most so many of the ticks: of each run of equally many neighbours the one at which most was held."""
    piece = np.arange(len(ticks)) * most // max(len(ticks), most)
    return ticks.loc[ticks.groupby(piece)["total"].idxmax()]


def draw(settings: Settings) -> None:
    """The figure ``held_bytes``."""
    if settings.warehouse is None:
        raise Skipped("no --warehouse is given; `make demo` makes one, .tidegate/warehouse")
    ticks = held_bytes(settings.warehouse / PIPELINE)
    if len(ticks) < 2:
        raise Skipped(f"stream_rates under {settings.warehouse / PIPELINE} has {len(ticks)} ticks")
    streams = [name for name in ticks.columns if name not in ("tick", "total", "budget", "level", "evicted_early")]
    shown = fullest(ticks)
    at = shown["tick"].to_numpy()
    figure, (above, below) = canvas(heights=(7, 1))
    layers = [shown[name].to_numpy() * KIB for name in streams]
    above.stackplot(at, layers, labels=streams, colors=COLORS, step="pre", alpha=0.85, lw=0)
    above.step(at, shown["budget"] * KIB, where="pre", color=INK, lw=1.4, ls="--", label="budget M")
    above.set_ylim(top=1.25 * KIB * ticks[["budget", "total"]].max().max())
    over = int((ticks["total"] > ticks["budget"]).sum())
    finish(above, "Bytes held by the windows over streams, flights of 2013", "", "bytes held (KiB)")
    above.legend(loc="upper left", ncols=len(streams) + 1)
    codes = shown["level"].map({level: i for i, level in enumerate(LEVELS)}).to_numpy(dtype=np.float64)
    slots = np.append(at[0] - (at[1] - at[0]), at)
    colors, last = ListedColormap(list(LEVELS.values())), len(LEVELS) - 0.5
    below.pcolormesh(slots, [0, 1], np.ma.masked_invalid(codes[None]), cmap=colors, vmin=-0.5, vmax=last)
    below.set_yticks([])
    below.grid(visible=False)
    below.set_ylim(0, 1)
    below.set_ylabel("level", rotation=0, ha="right", va="center")
    patches = [Patch(color=color, label=level) for level, color in LEVELS.items()]
    below.legend(loc="upper center", bbox_to_anchor=(0.5, -0.55), ncols=len(LEVELS), handlelength=1, handles=patches)
    locator = AutoDateLocator()
    below.xaxis.set_major_locator(locator)
    below.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    begin, end = (f"{instant:%Y-%m-%d %H:%M}" for instant in (ticks["tick"].min(), ticks["tick"].max()))
    caption = (
        f"Measured, not planned: the most that each stream's window held in the slot before each of {len(ticks):,} "
        f"ticks, {begin} to {end} UTC, from the tables stream_rates, window_plan and run_metrics. More than M was held "
        f"in {over} slots; the highest total was {(ticks['total'] / ticks['budget']).max():.1%} of M; "
        f"{int(ticks['evicted_early'].sum()):,} tuples were evicted early."
    )
    if len(shown) < len(ticks):
        caption += f" Drawn: of every {round(len(ticks) / len(shown))} ticks the fullest."
    save(figure, settings.out, "held_bytes", caption, {"": ticks})
