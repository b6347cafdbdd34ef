"""Live: answers as soon as arrival time has passed a window's end + K, not when the interval is over.

Files are read as they land (`live_intake`). The arrival clock says up to which instant everything is known
(`live_clock`), and goes on in steps, each of whole ticks within one interval. A step takes in what arrived in it,
judged as ingest judges; rates and plans go on tick by tick; then the answers whose instant of emission lies in the step
are given, by the same operators, and put into the interval's partition of the answers' tables.

A step is two commits, each seen as a whole: first tuples, plans and the clock, then answers. A kill -9 between them
leaves a step that the next run answers; anywhere else the step, or nothing.

When the clock reaches the interval's end, the interval's ordinary stages run and replace its partitions. Their rows are
the same, which is checked: what a live run answered depends neither on when files landed nor on how often it looked.
"""

from __future__ import annotations

import copy
import hashlib
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Query, Stream, from_us
from tidegate.engine.context import RunContext, previous_label
from tidegate.live.clock import Clock, Landed, Patience, arrival_clock
from tidegate.live.intake import Intake
from tidegate.live.taken import accepted
from tidegate.live.warehouse import (
    FOLDER,
    LiveWarehouse,
    Position,
    begin_anew,
    only_live_run,
    put_position,
    read_position,
)
from tidegate.operators.schedule import instants_us
from tidegate.operators.window_sizing import ControllerState, advance, plan_table, query_plan_table
from tidegate.queries import planner
from tidegate.queries.answers import answered_windows, sort_columns
from tidegate.queries.plans import PlanHistory
from tidegate.queries.questions import Answering
from tidegate.queries.session_answers import session_order, session_rows
from tidegate.queries.sessions import SessionTuples, asked_of
from tidegate.queries.slacks import SlackHistory, require_calibrated
from tidegate.queries.slices import described, in_order, question
from tidegate.queries.updates import updates_between
from tidegate.queries.widths import SlackWidths
from tidegate.readable import format_seconds
from tidegate.sources.files import SourceFile
from tidegate.stages.extras import installed_stages
from tidegate.stages.reference_versions import fix_versions
from tidegate.stages.run import LIVE_STAGES, STAGES, run
from tidegate.store.commit import Commit
from tidegate.store.intervals import Interval, interval_holding, interval_labelled
from tidegate.store.places import place
from tidegate.store.warehouse import Warehouse

STAGE = "live"
NEEDED_STAGES = ("ingest", "join_aggregate", "top_k", "calibrate")
"""Without them the next interval could not go on: they run at every interval's end."""
_LOOK_S = 0.05
_SAY_WAITING_AFTER_S = 10.0
_SAY_WAITING_S = 60.0


class LiveDiffersError(UserError):
    """What was answered live is not what the interval's run answered, though both had the same tuples."""

    exit_status = 1


@dataclass(frozen=True)
class _Taken:
    """What a step took in: stream → its accepted tuples, with what each weighs (bytes, float64[n])."""

    tuples: dict[str, pa.Table]
    weights: dict[str, np.ndarray]
    refused: int


class Live:
    """A live run of a pipeline from the interval that begins at ``start`` on.

    ``end``: where it ends, None if it goes on. ``stages``: run at every interval's end. ``every_s``: how often to look
    for files. ``patience_s``: how long an idle stream holds back the watermark. Use as a context manager.
    """

    def __init__(
        self,
        context: RunContext,
        start: Interval,
        end_us: int | None,
        stages: Sequence[str] = (),
        every_s: float = 10.0,
        patience_s: float | None = None,
    ):
        pipeline = context.pipeline
        if pipeline.landed_streams:
            names = ", ".join(stream.name for stream in pipeline.landed_streams)
            raise UserError(
                f"a live run of streams that come through Spark ({names}) is not made yet: run its intervals, by "
                "Airflow or by tidegate run without --live"
            )
        self.context, self.end_us, self.every_s = context, end_us, every_s
        wanted = {*NEEDED_STAGES, *stages} if stages else {*installed_stages(LIVE_STAGES)[0]}
        self.stages = [stage for stage in STAGES if stage in wanted]
        self.patience = Patience(pipeline.interval_s if patience_s is None else patience_s)
        self.intake = Intake(pipeline, context.warehouse.local / FOLDER / "intake", self._say)
        self._start = start
        self._clock: Clock | None = None
        self._stopping = False
        self._known: frozenset[str] | None = None
        self._moved_s = self._said_s = time.monotonic()

    def __enter__(self) -> Live:
        self._lock = only_live_run(self.context.warehouse)
        self._lock.__enter__()
        try:
            self.position = self._where_to_begin()
            self._enter_interval()
            if not self.ended:
                self.intake.start(self.every_s)
                at = f"{from_us(self.position.answered_us):%Y-%m-%dT%H:%M:%SZ}"
                self._say(f"from {at} on, looking for new files every {format_seconds(self.every_s)}")
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._lock.__exit__(None, None, None)

    @property
    def interval(self) -> Interval:
        """The present interval."""
        return interval_labelled(self.context.pipeline, self.position.interval)

    @property
    def ended(self) -> bool:
        """Whether the clock has reached the end of the run."""
        return self.end_us is not None and self.interval.start_us >= self.end_us

    def run(self) -> None:
        """Go on until the end, or until SIGINT or SIGTERM; the step that is being made is finished."""
        with _signals(self._stop):
            while not self.ended and not self._stopping:
                looked = time.monotonic()
                try:
                    self.intake.settle()
                    self.advance()
                except Exception:
                    # Ctrl-C reaches Spark's workers too, and the step with them: it is undone, and made again.
                    if not self._stopping:
                        raise
                self._say_waiting()
                while not (self._stopping or self.ended) and time.monotonic() - looked < self.every_s:
                    time.sleep(_LOOK_S)
        at = f"{from_us(self.position.answered_us):%Y-%m-%dT%H:%M:%SZ}"
        self._say(f"stopped at {at}; a restart resumes from there" if self._stopping else f"ended at {at}")

    def advance(self) -> None:
        """Make all the steps that what has landed allows."""
        if self.position.answered_us < self.position.taken_us:
            self._answer()
        while not self.ended and not self._stopping:
            landed = self.intake.landed()
            self._clock = arrival_clock(
                self.context.pipeline.streams,
                landed,
                self.position.taken_us,
                self.patience,
                time.monotonic(),
                self.intake.landed_empty,
            )
            tick_us = self.context.pipeline.tick_s * 1_000_000
            until_us = min(self._clock.until_us // tick_us * tick_us, self.interval.end_us)
            if until_us > self.position.taken_us:
                self._step(landed, until_us)
            if self.position.answered_us == self.interval.end_us:
                self._end_interval(landed)
            elif until_us <= self.position.taken_us:
                return

    def _stop(self) -> None:
        if self._stopping:
            raise KeyboardInterrupt
        self._stopping = True
        self._say("stopping after the current step")

    def _say(self, message: str) -> None:
        self.context.progress(f"{STAGE}: {message}")

    def _where_to_begin(self) -> Position:
        """Where the last run stood if it can be gone on from, else the start."""
        context = self.context
        warehouse, declared = context.warehouse, _fingerprint(context)
        position = read_position(warehouse)
        begin = self._start
        if position is not None:
            stood = interval_labelled(context.pipeline, position.interval)
            if position.declared == declared and begin.start_us <= stood.start_us:
                self._say(f"resuming at {from_us(position.answered_us):%Y-%m-%dT%H:%M:%SZ}")
                context.cold_start = position.cold_start
                return position
            if position.declared != declared and begin.start_us <= stood.start_us:
                self._say(f"the declaration has changed: starting again at {stood.label}")
                begin, context.cold_start = stood, position.cold_start
        begin_anew(warehouse)
        at_us = begin.start_us
        position = Position(begin.label, at_us, at_us, -1, declared, context.cold_start)
        with self._commit(warehouse, begin) as commit:
            put_position(commit, position)
        return position

    @contextmanager
    def _commit(self, warehouse: Warehouse, interval: Interval) -> Iterator[Commit]:
        """A commit of this run: refused if another live run has committed since this one's last."""
        with warehouse.commit(STAGE, [interval], self._known) as commit:
            yield commit
        self._known = frozenset(warehouse.cut.runs)

    def _enter_interval(self) -> None:
        """Look at the present interval: what it reads, and from where."""
        context, interval = self.context, self.interval
        if not self.ended:
            fix_versions(context, interval)
        self.warehouse = LiveWarehouse(context.warehouse, interval)
        self.warehouse.forget_others()
        self.intake.since_us, self.intake.last_batch = interval.start_us, self.position.last_batch
        if not self.ended:
            context.require_predecessor("source_files", [interval], "ingest")
            require_calibrated(context, [interval])
            self.here = copy.copy(context)
            self.here.warehouse = self.warehouse

    def _step(self, landed: Sequence[Landed], until_us: int) -> None:
        began, position = time.monotonic(), self.position
        taken = self._take_in(landed, until_us)
        windows, rows = self._answer()
        tuples = sum(table.num_rows for table in taken.tuples.values())
        refused = f" and {taken.refused} refused" if taken.refused else ""
        fresh = [f.modified_us for f in landed if f.batch > position.last_batch]
        since_landing_s = time.time() - max(fresh) / 1e6 if fresh else None
        assert self._clock is not None
        waiting_s = (self._clock.newest_us - self._clock.until_us) / 1e6
        says = [
            f"{from_us(until_us):%H:%M:%S}: {tuples} tuples{refused}, {rows} answers of {windows} windows",
            f"{time.monotonic() - began:.1f} s",
            f"lag {format_seconds(max(time.time() - until_us / 1e6, 0.0))}",
        ]
        if since_landing_s is not None:
            says.append(f"{format_seconds(max(since_landing_s, 0.0))} since the last file landed")
        if waiting_s > 0:
            says.append(f"{format_seconds(waiting_s)} of arrivals held back by {self._holding_back()}")
        self._say(", ".join(says))
        self._moved_s = time.monotonic()
        line = {
            "app": STAGE,
            "pipeline": self.context.pipeline.name,
            "from": from_us(position.taken_us).isoformat(),
            "to": from_us(until_us).isoformat(),
            "seconds": round(time.monotonic() - began, 3),
            "rows_in": tuples + taken.refused,
            "rows_quarantined": taken.refused,
            "windows": windows,
            "rows_out": rows,
            "since_landing_s": None if since_landing_s is None else round(since_landing_s, 3),
            "waiting_arrivals_s": waiting_s,
        }
        self.context.log(line)

    def _take_in(self, landed: Sequence[Landed], until_us: int) -> _Taken:
        """The first commit of a step: tuples, plans, the clock."""
        position, warehouse, pipeline = self.position, self.warehouse, self.context.pipeline
        start_us = position.taken_us
        behind = self._came_behind([f for f in landed if f.batch > position.last_batch])
        files: dict[str, list[Landed]] = defaultdict(list)
        for file in landed:
            if file.status == "ok" and file.arrived_in(start_us, until_us):
                files[file.stream].append(file)
        with self._commit(warehouse, self.interval) as commit:
            read = [self._judged(stream, files[stream.name], until_us) for stream in pipeline.streams]
            taken = _Taken({}, {}, sum(refused for _, refused in read))
            for stream, (rows, _) in zip(pipeline.streams, read, strict=True):
                taken.weights[stream.name] = rows.column("_bytes").to_numpy().astype(np.float64)
                taken.tuples[stream.name] = rows.drop_columns("_bytes")
                if rows.num_rows:
                    warehouse.put_part(commit, f"events_{stream.name}", start_us, taken.tuples[stream.name])
            self._plan(commit, taken, until_us)
            newest = max([position.last_batch, *(f.batch for f in landed)])
            moved = replace(position, taken_us=until_us, last_batch=newest, behind=position.behind + behind)
            put_position(commit, moved)
        self.position = moved
        return taken

    def _came_behind(self, fresh: Sequence[Landed]) -> int:
        """How many tuples of the present interval came when the clock had passed them."""
        start_us, taken_us = self.interval.start_us, self.position.taken_us
        late = [f for f in fresh if f.arrived_in(start_us, taken_us)]
        count = 0
        for file in late:
            arrivals = self.intake.arrivals_us(file)
            count += int(((arrivals >= start_us) & (arrivals < taken_us)).sum())
        if count:
            self._say(
                f"{count} tuples arrived after the watermark ({late[0].path}): "
                "answers already given do not include them; the interval's own run will"
            )
        return count

    def _judged(self, stream: Stream, files: Sequence[Landed], until_us: int) -> tuple[pa.Table, int]:
        """The stream's accepted tuples of the step, as in the table, with ``_bytes``; how many were refused."""
        wanted = self.warehouse.schema(f"events_{stream.name}").append(pa.field("_bytes", pa.int64()))
        if not files:
            return wanted.empty_table(), 0
        taken = self.intake.taken(files)
        rows, refused = accepted(self.here, stream, files, taken, self.position.taken_us, until_us)
        return rows.select(wanted.names).cast(wanted), refused

    def _plan(self, commit: Commit, taken: _Taken, until_us: int) -> None:
        """Rates and plans of the step's ticks, and the state after them."""
        warehouse, interval, pipeline = self.warehouse, self.interval, self.context.pipeline
        start_us = self.position.taken_us
        slacks, widths = SlackHistory.load(warehouse, [interval]), SlackWidths.load(warehouse, [interval])
        spec = planner.controller_spec(pipeline, slacks, widths, interval)
        at = interval.label if start_us > interval.start_us else previous_label(pipeline, interval)
        cold = start_us == interval.start_us and self.context.cold_start
        saved = None if cold else warehouse.read_state(planner.STATE, at)
        first = {} if cold else planner.first_arrivals_us(warehouse, at)
        state = ControllerState.initial(spec) if saved is None else ControllerState.from_arrow(saved, spec)
        arrival_us = {
            name: instants_us(rows.column("arrival_time")) for name, rows in taken.tuples.items() if rows.num_rows
        }
        event_us = {name: instants_us(taken.tuples[name].column("event_time")) for name in arrival_us}
        advanced = advance(spec, state, start_us, until_us, arrival_us, event_us, taken.weights)
        for name, at_us in arrival_us.items():
            first.setdefault(name, int(at_us[0]) // spec.tick_us * spec.tick_us)
        for table, rows in (
            ("window_plan", plan_table(advanced.plans)),
            ("query_plan", query_plan_table(advanced.query_plans)),
        ):
            if rows.num_rows:
                warehouse.put_part(commit, table, start_us, rows)
        warehouse.put_state(commit, planner.STATE, advanced.state.to_arrow())
        began = pa.table({"stream": list(first), "first_arrival_us": list(first.values())}, schema=planner.FIRST_SCHEMA)
        warehouse.put_state(commit, planner.FIRST_ARRIVALS, began)

    def _answer(self) -> tuple[int, int]:
        """The second commit of a step: what is to be answered in what has been taken in; how many windows and rows."""
        position, interval, pipeline = self.position, self.interval, self.context.pipeline
        plans = PlanHistory.for_emissions(self.warehouse, interval.start_us)
        slacks = SlackHistory.load(self.warehouse, [interval])
        with self._commit(self.warehouse, self.interval) as commit:
            given = [self._answers(query, plans, slacks) for query in pipeline.queries]
            tables = {f"answers_{q.id}": fresh for q, (_, fresh) in zip(pipeline.queries, given, strict=True)}
            rows = sum(fresh.num_rows for fresh in tables.values())
            for query in (query for query in pipeline.queries if query.emits_updates):
                until_us = position.taken_us
                updates = updates_between(self.here, query, position.answered_us, until_us, interval)
                tables[f"updates_{query.id}"] = updates
            for table, fresh in tables.items():
                before = self.warehouse.read_arrow(table, [interval.label]).drop_columns("interval")
                if fresh.num_rows:
                    self.warehouse.put_part(commit, table, position.answered_us, fresh)
                if fresh.num_rows or position.answered_us == interval.start_us:
                    commit.put_arrow(table, interval, pa.concat_tables([before, fresh]))
            moved = replace(position, answered_us=position.taken_us)
            put_position(commit, moved)
        self.position = moved
        return sum(windows for windows, _ in given), rows

    def _answers(self, query: Query, plans: PlanHistory, slacks: SlackHistory) -> tuple[int, pa.Table]:
        """The query's answers whose instant of emission lies in the step, in the order of the table.

        Every window is answered anew from the tuples that it can need, read back from the tables and from what has been
        taken in: no state is carried from step to step but the tuples.
        """
        wanted = self.warehouse.schema(f"answers_{query.id}")
        if query.sessions is not None:
            return self._sessions(query, plans, slacks, wanted)
        given = plans.emissions(query, slacks, self.position.answered_us, self.position.taken_us)
        if len(given.emit_us) == 0:
            return 0, wanted.empty_table()
        windows = answered_windows(query, plans, slacks, given)
        if windows is None:
            return 0, wanted.empty_table()
        asked = question(self.here, query, windows.schedule, windows.coverage)
        rows = described(Answering(asked).table(), windows.as_arrow(self.context.pipeline))
        return len(given.emit_us), in_order(rows.select(wanted.names).cast(wanted), sort_columns(query))

    def _sessions(
        self, query: Query, plans: PlanHistory, slacks: SlackHistory, wanted: pa.Schema
    ) -> tuple[int, pa.Table]:
        """The same of sessions."""
        bounds, held = (self.position.answered_us, self.position.taken_us), [plans.bounds[s] for s in query.streams]
        tuples = SessionTuples(asked_of(self.here, query, slacks.waits(query), *bounds, held))
        found = tuples.found()
        rows = session_rows(self.context.pipeline, query, tuples.rows_of(found)[0], found, slacks)
        return len(found), in_order(rows.select(wanted.names).cast(wanted), session_order(query))

    def _end_interval(self, landed: Sequence[Landed]) -> None:
        """The interval's ordinary stages, the proof that they answer alike, and the next interval."""
        interval, context = self.interval, self.context
        excuses = [f"{self.position.behind} tuples arrived after the watermark"] if self.position.behind else []
        excuses += _changed(landed, interval)
        self._say(f"{interval.label} is complete: running its stages")
        failed: UserError | None = None
        try:
            run(context, [interval], self.stages)
        except UserError as error:
            # A critical check: everything has been written, so the next run goes on behind this interval.
            if error.exit_status != 1:
                raise
            failed = error
        different = self._differences()
        following = interval_holding(context.pipeline, interval.end_us)
        self.position = replace(
            self.position, interval=following.label, cold_start=False, behind=0, declared=_fingerprint(context)
        )
        with self._commit(context.warehouse, following) as commit:
            put_position(commit, self.position)
        context.cold_start = False
        self.intake.forget(landed, interval.end_us)
        if different and excuses:
            self._say(
                f"{interval.label}: corrected by the interval's run: {'; '.join(excuses)}; {different[0]} "
                f"({len(different)} windows)"
            )
        elif different:
            raise LiveDiffersError(
                f"{interval.label}: the live answers differ from those of the interval's run, which the tables now "
                f"hold: {different[0]}"
                + (f" (and {len(different) - 1} more windows)" if len(different) > 1 else "")
                + "; this is a bug in Tidegate; a restarted live run resumes after this interval"
            )
        if failed is not None:
            raise failed
        self._enter_interval()

    def _differences(self) -> list[str]:
        """Windows of the present interval that were answered otherwise live than by its run, and say so."""
        different, rows = [], 0
        queries, label = self.context.pipeline.queries, self.interval.label
        tables = [(query, f"answers_{query.id}") for query in queries]
        tables += [(query, f"updates_{query.id}") for query in queries if query.emits_updates]
        for query, table in tables:
            live = self.warehouse.read_arrow(table, [label])
            stage = self.context.warehouse.read_arrow(table, [label])
            rows += stage.num_rows
            if live.equals(stage):
                continue
            mine, theirs = _by_window(live), _by_window(stage)
            for end in sorted(mine.keys() | theirs.keys()):
                if mine.get(end) != theirs.get(end):
                    own, other = mine.get(end, []), theirs.get(end, [])
                    different.append(
                        f"query {query.id}, window ending {end:%Y-%m-%dT%H:%M:%SZ}: {len(own)} rows live, {len(other)} "
                        f"by the run; the first differing row: live {_first_other(own, other)}, run "
                        f"{_first_other(other, own)}"
                    )
        if not different:
            self._say(f"{self.interval.label}: the interval's run gave the same {rows} answers")
        return different

    def _say_waiting(self) -> None:
        """Say what is waited for once nothing has moved for a while, and then once a minute."""
        now = time.monotonic()
        if self._clock is None or self.ended or self._stopping or now - self._moved_s < _SAY_WAITING_AFTER_S:
            return
        if self._said_s > self._moved_s and now - self._said_s < _SAY_WAITING_S:
            return
        self._said_s = now
        self._say(f"{from_us(self.position.taken_us):%H:%M:%S}: waiting for {self._holding_back()}")

    def _holding_back(self) -> str:
        assert self._clock is not None
        return "; ".join(f"{stream}: {file}" for stream, file in self._clock.waits_for)


def _by_window(answers: pa.Table) -> dict[Any, list[str]]:
    """Window end → its rows, as text that tells every bit apart."""
    rows: dict[Any, list[str]] = defaultdict(list)
    for row in answers.drop_columns("interval").to_pylist():
        rows[row["window_end"]].append(repr(row))
    return rows


def _first_other(own: Sequence[str], other: Sequence[str]) -> str:
    return next((row for row in own if row not in other), "none")


def _changed(landed: Sequence[Landed], interval: Interval) -> list[str]:
    """Files of the interval that are others now than when they were read live."""
    changed = [
        f.path
        for f in landed
        if f.arrived_in(interval.start_us, interval.end_us)
        and SourceFile(place(f.path), f.bytes, f.modified_us, None, None).changed()
    ]
    return [f"{changed[0]} has changed since it was read ({len(changed)} such files)"] if changed else []


def _fingerprint(context: RunContext) -> str:
    """What the live tables depend on: the whole declaration, and this program's version."""
    text = f"{version('tidegate')} {context.pipeline.model_dump_json()}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def _signals(stop: Any) -> Iterator[None]:
    """SIGINT and SIGTERM call ``stop``; not Spark's own handler, which would cancel what is being done."""
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
