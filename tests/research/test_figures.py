"""The figures of papers/01: files come out, their numbers keep the laws, and the same seeds draw the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from infra.research.figures.__main__ import main
from infra.research.figures.running import measured
from infra.research.figures.window_sizing import held_bytes, measures, pictures

SEEDS = 2
DRAWN = [f"figure_{number}" for number in range(2, 8)] + ["many_windows", "joint"]
START = datetime(2013, 2, 8, 22, tzinfo=UTC)
TICK = timedelta(minutes=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every figure that needs no warehouse, of two seeds and few windows."""
    out = tmp_path_factory.mktemp("figures")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "B_WINDOWS", (2, 5))
        patch.setattr(pictures, "C_WINDOWS", (2, 6, 9))
        patch.setattr(pictures, "MANY_WINDOWS", (6, 12, 22))
        patch.setattr(pictures, "MANY_QUERIES", 100)
        patch.setattr(pictures, "JOINT_WINDOWS", (2, 4))
        for name, only in (("one", DRAWN), ("two", DRAWN[::3])):
            pictures.shared_of_all_windows.cache_clear()
            chosen = [word for figure in only for word in ("--only", figure)]
            assert main([*chosen, "--seeds", str(SEEDS), "--processes", "1", "--out", str(out / name)]) == 0
        pictures.shared_of_all_windows.cache_clear()
    return out


def instances(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(folder / "one" / "window_sizing" / f"{name}.instances.csv", comment="#")


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_is_a_picture_and_numbers_that_say_generator_and_seeds(folder, name):
    drawn = folder / "one" / "window_sizing"
    assert (drawn / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    for suffix in ("", ".instances"):
        header = [line for line in (drawn / f"{name}{suffix}.csv").read_text().splitlines() if line.startswith("#")]
        said = " ".join(line.removeprefix("# ") for line in header)
        assert "random_needs" in said and f"seeds 0 to {SEEDS - 1}" in said


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_drawn_are_the_instances_means(folder, name):
    rows = instances(folder, name)
    drawn = pd.read_csv(folder / "one" / "window_sizing" / f"{name}.csv", comment="#")
    for series, curve in drawn.groupby("series"):
        if series in rows:
            means = rows.groupby("windows")[series].mean().to_numpy()
            np.testing.assert_allclose(curve["mean"].to_numpy(), means, rtol=1e-8)
        assert (curve["quartile_25"].dropna() <= curve["quartile_75"].dropna()).all()


def test_the_same_seeds_draw_the_same_files(folder):
    again = {path.name: path.read_bytes() for path in (folder / "two" / "window_sizing").iterdir()}
    assert again == {name: (folder / "one" / "window_sizing" / name).read_bytes() for name in again}
    assert len(again) == 3 * len(DRAWN[::3])


@pytest.mark.parametrize("name", ["figure_2", "figure_3"])
def test_b_support_never_leaves_more_error_than_before(folder, name):
    rows = instances(folder, name)
    for before in ("equal_s", "random_s"):
        assert (rows["b_support_s"] <= rows[before] * (1 + 1e-9)).all()
    assert (rows["b_support_s"] > 0).all()  # half of the spare memory is missing, so somebody misses something


@pytest.mark.parametrize("name", ["figure_4", "figure_5", "figure_6", "figure_7"])
def test_serial_groups_never_take_more_and_ap_never_less_than_dp(folder, name):
    rows = instances(folder, name)
    assert (rows["dp_share_bytes"] <= rows["ap_share_bytes"] * (1 + 1e-12)).all()
    assert (rows["ap_share_bytes"] <= rows["exchange_bytes"] * (1 + 1e-12)).all()


def test_the_exact_planner_lies_between_its_bound_and_ap(folder):
    rows = instances(folder, "many_windows")
    assert (rows["exact_excess"] >= -1e-9).all()
    assert (rows["exact_excess"] <= rows["ap_excess"] + 1e-9).all()
    small = rows[rows["windows"] <= 20]
    assert (small["dp_excess"] >= -1e-9).all() and (small["dp_excess"] <= small["exact_excess"] + 1e-9).all()
    assert rows[rows["windows"] > 20]["dp_excess"].isna().all()


def test_joint_takes_no_more_than_the_papers_optimum_and_that_no_more_than_level_b(folder):
    rows = instances(folder, "joint")
    assert (rows["joint_bytes"] <= rows["paper_bytes"] * (1 + 1e-9)).all()
    assert (rows["paper_bytes"] <= rows["static_bytes"] * (1 + 1e-9)).all()


@pytest.mark.parametrize("seed", range(20))
def test_shared_out_memory_is_used_up_within_min_t_and_max_t(seed):
    needs = measures.instance(50, 6, seed)
    spare = measures.SPARE_SHARE * (needs.bytes_of(needs.max_t) - needs.bytes_of(needs.min_t))
    widths = measures.shared_out(needs, spare, np.random.default_rng(seed).random(6))
    assert (widths >= needs.min_t).all() and (widths <= needs.max_t * (1 + 1e-12)).all()
    assert needs.bytes_of(widths) == pytest.approx(needs.bytes_of(needs.min_t) + spare)


def test_processes_do_not_matter():
    cases = [(30, windows, seed) for windows in (2, 4) for seed in range(3)]
    alone, shared = (measured(measures.shared_memory, cases, pictures.CASE, processes) for processes in (1, 2))
    pd.testing.assert_frame_equal(alone, shared)


def put(folder: Path, table: str, hour: datetime, rows: dict[str, list]) -> None:
    path = folder / table / f"interval={hour:%Y-%m-%dT%H}"
    path.mkdir(parents=True)
    pq.write_table(pa.table(rows), path / "part-0.parquet")


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Two streams and two hours: 10 and 30 bytes at every tick, level B then C, M halved at 23:00."""
    folder = tmp_path / "warehouse" / "flights"
    for hour, level, budget in ((START, "B", 100), (START + timedelta(hours=1), "C", 50)):
        ticks = [hour + i * TICK for i in range(12)]
        put(folder, "stream_rates", hour, {
            "stream": ["a"] * 12 + ["b"] * 12, "tick": ticks * 2,
            "held_bytes": [10.0] * 12 + [30.0] * 12, "evicted_early": [0] * 23 + [2],
        })  # fmt: skip
        put(folder, "window_plan", hour, {"effective_from": [hour] * 2, "support_level": [level] * 2})
        put(folder, "run_metrics", hour, {"app": ["top_k", "ingest"], "memory_budget_bytes": [1, budget]})
    return tmp_path / "warehouse"


def test_held_bytes_are_told_with_what_was_in_force_in_the_slot_before(warehouse):
    ticks = held_bytes.held_bytes(warehouse / "flights").set_index("tick")
    assert len(ticks) == 24
    assert (ticks["total"] == 40).all() and (ticks["a"] == 10).all()
    second = START + timedelta(hours=1)
    assert ticks.loc[second, ["level", "budget"]].tolist() == ["B", 100]
    assert ticks.loc[second + TICK, ["level", "budget"]].tolist() == ["C", 50]
    assert ticks["evicted_early"].sum() == 4


def test_held_bytes_are_drawn(warehouse, tmp_path, capsys):
    arguments = ["--only", "held_bytes", "--warehouse", str(warehouse), "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert "skipped" not in capsys.readouterr().out
    text = (tmp_path / "out" / "window_sizing" / "held_bytes.csv").read_text()
    said = " ".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("#"))
    assert "More than M was held in 0 slots; the highest total was 80.0% of M" in said


def test_thinning_keeps_the_fullest_ticks():
    totals = np.random.default_rng(1).permutation(1000).astype(float)
    ticks = pd.DataFrame({"tick": range(1000), "total": totals})
    kept = held_bytes.fullest(ticks, most=100)
    assert kept["total"].tolist() == totals.reshape(100, 10).max(axis=1).tolist()
    assert held_bytes.fullest(ticks, most=5000)["tick"].tolist() == list(range(1000))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ("no warehouse", "no --warehouse is given"),
        ("no table", "there is no table stream_rates"),
        ("old table", "stream_rates has no column held_bytes: an older version wrote it"),
    ],
)
def test_what_cannot_be_drawn_is_skipped_with_the_reason(spoil, message, tmp_path, capsys):
    arguments = ["--only", "held_bytes", "--out", str(tmp_path / "out")]
    if spoil != "no warehouse":
        arguments += ["--warehouse", str(tmp_path)]
    if spoil == "old table":
        put(tmp_path / "flights", "stream_rates", START, {"stream": ["a"], "tick": [START], "evicted_early": [0]})
    assert main(arguments) == 0
    assert f"skipped: {message}" in capsys.readouterr().out.replace(f" under {tmp_path}/flights", "")


@pytest.mark.parametrize("arguments", [["tides"], ["--seeds", "0"], ["--only", "figure_99"]])
def test_what_names_no_figure_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
