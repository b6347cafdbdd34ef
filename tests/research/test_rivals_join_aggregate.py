"""The benchmark of join-aggregates against its rivals: that it compares, refuses and measures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from infra.benchmarks.join_aggregate import __main__ as benchmark
from infra.benchmarks.join_aggregate.answers import checksum
from infra.benchmarks.join_aggregate.job import SECOND_US, SIDES
from infra.benchmarks.join_aggregate.workload import Workload, written
from infra.benchmarks.rivals import flink, table
from infra.benchmarks.rivals.measuring import Measured, NotExactError
from infra.benchmarks.rivals.meter import TreeMeter

SMALL = ["--rows", "200", "--rate", "10", "--keys", "7", "--windows", "6/2", "--distributions", "zipf", "--files", "3"]


def answers(folder: Path, rows: list[tuple[int, int, float | None]]) -> Path:
    ends, counts, sums = zip(*rows, strict=True)
    path = folder / f"{len(list(folder.iterdir()))}.parquet"
    ends_us = pa.array(ends, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"window_end": ends_us, "count": counts, "sum": pa.array(sums, pa.float64())}), path)
    return path


def test_every_engine_here_gives_the_brute_force_answers(tmp_path, capsys):
    asked = [*SMALL, "--work-dir", str(tmp_path), "--engines", "duckdb", "numpy", "--json", str(tmp_path / "rows.json")]
    assert benchmark.main(asked) == 0
    assert capsys.readouterr().out.count("  yes") == 3
    data = written(Workload(200, 10.0, 7, "zipf", 5.0, 3, 1), tmp_path.resolve())
    tuples = {}
    for side in SIDES:
        table = pq.read_table(data.folder / f"events_{side}")
        event_us = table["event_time"].cast(pa.int64()).to_pylist()
        tuples[side] = list(zip(event_us, table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    expected = []
    for end_us in range(data.start_us + 2 * SECOND_US, data.start_us + 20 * SECOND_US + 1, 2 * SECOND_US):
        lefts, rights = (
            [t for t in tuples[side] if end_us - 6 * SECOND_US <= t[0] < end_us] for side in ("left", "right")
        )
        values = [left[2] for left in lefts for right in rights if left[1] == right[1]]
        expected.append((end_us, len(values), float(sum(values))))
    assert max(count for _, count, _ in expected) > 100
    brute_force = checksum(answers(tmp_path, expected))
    found = [checksum(path) for path in sorted(tmp_path.glob("runs/*/*.parquet"))]
    assert found == [brute_force] * 3


def test_streams_are_out_of_order_and_their_slack_covers_it(tmp_path):
    data = written(Workload(200, 10.0, 7, "uniform", 5.0, 3, 1), tmp_path)
    assert len(list(data.folder.glob("events_left/*/*.parquet"))) == 3
    table = pq.read_table(data.folder / "events_left")
    event_us, arrival_us = (table[name].cast(pa.int64()).to_numpy() for name in ("event_time", "arrival_time"))
    assert (np.diff(arrival_us) >= 0).all() and (np.diff(event_us) < 0).any()
    assert (arrival_us <= event_us + data.slack_s * SECOND_US).all()


def test_checksum_knows_no_order_and_no_empty_windows_but_every_number(tmp_path):
    one = checksum(answers(tmp_path, [(1, 2, 3.0), (2, 1, 1.0)]))
    assert checksum(answers(tmp_path, [(2, 1, 1.0), (3, 0, None), (1, 2, 3.0)])) == one
    for other in ([(1, 2, 3.0), (2, 1, 2.0)], [(1, 3, 3.0), (2, 1, 1.0)], [(1, 2, 3.0), (4, 1, 1.0)], [(1, 2, 3.0)]):
        assert checksum(answers(tmp_path, other)) != one
    for inexact in ([(1, 2, 0.5)], [(1, 2, 2.0**53)], [(1, 1, 1.0), (1, 1, 1.0)], [(1, 2, None)]):
        with pytest.raises(NotExactError):
            checksum(answers(tmp_path, inexact))


def test_another_answer_is_marked_wrong(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(table, "measured", lambda engine, *_: Measured(checksum=engine.name, cpu_s=1.0))
    asked = [*SMALL, "--work-dir", str(tmp_path), "--engines", "numpy", "duckdb:delta"]
    assert benchmark.main(asked) == 1
    printed = capsys.readouterr()
    assert [line.split()[-1] for line in printed.out.splitlines()[1:]] == ["yes", "WRONG"]
    assert "duckdb:delta, 6 s by 2 s, zipf: WRONG" in printed.err


def test_an_engine_that_is_too_slow_is_stopped_and_said_to_be(tmp_path, capsys):
    asked = [*SMALL, "--work-dir", str(tmp_path), "--engines", "duckdb:naive", "--time-limit", "0.001"]
    assert benchmark.main(asked) == 0
    assert "did not finish in 0.001 s" in capsys.readouterr().out


def test_a_flink_that_cannot_be_installed_says_why_in_its_row(tmp_path, capsys, monkeypatch):
    pip = subprocess.CompletedProcess([], 1, stdout="", stderr="WARNING: slow\nERROR: No matching distribution found")
    monkeypatch.setattr(flink.subprocess, "run", lambda *_, **__: pip)
    assert benchmark.main([*SMALL, "--work-dir", str(tmp_path), "--engines", "flink:delta"]) == 0
    assert "cannot be installed: ERROR: No matching distribution found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--windows", "60/7"], "multiple of the slide"),
        (["--windows", "sixty"], "RANGE/EVERY"),
        (["--windows", "49/7"], "divide an hour"),
        (["--rows", "0"], "at least 1"),
        (["--engines", "duckbd"], "did you mean duckdb?"),
        (["--engines", "duckdb:best"], "duckdb has the forms delta, naive"),
        (["--fan-out", "1", "--engines", "numpy"], "leave --engines out"),
        (["--fan-out", "100000"], "holds only 60000 tuples"),
        (["--rows", "100", "--windows", "60/5"], "no window of 60 s by 5 s ends"),
        (["--rows", "5", "--rate", "1"], "more files than"),
        (["--keys", "1000000000"], "too many"),
    ],
)
def test_nonsense_is_refused_with_the_reason(arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        benchmark.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_the_meter_counts_children_that_have_died():
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    script = (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\nprint('done', flush=True)\ninput()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        with TreeMeter(child.pid) as meter:
            assert child.stdout is not None and child.stdout.readline() == b"done\n"
            assert meter.cpu_s() >= 0.5
        child.communicate(b"\n")
    assert meter.peak_bytes > 1_000_000
