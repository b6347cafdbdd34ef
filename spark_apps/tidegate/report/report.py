"""Report: one HTML page that shows what a pipeline promised and what it kept.

K, accuracy, widths, support levels and memory against the promises, as charts and as numbers, from the tables of the
warehouse. Tables that are missing, empty or of another version are named in the page, which shows the rest. The page is
a function of the tables alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline
from tidegate.declarations.promises import Line
from tidegate.declarations.units import show_percent
from tidegate.report.hindsight import Hindsight
from tidegate.report.history import history_section
from tidegate.report.page import Section, Tile, Tone, page
from tidegate.report.promises import hindsight_of, lines_of, promised_first, promises_section
from tidegate.report.sections import (
    failures,
    memory_section,
    quality_section,
    quality_tone,
    query_section,
    runs_section,
    windows_section,
)
from tidegate.report.tables import Tables
from tidegate.store.folders import private_folder
from tidegate.store.places import Place
from tidegate.store.warehouse import Warehouse


def run(
    pipeline: Pipeline, warehouse: str | Place, output: Path | None = None, as_of: str | datetime | None = None
) -> Path:
    """Write the page and return its path (default ``<warehouse>/<pipeline>/_docs/report.html``).

    ``as_of``: of what had been committed by that instant, or with that run.
    """
    store = Warehouse(warehouse, pipeline, as_of)
    if not store.folder.is_dir():
        raise UserError(f"there is nothing to report: {store.folder} does not exist; has the pipeline run yet?")
    target = output if output is not None else store.local / "_docs" / "report.html"
    if target.is_dir():
        raise UserError(f"{target} is a folder; expected a file to write the report to")
    text = render(pipeline, Tables(store))
    try:
        if output is None:
            private_folder(store.local)
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{target.name}.{os.getpid()}")
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, target)
    except OSError as error:
        raise UserError(f"cannot write the report to {target}: {error.strerror}") from None
    return target


def render(pipeline: Pipeline, tables: Tables) -> str:
    """The page as text."""
    of_promises, known = lines_of(pipeline, tables), hindsight_of(pipeline, tables)
    of_queries = [query_section(query, of_promises.get(query.id), tables) for query in promised_first(pipeline)]
    sections = [
        promises_section(pipeline, tables, of_promises, known),
        *of_queries,
        windows_section(tables),
        memory_section(pipeline, tables),
        history_section(pipeline, tables),
        runs_section(tables),
        quality_section(tables),
    ]
    covers, tiles = _covers(tables), _tiles(tables, list(of_promises.values()), known)
    # Last, when everything has been read.
    if tables.left_out:
        sections.insert(
            0, Section("left-out", "Left out", "Not everything could be read.", "bad", missing=tables.left_out)
        )
    return page(pipeline.name, pipeline.description, covers, tiles, sections)


def _covers(tables: Tables) -> str:
    labels = sorted(set(tables["run_metrics"]["interval"]) | set(tables["window_plan"]["interval"]))
    if not labels:
        return "No interval has been run yet."
    return f"Covers {len(labels)} interval{'s' if len(labels) > 1 else ''}, {labels[0]} to {labels[-1]}."


def _tiles(tables: Tables, promises: Sequence[Line], known: Hindsight) -> list[Tile]:
    tones = {line.tone for line in promises}
    tone: Tone = "bad" if "bad" in tones else "good" if tones == {"good"} else "open"
    kept, judged = sum(line.kept for line in promises), sum(line.judged for line in promises)
    tiles = [Tile("promise periods kept", f"{kept} of {judged}", tone)]
    waits = [wait for wait in known.waits.values() if wait.fixed_s is not None]
    if fixed_s := sum(wait.fixed_s or 0.0 for wait in waits):
        share = sum(wait.mean_s for wait in waits) / fixed_s
        tiles.append(Tile("waited, of the best fixed wait in hindsight", f"{share * 100:.0f} %"))
    memory = known.memory
    if memory is not None and memory.exact:
        tiles.append(Tile("held, of what exact answers need", f"{memory.most / memory.exact * 100:.0f} %"))
    metrics = tables["run_metrics"]
    for label, peak, budget in (
        ("peak window state of its budget", "peak_state_bytes", "memory_budget_bytes"),
        ("peak process memory of its budget", "peak_process_bytes", "process_budget_bytes"),
    ):
        used = (metrics[peak] / metrics[budget]).astype("float64").max() if len(metrics) else np.nan
        over: Tone = "" if np.isnan(used) else "good" if used <= 1 else "bad"
        tiles.append(Tile(label, "not measured" if np.isnan(used) else show_percent(used), over))
    results = tables["quality_results"]
    found = failures(results)
    failed, critical = len(found), int((found["severity"] == "critical").sum())
    tiles.append(
        Tile(
            "expectations failed or warned of",
            str(failed) if len(results) else "not checked",
            quality_tone(len(results), failed, critical),
        )
    )
    tiles.append(Tile("records in quarantine", f"{len(tables['quarantine']):,}"))
    return tiles
