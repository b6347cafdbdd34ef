"""The command ``tidegate run``."""

from __future__ import annotations

import argparse
import shutil
import sys
from datetime import timedelta

from tidegate.cli.arguments import Commands, command
from tidegate.declarations.errors import UserError
from tidegate.stages.launcher import add_range_arguments, duration_s
from tidegate.stages.run import ANSWERS, LIVE_STAGES, STAGES, stages_named


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "run",
        "run the stages for every interval of a range: in this process, and in a Spark that is started for large work",
        "tidegate run dags/pipelines/flights --warehouse warehouse --from 2013-02-07 --to 2013-02-08\n"
        "  tidegate run dags/pipelines/flights --warehouse warehouse --from 2013-02-07T05 --to 2013-02-07T06 "
        "--stage ingest --stage top_k\n"
        "  tidegate run dags/pipelines/flights --warehouse warehouse --from 2013-02-07 --live --every 10s",
    )
    add_range_arguments(parser, end_needed=False)
    parser.add_argument(
        "--stage",
        action="append",
        choices=(*STAGES, ANSWERS),
        metavar="NAME",
        help=f"run only this stage; may be repeated: {', '.join(STAGES)}; {ANSWERS} stands for all but the last two",
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="answer continuously as files land, until --to or until stopped; a restart resumes where the run stopped; "
        "at the end of an interval its stages run (all but publish; with --stage, those named and those that the next "
        "interval needs)",
    )
    parser.add_argument(
        "--every",
        type=duration_s,
        default=10.0,
        metavar="TIME",
        help="with --live: how often to look for new files (default 10s)",
    )
    parser.add_argument(
        "--patience",
        type=duration_s,
        metavar="TIME",
        help="with --live: how long an idle stream holds back the watermark after another stream has passed it "
        "(default: one interval; forever for a stream with missing_file: error)",
    )
    parser.add_argument(
        "--with-checked",
        action="store_true",
        help="publish also the intervals next to the range that have been checked and wait to be published",
    )
    parser.set_defaults(action=_run)


def _run(arguments: argparse.Namespace) -> None:
    from tidegate.engine.pyspark_files import require_whole_pyspark

    require_whole_pyspark()
    from tidegate.cli.newest_answers import newest_answers
    from tidegate.cli.records_read import AllRefusedError, records_read
    from tidegate.declarations import load_pipeline
    from tidegate.engine.context import RunContext
    from tidegate.stages.extras import installed_stages, require_stage
    from tidegate.stages.run import run
    from tidegate.store.intervals import intervals_between

    if arguments.end is None and not arguments.live:
        raise UserError("--to is missing: give the end of the last interval, or --live to run until stopped")
    named = stages_named(arguments.stage or ())
    for stage in named:
        require_stage(stage)
    stages, lacking = installed_stages(named or (LIVE_STAGES if arguments.live else STAGES))
    for sentence in lacking:
        print(f"tidegate: skipped: {sentence}", file=sys.stderr)
    pipeline = load_pipeline(arguments.pipeline)
    end = arguments.end or arguments.start + timedelta(seconds=pipeline.interval_s)
    intervals = intervals_between(pipeline, arguments.start, end)
    with RunContext(pipeline, arguments.warehouse, cold_start=arguments.cold_start) as context:
        if not arguments.live:
            run(context, intervals, stages, arguments.with_checked)
            print(file=sys.stderr)  # on a screen, between the progress and the answers
            width = shutil.get_terminal_size(fallback=(80, 24)).columns
            summary, refused_all = context.memory.get("ingest"), False
            if "ingest" in stages:
                labels = [interval.label for interval in intervals]
                text, refused_all = records_read(context.warehouse, labels, summary, width)
                print(text)
            print(newest_answers(context.warehouse, intervals, stages, width), end="")
            if refused_all:
                raise AllRefusedError("every record was refused: see above why")
            return
        from tidegate.live.run import Live

        end_us = None if arguments.end is None else intervals[-1].end_us
        with Live(context, intervals[0], end_us, named, arguments.every, arguments.patience) as live:
            live.run()
