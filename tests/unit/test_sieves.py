"""What a top-k query keeps of large files: the same answers, from what is there, and never from what was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline
from tidegate.declarations.tables import schema
from tidegate.operators.schedule import Schedule
from tidegate.queries import sieves
from tidegate.queries.questions import Answering, Question, top_k_spec
from tidegate.queries.scan import EventFiles

PIPELINE = """\
name: phones
owner: operations
start: 2024-03-01T00:00:00Z
interval: 1 hour
tick: 1 second
horizon: 1 hour
memory_budget: 1 MiB
process_budget: 2 GiB
streams:
  calls:
    format: jsonl
    path: landing/%Y-%m-%dT%H.jsonl
    columns: {event_id: string, event_time: timestamp, arrival_time: timestamp, cell: integer, seconds: double}
    id: event_id
    event_time: event_time
    arrival_time: arrival_time
    rate: 100 per second
    max_early: 1 minute
    max_late: 1 hour
"""
QUERY = """\
-- The longest calls
SELECT cell, seconds FROM calls [5 SECONDS] {where}ORDER BY seconds DESC LIMIT {k} EVERY 1 SECOND
"""
START_US = 1_709_251_200_000_000
ROWS, SECONDS = 6_000, 60


@pytest.fixture(autouse=True)
def _every_file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sieves, "WORTH_ROWS", 1)


def pipeline_with(folder: Path, query: str) -> Pipeline:
    (folder / "queries").mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.yml").write_text(PIPELINE)
    (folder / "queries" / "longest.sql").write_text(query)
    return load_pipeline(folder)


def files(folder: Path, pipeline: Pipeline, seed: int = 1, run: str = "aaaa") -> list[str]:
    """Two intervals' tuples by arrival, some of which come before they happen."""
    rng = np.random.default_rng(seed)
    event_us = START_US + rng.integers(0, SECONDS * 10**6, ROWS)
    arrival_us = event_us + rng.exponential(3e6, ROWS).astype(np.int64) - 500_000
    order = np.argsort(arrival_us, kind="stable")
    table = pa.table(
        {
            "event_id": [f"c{number:05}" for number in order],
            "event_time": pa.array(event_us[order]).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
            "arrival_time": pa.array(arrival_us[order]).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
            "cell": rng.integers(0, 4, ROWS),
            "seconds": rng.integers(0, 300, ROWS).astype(np.float64),
        },
        schema=schema(pipeline, "events_calls"),
    )
    paths = []
    for number, part in enumerate((table.slice(0, ROWS // 2), table.slice(ROWS // 2))):
        path = folder / "events_calls" / f"interval=2024-03-01T0{number}" / f"part-00000-{run}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob("*"):
            old.unlink()
        pq.write_table(part, path)
        paths.append(str(path))
    return paths


def asked(
    pipeline: Pipeline,
    paths: list[str],
    kept_in: Path | None,
    slack_s: int = 2,
    first: int = 1,
    last: int = SECONDS + 30,
) -> pa.Table:
    ends = START_US + np.arange(first, last, dtype=np.int64) * 10**6
    schedule = Schedule.from_ticks(ends, slack_s * 10**6, {"calls": 5 * 10**6})
    events = {"calls": EventFiles(tuple(paths), schema(pipeline, "events_calls"), kept_in and str(kept_in))}
    rows = Answering(Question(pipeline.query("longest"), schedule, np.ones(len(schedule)), events, 10**6)).table()
    assert rows.num_rows > 0
    return rows


@pytest.mark.parametrize("where", ["", "WHERE cell > 0 "])
def test_answers_of_any_slack_are_the_same_from_what_is_kept(tmp_path: Path, where: str) -> None:
    pipeline = pipeline_with(tmp_path / "phones", QUERY.format(k=3, where=where))
    paths, kept_in = files(tmp_path, pipeline), tmp_path / "_sifted"
    first = asked(pipeline, paths, kept_in, 0)
    assert first.equals(asked(pipeline, paths, None, 0))
    kept = sorted(kept_in.rglob("*.parquet"))
    assert len(kept) == 2 and sum(pq.read_metadata(file).num_rows for file in kept) < ROWS / 4
    for slack_s in (0, 1, 2, 40):
        assert asked(pipeline, paths, kept_in, slack_s).equals(asked(pipeline, paths, None, slack_s))
    assert sorted(kept_in.rglob("*.p*")) == kept


def test_a_file_of_other_windows_is_left_alone(tmp_path: Path) -> None:
    """A slice sifts what it may need: tuples of the first seconds arrive in the first file, of the last in both."""
    pipeline = pipeline_with(tmp_path / "phones", QUERY.format(k=3, where=""))
    paths, kept_in = files(tmp_path, pipeline), tmp_path / "_sifted"
    for first, last, kept in ((1, 10, ["T00"]), (SECONDS, SECONDS + 30, ["T00", "T01"])):
        found = asked(pipeline, paths, kept_in, 1, first, last)
        assert found.equals(asked(pipeline, paths, None, 1, first, last))
        assert [file.name[19:22] for file in sorted(kept_in.rglob("*.parquet"))] == kept


def test_an_interval_that_was_read_anew_is_sifted_anew_and_the_old_is_gone(tmp_path: Path) -> None:
    pipeline, kept_in = pipeline_with(tmp_path / "phones", QUERY.format(k=3, where="")), tmp_path / "_sifted"
    asked(pipeline, files(tmp_path, pipeline), kept_in)
    for seed, run in ((2, "bbbb"), (3, "bbbb")):  # another name, then the same one with other contents
        paths = files(tmp_path, pipeline, seed, run)
        assert asked(pipeline, paths, kept_in).equals(asked(pipeline, paths, None))
        assert len(list(kept_in.rglob("*.parquet"))) == 2


def test_another_query_of_the_name_keeps_its_own(tmp_path: Path) -> None:
    kept_in = tmp_path / "_sifted"
    for text in (QUERY.format(k=3, where=""), QUERY.format(k=4, where=""), QUERY.format(k=4, where="WHERE cell > 1 ")):
        pipeline = pipeline_with(tmp_path / "phones", text)
        paths = files(tmp_path, pipeline)
        assert asked(pipeline, paths, kept_in).equals(asked(pipeline, paths, None))
        assert len(list(kept_in.rglob("*.parquet"))) == 2


def test_where_most_tuples_are_needed_nothing_is_kept(tmp_path: Path) -> None:
    text = QUERY.format(k=20, where="").replace("ORDER BY", "GROUP BY cell ORDER BY")
    pipeline, kept_in = pipeline_with(tmp_path / "phones", text), tmp_path / "_sifted"
    paths = files(tmp_path, pipeline)
    assert asked(pipeline, paths, kept_in).equals(asked(pipeline, paths, None))
    assert not [file for file in kept_in.rglob("*") if file.is_file()]


def test_small_files_are_read_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sieves, "WORTH_ROWS", ROWS)
    pipeline, kept_in = pipeline_with(tmp_path / "phones", QUERY.format(k=3, where="")), tmp_path / "_sifted"
    asked(pipeline, files(tmp_path, pipeline), kept_in)
    assert not kept_in.exists()


def test_a_reader_that_stops_halfway_leaves_nothing(tmp_path: Path) -> None:
    pipeline, kept_in = pipeline_with(tmp_path / "phones", QUERY.format(k=3, where="")), tmp_path / "_sifted"
    path, spec = files(tmp_path, pipeline)[0], top_k_spec(pipeline.query("longest"), 10**6)
    sieve = sieves.Sieve.of(str(kept_in), "longest", spec, ())
    tuples = [spec.input_schema.empty_table(), spec.input_schema.empty_table()]
    halfway = sieve.tuples(path, tuples)
    next(halfway)
    halfway.close()
    assert not [file for file in kept_in.rglob("*") if file.is_file()]
