"""The seeded generator of events: the same bytes, and the distributions that it says.

Statistical tests have fixed seeds and bounds of 5 standard errors, or the Kolmogorov–Smirnov bound at 1e-6.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from infra.benchmarks.generator import (
    Departures,
    Exponential,
    Faults,
    KeyedStreams,
    LogNormal,
    Nexmark,
    Pairs,
    Pareto,
    Punctual,
    Sine,
    Spikes,
    Square,
    Steady,
    Timing,
    Uniform,
    Zipf,
)
from infra.benchmarks.generator.__main__ import main
from infra.benchmarks.generator.shapes import event_times_s, relative_rate

ROWS = 50_000
SEEDS = (1, 2, 3)
SHAPES = (Steady(), Square(), Square(period_s=7, duty=0.5), Sine(), Sine(period_s=13, swing=1.0), Spikes())
LATENESS = (Exponential(), LogNormal(), Pareto(), Pareto(alpha=0.8), Departures())
# P(KS distance > x) ≤ 2·exp(−2·n·x²) (Dvoretzky–Kiefer–Wolfowitz), here 1e-6.
KS_BOUND = math.sqrt(math.log(2 / 1e-6) / (2 * ROWS))


def stream(seed: int = 1, rows: int = ROWS, keys=None, **timing) -> pa.Table:
    """One keyed stream of so many tuples over 100 s."""
    return KeyedStreams({"s": rows / 100}, keys or Zipf(), Timing(seconds=100, **timing)).tables(seed)["s"]


def micros(table: pa.Table, column: str) -> np.ndarray:
    return table[column].cast(pa.int64()).to_numpy()


def digest(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*.parquet")}


@pytest.mark.parametrize(
    "arguments",
    [
        ["keyed", "--stream", "a=50", "--stream", "b=5", "--keys", "pairs", "--lateness", "lognormal", "--skew-s", "1"],
        ["nexmark", "--events", "100", "--duplicates", "0.1", "--malformed", "0.1", "--file-seconds", "20"],
    ],
)
def test_the_same_seed_writes_the_same_bytes_and_another_seed_others(tmp_path, arguments):
    for folder, seed in (("one", "7"), ("two", "7"), ("three", "8")):
        assert main([*arguments, "--seed", seed, "--out", str(tmp_path / folder)]) == 0
    one, two, three = (digest(tmp_path / folder) for folder in ("one", "two", "three"))
    assert one == two
    assert not set(one.values()) & set(three.values())


def test_a_file_says_how_it_was_made(tmp_path):
    main(["keyed", "--out", str(tmp_path), "--seed", "5", "--seconds", "2", "--keys", "zipf:s=1.5"])
    metadata = pq.read_schema(tmp_path / "events.parquet").metadata
    assert metadata[b"seed"] == b"5"
    assert b"Zipf(count=10000, s=1.5)" in metadata[b"generator"]


def test_files_are_periods_of_arrival_without_gaps(tmp_path):
    arguments = ["--seconds", "50", "--lateness", "departures", "--stream", "s=20", "--file-seconds", "60"]
    main(["keyed", "--out", str(tmp_path), *arguments])
    files = sorted((tmp_path / "s").iterdir())
    starts = [np.datetime64(path.stem[:11] + path.stem[11:].replace("-", ":"), "s") for path in files]
    assert {int(step.astype(int)) for step in np.diff(starts)} == {60}
    for start, path in zip(starts, files, strict=True):
        seconds = (micros(pq.read_table(path), "arrival_time") // 1_000_000).astype("datetime64[s]")
        assert ((seconds >= start) & (seconds < start + 60)).all()
    assert sum(pq.read_metadata(path).num_rows for path in files) == 1000


def test_rows_come_in_order_of_arrival_and_ids_in_order_of_event():
    table = stream(lateness=Pareto(), rate_shape=Square())
    assert (np.diff(micros(table, "arrival_time")) >= 0).all()
    by_id = table.sort_by("event_id")
    assert (np.diff(micros(by_id, "event_time")) >= 0).all()
    assert by_id["event_id"].to_pylist() == list(range(ROWS))


def test_a_knob_leaves_what_the_others_draw():
    plain = stream(rows=2000).sort_by("event_id")
    turned = stream(
        rows=2000,
        lateness=LogNormal(),
        lateness_shape=Square(),
        correlation=0.9,
        faults=Faults(malformed=0.2, skew_sd_s=3),
    )
    for column in ("event_id", "source", "key"):
        assert turned.sort_by("event_id")[column].to_pylist() == plain[column].to_pylist()


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
@pytest.mark.parametrize("seed", SEEDS)
def test_events_follow_the_shape_s_cumulative_rate(shape, seed):
    times = event_times_s(shape, ROWS, 100.0, seed, "s")
    knots, cumulative = shape.knots(100.0, seed)
    uniform = np.interp(times, knots, cumulative) / cumulative[-1]
    assert np.abs(uniform - (np.arange(ROWS) + 0.5) / ROWS).max() <= KS_BOUND
    assert (np.diff(times) >= 0).all()
    assert times[0] > 0 and times[-1] < 100


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_the_mean_rate_is_one_and_bursts_are_as_high_as_said(shape):
    at = (np.arange(1_000_000) + 0.5) / 10_000
    rate = relative_rate(shape, at, 100.0, 1)
    assert rate.mean() == pytest.approx(1, abs=1e-3)  # at most 100 steps, each cut by at most one of a million points
    if isinstance(shape, Square | Spikes):
        assert rate.max() / rate.min() == pytest.approx(shape.high)


def test_streams_have_unequal_rates():
    tables = KeyedStreams({"fast": 300.0, "slow": 7.0}, timing=Timing(seconds=10)).tables(1)
    assert {name: len(table) for name, table in tables.items()} == {"fast": 3000, "slow": 70}


@pytest.mark.parametrize("lateness", LATENESS, ids=repr)
@pytest.mark.parametrize("correlation", [0.0, 0.8, -1.0])
def test_lateness_keeps_its_distribution_whatever_the_correlation(lateness, correlation):
    table = stream(lateness=lateness, correlation=correlation)
    late_s = np.sort(micros(table, "arrival_time") - micros(table, "event_time")) / 1e6
    for share in (0.1, 0.25, 0.5, 0.75, 0.9, 0.99):
        low, high = lateness.quantile_s(np.array([share - KS_BOUND, min(share + KS_BOUND, 1 - 1e-9)]))
        assert low - 1e-5 <= late_s[round(share * ROWS)] <= high + 1e-5


def test_departures_are_resampled_from_the_real_ones():
    late_min = Departures(factor=1.0).quantile_s(np.array([0.05, 0.5, 0.9, 0.99, 1 - 1e-9])) / 60
    assert late_min.tolist() == [-9, -2, 49, 191, 1301]  # data.md


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.95, -0.7])
def test_scores_go_along_with_lateness_as_much_as_said(correlation):
    table = stream(lateness=LogNormal(), correlation=correlation)
    late = np.argsort(np.argsort(micros(table, "arrival_time") - micros(table, "event_time")))
    score = np.argsort(np.argsort(table["score"].to_numpy()))
    spearman = np.corrcoef(late, score)[0, 1]
    # The standard error of Spearman's coefficient is at most about 1.06/√n.
    assert spearman == pytest.approx(6 / math.pi * math.asin(correlation / 2), abs=5 * 1.06 / math.sqrt(ROWS))


def test_lateness_has_regimes():
    table = stream(lateness=Exponential(2.0), lateness_shape=Square(period_s=50, high=4, duty=0.5))
    at_s = micros(table, "event_time") / 1e6 % 50
    late_s = (micros(table, "arrival_time") - micros(table, "event_time")) / 1e6
    bad, good = late_s[at_s < 25], late_s[at_s >= 25]
    for part, mean in ((bad, 3.2), (good, 0.8)):  # 4 : 1, on average 2
        assert part.mean() == pytest.approx(mean, abs=5 * mean / math.sqrt(len(part)))


@pytest.mark.parametrize("keys", [Uniform(20), Zipf(20, 1.0), Zipf(1000, 1.5), Zipf(50, 0.0)], ids=repr)
@pytest.mark.parametrize("seed", SEEDS)
def test_keys_have_their_shares(keys, seed):
    key = stream(seed=seed, keys=keys)["key"].to_numpy()
    weights = np.ones(keys.count) if isinstance(keys, Uniform) else np.arange(1, keys.count + 1) ** -keys.s
    share = weights / weights.sum()
    counts = np.bincount(key, minlength=keys.count)
    assert len(counts) == keys.count
    error = np.sqrt(ROWS * share * (1 - share))
    assert (np.abs(counts - ROWS * share) <= 5 * error + 3).all()  # + 3: rare keys are Poisson, not normal


def test_pairs_are_distinct_and_the_same_in_all_streams():
    keys = Pairs(count=30, pairs=700, s=0.5)
    tables = KeyedStreams({"left": 500.0, "right": 400.0}, keys, Timing(seconds=100)).tables(3)
    left, right = (set(zip(t["key"].to_pylist(), t["other_key"].to_pylist(), strict=True)) for t in tables.values())
    assert left == right
    assert len(left) == 700
    assert all(0 <= key < 30 and 0 <= other < 30 for key, other in left)


def test_more_pairs_than_keys_can_make_are_refused(capsys, tmp_path):
    assert main(["keyed", "--out", str(tmp_path), "--keys", "pairs:count=3,pairs=10"]) == 2
    assert "3 keys make 9 pairs" in capsys.readouterr().err


def test_a_duplicate_is_the_same_record_arriving_again_no_earlier():
    table = stream(lateness=LogNormal(), faults=Faults(duplicates=0.05))
    extra = len(table) - ROWS
    assert extra == pytest.approx(0.05 * ROWS, abs=5 * math.sqrt(0.05 * 0.95 * ROWS))
    times = Counter(table["event_id"].to_pylist())
    assert max(times.values()) == 2
    contents = set(
        zip(*(table[c].to_pylist() for c in ("event_id", "event_time", "key", "score", "source")), strict=True)
    )
    assert len(contents) == ROWS
    originals = stream(lateness=LogNormal()).sort_by("event_id")
    first = table.group_by("event_id").aggregate([("arrival_time", "min")]).sort_by("event_id")
    assert first["arrival_time_min"].to_pylist() == originals["arrival_time"].to_pylist()


def test_broken_records_say_what_is_broken():
    table = stream(faults=Faults(malformed=0.1))
    kinds = Counter(table["fault"].to_pylist())
    assert len(table) - kinds[None] == pytest.approx(0.1 * ROWS, abs=5 * math.sqrt(0.1 * 0.9 * ROWS))
    assert set(kinds) == {None, "no event_time", "clock decades ahead", "score is not a number"}
    assert table["event_time"].null_count == kinds["no event_time"]
    assert pc.sum(pc.is_nan(table["score"])).as_py() == kinds["score is not a number"]
    ahead = table.filter(pc.equal(table["fault"], "clock decades ahead"))
    assert (micros(ahead, "event_time") - micros(ahead, "arrival_time") > 19 * 365 * 86_400e6).all()


def test_each_clock_is_off_by_a_constant():
    table = stream(faults=Faults(sources=200, skew_sd_s=2.0)).sort_by("event_id")
    off_us = micros(table, "event_time") - micros(table, "arrival_time")  # punctual: the arrival is the true time
    per_source = {source: set(off_us[table["source"].to_numpy() == source].tolist()) for source in range(200)}
    assert all(len(offsets) == 1 for offsets in per_source.values())
    offsets_s = np.array([offsets.pop() for offsets in per_source.values()]) / 1e6
    # A sample of n normals: the variance's standard error is σ²·√(2/(n−1)).
    assert offsets_s.var(ddof=1) == pytest.approx(4.0, abs=5 * 4.0 * math.sqrt(2 / 199))


def test_nexmark_has_its_proportions_and_hot_keys():
    tables = Nexmark(rate=1000.0, timing=Timing(seconds=100)).tables(1)
    assert [len(tables[name]) for name in ("persons", "auctions", "bids")] == [2000, 6000, 92_000]
    assert tables["auctions"].sort_by("event_id")["auction"].to_pylist() == list(range(6000))
    bids = tables["bids"].sort_by("event_id")
    rounds = np.repeat(np.arange(2000), 46)
    auction, bidder = bids["auction"].to_numpy(), bids["bidder"].to_numpy()
    newest = rounds * 3 + 2
    assert ((auction >= 0) & (auction <= newest) & (newest - auction < 200)).all()
    assert ((bidder >= 0) & (bidder <= rounds) & (rounds - bidder < 1000)).all()
    # Half go to the hot auction, the other half hits it once in a hundred.
    settled = newest >= 100
    hot = (auction == newest // 100 * 100)[settled]
    assert hot.mean() == pytest.approx(0.5 + 0.5 / 100, abs=5 * 0.5 / math.sqrt(len(hot)) + 0.5 / 100)


def test_nexmark_s_prices_are_log_uniform():
    price = np.sort(np.log10(Nexmark(rate=1000.0).tables(1)["bids"]["price"].to_numpy())) / 6
    bound = math.sqrt(math.log(2 / 1e-6) / (2 * len(price)))
    assert np.abs(price - (np.arange(len(price)) + 0.5) / len(price)).max() <= bound + 0.005 / math.log(10) / 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lateness", "exponental"], "did you mean 'exponential'"),
        (["--lateness", "pareto:alfa=2"], "did you mean 'alpha'"),
        (["--lateness", "pareto:alpha=0"], "alpha: expected a finite number above 0"),
        (["--rate", "sine:swing=1.5"], "swing: expected a share of at most 1"),
        (["--keys", "zipf:s=nan"], "s: expected a finite number"),
        (["--keys", "zipf:count=many"], "count: expected a number, found 'many'"),
        (["--stream", "fast"], "rate of fast: expected a number"),
        (["--duplicates", "2"], "expected a share of at most 1"),
        (["--sources", "0"], "sources: expected a finite number above 0"),
        (["--start", "yesterday"], "expected a time"),
    ],
)
def test_bad_arguments_are_named(arguments, message, capsys, tmp_path):
    with pytest.raises(SystemExit) as stopped:
        main(["keyed", "--out", str(tmp_path), *arguments])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_every_lateness_stays_within_a_year():
    for lateness in (*LATENESS, Punctual(), Pareto(alpha=0.01)):
        table = stream(rows=1000, lateness=lateness)
        late_us = micros(table, "arrival_time") - micros(table, "event_time")
        assert late_us.max() <= 366 * 86_400e6
