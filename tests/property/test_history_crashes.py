"""Sampler, resampler and tree on a real warehouse, killed between any two steps: nothing lost, nothing twice."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.spark.test_history_stages import (
    END,
    START,
    TABLES,
    calls_of,
    expected_entry_us,
    pipeline_in,
    write_events,
)

from tidegate.declarations.models import from_us, to_us
from tidegate.engine.context import RunContext
from tidegate.history import store as history_store
from tidegate.history.past import Past
from tidegate.history.questions import query_history
from tidegate.operators.history.priority import priority
from tidegate.stages import resample_history, sample_history
from tidegate.store.commit import Commit
from tidegate.store.delta import DeltaLog
from tidegate.store.intervals import Interval, interval_holding, intervals_between

CALLS = 900
Stage = Callable[[RunContext, Sequence[Interval]], None]


class Killed(BaseException):
    """What a kill -9 leaves no one to catch."""


@contextlib.contextmanager
def killed_at(step: int) -> Iterator[None]:
    """Every operation that changes the disk is a step; at the given one, and ever after, the process is dead."""
    done = 0

    def dying(operation: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            nonlocal done
            done += 1
            if done >= step:
                raise Killed
            return operation(*args, **options)

        return run

    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((os, "rename"), (os, "replace"), (os, "link"), (os, "unlink"), (pq, "write_table")):
            patch.setattr(module, name, dying(getattr(module, name)))
        patch.setattr(DeltaLog, "_transact", dying(DeltaLog._transact))
        patch.setattr(Commit, "discard", dying(Commit.discard))
        # Who is dead cleans up nothing.
        patch.setattr(shutil, "rmtree", dying(shutil.rmtree))
        yield


class HistoryMachine(RuleBasedStateMachine):
    """Intervals enter in order; any earlier one may be run again, any day's end passed again; all may be killed."""

    @initialize(seed=st.integers(0, 3))
    def start(self, seed: int) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.pipeline = pipeline_in(self.root / "phones")
        self.spec = self.pipeline.stream("calls").history
        calls = calls_of(seed)
        self.calls = calls.filter(pa.array(np.arange(calls.num_rows) % (calls.num_rows // CALLS) == 0))
        self.context = self.context_on(self.root)
        self.intervals = write_events(self.pipeline, self.root, self.calls)
        entry = expected_entry_us(self.calls)
        self.entry, self.u = entry, priority("calls", self.calls.column("event_id"), self.spec.seed)
        self.sampled = 0
        self.passed: set[int] = set()

    def context_on(self, root: Path) -> RunContext:
        context = RunContext(self.pipeline, root, output=io.StringIO())
        context.warehouse.folder.mkdir(parents=True, exist_ok=True)
        return context

    def run(self, stage: Stage, intervals: Sequence[Interval], kill_at: int) -> None:
        """Run a stage; killed, it is run again by whoever comes next."""
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                with killed_at(kill_at):
                    stage(self.context, intervals)
            except Killed:
                self.context = self.context_on(self.root)
                stage(self.context, intervals)

    kills = st.one_of(st.integers(1, 12), st.integers(1, 60), st.just(10_000))

    @precondition(lambda self: self.sampled < len(self.intervals))
    @rule(count=st.integers(1, 4), kill_at=kills)
    def sample(self, count: int, kill_at: int) -> None:
        new = self.intervals[self.sampled : self.sampled + count]
        self.run(sample_history.run, new, kill_at)
        self.sampled += len(new)

    @precondition(lambda self: self.sampled > 0)
    @rule(data=st.data(), kill_at=kills)
    def sample_again(self, data: st.DataObject, kill_at: int) -> None:
        index = data.draw(st.integers(0, self.sampled - 1))
        self.run(sample_history.run, self.intervals[index : index + 1], kill_at)

    @precondition(lambda self: self.sampled > 0)
    @rule(data=st.data(), kill_at=kills)
    def resample(self, data: st.DataObject, kill_at: int) -> None:
        """Days pass in order, as a schedule has it; a day that has passed may pass again."""
        ends = [i for i in range(self.sampled) if self.intervals[i].ends_day]
        due = [i for i in ends if i in self.passed or all(j in self.passed for j in ends if j < i)]
        if not due:
            return
        index = data.draw(st.sampled_from(due))
        self.run(resample_history.run, self.intervals[index : index + 1], kill_at)
        self.passed.add(index)

    @invariant()
    def nothing_is_lost_and_nothing_is_there_twice(self) -> None:
        if not getattr(self, "sampled", 0):
            return
        past = Past.open(self.context.warehouse, self.pipeline.stream("calls"))
        strata = past.view.strata
        end_us = self.intervals[self.sampled - 1].end_us
        entered = self.entry < end_us
        assert strata.tuples.sum() == entered.sum()
        past.view.tree.check()
        # Exactly the tuples below the fraction of their interval are there, each in its stratum, each once.
        fraction = dict(zip(strata.labels, strata.fraction_of_label().tolist(), strict=True))
        labels = [interval_holding(self.pipeline, int(at)).label for at in self.entry[entered]]
        held = self.u[entered] < np.array([fraction[label] for label in labels])
        ids = np.array(self.calls.column("event_id").to_pylist(), dtype=object)[entered]
        samples = past.samples(past.view, ["event_id"])
        assert sorted(samples.rows.column("event_id").to_pylist()) == sorted(ids[held].tolist())
        files = history_store.band_files(self.context.warehouse, "calls", list(strata.labels))
        assert sum(file.rows for file in files) == len(samples.u) == strata.sampled.sum()
        assert (np.bincount(samples.stratum, minlength=len(strata.tuples)) == strata.sampled).all()

    @precondition(lambda self: self.sampled > 4)
    @rule(first=st.integers(0, 60), hours=st.integers(1, 40))
    def whole_leaves_answer_exactly(self, first: int, hours: int) -> None:
        """Hours that leaves begin and end with; the truth is the tuples that have entered."""
        tree = Past.open(self.context.warehouse, self.pipeline.stream("calls")).view.tree
        edges = sorted({leaf.start_us for leaf in tree.leaves()} | {leaf.end_us for leaf in tree.leaves()})
        start, end = edges[first % (len(edges) - 1)], edges[min(first % (len(edges) - 1) + hours, len(edges) - 1)]
        own = self.calls.filter(pa.array(self.entry < self.intervals[self.sampled - 1].end_us))
        own = own.filter((pc.field("event_time") >= from_us(start)) & (pc.field("event_time") < from_us(end)))
        sql = "SELECT COUNT(*) AS n, SUM(cost) AS paid, MIN(units) AS least FROM calls"
        (row,) = query_history(self.pipeline, self.root, sql, from_us(start), from_us(end))["rows"]
        assert all(value["exact"] for value in row.values())
        assert row["n"]["estimate"] == own.num_rows
        assert row["paid"]["estimate"] == pytest.approx(pc.sum(own.column("cost")).as_py())
        assert row["least"]["estimate"] == pc.min(own.column("units")).as_py()

    def teardown(self) -> None:
        """In whatever order, however often killed: the rows are those of one undisturbed run."""
        if not hasattr(self, "root"):
            return
        try:
            if self.sampled:
                done = self.intervals[: self.sampled]
                self.run(resample_history.run, done, 10_000)
                fresh = self.context_on(Path(tempfile.mkdtemp(dir=self.root)))
                write_events(self.pipeline, fresh.warehouse_root, self.calls)
                with contextlib.redirect_stdout(io.StringIO()):
                    sample_history.run(fresh, done)
                    resample_history.run(fresh, done)
                for table in TABLES:
                    found, expected = (c.warehouse.read_arrow(table) for c in (self.context, fresh))
                    assert found.to_pylist() == expected.to_pylist(), table
                store = self.spec.capacity_tuples * (1 + self.spec.reserve)
                assert fresh.warehouse.read_arrow("history_samples_calls").num_rows <= store
        finally:
            shutil.rmtree(self.root, ignore_errors=True)


class LongHistoryMachine(HistoryMachine):
    """The same, for longer."""


HistoryMachine.TestCase.settings = settings(max_examples=3, stateful_step_count=8, deadline=None)
TestHistory = HistoryMachine.TestCase
LongHistoryMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=15, deadline=None)
TestLongHistory = pytest.mark.slow(pytest.mark.timeout(1_800)(LongHistoryMachine.TestCase))


def test_three_days_are_twelve_intervals() -> None:
    """What the machine counts on: days end within its range."""
    pipeline = pipeline_in(Path("phones"))
    intervals = intervals_between(pipeline, START, END)
    assert [i.ends_day for i in intervals].count(True) == 3 and to_us(END) - to_us(START) == timedelta(
        days=3
    ) // timedelta(microseconds=1)
