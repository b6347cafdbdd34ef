"""Where slices run: as tasks of the Spark that is named; else in this process until there is work enough for one."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.dbt.sensors import sensors

from tidegate.engine import Done, Slice
from tidegate.engine import context as engine
from tidegate.engine.context import ROWS_BEFORE_SPARK, ROWS_HERE, RunContext
from tidegate.store.intervals import intervals_between

PARTS = ["a", "b"]
LARGE = ROWS_HERE + 1


class Session:
    """Stands for a session of Spark's."""

    def __init__(self) -> None:
        self.tags: list[str] = []

    def addTag(self, tag: str) -> None:  # noqa: N802
        self.tags.append(tag)

    def removeTag(self, tag: str) -> None:  # noqa: N802
        self.tags.remove(tag)


A_SESSION: Any = Session()


class Spark:
    """Stands for Spark: counts the jobs that it is given, and does them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs = 0
        self.tags: list[str] = []
        self.measured = ""
        monkeypatch.setattr(engine, "run_as_tasks", self.run)
        monkeypatch.setattr("tidegate.engine.session.start_session", lambda *_, **__: A_SESSION)
        for name in ("TIDEGATE_SPARK_MASTER", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
            monkeypatch.delenv(name, raising=False)

    def run(self, slices: Any, work: Any, session: Any, measured: str) -> Done:
        assert session is A_SESSION
        self.jobs, self.tags, self.measured = self.jobs + 1, list(session.tags), measured
        return Done([work(one) for one in slices])


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    return Spark(monkeypatch)


def context(root: Path, **given: Any) -> RunContext:
    return RunContext(sensors(), root, output=io.StringIO(), **given)


def named(one: Slice) -> str:
    return f"{one.number}{one.of}"


def test_small_work_starts_no_spark_however_often_it_comes(spark: Spark, tmp_path: Path) -> None:
    run = context(tmp_path)
    for _ in range(ROWS_BEFORE_SPARK // ROWS_HERE + 2):
        assert run.run_slices(named, PARTS, ROWS_HERE) == ["0a", "1b"]
    assert run.run_slices(named, PARTS[:1], 10 * ROWS_BEFORE_SPARK) == ["0a"]
    assert run.run_slices(named, [], LARGE) == []
    assert spark.jobs == 0


def test_large_work_starts_spark_once_it_has_read_as_much_as_starting_takes(spark: Spark, tmp_path: Path) -> None:
    run = context(tmp_path)
    jobs = [run.run_slices(named, PARTS, ROWS_BEFORE_SPARK // 2) and spark.jobs for _ in range(4)]
    assert jobs == [0, 0, 1, 2]
    # The session is there now.
    run.run_slices(named, PARTS, LARGE)
    run.run_slices(named, PARTS, ROWS_HERE)
    assert spark.jobs == 3
    context(tmp_path).run_slices(named, PARTS, ROWS_BEFORE_SPARK + 1)
    assert spark.jobs == 4


def test_a_session_that_is_there_is_used(spark: Spark, tmp_path: Path) -> None:
    run = context(tmp_path, beside=A_SESSION)
    run.run_slices(named, PARTS, ROWS_HERE)
    assert spark.jobs == 0
    run.run_slices(named, PARTS, LARGE)
    assert spark.jobs == 1


def test_one_core_is_no_reason_to_start_spark(spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "spark_master", lambda: "local[1]")
    context(tmp_path).run_slices(named, PARTS, 10 * ROWS_BEFORE_SPARK)
    assert spark.jobs == 0


@pytest.mark.parametrize(
    ("master", "cores", "rows", "most"),
    [
        ("local[3]", 0, 100 * ROWS_HERE, 3),
        ("spark://host:7077", 3, 1, 6),
        ("spark://host:7077", 3, 7 * ROWS_HERE, 7),
        ("spark://host:7077", 3, 10**15, 10_000),
        ("spark://host:7077", 0, 1, 10_000),
    ],
)
def test_work_is_cut_for_the_cores_that_there_are(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str, cores: int, rows: int, most: int
) -> None:
    asked: list[object] = []
    monkeypatch.setenv("TIDEGATE_SPARK_MASTER", master)
    monkeypatch.setattr("tidegate.engine.session.cluster_cores", lambda session: asked.append(session) or cores)
    run = context(tmp_path)
    assert run.most_slices(0) >= 1 and asked == []
    assert [run.most_slices(rows), run.most_slices(rows)] == [most, most]
    assert asked == [] if master.startswith("local") else asked == [A_SESSION]


@pytest.mark.parametrize(
    ("name", "value", "measured"),
    [
        ("TIDEGATE_SPARK_MASTER", "local[2]", "nothing"),
        ("TIDEGATE_SPARK_MASTER", "spark://host:7077", "executors"),
        ("TIDEGATE_SPARK_MASTER", "sc://host:15002", "workers"),
        ("SPARK_REMOTE", "sc://host", "workers"),
        ("PYSPARK_GATEWAY_PORT", "25333", "nothing"),
    ],
)
def test_where_a_spark_is_named_all_slices_are_its_tasks(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, measured: str
) -> None:
    context(tmp_path, here=False).run_slices(named, PARTS[:1], 1)
    assert spark.jobs == 1
    monkeypatch.setenv(name, value)
    context(tmp_path).run_slices(named, PARTS[:1], 1)
    assert (spark.jobs, spark.measured) == (2, measured)
    context(tmp_path, here=True).run_slices(named, PARTS, 10 * ROWS_BEFORE_SPARK)
    assert spark.jobs == 2


def test_jobs_bear_the_tags_of_their_stage(spark: Spark, tmp_path: Path) -> None:
    run = context(tmp_path, here=False, beside=A_SESSION)
    hours = intervals_between(run.pipeline, *(datetime(2026, 1, 5, hour, tzinfo=UTC) for hour in (8, 10)))
    with run, run.stage("top_k", hours):
        run.run_slices(named, PARTS, 1)
    assert spark.tags == [
        f"pipeline:{run.pipeline.name}",
        "stage:top_k",
        f"interval:{hours[0].label}…{hours[-1].label}",
    ]
    assert A_SESSION.tags == []
    # A stage's application is known by the stage's name, whatever its parts call themselves.
    alone = context(tmp_path, here=False, beside=A_SESSION, app="calibrate")
    with alone, alone.stage("calibrate_learn", hours[:1]):
        alone.run_slices(named, PARTS, 1)
    assert spark.tags[1:] == ["stage:calibrate", f"interval:{hours[0].label}"]
