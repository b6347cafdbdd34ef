"""The command ``tidegate``: for whoever writes pipelines."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tidegate.cli.completion import SHELLS, script
from tidegate.cli.init import EXAMPLES, init
from tidegate.declarations.errors import UserError
from tidegate.stages.launcher import add_range_arguments, as_of, duration_s, guarded, instant, share
from tidegate.stages.run import ANSWERS, LIVE_STAGES, STAGES, stages_named

EXIT_CODES = """exit status:
  0    done
  1    a critical data quality check failed (results and pages are written), or
       an internal error (a traceback)
  2    a command line, pipeline, file or warehouse that cannot be used; the
       message says why, nothing was done
  130  interrupted; completed work is kept"""
_PIPELINE = "folder with pipeline.yml and queries/"
_WAREHOUSE = "folder that holds the tables"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    arguments = _parser().parse_args(argv)
    return guarded(lambda: arguments.action(arguments))


class _Parser(argparse.ArgumentParser):
    """Names the command that was probably meant."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            near = get_close_matches(str(value), [str(choice) for choice in action.choices], n=1)
            expected = f"did you mean '{near[0]}'?" if near else f"expected {', '.join(map(str, action.choices))}"
            raise argparse.ArgumentError(action, f"invalid choice '{value}'; {expected}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tidegate",
        description="Continuous queries over out-of-order event streams within a memory budget.",
        epilog="start here:\n  tidegate init shop       # and run the command that it prints\n\n"
        f"shell completion: source <(tidegate completion bash)\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    init_ = _command(
        commands,
        "init",
        "write a small pipeline with data of its own, and say how to run it",
        "tidegate init shop\n  tidegate init pipelines/machines --example sensors",
    )
    init_.add_argument(
        "folder", type=Path, metavar="DIR", help="a new folder; its name becomes the pipeline's (lower snake case)"
    )
    init_.add_argument(
        "--example",
        choices=tuple(EXAMPLES),
        default="shop",
        help="; ".join(f"{name}: {example.about}" for name, example in EXAMPLES.items()) + " (default shop)",
    )
    init_.set_defaults(action=lambda arguments: print(init(arguments.folder, arguments.example)))

    validate = _command(
        commands, "validate", "report all mistakes of a pipeline at once", "tidegate validate dags/pipelines/flights"
    )
    validate.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=_PIPELINE)
    validate.set_defaults(action=_validate)

    explain = _command(
        commands,
        "explain",
        "show streams, queries and the memory that each support level needs",
        "tidegate explain dags/pipelines/flights | less",
    )
    explain.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=_PIPELINE)
    explain.set_defaults(action=_explain)

    plan = _command(
        commands,
        "plan-windows",
        "plan window widths for a problem given as JSON",
        "tidegate plan-windows instance.json --method ap\n"
        '  echo \'{"memory_budget_bytes": 4000, "windows": [{"id": "w", "tuple_bytes": 40, "rate": 1}],\n'
        '    "queries": [{"id": "q", "ranges_s": {"w": 60}, "slack_width_s": 10, "delay_s": 60}]}\''
        " | tidegate plan-windows -",
    )
    plan.add_argument(
        "instance", metavar="INSTANCE.json", help="file with memory budget, windows and queries; - reads standard input"
    )
    plan.add_argument(
        "--method",
        choices=("joint", "exact", "dp", "ap"),
        default="joint",
        help="how level C is planned: joint (the default) lets windows grow and shrink at staggered times; with the "
        "others the windows of a group take turns, as in the paper: exact, dp (optimal; dp up to 20 windows), ap "
        "(first fit)",
    )
    plan.set_defaults(action=_plan_windows)

    run = _command(
        commands,
        "run",
        "run the stages for every interval of a range, in one Spark session",
        "tidegate run dags/pipelines/flights --warehouse warehouse --from 2013-02-07 --to 2013-02-08\n"
        "  tidegate run dags/pipelines/flights --warehouse warehouse --from 2013-02-07T05 --to 2013-02-07T06 "
        "--stage ingest --stage top_k\n"
        "  tidegate run dags/pipelines/flights --warehouse warehouse --from 2013-02-07 --live --every 10s",
    )
    add_range_arguments(run, end_needed=False)
    run.add_argument(
        "--stage",
        action="append",
        choices=(*STAGES, ANSWERS),
        metavar="NAME",
        help=f"run only this stage; may be repeated: {', '.join(STAGES)}; {ANSWERS} stands for all but the last two",
    )
    run.add_argument(
        "--live",
        action="store_true",
        help="answer continuously as files land, until --to or until stopped; a restart resumes where the run stopped; "
        "at the end of an interval its stages run (all but publish; with --stage, those named and those that the next "
        "interval needs)",
    )
    run.add_argument(
        "--every",
        type=duration_s,
        default=10.0,
        metavar="TIME",
        help="with --live: how often to look for new files (default 10s)",
    )
    run.add_argument(
        "--patience",
        type=duration_s,
        metavar="TIME",
        help="with --live: how long an idle stream holds back the watermark after another stream has passed it "
        "(default: one interval; forever for a stream with missing_file: error)",
    )
    run.set_defaults(action=_run)

    history = _command(
        commands,
        "history",
        "estimate an aggregate over any past period from the history store",
        "tidegate history dags/pipelines/flights --warehouse warehouse --from 2013-02-07 --to 2013-02-09 \\\n"
        '    "SELECT origin, AVG(dep_delay) FROM departures GROUP BY origin"',
    )
    history.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=_PIPELINE)
    history.add_argument("query", metavar="SQL", help="SELECT aggregates FROM a stream [WHERE …] [GROUP BY …]")
    _about_the_past(history, "first event time (UTC)", "end of the event times, exclusive (UTC)")
    history.add_argument(
        "--within",
        type=share,
        metavar="SHARE",
        help="read the sparsest samples first and stop as soon as every interval is this narrow (such as 1%%); prints "
        "each step",
    )
    history.set_defaults(action=_history)

    fill = _command(
        commands,
        "fill",
        "complete, from history, the answers of windows that were narrower than their range",
        "tidegate fill dags/pipelines/flights ground_speed --warehouse warehouse \\\n"
        "    --from 2013-02-08T12 --to 2013-02-08T18",
    )
    fill.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=_PIPELINE)
    fill.add_argument("query", metavar="QUERY", help="one of its aggregate queries over one stream")
    _about_the_past(fill, "first time of emission (UTC)", "end of the times of emission, exclusive (UTC)")
    fill.set_defaults(action=_fill)

    report = _command(
        commands,
        "report",
        "write an HTML report: slack, accuracy, widths and memory compared with the promises",
        "tidegate report dags/pipelines/flights --warehouse warehouse\n"
        "  tidegate report dags/pipelines/flights --warehouse warehouse --output storm.html",
    )
    report.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=_PIPELINE)
    report.add_argument("--warehouse", type=Path, required=True, metavar="DIR", help=_WAREHOUSE)
    report.add_argument("--output", type=Path, metavar="FILE", help="default: <warehouse>/<pipeline>/_docs/report.html")
    _as_of(report)
    report.set_defaults(action=_report)

    sql = _command(
        commands,
        "sql",
        "serve all tables and marts to SQL clients (PostgreSQL's protocol) until stopped",
        "tidegate sql dags/pipelines/flights --warehouse warehouse\n"
        "  PGPASSWORD=$(cat ~/.local/state/tidegate/flights.sql-password) \\\n"
        "    psql -h 127.0.0.1 -p 15432 -U analyst flights -c 'SELECT * FROM answers LIMIT 5'\n"
        "  tidegate sql dags/pipelines/flights --warehouse warehouse --duckdb > views.sql && duckdb -init views.sql",
    )
    sql.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=_PIPELINE)
    sql.add_argument("--warehouse", type=Path, required=True, metavar="DIR", help=_WAREHOUSE)
    sql.add_argument("--port", type=int, default=15432, metavar="N", help="port to listen on (default 15432)")
    sql.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on (default 127.0.0.1: this machine only); what is sent is not encrypted",
    )
    sql.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help="where the password is; made with a generated one (default ~/.local/state/tidegate/PIPELINE.sql-password)",
    )
    sql.add_argument(
        "--timeout", type=duration_s, default=60.0, metavar="TIME", help="longest time of a statement (default 60s)"
    )
    sql.add_argument(
        "--max-rows", type=int, default=1_000_000, metavar="N", help="most rows of a result (default 1000000)"
    )
    sql.add_argument(
        "--memory", type=int, default=512, metavar="MIB", help="memory for one client's statement (default 512)"
    )
    sql.add_argument("--clients", type=int, default=16, metavar="N", help="most clients at a time (default 16)")
    sql.add_argument(
        "--duckdb", action="store_true", help="start no server; print CREATE VIEW statements over the files for DuckDB"
    )
    _as_of(sql)
    sql.set_defaults(action=_sql)

    migrate = _command(
        commands,
        "migrate",
        "make Delta tables of a warehouse that version 0.1 has written, without writing a row anew",
        "tidegate migrate dags/pipelines/flights --warehouse warehouse",
    )
    migrate.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=_PIPELINE)
    migrate.add_argument("--warehouse", type=Path, required=True, metavar="DIR", help=_WAREHOUSE)
    migrate.set_defaults(action=_migrate)

    completion = _command(
        commands,
        "completion",
        "print a shell completion script",
        "source <(tidegate completion bash)          # in ~/.bashrc; the same with zsh in ~/.zshrc\n"
        "  tidegate completion fish > ~/.config/fish/completions/tidegate.fish",
    )
    completion.add_argument("shell", choices=SHELLS, help="which shell")
    completion.set_defaults(action=lambda arguments: print(script(parser, arguments.shell), end=""))
    return parser


def _about_the_past(parser: argparse.ArgumentParser, start: str, end: str) -> None:
    """Arguments of the commands that estimate; ``start``, ``end``: what --from and --to are."""
    parser.add_argument("--warehouse", type=Path, required=True, metavar="DIR", help=_WAREHOUSE)
    parser.add_argument("--from", dest="start", type=instant, required=True, metavar="T", help=start)
    parser.add_argument("--to", dest="end", type=instant, required=True, metavar="T", help=end)
    parser.add_argument(
        "--confidence", type=float, default=0.95, metavar="P", help="confidence level of the intervals (default 0.95)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    _as_of(parser)


def _as_of(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--as-of",
        type=as_of,
        metavar="RUN|T",
        help="read what had been committed by that time (UTC), or with that run (column run of table _commits); "
        "superseded rows stay for 7 days",
    )


def _command(commands, name: str, summary: str, example: str) -> argparse.ArgumentParser:  # type: ignore[no-untyped-def]
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n  {example}\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def _validate(arguments: argparse.Namespace) -> None:
    from tidegate.declarations import load_pipeline

    pipeline = load_pipeline(arguments.pipeline)
    print(f"{pipeline.name}: {len(pipeline.streams)} streams and {len(pipeline.queries)} queries, no mistakes")


def _explain(arguments: argparse.Namespace) -> None:
    from tidegate.cli.memory_ladder import needs, render
    from tidegate.cli.query_work import query_work
    from tidegate.declarations import load_pipeline
    from tidegate.declarations.explain import describe

    pipeline = load_pipeline(arguments.pipeline)
    print(describe(pipeline))
    print(query_work(pipeline))
    print(render(needs(pipeline)))


def _plan_windows(arguments: argparse.Namespace) -> None:
    from tidegate.cli.plan_windows import MOST_BYTES, plan_windows

    try:
        with sys.stdin.buffer if arguments.instance == "-" else Path(arguments.instance).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserError(f"{arguments.instance} cannot be read: {reason}") from None
    if len(content) > MOST_BYTES:
        raise UserError(f"{arguments.instance} is too large: an instance has at most {MOST_BYTES >> 20} MiB")
    print(plan_windows(text, arguments.method))


def _run(arguments: argparse.Namespace) -> None:
    from tidegate.engine.pyspark_files import require_whole_pyspark

    require_whole_pyspark()
    from tidegate.cli.newest_answers import newest_answers
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
            run(context, intervals, stages)
            print(file=sys.stderr)  # on a screen, between the progress and the answers
            width = shutil.get_terminal_size(fallback=(80, 24)).columns
            print(newest_answers(context.warehouse, intervals, stages, width), end="")
            return
        from tidegate.live.run import Live

        end_us = None if arguments.end is None else intervals[-1].end_us
        with Live(context, intervals[0], end_us, named, arguments.every, arguments.patience) as live:
            live.run()


def _history(arguments: argparse.Namespace) -> None:
    from tidegate.declarations import load_pipeline
    from tidegate.history.questions import query_history, render

    pipeline = load_pipeline(arguments.pipeline)
    result = query_history(
        pipeline,
        arguments.warehouse,
        arguments.query,
        arguments.start,
        arguments.end,
        arguments.confidence,
        arguments.within,
        arguments.as_of,
    )
    print(json.dumps(result, indent=2, default=str) if arguments.json else render(result))


def _fill(arguments: argparse.Namespace) -> None:
    from tidegate.declarations import load_pipeline
    from tidegate.history.filled import fill_answers, render_filled

    pipeline = load_pipeline(arguments.pipeline)
    span = (arguments.start, arguments.end)
    result = fill_answers(pipeline, arguments.warehouse, arguments.query, *span, arguments.confidence, arguments.as_of)
    print(json.dumps(result, indent=2, default=str) if arguments.json else render_filled(result))


def _report(arguments: argparse.Namespace) -> None:
    from tidegate.declarations import load_pipeline
    from tidegate.report.report import run as report

    print(report(load_pipeline(arguments.pipeline), arguments.warehouse, arguments.output, arguments.as_of))


def _sql(arguments: argparse.Namespace) -> None:
    from tidegate.declarations import load_pipeline
    from tidegate.sql.relations import duckdb_script
    from tidegate.stages.extras import require_extra
    from tidegate.store.warehouse import Warehouse

    pipeline = load_pipeline(arguments.pipeline)
    warehouse = Warehouse(arguments.warehouse, pipeline, arguments.as_of)
    if arguments.duckdb:
        print(duckdb_script(warehouse))
        return
    require_extra("sql", "sql")
    from tidegate.sql.door import serve
    from tidegate.sql.engine import Limits

    limits = Limits(arguments.timeout, arguments.max_rows, arguments.memory << 20, arguments.clients)
    serve(warehouse, arguments.host, arguments.port, arguments.password_file, limits)


def _migrate(arguments: argparse.Namespace) -> None:
    from tidegate.declarations import load_pipeline
    from tidegate.store.migrate import migrate
    from tidegate.store.warehouse import Warehouse

    warehouse = Warehouse(arguments.warehouse, load_pipeline(arguments.pipeline))
    tables = migrate(warehouse, lambda message: print(message, file=sys.stderr))
    print(f"{warehouse.pipeline.name}: {tables} tables are Delta tables now, in {warehouse.folder}")


if __name__ == "__main__":
    sys.exit(main())
