"""A short account of what a pipeline did, for the end of ``make demo``.

The promises, what became of them, how long answers waited for that, and whether DuckDB's brute force over the same
tuples gives the same answers; one answer; what ran and how long it took; memory against the budgets; what was refused;
where to look. Everything is read from the warehouse. Exit status 1 if an answer differs from DuckDB's.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from infra.oracle.answers import Comparison, check_answers
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.promises import Line, explained, lines
from tidegate.declarations.tables import CLIENT, JVM
from tidegate.readable import duration
from tidegate.report.hindsight import Hindsight, sentences
from tidegate.store.intervals import Interval, intervals_between
from tidegate.store.warehouse import Warehouse

EXAMPLE = """\
example:
  python -m infra.demo.account dags/pipelines/flights --warehouse .tidegate/warehouse \\
      --from 2013-02-07 --to 2013-02-10 --airflow http://localhost:8080 --report .tidegate/report.html
"""
WIDTH = 100
_ROWS_SHOWN = 5
_STYLES = {"good": "green", "bad": "red", "open": "yellow"}


class Account:
    """The tables of one pipeline over a range of intervals, and what they tell."""

    def __init__(self, pipeline: Pipeline, warehouse: Warehouse, intervals: Sequence[Interval]):
        self.pipeline = pipeline
        self.warehouse = warehouse
        self.intervals = intervals
        self.labels = [interval.label for interval in intervals]
        self._read: dict[str, pa.Table] = {}

    def read(self, table: str) -> pa.Table:
        """The rows of the range."""
        if table not in self._read:
            self._read[table] = self.warehouse.read_arrow(table, self.labels)
        return self._read[table]

    def stages(self) -> list[dict[str, Any]]:
        """One row a stage: intervals, seconds and rows, in order of first start."""
        found: dict[str, dict[str, Any]] = {}
        seconds: dict[tuple[str, str], float] = {}
        for row in sorted(self.read("run_metrics").to_pylist(), key=lambda r: r["started_at"]):
            stage = found.setdefault(row["app"], {"app": row["app"], "in": 0, "out": 0, "late": 0, "refused": 0})
            # Rows of one run, one a query, repeat its seconds.
            seconds[row["app"], row["interval"]] = row["seconds"]
            for name, column in (("out", "rows_out"), ("late", "rows_late"), ("refused", "rows_quarantined")):
                stage[name] += row[column] or 0
        for app, stage in found.items():
            own = [s for (name, _), s in seconds.items() if name == app]
            stage |= {"intervals": len(own), "seconds": sum(own)}
        return list(found.values())

    def lines(self) -> dict[str, Line]:
        """Query → what is said of its promise at the end of the range."""
        return {line.query: line for line in lines(self.pipeline, self.read("promise_periods").to_pylist())}

    def hindsight(self) -> Hindsight:
        """How long answers waited and what windows held, beside what would have done."""
        needed, accuracy = (
            self.warehouse.read_arrow(table, self.labels, ["query", "window_end", "slack_s"]).to_pandas()
            for table in ("needed_slack", "accuracy")
        )
        periods, rates = self.read("promise_periods").to_pylist(), self.read("stream_rates").to_pandas()
        return Hindsight.of(self.pipeline, periods, needed, accuracy, rates)

    def latest_answer(self, query: Query) -> list[dict[str, Any]]:
        """The rows of the newest window that has any."""
        rows = self.read(f"answers_{query.id}").to_pylist()
        newest = max((row["window_end"] for row in rows), default=None)
        return [row for row in rows if row["window_end"] == newest]

    def checked(self, query: Query, since: datetime) -> Comparison:
        """Every answer of the range from an instant on against DuckDB's, which looks at every tuple for each."""
        return check_answers(self.pipeline, query, self.warehouse.folder, since, self.intervals[-1].end)

    def peak(self, column: str, *, of_server: bool = False) -> tuple[int, int]:
        """The largest of a column of run_metrics, and the budget beside it: of stages, or of a server's JVM."""
        rows = self.read("run_metrics")
        budget = {"peak_state_bytes": "memory_budget_bytes"}.get(column, "process_budget_bytes")
        own = rows.filter(pc.equal(pc.equal(pc.coalesce(rows["kind"], CLIENT), JVM), of_server))
        return pc.max(own[column]).as_py() or 0, pc.max(own[budget]).as_py() or 0

    def level_shares(self) -> dict[str, float]:
        """Level of support → share of the time that queries were asked, all together.

        By what they got, not by what plans foresaw: a forecast lets go of nothing.
        """
        plans, lasted = self.read("query_plan").sort_by("effective_from").to_pylist(), Counter[str]()
        for query in self.pipeline.queries:
            own = [row for row in plans if row["query"] == query.id]
            last = min(self.intervals[-1].end, query.active_to or self.intervals[-1].end)
            ends = [*(row["effective_from"] for row in own[1:]), last]
            for row, end in zip(own, ends, strict=True):
                lasted[row["support_level"]] += max((end - row["effective_from"]).total_seconds(), 0.0)
        whole = sum(lasted.values())
        return {level: seconds / whole for level, seconds in sorted(lasted.items())} if whole else {}

    def refused(self) -> list[tuple[str, str, int]]:
        """(stream, reason, records) of the quarantine."""
        counts = self.read("quarantine").group_by(["stream", "reason"]).aggregate([([], "count_all")])
        return sorted((row["stream"], row["reason"], row["count_all"]) for row in counts.to_pylist())


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """A table in the one style of this page."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", header_style="dim", no_wrap=True)
    return made


def section(console: Console, title: str, made: Table, caption: str = "") -> None:
    """A heading, a table and what to know about it."""
    console.print(f"[bold]{escape(title)}[/bold]")
    console.print(made, end="")
    console.print(f" [dim]{escape(caption)}[/dim]\n" if caption else "")


def print_account(
    console: Console, account: Account, answer_of: Query, places: Mapping[str, str], since: datetime | None
) -> bool:
    """Print the page; returns whether every answer that is checked, those ``since`` an instant, was as DuckDB's."""
    pipeline, first, last = account.pipeline, account.intervals[0], account.intervals[-1]
    stages = account.stages()
    span = f"{first.start:%-d %B %Y, %H:%M} to {last.end:%-d %B %Y, %H:%M} UTC"
    console.rule(f"[bold]{pipeline.name}[/bold]  {span}", align="left", style="cyan")
    all_equal = print_promises(console, account, since)
    print_answer(console, account, answer_of)
    print_stages(console, account, stages)
    print_memory(console, account)
    print_refused(console, account)
    if places:
        links = table("", "")
        links.show_header = False
        for name, place in places.items():
            links.add_row(name, f"[link={place}]{escape(place)}[/link]" if "://" in place else escape(place))
        section(console, "Where to look", links)
    return all_equal


def print_stages(console: Console, account: Account, stages: Sequence[Mapping[str, Any]]) -> None:
    """What ran."""
    numbers = ("intervals", "seconds", "rows written", "late", "refused")
    ran = table("stage", *numbers, right=numbers)
    for stage in stages:
        ran.add_row(
            stage["app"],
            str(stage["intervals"]),
            f"{stage['seconds']:,.1f}",
            f"{stage['out']:,}",
            f"{stage['late']:,}" if stage["late"] else "",
            f"{stage['refused']:,}" if stage["refused"] else "",
        )
    ran.add_row("[dim]together[/dim]", str(len(account.intervals)), f"{sum(s['seconds'] for s in stages):,.1f}")
    section(console, "What ran", ran)


def print_answer(console: Console, account: Account, query: Query) -> None:
    """The newest answer of one query."""
    question = next((line for line in query.description.splitlines() if line.strip()), query.id)
    rows = account.latest_answer(query)
    names = [*(["rank"] if query.kind == "top_k" else []), *(o.name for o in query.outputs)]
    right = [n for n in names if rows and isinstance(rows[0][n], int | float)]
    shown = table(*names, right=right)
    for row in sorted(rows, key=lambda r: [str(r.get(key, "")).rjust(9) for key in query.row_keys])[:_ROWS_SHOWN]:
        shown.add_row(*(show(row[name]) for name in names))
    if rows:
        row = rows[0]
        held = "whole windows held" if row["coverage"] == 1 else f"{row['coverage']:.0%} of the range held"
        waited = f"after a wait of {duration(row['slack_s'])}" if row["slack_s"] else "without a wait"
        when = f"The window ending {row['window_end']:%-d %B %H:%M}, answered at {row['emitted_at']:%H:%M}"
        section(console, question, shown, f"{when} {waited}; {held}.")
    else:
        console.print(f"[bold]{escape(question)}[/bold]\n  no answer yet\n")


def print_promises(console: Console, account: Account, since: datetime | None) -> bool:
    """In how many periods each promise was kept, how the open one stands, whether DuckDB agrees with every answer."""
    said, known = account.lines(), account.hindsight()
    promises = table("query", "kept in", "newest period judged; the open one, so far")
    lengths = ("waited", "best fixed")
    answers = table("query", "promise", *lengths, "brute force", right=lengths)
    answers.columns[1].no_wrap = False
    problems: list[Comparison] = []
    for query in account.pipeline.queries:
        promise = "[dim]none[/dim]"
        if query.id in said:
            _, mark, promise, kept, last, so_far = said[query.id].cells
            shown = [last, so_far] if said[query.id].judged else [so_far]
            promises.add_row(query.id, f"[{_STYLES[said[query.id].tone]}]{mark} {kept}[/]", "\n".join(shown))
        verdict = "[dim]not checked[/dim]"
        if since is not None:
            comparison = account.checked(query, since)
            equal = f"[green]✓ all {comparison.windows:,}[/green]"
            verdict = equal if comparison.equal else f"[red]✗ {len(comparison.differences):,} differ[/red]"
            if comparison.empty:
                verdict = "[dim]none due[/dim]"
            elif not comparison.equal:
                problems.append(comparison)
        answers.add_row(
            query.id, promise, *(known.waits[query.id].shown if query.id in known.waits else ("", "")), verdict
        )
    kept, judged = (sum(getattr(line, name) for line in said.values()) for name in ("kept", "judged"))
    told = sentences(account.pipeline, known)
    told = (f"[bold]{kept} of {judged} promise periods kept.[/bold]", *told) if judged else told
    console.print(" ".join(told) + "\n")
    section(console, "Promises", promises, explained(said.values()))
    brute = "" if since is None else f"Brute force: DuckDB, over the same tuples, from {since:%-d %B %Y, %H:%M} on."
    section(console, "Answers", answers, brute)
    for comparison in problems:
        console.print(escape(str(comparison)), style="red", highlight=False)
    return not problems


def print_memory(console: Console, account: Account) -> None:
    """Memory against the budgets, and what the budget allowed for."""
    pipeline = account.pipeline
    memory = table("", "most held", "budget", "", right=("most held", "budget"))
    kinds = [
        ("windows, largest query", account.peak("peak_state_bytes")[0], pipeline.memory_budget_bytes),
        ("processes of a stage", account.peak("peak_process_bytes")[0], pipeline.process_budget_bytes),
    ]
    server = account.peak("peak_process_bytes", of_server=True)
    kinds += [("JVM of the Spark server", *server)] if all(server) else []
    for name, peak, budget in kinds:
        share = peak / budget
        filled = min(round(share * 20), 20)
        bar = f"[{'green' if share <= 1 else 'red'}]{'█' * filled}[/][dim]{'░' * (20 - filled)}[/dim] {share:.0%}"
        memory.add_row(name, show_bytes(peak), show_bytes(budget), bar)
    said = {"unsupported": "unsupported", **{level: f"at level {level}" for level in "ABC"}}
    shares = ", ".join(f"{share:.0%} {said[level]}" for level, share in account.level_shares().items())
    section(
        console,
        "Memory",
        memory,
        f"Of the queries' time {shares} (A: exact, B: within the promised error, C: in turns).",
    )


def print_refused(console: Console, account: Account) -> None:
    """What was quarantined."""
    refused = account.refused()
    if not refused:
        console.print("[bold]Refused[/bold]  nothing: every record that was read was accepted\n")
        return
    found = table("stream", "reason", "records", right=("records",))
    for stream, reason, records in refused:
        found.add_row(stream, reason, f"{records:,}")
    section(console, "Refused", found, "The records themselves are in the table quarantine.")


def show(value: Any) -> str:
    """A value as a reader of the page wants to see it."""
    if value is None:
        return "[dim]–[/dim]"
    if isinstance(value, datetime):
        return f"{value:%d %b %H:%M}"
    if isinstance(value, float):
        return f"{value:,.1f}".removesuffix(".0")
    return escape(str(value))


def show_bytes(size: int) -> str:
    """Bytes in the unit that fits."""
    amount = float(size)
    for unit in ("bytes", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"
        amount /= 1024
    return f"{amount:,.2f} GiB"


def instant(text: str) -> datetime:
    """A time in UTC."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time; expected 2013-02-07 or 2013-02-07T10:00Z") from None
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)


def argument_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="account.py",
        description="Print a short summary of what a pipeline did.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR")
    parser.add_argument("--warehouse", type=Path, required=True, metavar="DIR")
    parser.add_argument("--from", dest="start", type=instant, required=True, metavar="T")
    parser.add_argument("--to", dest="end", type=instant, required=True, metavar="T")
    parser.add_argument("--query", metavar="ID", help="whose newest answer to show (default: the first top-k query)")
    parser.add_argument(
        "--check-from", type=instant, metavar="T", help="recompute the answers by DuckDB from here on (default: --from)"
    )
    parser.add_argument("--no-check", dest="check", action="store_false", help="do not recompute the answers by DuckDB")
    for option, name in (("airflow", "URL"), ("data-docs", "PATH"), ("dbt-docs", "PATH"), ("report", "PATH")):
        parser.add_argument(f"--{option}", metavar=name, help="mentioned under 'where to look'")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the account."""
    options = argument_parser().parse_args(arguments)
    try:
        pipeline = load_pipeline(options.pipeline)
        intervals = intervals_between(pipeline, options.start, options.end)
        warehouse = Warehouse(options.warehouse, pipeline)
        if not warehouse.labels("run_metrics"):
            raise UserError(f"nothing has run yet: {warehouse.folder} holds no run_metrics")
        known = [query.id for query in pipeline.queries]
        top_k = [query.id for query in pipeline.queries if query.kind == "top_k"]
        wanted = options.query or (top_k or known)[0]
        if wanted not in known:
            raise UserError(f"--query: pipeline {pipeline.name} has no query '{wanted}', only {', '.join(known)}")
    except UserError as error:
        print(f"account.py: {error}", file=sys.stderr)
        return 2
    places = {
        "Airflow": options.airflow,
        "Data Docs": options.data_docs,
        "dbt docs": options.dbt_docs,
        "report": options.report,
    }
    account = Account(pipeline, warehouse, intervals)
    given = {name: place for name, place in places.items() if place}
    console = Console(width=WIDTH, highlight=False)
    since = (options.check_from or options.start) if options.check else None
    return 0 if print_account(console, account, pipeline.query(wanted), given, since) else 1


if __name__ == "__main__":
    sys.exit(main())
