"""The tutorial notebook, cell by cell, over the marts of a pipeline that its author did not write it for."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.dbt.sensors import Published

NOTEBOOK = Path(__file__).parents[2] / "infra" / "sql" / "tutorial.ipynb"


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of its last line, which must be an expression."""
    body = ast.parse(source).body
    shown = body.pop()
    assert isinstance(shown, ast.Expr), source
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(shown.value), "cell", "eval"), names)


@pytest.mark.spark
def test_every_cell_of_the_tutorial_shows_rows(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_TUTORIAL_PIPELINE", str(published.context.warehouse.folder))
    cells = [c for c in json.loads(NOTEBOOK.read_text())["cells"] if c["cell_type"] == "code"]
    assert all(not c["outputs"] and c["execution_count"] is None for c in cells)
    names: dict[str, Any] = {}
    shown = [run_cell("".join(cell["source"]), names) for cell in cells]
    assert all(isinstance(frame, pd.DataFrame) and len(frame) > 0 for frame in shown)
    marts, newest = shown[0], shown[1]
    assert set(marts.mart) == {folder.name for folder in published.marts.iterdir()}
    assert set(newest["query"]) == {query.id for query in published.context.warehouse.pipeline.queries}
