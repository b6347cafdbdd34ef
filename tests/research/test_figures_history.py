"""The figures of papers/03: files come out, their numbers are the same again, and they say what they are of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from infra.research.figures.__main__ import main
from infra.research.figures.history import coverage, customers, measures

TICKS = 20_000


@pytest.fixture
def few_customers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in for TPC-H's table: balances uniform, nations at random, as its specification has them."""
    rng = np.random.default_rng(1)
    stream = customers.Customers(rng.uniform(-999.99, 9999.99, TICKS), rng.integers(0, 25, TICKS))
    monkeypatch.setattr(customers, "make", lambda: None)
    monkeypatch.setattr(measures, "customers", lambda: stream)
    monkeypatch.setattr(measures, "CAPACITY", 4_000)
    monkeypatch.setattr(measures, "CAPACITIES", (2_000, 4_000))
    monkeypatch.setattr(measures, "LANDMARKS", (0.0, 0.3, 0.5))
    monkeypatch.setattr(measures, "WINDOWS", 5)
    measures.stores.cache_clear()
    yield
    measures.stores.cache_clear()


def table(folder: Path, name: str, suffix: str = "") -> pd.DataFrame:
    return pd.read_csv(folder / "history" / f"{name}{suffix}.csv", comment="#")


def test_figures_are_pictures_and_numbers(few_customers: None, tmp_path: Path) -> None:
    names = ["history_simple", "history_complex", "history_store_size", "history_coverage"]
    only = [part for name in names for part in ("--only", name)]
    assert main(["history", "--seeds", "2", "--processes", "1", "--out", str(tmp_path), *only]) == 0
    for name in names:
        assert (tmp_path / "history" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "seeds (0 to 1)" in (tmp_path / "history" / f"{name}.csv").read_text().replace("\n# ", " ")
    rows = table(tmp_path, "history_complex", ".instances")
    # Near the newest both know nearly all; far back the exponential has kept e^-4 of what the other law keeps of it.
    assert rows.groupby("ts")[["ours_simple_landmark", "paper_simple_landmark"]].mean().max().max() < 0.01


def test_a_case_gives_the_same_numbers_again() -> None:
    assert coverage.coverage(1, 3, 20) == coverage.coverage(1, 3, 20)


def test_the_store_of_the_figures_is_full_and_nested(few_customers: None) -> None:
    """Both laws' stores hold at most D, ours nearly D; what the smaller one holds at a fraction the larger one does."""
    for law in measures.LAWS:
        paper, ours = measures.stores(0, 4_000, law)
        assert len(ours.kept) <= 4_000 and len(ours.kept) > 0.9 * 4_000
        assert len(paper.kept) <= 4_000 + 4 * np.sqrt(4_000)
        assert (np.diff(ours.fraction) >= 0).all()
