"""History on Spark: every tuple once, whatever the runs; then questions about the past against the full data."""

from __future__ import annotations

import io
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from expectations.suites.history import least_holding
from pyspark.sql import SparkSession
from tests.live_files import live_files

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Column, History, Pipeline, Stream, to_us
from tidegate.engine.context import RunContext
from tidegate.history.judged import judge
from tidegate.history.past import Past
from tidegate.history.questions import estimate, query_history, render
from tidegate.operators.history.priority import priority
from tidegate.operators.window_sizing import ControllerSpec, ControllerState
from tidegate.operators.window_sizing.bounds import EffectiveBounds
from tidegate.queries.planner import STATE
from tidegate.stages import resample_history, sample_history
from tidegate.store.intervals import Interval, interval_holding, intervals_between
from tidegate.store.warehouse import Warehouse

START = datetime(2013, 2, 7, tzinfo=UTC)
END = START + timedelta(days=3)
MINUTE_US = 60 * 1_000_000
TABLES = ("history_leaves", "history_groups", "history_samples_calls", "history_passes", "history_accuracy")
HISTORY = History(
    leaf_s=3600, capacity_tuples=700, merge_leaves=6, min_fraction=0.02, seed=3, law="inverse_age", group_by=("kind",)
)
# The window is an hour wide, from noon of the second day three hours, from the third day on half an hour.
PLANS = ((START, 3600), (START + timedelta(hours=36), 3 * 3600), (START + timedelta(hours=48), 1800))


def pipeline_in(folder: Path) -> Pipeline:
    kinds = {"kind": "string", "cost": "double", "units": "integer"}
    calls = Stream(
        name="calls",
        format="jsonl",
        path="calls.jsonl",
        columns=tuple(Column(name=n, type=t) for n, t in kinds.items()),  # type: ignore[arg-type]
        id=("event_id",),
        event_time="event_time",
        arrival_time="arrival_time",
        rate=0.02,
        max_early_s=1800,
        max_late_s=48 * 3600,
        history=HISTORY,
    )
    silent = calls.model_copy(update={"name": "unkept", "history": None})
    return Pipeline(
        name="phones",
        folder=folder,
        owner="o",
        start=START,
        interval_s=6 * 3600,
        tick_s=300,
        horizon_s=6 * 3600,
        memory_budget_bytes=1 << 20,
        process_budget_bytes=1 << 30,
        streams=(calls, silent),
        queries=(),
    )


def calls_of(seed: int) -> pa.Table:
    """About 3 000 calls, bursty, a third late, some by more than a day, some early, some costs missing."""
    rng = np.random.default_rng(seed)
    event = np.sort(rng.integers(0, 72 * 60, 3_000)) * MINUTE_US + rng.integers(0, MINUTE_US, 3_000)
    late = np.where(rng.random(3_000) < 0.3, rng.exponential(200, 3_000), rng.normal(0, 8, 3_000).clip(-25, 60))
    arrival = np.maximum(event + (late * MINUTE_US).astype(np.int64), 0)
    kept = arrival < 72 * 60 * MINUTE_US
    cost = rng.gamma(2, 10, 3_000) + event / MINUTE_US / 100
    order = np.argsort(arrival[kept], kind="stable")
    time_type = pa.timestamp("us", tz="UTC")
    table = pa.table(
        {
            "event_id": [f"call-{i}" for i in range(3_000)],
            "event_time": pa.array(event + to_us(START)).cast(time_type),
            "arrival_time": pa.array(arrival + to_us(START)).cast(time_type),
            "kind": pa.array(rng.choice(["home", "away", "abroad"], 3_000, p=[0.7, 0.25, 0.05])),
            "cost": pa.array(cost, mask=rng.random(3_000) < 0.05),
            "units": pa.array(rng.integers(1, 9, 3_000)),
        }
    )
    return table.filter(pa.array(kept)).take(pa.array(order))


def bounds() -> EffectiveBounds:
    return EffectiveBounds.of([to_us(at) for at, _ in PLANS], [width * 1_000_000 for _, width in PLANS])


def write_events(pipeline: Pipeline, root: Path, calls: pa.Table, **others: pa.Table) -> tuple[Interval, ...]:
    """What ingestion would have written: events, plans, and the controller's state."""
    warehouse = Warehouse(root, pipeline)
    intervals = intervals_between(pipeline, START, END)
    arrival = calls.column("arrival_time").cast(pa.int64()).to_numpy()
    with warehouse.commit("ingest", intervals) as commit:
        for interval in intervals:
            own = (arrival >= interval.start_us) & (arrival < interval.end_us)
            for name, rows in {"calls": calls, **others}.items():
                commit.put_arrow(f"events_{name}", interval, rows.filter(pa.array(own)))
            plans = [
                {"stream": stream.name, "effective_from": at, "support_level": "A", "width_s": float(width)}
                for stream in pipeline.streams
                for at, width in PLANS
                if interval.start <= at < interval.end
            ]
            schema = warehouse.schema("window_plan")
            commit.put_arrow("window_plan", interval, pa.Table.from_pylist(plans, schema=schema))
            tick_us = interval.end_us - 300 * 1_000_000
            plan = int(bounds()._plan_at(np.array([tick_us]))[0])
            streams = tuple(
                replace(
                    stream,
                    first_arrival_us=to_us(START),
                    plan_from_us=int(bounds().effective_from_us[plan]),
                    width_s=float(bounds().width_us[plan] / 1e6),
                    lower_us=int(bounds().lower_us(np.array([tick_us]))[0]),
                )
                for stream in ControllerState.initial(ControllerSpec.from_pipeline(pipeline)).streams
            )
            commit.put_state(STATE, interval, ControllerState(streams, tick_us, "A").to_arrow())
    return intervals


@pytest.fixture(scope="module")
def spark_contexts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], RunContext]:
    """Makes contexts on warehouses of their own, all in one Spark session."""
    pipeline = pipeline_in(tmp_path_factory.mktemp("phones"))

    def context_on(root: Path) -> RunContext:
        context = RunContext(pipeline, root, output=io.StringIO(), beside=spark)
        context.warehouse.folder.mkdir(parents=True, exist_ok=True)
        return context

    return context_on


def rows_of(context: RunContext) -> dict[str, list[dict[str, object]]]:
    return {table: context.warehouse.read_arrow(table).to_pylist() for table in TABLES}


def bytes_of(context: RunContext) -> dict[str, list[bytes]]:
    """The files of the samples, without the ids of the runs in their names."""
    found = live_files(context.warehouse.folder / "history_samples_calls")
    return {label: [file.read_bytes() for file in sorted(own)] for label, own in found.items()}


def in_one_go(context: RunContext, intervals: Sequence[Interval]) -> None:
    sample_history.run(context, intervals)
    resample_history.run(context, intervals)


@pytest.fixture(scope="module")
def calls() -> pa.Table:
    return calls_of(11)


@pytest.fixture(scope="module")
def done(spark_contexts, calls: pa.Table, tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """The three days sampled and resampled in one go."""
    context = spark_contexts(tmp_path_factory.mktemp("whole"))
    intervals = write_events(context.pipeline, context.warehouse_root, calls)
    in_one_go(context, intervals)
    return context, intervals


def expected_entry_us(calls: pa.Table) -> np.ndarray:
    """The definition, tick by tick: the first at which a tuple has arrived, happened, and left its window."""
    event = calls.column("event_time").cast(pa.int64()).to_numpy()
    arrival = calls.column("arrival_time").cast(pa.int64()).to_numpy()
    leave, lower = np.full(len(event), 2**62), -(2**62)
    for tick in range(to_us(START), to_us(END), 300 * 1_000_000):
        width = [w for at, w in PLANS if to_us(at) <= tick][-1]
        # A plan that ends here has evicted by its own width up to this very tick.
        ended = [before for (before, after) in zip(PLANS, PLANS[1:], strict=False) if to_us(after[0]) == tick]
        for old in ended:
            lower = max(lower, tick - old[1] * 1_000_000)
        lower = max(lower, tick - width * 1_000_000)
        leave = np.where((leave == 2**62) & (event < lower), tick, leave)
    return np.maximum(np.maximum(event, arrival), leave)


def test_every_tuple_enters_exactly_once_at_its_instant(done, calls: pa.Table) -> None:  # type: ignore[no-untyped-def]
    context, intervals = done
    entry = expected_entry_us(calls)
    leaves = context.warehouse.read_arrow("history_leaves")
    for interval in intervals:
        own = leaves.filter(pc.equal(leaves.column("interval"), interval.label))
        entered = calls.filter(pa.array((entry >= interval.start_us) & (entry < interval.end_us)))
        assert (pc.sum(own.column("tuples")).as_py() or 0) == entered.num_rows
        assert (pc.sum(own.column("cost_count")).as_py() or 0) == entered.num_rows - entered.column("cost").null_count
        assert pc.min(own.column("cost_min")) == pc.min(entered.column("cost"))
        assert pc.sum(own.column("units_sum")).as_py() == pc.sum(entered.column("units")).as_py()
    ids = context.warehouse.read_arrow("history_samples_calls").column("event_id").to_pylist()
    assert len(ids) == len(set(ids)) > 300


def test_leaves_hold_what_the_events_say(done, calls: pa.Table) -> None:  # type: ignore[no-untyped-def]
    """Exact aggregates of every leaf, late tuples included, and the sample: all with u below the leaf's fraction."""
    context, _ = done
    entered = calls.filter(pa.array(expected_entry_us(calls) < to_us(END)))
    event = entered.column("event_time").cast(pa.int64()).to_numpy()
    past = Past.open(context.warehouse, context.pipeline.stream("calls"))
    strata = past.view.strata
    samples = past.samples(past.view, ["event_id"])
    leaves = sorted(set(zip(strata.start_us.tolist(), strata.end_us.tolist(), strict=True)))
    assert len(leaves) > 5
    assert all(left[1] <= right[0] for left, right in zip(leaves, leaves[1:], strict=False))
    for start, end in leaves:
        own = strata.start_us == start
        assert strata.tuples[own].sum() == ((event >= start) & (event < end)).sum()
    assert (np.bincount(samples.stratum, minlength=len(strata.tuples)) == strata.sampled).all()
    # Of every interval exactly those are there whose priority is below its fraction.
    u, entry = priority("calls", entered.column("event_id"), 3), expected_entry_us(calls)
    entry = entry[entry < to_us(END)]
    fraction = dict(zip(strata.labels, strata.fraction_of_label().tolist(), strict=True))
    label = [interval_holding(context.pipeline, int(at)).label for at in entry]
    held = entered.filter(pa.array(u < np.array([fraction[name] for name in label])))
    assert sorted(samples.rows.column("event_id").to_pylist()) == sorted(held.column("event_id").to_pylist())
    # Groups add up to the leaves.
    groups = context.warehouse.read_arrow("history_groups").group_by(["leaf_start", "interval"])
    added = {(r["interval"], to_us(r["leaf_start"])): r for r in groups.aggregate([("tuples", "sum")]).to_pylist()}
    assert len(added) == len(strata.tuples)
    for label_, start, tuples in zip(strata.label.tolist(), strata.start_us.tolist(), strata.tuples, strict=True):
        assert added[strata.labels[label_], start]["tuples_sum"] == tuples


def test_the_store_stays_within_its_capacity(done) -> None:  # type: ignore[no-untyped-def]
    context, intervals = done
    passes = context.warehouse.read_arrow("history_passes")
    assert sorted(set(passes.column("interval").to_pylist())) == [i.label for i in intervals if i.ends_day]
    strata = Past.open(context.warehouse, context.pipeline.stream("calls")).view.strata
    fractions = strata.fraction_of_label()
    # The recent past is denser than the distant; the last day had not ended when its tuples were sampled.
    assert fractions[:4].max() < fractions[4:8].max() <= fractions[8:].min() * 1.5
    held = context.warehouse.read_arrow("history_samples_calls").num_rows
    assert 200 < held <= 700 and held == strata.sampled.sum()


def test_a_pass_writes_no_byte_of_samples(spark_contexts, calls: pa.Table, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Every file that is there after the passes was there before, the very same inode."""
    context = spark_contexts(tmp_path)
    intervals = write_events(context.pipeline, tmp_path, calls)
    sample_history.run(context, intervals)
    folder = context.warehouse.folder / "history_samples_calls"
    before = {file.stat().st_ino: file.read_bytes() for own in live_files(folder).values() for file in own}
    resample_history.run(context, intervals)
    after = [f for own in live_files(folder).values() for f in own if pq.read_metadata(f).num_rows]
    assert 0 < len(after) < len(before)
    assert all(before[file.stat().st_ino] == file.read_bytes() for file in after)


def test_slices_of_any_size_as_tasks_of_spark_give_the_same_bytes(  # type: ignore[no-untyped-def]
    done, spark_contexts, calls: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_history, "ROWS_OF_A_SLICE", 300)
    context = spark_contexts(tmp_path)
    context.here = False
    in_one_go(context, write_events(context.pipeline, tmp_path, calls))
    assert rows_of(context) == rows_of(done[0])
    assert bytes_of(context) == bytes_of(done[0])


def test_interval_by_interval_gives_the_same_rows(done, spark_contexts, calls: pa.Table, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    context = spark_contexts(tmp_path)
    for interval in write_events(context.pipeline, tmp_path, calls):
        sample_history.run(context, [interval])
        resample_history.run(context, [interval])
    assert rows_of(context) == rows_of(done[0])


def test_running_intervals_again_changes_nothing(done) -> None:  # type: ignore[no-untyped-def]
    context, intervals = done
    before = rows_of(context)
    sample_history.run(context, intervals[1:2])
    assert rows_of(context) == before
    resample_history.run(context, intervals[:6])
    assert rows_of(context) == before
    in_one_go(context, intervals)
    assert rows_of(context) == before


def test_a_resampling_that_dies_before_it_commits_leaves_everything(  # type: ignore[no-untyped-def]
    done, spark_contexts, calls: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = spark_contexts(tmp_path)
    intervals = write_events(context.pipeline, tmp_path, calls)
    sample_history.run(context, intervals)
    sampled = rows_of(context)

    def die(*_: object) -> pa.Table:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(resample_history, "keep_below", die)
        with pytest.raises(RuntimeError, match="killed"):
            resample_history.run(context, intervals)
    assert rows_of(context) == sampled
    resample_history.run(context, intervals)
    assert rows_of(context) == rows_of(done[0])


def ask(done, sql: str, start: datetime = START, end: datetime = END, **options: float) -> dict:  # type: ignore[no-untyped-def,type-arg]
    return query_history(done[0].pipeline, done[0].warehouse_root, sql, start, end, **options)


def held(calls: pa.Table, start: datetime, end: datetime) -> pa.Table:
    """The tuples of the period that have entered history by the end."""
    entered = calls.filter(pa.array(expected_entry_us(calls) < to_us(END)))
    return entered.filter((pc.field("event_time") >= start) & (pc.field("event_time") < end))


def test_whole_leaves_answer_exactly(done, calls: pa.Table) -> None:  # type: ignore[no-untyped-def]
    start, end = START + timedelta(hours=60), START + timedelta(hours=70)
    sql = "SELECT COUNT(*), COUNT(cost), SUM(units), AVG(cost) AS mean, MIN(cost) AS low, MAX(units) FROM calls"
    answer = ask(done, sql, start, end)
    (row,) = answer["rows"]
    truth = held(calls, start, end)
    expected = {
        "count": truth.num_rows,
        "count_cost": truth.num_rows - truth.column("cost").null_count,
        "sum_units": pc.sum(truth.column("units")).as_py(),
        "mean": pytest.approx(pc.mean(truth.column("cost")).as_py()),
        "low": pc.min(truth.column("cost")).as_py(),
        "max_units": pc.max(truth.column("units")).as_py(),
    }
    assert {name: value["estimate"] for name, value in row.items()} == expected
    assert all(v["exact"] and v["low"] == v["estimate"] == v["high"] for v in row.values())
    assert answer["leaves"] == 10 and answer["sampled_rows"] == 0


def test_streams_whose_columns_differ_by_case_alone_both_keep_history(
    spark: SparkSession, calls: pa.Table, tmp_path: Path
) -> None:
    """Tables do not tell case apart: the two share the columns of ``history_leaves``."""
    names = {"kind": "Kind", "cost": "COST", "units": "Units"}
    pipeline = pipeline_in(tmp_path / "phones")
    first = pipeline.streams[0]
    columns = tuple(column.model_copy(update={"name": names[column.name]}) for column in first.columns)
    history = HISTORY.model_copy(update={"group_by": ("Kind",)})
    second = first.model_copy(update={"name": "others", "columns": columns, "history": history})
    pipeline = pipeline.model_copy(update={"streams": (first, second)})
    context = RunContext(pipeline, tmp_path / "warehouse", output=io.StringIO(), beside=spark)
    context.warehouse.folder.mkdir(parents=True)
    others = calls.rename_columns([names.get(name, name) for name in calls.column_names])
    intervals = write_events(pipeline, context.warehouse_root, calls, others=others)
    in_one_go(context, intervals)
    in_one_go(context, intervals)
    start, end = START + timedelta(hours=60), START + timedelta(hours=70)
    given = ((context, intervals), "SELECT COUNT(cost) AS n, SUM(units) AS u, MAX(cost) AS high FROM calls", start, end)
    sql = "SELECT COUNT(COST) AS n, SUM(Units) AS u, MAX(COST) AS high FROM others"
    shouted = ((context, intervals), sql, start, end)
    assert ask(*given)["rows"] == ask(*shouted)["rows"]
    assert ask(*given)["rows"][0]["n"]["estimate"] > 0


@pytest.mark.parametrize("minutes", [17, 31])
def test_cut_leaves_are_estimated_from_their_sample(done, calls: pa.Table, minutes: int) -> None:  # type: ignore[no-untyped-def]
    start, end = START + timedelta(hours=60, minutes=minutes), START + timedelta(hours=66, minutes=minutes)
    truth = held(calls, start, end)
    (row,) = ask(done, "SELECT COUNT(*), SUM(cost), AVG(cost), MIN(units), MAX(cost) FROM calls", start, end)["rows"]
    expected = {
        "count": truth.num_rows,
        "sum_cost": pc.sum(truth.column("cost")).as_py(),
        "avg_cost": pc.mean(truth.column("cost")).as_py(),
        "min_units": pc.min(truth.column("units")).as_py(),
        "max_cost": pc.max(truth.column("cost")).as_py(),
    }
    for name, value in expected.items():
        answer = row[name]
        assert answer["low"] <= value <= answer["high"], name
        assert answer["exact"] or answer["low"] < answer["high"]
        assert answer["estimate"] == pytest.approx(value, rel=0.15), name


def test_groups_and_predicates_are_covered(done, calls: pa.Table) -> None:  # type: ignore[no-untyped-def]
    sql = (
        "SELECT kind, COUNT(*) AS n, SUM(cost * units) AS paid, AVG(cost) FROM calls "
        "WHERE units > 2 AND cost IS NOT NULL GROUP BY kind"
    )
    answer = ask(done, sql, confidence=0.999)
    truth = held(calls, START, END).filter((pc.field("units") > 2) & pc.field("cost").is_valid())
    assert [row["kind"] for row in answer["rows"]] == ["abroad", "away", "home"]
    for row in answer["rows"]:
        own = truth.filter(pc.equal(truth.column("kind"), row["kind"]))
        paid = pc.sum(pc.multiply(own.column("cost"), own.column("units"))).as_py()
        for name, value in (("n", own.num_rows), ("paid", paid), ("avg_cost", pc.mean(own.column("cost")).as_py())):
            low, high = row[name]["low"], row[name]["high"]
            assert not row[name]["exact"]
            assert (low is None or low <= value) and (high is None or value <= high), (row, value)
    assert answer["sampled_rows"] == done[0].warehouse.read_arrow("history_samples_calls").num_rows


def test_nothing_that_qualifies_is_no_estimate(done) -> None:  # type: ignore[no-untyped-def]
    answer = ask(done, "SELECT COUNT(*), AVG(cost) FROM calls WHERE kind = 'nowhere'")
    (row,) = answer["rows"]
    assert row["count"]["estimate"] is None and row["count"]["high"] > 0
    assert row["avg_cost"] == {"estimate": None, "low": None, "high": None, "exact": False}
    assert "no estimate (0 to" in render(answer)
    assert ask(done, "SELECT kind, COUNT(*) FROM calls WHERE kind = 'nowhere' GROUP BY kind")["rows"] == []


def test_an_answer_takes_about_a_second(done) -> None:  # type: ignore[no-untyped-def]
    ask(done, "SELECT COUNT(*) FROM calls")
    begin = time.process_time()
    ask(done, "SELECT kind, AVG(cost) FROM calls WHERE units > 2 GROUP BY kind")
    assert time.process_time() - begin < 2


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT AVG(cost) FROM cals", "unknown stream 'cals'; did you mean 'calls'"),
        ("SELECT COUNT(*) FROM unkept", "keeps no history"),
        ("SELECT AVG(cots) FROM calls", "query:1:12: unknown column 'cots'; did you mean 'cost'"),
        ("SELECT AVG(kind) FROM calls", "AVG of string is not defined"),
        ("SELECT COUNT(DISTINCT units) FROM calls", "'COUNT(DISTINCT units)' needs each of them"),
        ("SELECT AVG(cost) FROM calls ORDER BY 1", "ORDER BY is not supported"),
        ("SELECT kind, AVG(cost) FROM calls", "neither aggregated nor grouped"),
        ("SELECT AVG(cost FROM calls", "query:1:"),
        ("SELECT kind FROM calls GROUP BY kind", "no aggregate"),
        ("SELECT COUNT(*) FROM calls, unkept", "is not supported"),
        ("DROP TABLE calls", "one SELECT statement"),
        ("SELECT COUNT(*) FROM calls WHERE cost > 'x'", "cannot be compared"),
        ("", "one SELECT statement"),
    ],
)
def test_mistakes_are_named(done, sql: str, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError) as error:
        ask(done, sql)
    assert message in str(error.value)


def test_a_past_that_is_not_there_is_named(done, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    sql = "SELECT COUNT(*) FROM calls"
    with pytest.raises(UserError, match="its history reaches from 2013-02-0"):
        ask(done, sql, START - timedelta(days=9), START - timedelta(days=8))
    with pytest.raises(UserError, match="must be later than"):
        ask(done, sql, END, START)
    with pytest.raises(UserError, match="confidence"):
        ask(done, sql, confidence=95.0)
    with pytest.raises(UserError, match="has no history"):
        query_history(done[0].pipeline, tmp_path, sql, START, END)


def test_every_pass_judges_the_past_where_the_tuples_are_still_there(done) -> None:  # type: ignore[no-untyped-def]
    """What is noted of the newest pass is what anyone who asks now is told, and the truth is that of the tuples."""
    context, intervals = done
    rows = context.warehouse.read_arrow("history_accuracy").to_pylist()
    ends = [i.label for i in intervals if i.ends_day]
    assert sorted({row["interval"] for row in rows}) == ends
    newest = [row for row in rows if row["interval"] == ends[-1]]
    assert len({row["part_start"] for row in newest}) >= 3 and {row["stream"] for row in rows} == {"calls"}
    assert newest[0]["fraction"] > newest[-1]["fraction"], "the older the thinner"
    events = context.warehouse.read_arrow("events_calls").to_pandas()
    for row in newest:
        asked = query_history(
            context.pipeline, context.warehouse_root, row["question"], row["part_start"], row["part_end"]
        )["rows"][0]["answer"]
        assert (row["estimate"], row["low"], row["high"]) == (asked["estimate"], asked["low"], asked["high"])
        inside = events[(events["event_time"] >= row["part_start"]) & (events["event_time"] < row["part_end"])]
        aggregate, _, condition = re.match(r"SELECT (.*) AS answer FROM (\w+) WHERE (.*)", row["question"]).groups()
        chosen = inside.query(condition.replace("`", "").replace("AND", "and"))
        function, column = re.match(r"(\w+)\(`?(.*?)`?\)", aggregate).groups()
        truth = len(chosen) if function == "COUNT" else chosen[column].agg({"SUM": "sum", "AVG": "mean"}[function])
        assert row["truth"] == pytest.approx(truth), row["question"]
    # Independent questions: fewer than this many hold once in a thousand times.
    assert sum(row["holds"] for row in newest) >= least_holding(len(newest), 0.95, 0.001)


def test_a_past_whose_tuples_are_gone_is_not_judged(done, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    context, intervals = done
    shutil.copytree(context.warehouse_root, tmp_path / "copy")
    warehouse = Warehouse(tmp_path / "copy", context.pipeline)
    past = Past.open(warehouse, context.pipeline.stream("calls"))
    whole = judge(past, intervals[-1].end_us).to_pylist()
    table = DeltaTable(warehouse.folder / "events_calls")
    table.delete(" OR ".join(f"\"interval\" = '{label}'" for label in warehouse.labels("events_calls")[:6]))
    past = Past.open(Warehouse(tmp_path / "copy", context.pipeline), context.pipeline.stream("calls"))
    kept = judge(past, intervals[-1].end_us).to_pylist()
    assert kept and kept[0] == whole[0], "the newest part has lost nothing"
    gone = intervals[5].end - timedelta(seconds=context.pipeline.stream("calls").max_early_s)
    assert min(row["part_start"] for row in whole) < gone <= min(row["part_start"] for row in kept)


def test_reading_stops_when_the_interval_is_narrow_enough(done) -> None:  # type: ignore[no-untyped-def]
    sql = "SELECT AVG(cost) FROM calls WHERE units > 1"
    whole = ask(done, sql)
    early = ask(done, sql, within=0.2)
    assert 0 < early["sampled_rows"] < whole["sampled_rows"]
    rows = [step["sampled_rows"] for step in early["steps"]]
    assert rows == sorted(rows) and early["steps"][-1]["widest"] <= 0.2
    assert all(step["widest"] is None or step["widest"] > 0.2 for step in early["steps"][:-1])
    assert "± " in render(early)
    # What cannot be had is not promised: everything is read.
    assert ask(done, sql, within=1e-6)["sampled_rows"] == whole["sampled_rows"]


def test_groups_that_the_leaves_know_are_exact(done, calls: pa.Table) -> None:  # type: ignore[no-untyped-def]
    sql = "SELECT kind, COUNT(*) AS n, SUM(cost) AS paid, MAX(units) FROM calls GROUP BY kind"
    answer = ask(done, sql)
    truth = held(calls, START, END)
    assert answer["sampled_rows"] == 0 and [row["kind"] for row in answer["rows"]] == ["abroad", "away", "home"]
    for row in answer["rows"]:
        own = truth.filter(pc.equal(truth.column("kind"), row["kind"]))
        assert row["n"] == {"estimate": own.num_rows, "low": own.num_rows, "high": own.num_rows, "exact": True}
        assert row["paid"]["exact"] and row["paid"]["estimate"] == pytest.approx(pc.sum(own.column("cost")).as_py())
    # Cut leaves are estimated, group by group, within bounds; all groups of the period are there.
    start, end = START + timedelta(hours=50, minutes=20), START + timedelta(hours=66, minutes=40)
    within = held(calls, start, end)
    for row in ask(done, sql, start, end, confidence=0.999)["rows"]:
        own = within.filter(pc.equal(within.column("kind"), row["kind"]))
        assert row["n"]["low"] <= own.num_rows <= row["n"]["high"], row


def test_an_extreme_that_happened_inside_a_cut_leaf_is_exact(done, calls: pa.Table) -> None:  # type: ignore[no-untyped-def]
    """The whole of time but for the first and last minute: both ends are cut, the extremes lie within."""
    start, end = START + timedelta(minutes=1), END - timedelta(hours=2, minutes=1)
    truth = held(calls, start, end)
    (row,) = ask(done, "SELECT MIN(cost), MAX(cost) FROM calls", start, end)["rows"]
    assert row["min_cost"]["low"] <= pc.min(truth.column("cost")).as_py() <= row["min_cost"]["high"]
    assert row["max_cost"]["estimate"] == pc.max(truth.column("cost")).as_py()


def test_the_past_as_arrow(done) -> None:  # type: ignore[no-untyped-def]
    context, _ = done
    sql = "SELECT kind, AVG(cost) AS mean FROM calls WHERE units > 1 GROUP BY kind"
    found = estimate(context.pipeline, context.warehouse_root, sql, START.replace(tzinfo=None), END)
    assert found.schema.names == ["kind", "mean", "mean_low", "mean_high", "mean_exact"]
    assert found.column("kind").to_pylist() == ["abroad", "away", "home"]
    rows = ask(done, sql)["rows"]
    assert found.column("mean").to_pylist() == [row["mean"]["estimate"] for row in rows]
    assert found.schema.metadata[b"confidence"] == b"0.95" and int(found.schema.metadata[b"sampled_rows"]) > 0
