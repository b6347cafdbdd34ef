"""The figures of papers/02: files come out, their counts are the same again, and all rivals answer alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from infra.research.figures.__main__ import PAPERS, main
from infra.research.figures.join_aggregate import FIGURES, measures, pictures, streams
from infra.research.published.join_aggregate import Query, start, step

from tidegate.operators.join_aggregate import finish
from tidegate.operators.join_aggregate import step as production_step

SEEDS = 2
DRAWN = [figure.name for figure in FIGURES]
SMALL = {
    pictures: {"WIDTHS_S": (5, 10), "GROUP_WIDTHS_S": (1, 2), "WAYS": (2, 3)},
    measures: {"PRODUCTION_TUPLES": 300, "WIDTH_TUPLES": 40, "RATE_WIDTH_S": 4, "WAYS_WIDTH_S": 4},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every figure, of two seeds and small windows."""
    out = tmp_path_factory.mktemp("figures")
    with pytest.MonkeyPatch.context() as patch:
        for module, constants in SMALL.items():
            for name, value in constants.items():
                patch.setattr(module, name, value)
        for runs in (pictures.widths, pictures.rates):
            runs.cache_clear()
        assert main(["join_aggregate", "--seeds", str(SEEDS), "--processes", "1", "--out", str(out)]) == 0
        for runs in (pictures.widths, pictures.rates):
            runs.cache_clear()
    return out / "join_aggregate"


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
        assert "Wang et al. (2006)" in said and "streams.py" in said and f"seeds 0 to {SEEDS - 1}" in said


@pytest.mark.parametrize(
    ("measure", "case"),
    [
        (measures.by_width, (5, 1)),
        (measures.by_rate, (0, 1)),
        (measures.by_group, (1, 1)),
        (measures.by_ways, (3, 1, 1)),
    ],
)
def test_the_same_seed_counts_the_same(monkeypatch, measure, case):
    for name, value in SMALL[measures].items():
        monkeypatch.setattr(measures, name, value)
    one, two = ({name: value for name, value in measure(*case).items() if "_us" not in name} for _ in range(2))
    assert one == two
    assert any("touched" in name for name in one) and any("bytes" in name for name in one)


@pytest.mark.parametrize("name", ["width_time", "width_memory", "group_time"])
def test_what_is_drawn_are_the_runs_means(folder, name):
    rows, drawn = table(folder, name, ".instances"), table(folder, name)
    for series, curve in drawn.groupby("series"):
        means = rows.groupby("width_s")[series].mean().to_numpy()
        np.testing.assert_allclose(curve["mean"].to_numpy(), means, rtol=1e-8)


def test_what_ic_and_tc_touch_is_what_the_formulas_say(folder):
    """The formulas take a bucket for its mean and the windows as before expiry: a small part of all accesses."""
    rows = table(folder, "width_time", ".instances")
    for prefix in ("ic", "tc"):
        assert (rows[f"{prefix}_touched"] / rows[f"{prefix}_model"] - 1).abs().max() < 2 / measures.BUCKETS


def test_memory_by_the_papers_count_is_a_counter_more_for_tc_and_the_expired_more_for_ic(folder):
    rows = table(folder, "width_memory", ".instances")
    tuples = rows["tc_bytes"] / 22
    assert (rows["ic_bytes"] >= 18 * tuples - 1e-6).all()
    assert (rows["pc_bytes"] >= 18 * tuples - 1e-6).all()


def test_identical_streams_bring_every_tuple_on_every_window_at_once():
    found = streams.arrivals(0, 3, [(10, 5.0)], keys=4, identical=True)
    assert len(found) % 3 == 0 and found
    for first in range(0, len(found), 3):
        same = found[first : first + 3]
        assert [one.side for one in same] == [0, 1, 2]
        assert len({(one.event_us, one.key) for one in same}) == 1


def test_a_rate_that_falls_brings_fewer_tuples_in_its_second():
    pieces = [(100, 50.0), (100, 5.0)]
    times_us = np.array([one.event_us for one in streams.arrivals(0, 1, pieces, keys=2)])
    early = int((times_us < 100 * streams.SECOND_US).sum())
    assert abs(early - 5000) < 5 * 5000**0.5  # Poisson, five standard deviations
    assert abs(len(times_us) - early - 500) < 5 * 500**0.5


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("identical", [False, True])
def test_the_production_operator_is_asked_what_the_published_ones_are(grouped, identical):
    found = streams.arrivals(1, 2, [(6, 20.0)], keys=5, identical=identical)
    widths_us = (2 * streams.SECOND_US,) * 2
    state, batch = streams.production(found, widths_us, grouped)
    state, some = production_step(state, batch)
    _, rest = finish(state)
    ends_us = [int(end_us) - 1 for end_us in state.plan.schedule.window_end_us]
    expected = {}
    published = start("GIC" if grouped else "IC", Query(widths_us, groups=(0,) if grouped else ()))
    for one in found:
        _, expected[one.event_us] = step(published, one)
    answered = {at_us: {} if grouped else 0 for at_us in ends_us}
    for row in [*some.to_pylist(), *rest.to_pylist()]:
        at_us = ends_us[row["window_index"]]
        if grouped:
            answered[at_us][(row["g0"],)] = row["pairs"]
        else:
            answered[at_us] = row["pairs"]
    assert answered == expected
