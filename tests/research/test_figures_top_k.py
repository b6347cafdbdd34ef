"""The figures of papers/04: files come out, their numbers are the same again, and they say what the formulas say."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from infra.benchmarks.generator.lateness import Exponential, Pareto
from infra.research.figures.__main__ import PAPERS, main
from infra.research.figures.top_k import FIGURES, controllers, measures, pictures, streams
from infra.research.published.top_k import Options, arrivals

SEEDS = 2
DRAWN = [figure.name for figure in FIGURES]
SMALL = {"RUN_HOURS": 0.5, "RUN_RATE": 0.5, "BIN_S": 300}
SMALL |= {"STEP_HOURS": 1, "STEP_AT_HOURS": 0.5, "STEP_RATE": 0.2, "FLIGHTS_WARM_UP_S": 24 * 3600}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every figure, of two seeds and short runs."""
    out = tmp_path_factory.mktemp("figures")
    caches = (pictures.methods, streams.departures_stream)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setattr(measures, name, value)
        patch.setattr(streams, "DEPARTURES_DAYS", 3)
        for cache in caches:
            cache.cache_clear()
        assert main(["top_k", "--seeds", str(SEEDS), "--processes", "1", "--out", str(out)]) == 0
        for cache in caches:
            cache.cache_clear()
    return out / "top_k"


def table(folder: Path, name: str, suffix: str = "") -> pd.DataFrame:
    return pd.read_csv(folder / f"{name}{suffix}.csv", comment="#")


def test_no_two_papers_have_figures_of_one_name():
    """``--only`` names a figure without its paper."""
    names = [figure.name for figures in PAPERS.values() for figure in figures]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_is_a_picture_and_numbers_that_say_generator_and_seeds(folder, name):
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    for suffix in ("", ".instances"):
        header = [line for line in (folder / f"{name}{suffix}.csv").read_text().splitlines() if line.startswith("#")]
        said = " ".join(line.removeprefix("# ") for line in header)
        assert "Wu and Fang" in said and "streams.py" in said and f"seeds (0 to {SEEDS - 1})" in said


@pytest.mark.parametrize(("measure", "case"), [("over_time", (6, 1)), ("step_of_delays", (1,)), ("frontier", (2, 1))])
def test_the_same_seed_measures_the_same(monkeypatch, measure, case):
    for name, value in SMALL.items():
        monkeypatch.setattr(measures, name, value)
    one, two, other = (getattr(measures, measure)(*of) for of in (case, case, (*case[:-1], 2)))
    assert one == two != other
    assert not [name for name, value in one.items() if math.isnan(value) and not name.startswith("ours_touched")]


def test_what_is_drawn_over_time_are_the_runs_means(folder):
    rows, drawn = table(folder, "topk_accuracy", ".instances"), table(folder, "topk_accuracy")
    assert len(drawn["series"].unique()) == len(pictures.LOOKS)
    for series, curve in drawn.groupby("series"):
        np.testing.assert_allclose(curve["mean"], rows.groupby("minutes")[series].mean(), rtol=1e-8)


def test_every_disorder_and_every_law_and_the_departures_are_drawn(folder):
    assert set(table(folder, "topk_disorder", ".instances")["theta_s"]) == set(measures.THETAS_S)
    points = table(folder, "topk_frontier")
    assert set(points["law"]) == set(range(len(streams.LAWS) + 1))
    asked = {*pictures.FRONTIER_ORDER}
    assert {name.removesuffix("_accuracy") for name in points.columns if name.endswith("_accuracy")} == asked


def test_waiting_longer_is_never_less_accurate(folder):
    for _, of_law in table(folder, "topk_frontier").groupby("law"):
        fixed = of_law[["k_slack_delay_s", "k_slack_accuracy"]].dropna()
        assert (fixed.diff().dropna() >= -1e-12).all().all()
        assert of_law["gstopk_accuracy"].iloc[0] == pytest.approx(fixed["k_slack_accuracy"].iloc[0])


def test_an_answer_recorded_by_needed_slacks_is_the_one_that_k_slack_gives():
    judged = measures.Judged(measures.QUERY, streams.random_stream([(1200, Pareto(2.0, 1.5))], 1.0, 0))
    for slack_s in (0, 3, 20):
        options = Options(slack_us=slack_s * streams.SECOND_US)
        waited = judged.waited(np.full(len(judged.windows), float(slack_s)))
        np.testing.assert_array_equal(waited.accuracy, judged.course("K-SLACK", options).accuracy)


def test_who_knows_the_law_asks_what_the_formula_says_and_passes_from_one_law_to_the_other():
    """papers/04: 1 − (θ/T)·e^(−K/θ)·(1 − e^(−T/θ)) = 0.95, for T = 60 s."""
    needs_s = [theta * math.log(theta / 60 * (1 - math.exp(-60 / theta)) / 0.05) for theta in (6, 20)]
    slack_s = controllers.known_law_slack_s(measures.QUERY, range(400), 6, 20, 1000)
    assert slack_s[:199] == pytest.approx(needs_s[0], abs=0.02)
    assert slack_s[212:] == pytest.approx(needs_s[1], abs=0.02)
    assert (np.diff(slack_s[198:213]) >= 0).all()


FEW = arrivals([0], [1], [0.0], [0])
"""Too few tuples for their delays to say anything: the winners alone count."""


def test_tidegates_rule_sees_no_window_before_it_is_final_and_forgets_what_leaves_the_pool():
    query, horizon_s, pool_s = measures.QUERY, 100.0, 600.0
    # Every winner needs 10 s up to the window 299 (which ends at 1500 s), and 40 s after.
    needed_us = {window: [(10 if window < 300 else 40) * streams.SECOND_US] * 5 for window in range(600)}
    slack_s = controllers.learnt_slack_s(
        query, FEW, needed_us, 0.95, first_s=2, horizon_s=horizon_s, pool_s=pool_s, every_s=60
    )
    end_s = (np.arange(600) + 1) * 5
    assert set(slack_s[end_s < 120]) == {2.0}
    assert set(slack_s[(end_s >= 120) & (end_s < 1600)]) == {10.0}
    assert slack_s[end_s >= 1800].min() == 40  # 5 % of the pool is new within 30 s


def test_the_departures_are_scored_by_their_delay_and_none_arrives_before_its_time(monkeypatch):
    monkeypatch.setattr(streams, "DEPARTURES_DAYS", 2)
    streams.departures_stream.cache_clear()
    found = streams.departures_stream()
    streams.departures_stream.cache_clear()
    assert 1000 < len(found) < 2500
    for one in found[:500]:
        late_min = (one.arrival_us - one.event_us) / 60e6
        assert late_min == max(0.0, -one.rank[0])


def test_regimes_follow_the_event_time():
    found = streams.random_stream([(600, Exponential(0.001)), (600, Exponential(100.0))], 2.0, 3)
    late_s = {begun: [] for begun in (False, True)}
    for one in found:
        late_s[one.event_us >= 600 * streams.SECOND_US].append((one.arrival_us - one.event_us) / 1e6)
    assert max(late_s[False]) < 0.1 and np.mean(late_s[True]) == pytest.approx(100, rel=0.2)
