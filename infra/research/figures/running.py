"""What a figure is, and how its numbers are computed over many seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

Row = Mapping[str, float]


@dataclass(frozen=True)
class Settings:
    """What the command line says: how many seeds at most (from 0), where to, how many processes, whose warehouse."""

    out: Path
    seeds: int = 100
    processes: int = 1
    warehouse: Path | None = None


class Skipped(Exception):
    """A figure that cannot be drawn here, and why."""


@dataclass(frozen=True)
class Figure:
    """A figure by name; ``draw`` writes its files, or raises :class:`Skipped`."""

    name: str
    draw: Callable[[Settings], None]


def measured(
    measure: Callable[..., Row], cases: Iterable[tuple[int, ...]], names: tuple[str, ...], processes: int
) -> pd.DataFrame:
    """One row a case: its arguments under ``names``, and what ``measure(*case)`` says of it.

    **Guarantee**: the rows come in the order of the cases, however many processes share them.
    """
    whole = list(cases)
    if processes == 1:
        rows = [measure(*case) for case in whole]
    else:
        with ProcessPoolExecutor(processes) as pool:
            rows = list(pool.map(measure, *zip(*whole, strict=True)))
    return pd.DataFrame([{**dict(zip(names, case, strict=True)), **row} for case, row in zip(whole, rows, strict=True)])
