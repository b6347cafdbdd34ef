"""All stages of a pipeline for a range of intervals, without Airflow: here, and in a Spark started for large work."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from tidegate.declarations import stages as declared
from tidegate.engine.context import RunContext, spark_is_named
from tidegate.stages.companion import Companion
from tidegate.store.intervals import Interval

# The report is a command of its own here: it shows every interval so far.
STAGES = tuple(stage.name for stage in declared.STAGES if stage.name != "report")
# A name for the stages that answer, and learn from the answers: all but the checks of data quality and dbt.
ANSWERS = "answers"
_LANDING = frozenset(stage.name for stage in declared.STAGES if stage.landed)
# What a live run does at an interval's end, unless it is told otherwise.
LIVE_STAGES = tuple(stage for stage in STAGES[:-1] if stage not in _LANDING)
_INTERVALS_AT_ONCE = 96
_INTERVALS_AT_FIRST = 24
_ASIDE = ("sample_history", "resample_history", "check_quality")

Stage = Callable[[RunContext, Sequence[Interval]], None]


def stages_named(names: Sequence[str]) -> tuple[str, ...]:
    """The stages that a command line names, in the order in which they run.

    >>> stages_named(["top_k", "ingest"]), stages_named(["answers"])[-1]
    (('ingest', 'top_k'), 'calibrate')
    """
    answering = STAGES[: STAGES.index("calibrate") + 1] if ANSWERS in names else ()
    return tuple(stage for stage in STAGES if stage in names or stage in answering)


def run(context: RunContext, intervals: Sequence[Interval], stages: Sequence[str], with_checked: bool = False) -> None:
    """Run the stages for the intervals, in passes of up to 96 intervals a stage; the rows are those of single runs.

    What the pipeline has no streams for (``land``) is passed over.

    When everything runs, a pass learns from all its intervals before it plans the first, and plans before it answers:
    what is learnt in an interval takes effect at its end, so plans and answers are the same as if stages and intervals
    took turns.

    Of several passes, where no Spark is named, what no later pass waits for runs in a process beside this one: what it
    raises, a critical check that failed too, is raised when a pass after it is done. ``with_checked``: see ``publish``.
    """
    landed = bool(context.pipeline.landed_streams)
    names = [stage for stage in STAGES if stage in stages and (landed or stage not in _LANDING)]
    if "land" in names:
        # Once: what has landed does not depend on passes.
        _application("land").run(context, intervals)
        names.remove("land")
    passes = _passes(intervals)
    # The stages of a pass that no stage of the next one waits for run beside it.
    aside = [name for name in names if name in _ASIDE and len(passes) > 1 and not spark_is_named()]
    steps = _steps([name for name in names if name not in aside])
    with ExitStack() as publishing:
        with Companion(context) as companion:
            for number, part in enumerate(passes, start=1):
                context.days_follow = any(interval.ends_day for later in passes[number:] for interval in later)
                for step in steps:
                    step(context, part)
                if aside:
                    companion.run(aside, part)
                # The next pass continues from this one.
                context.cold_start = False
            if "publish" in names:
                # dbt brings a session of its own; two at once would take twice the memory.
                context.release_spark()
                turn = publishing.enter_context(_application("publish").turn(context))
                if aside:
                    turn.start(intervals)
        # dbt takes most of its time to start, and reads only the intervals that are new to it.
        if "publish" in names:
            turn.run(intervals, with_checked)


def _passes(intervals: Sequence[Interval]) -> list[Sequence[Interval]]:
    """Of several passes the first and the last are short: beside them little else runs.

    >>> [len(part) for part in _passes(range(250))]
    [24, 96, 65, 33, 32]
    """
    if len(intervals) <= _INTERVALS_AT_ONCE:
        return [intervals]
    passes = [intervals[:_INTERVALS_AT_FIRST]]
    left = intervals[_INTERVALS_AT_FIRST:]
    while left:
        most = len(left) if len(left) <= 2 * _INTERVALS_AT_FIRST else -(-len(left) // 2)
        size = min(most, _INTERVALS_AT_ONCE)
        passes.append(left[:size])
        left = left[size:]
    return passes


def _steps(names: Sequence[str]) -> list[Stage]:
    """The steps of a pass: ingest and calibrate fall into two, so that what is learnt is there when it is needed."""
    steps: list[Stage] = []
    learning = "calibrate" in names and bool({"ingest", "join_aggregate", "top_k"} & set(names))
    for name in [n for n in names if n != "publish"]:
        application = _application(name)
        if name == "ingest" and learning:
            steps += [application.read, _application("calibrate").learn, application.plan]
        elif name == "calibrate" and learning:
            steps.append(application.judge)
        else:
            steps.append(application.run)
    if learning and "ingest" not in names:
        steps.insert(0, _application("calibrate").learn)
    return steps


def _application(stage: str):  # type: ignore[no-untyped-def]
    return importlib.import_module(f"tidegate.stages.{stage}")
