"""The benchmark of top-k against its rivals: that it compares and refuses."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from infra.benchmarks.rivals.job import SECOND_US
from infra.benchmarks.rivals.measuring import NotExactError
from infra.benchmarks.top_k import __main__ as benchmark
from infra.benchmarks.top_k.answers import checksum
from infra.benchmarks.top_k.job import STREAM
from infra.benchmarks.top_k.workload import Workload, written

SMALL = ["--rows", "400", "--rate", "20", "--k", "3", "--windows", "6/2", "--files", "3"]


def answers(path, rows):
    ends, ids, scores = zip(*rows, strict=True)
    ends_us = pa.array(ends, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"window_end": ends_us, "event_id": ids, "score": pa.array(scores, pa.float64())}), path)
    return path


@pytest.mark.parametrize("groups", [1, 4])
def test_every_engine_here_gives_the_brute_force_answers(tmp_path, capsys, groups):
    asked = [*SMALL, "--groups", str(groups), "--work-dir", str(tmp_path), "--engines", "duckdb", "numpy"]
    assert benchmark.main(asked) == 0
    assert capsys.readouterr().out.count("  yes") == 3
    data = written(Workload(400, 20.0, groups, "uniform", 5.0, 3, 1), tmp_path.resolve())
    tuples = data.read(STREAM, ["event_time", "event_id", "key", "score"])
    tuples = tuples.set_column(0, "event_us", tuples["event_time"].cast(pa.int64())).to_pylist()
    expected = []
    for end_us in range(data.start_us + 2 * SECOND_US, data.start_us + 20 * SECOND_US + 1, 2 * SECOND_US):
        inside = [t for t in tuples if end_us - 6 * SECOND_US <= t["event_us"] < end_us]
        for key in range(groups):
            best = sorted((t for t in inside if t["key"] == key), key=lambda t: -t["score"])[:3]
            expected += [(end_us, t["event_id"], t["score"]) for t in best]
    assert len(expected) == groups * 3 * 10
    brute_force = checksum(answers(tmp_path / "expected.parquet", expected))
    assert [checksum(path) for path in sorted(tmp_path.glob("runs/*/*.parquet"))] == [brute_force] * 3


def test_checksum_knows_neither_order_nor_the_type_of_the_id_but_every_bit_of_the_score(tmp_path):
    one = checksum(answers(tmp_path / "a", [(1, 7, 0.5), (1, 8, 0.25), (2, 7, 0.5)]))
    assert checksum(answers(tmp_path / "b", [(2, "7", 0.5), (1, "8", 0.25), (1, "7", 0.5)])) == one
    (tmp_path / "c").mkdir()
    answers(tmp_path / "c" / "1.parquet", [(2, 7, 0.5)])
    answers(tmp_path / "c" / "2.parquet", [(1, 8, 0.25), (1, 7, 0.5)])
    assert checksum(tmp_path / "c") == one == (one[0], 2)
    for other in ([(1, 7, 0.5), (1, 8, 0.25)], [(1, 7, 0.5), (1, 8, 0.2500000000000001), (2, 7, 0.5)]):
        assert checksum(answers(tmp_path / "d", other))[0] != one[0]
    with pytest.raises(NotExactError):
        checksum(answers(tmp_path / "e", [(1, 7, 0.5), (1, 7, 0.5)]))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--windows", "60/7"], "multiple of the slide"),
        (["--k", "0"], "at least 1"),
        (["--engines", "flnik"], "did you mean flink?"),
        (["--engines", "tidegate:best"], "tidegate has the forms sql, learn, learn+sql"),
        (["--rows", "100", "--windows", "60/5"], "no window of 60 s by 5 s ends"),
        (["--groups", "1000000"], "too many"),
    ],
)
def test_nonsense_is_refused_with_the_reason(arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        benchmark.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
