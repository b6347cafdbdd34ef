"""Starts, stops and drives the Airflow of this machine.

    python infra/airflow/stack.py up                       start, wait until it works, say where
    python infra/airflow/stack.py status                   what runs
    python infra/airflow/stack.py backfill --dag flights --from 2013-02-08T10:00Z --to 2013-02-08T13:00Z
                                                           run intervals in order, show every task; 1 if one fails
    python infra/airflow/stack.py cancel --dag flights     give up the backfill that is under way
    python infra/airflow/stack.py down                     stop; nothing stays behind
    python infra/airflow/stack.py run COMMAND …            a command in the environment of the stages
    python infra/airflow/stack.py url | password           for scripts

With it goes a Spark Connect server, whose clients the stages are (`tidegate spark-server`).

The components are started one by one and not through ``airflow standalone``: that leaves orphans when it is
terminated, and serves log files to every network that the machine is on. Everything that runs is found again by a
mark in its environment, by its session or by its parent, so that ``down`` leaves nothing behind, not even after a
kill -9.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped, unused-ignore]
from backfills import FINAL, InTheWay, label, under_way, wait_until_free
from environment import (
    Places,
    Spark,
    airflow_environment,
    has_spark_server,
    password_file,
    places,
    spark_command,
    spark_environment,
    spark_folder,
)
from rest import Refused, Rest

FIRST_PORT, FIRST_SPARK_PORT, FIRST_SPARK_UI_PORT = 8080, 15002, 4040
MARK = "TIDEGATE_STACK"
_CLOCKS_APART = timedelta(seconds=10)

# skip-serve-logs: the API server reads the logs from disk, nothing has to listen for it.
COMPONENTS = {
    "api-server": ["api-server"],
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}


class Failed(Exception):
    """Something that the user should read; no traceback."""


class Stack:
    """The Airflow of one state folder: its processes, its port, its REST API."""

    def __init__(self, at: Places) -> None:
        self.at = at
        self._record = at.airflow / "stack.json"

    # ---------------------------------------------------------------- up and down

    def up(self, timeout_s: float = 180) -> None:
        """Start every component and wait until all of them answer."""
        if self._recorded() and self.running():
            say("Airflow is running already.")
            self.tell()
            return
        self.down(quiet=True)
        started = time.monotonic()
        for folder in (self.at.airflow, self.at.warehouse, self.at.landing):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.at.airflow.chmod(0o700)
        self._password()
        port = free_port(int(os.environ.get("TIDEGATE_AIRFLOW_PORT") or FIRST_PORT))
        mark = uuid.uuid4().hex
        logs = self.at.airflow / "component_logs"
        logs.mkdir(exist_ok=True)
        record: dict[str, Any] = {"mark": mark, "port": port, "processes": {}}
        spark = self._spark() if has_spark_server() else None
        environment = {**os.environ, **airflow_environment(self.at, port, spark), MARK: mark}
        if spark is not None:
            record["spark"] = {"port": spark.port, "ui": spark.ui}
            own = {
                **os.environ,
                **spark_environment(self.at),
                "SPARK_CONNECT_AUTHENTICATE_TOKEN": spark.token,
                MARK: mark,
            }
            # First, and beside what follows: it takes longest.
            self._start("spark", spark_command(self.at, spark), own, record)
        say("Preparing Airflow's database …")
        with (logs / "db-migrate.log").open("w") as log:
            done = subprocess.run([_airflow(), "db", "migrate"], env=environment, stdout=log, stderr=log)
        if done.returncode:
            self.down(quiet=True)
            raise Failed(f"Airflow's database could not be prepared:\n{tail(logs / 'db-migrate.log')}")
        for name, command in COMPONENTS.items():
            self._start(name, [_airflow(), *command], environment, record)
        say(f"Starting Airflow at port {port}: {', '.join(record['processes'])} …")
        rest = self.rest()
        try:
            self._wait_until_healthy(rest, started + timeout_s, logs)
            if spark is not None:
                self._wait_for_spark(spark, started + timeout_s)
            self._make_pool(rest)
            self._wait_for_dags(rest, started + timeout_s)
        except Failed:
            self.down(quiet=True)
            raise
        say(f"Airflow started in {time.monotonic() - started:.0f} s.")
        self.tell()

    def down(self, quiet: bool = False, patience_s: float = 30) -> None:
        """Stop every component and whatever it started."""
        found = self.running()
        if not found:
            self._record.unlink(missing_ok=True)
            if not quiet:
                say("Airflow is not running.")
            return
        say(f"Stopping Airflow ({len(found)} processes) …")
        components = set(self._recorded().get("processes", {}).values())
        # Components first: each ends its own workers. What is left (a stage in its JVM) is ended next, then killed.
        for signal_number, chosen, wait_s in (
            (signal.SIGTERM, [p for p in found if p.pid in components], patience_s),
            (signal.SIGTERM, None, 5.0),
            (signal.SIGKILL, None, 5.0),
        ):
            remaining = _alive({*found, *self.running()})
            found |= remaining
            for process in remaining if chosen is None else chosen:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal_number)
            psutil.wait_procs(list(remaining) if chosen is None else chosen, timeout=wait_s)
        left = _alive({*found, *self.running()})
        if left:
            raise Failed("These processes did not stop: " + ", ".join(f"{p.pid} {p.name()}" for p in left))
        self._record.unlink(missing_ok=True)
        say("Airflow is down; no process is left.")

    def running(self) -> set[psutil.Process]:
        """Every process that this stack started and that still runs, however far removed."""
        record = self._recorded()
        if not record:
            return set()
        pids = set(record["processes"].values())
        mark = record["mark"]
        found: set[psutil.Process] = set()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                # A process that renamed itself may have written over its environment: then its session tells.
                marked = process.environ().get(MARK) == mark
                if marked or (os.getsid(process.pid) in pids and _is_airflow(process)):
                    found.add(process)
        for process in list(found):
            with contextlib.suppress(psutil.Error):
                found.update(process.children(recursive=True))
        return found

    # ---------------------------------------------------------------- what is there

    def tell(self) -> None:
        """Say where it is and how to get in."""
        say(f"  Airflow    {self.url()}   user admin, password in {shown(password_file(self.at))}")
        say(f"  Reports    {self.url()}/tidegate/")
        if spark := self._recorded().get("spark"):
            say(f"  Spark      {spark['ui']}")
        say(f"  Warehouse  {shown(self.at.warehouse)}")

    def status(self) -> None:
        """Say which components answer, and what each DAG's runs came to."""
        if not self.running():
            raise Failed("Airflow is not running. `make up` starts it.")
        self.tell()
        rest = self.rest()
        for name, well in rest.healthy().items():
            say(f"  {name:<14} {'healthy' if well else 'not healthy'}")
        for dag in rest.pages("/dags", of="dags"):
            runs = rest.pages(f"/dags/{dag['dag_id']}/dagRuns", of="dag_runs")
            counts = {
                state: sum(run["state"] == state for run in runs) for state in sorted({run["state"] for run in runs})
            }
            states = ", ".join(f"{count} {state}" for state, count in counts.items()) or "no runs"
            say(f"  DAG {dag['dag_id']:<10} {'paused, ' if dag['is_paused'] else ''}{states}")

    def url(self) -> str:
        """Where the API server and the UI are."""
        record = self._recorded()
        if not record:
            raise Failed("Airflow is not running. `make up` starts it.")
        return f"http://127.0.0.1:{record['port']}"

    def rest(self) -> Rest:
        """The REST API as the admin."""
        return Rest(self.url(), "admin", self._password())

    # ---------------------------------------------------------------- backfill

    def backfill(self, dag: str, start: datetime, end: datetime, again: bool, timeout_s: float) -> None:
        """Run the intervals that start in [start, end), in order, and show every task as it goes."""
        rest = self.rest()
        # The API takes first and last logical date; an interval's logical date is its start.
        body = {
            "dag_id": dag,
            "from_date": start.isoformat(),
            "to_date": (end - timedelta(seconds=1)).isoformat(),
            # Their stages take turns for two slots; what is checked waits for the others to be published together.
            "max_active_runs": 16,
            "reprocess_behavior": "completed" if again else "failed",
        }
        new = {run["logical_date"] for run in rest.post("/backfills/dry_run", body)["backfills"]}
        # What an earlier command left under way or waiting belongs to this one as well.
        within = {"logical_date_gte": body["from_date"], "logical_date_lte": body["to_date"]}
        runs = rest.pages(f"/dags/{dag}/dagRuns", of="dag_runs", **within)
        unfinished = {run["logical_date"] for run in runs if run["state"] not in FINAL}
        intervals = sorted(new | unfinished)
        rest.patch(f"/dags/{dag}", {"is_paused": False})
        if not intervals:
            say(f"Nothing to do: {dag} has completed every interval in [{start:%Y-%m-%dT%H:%M}, {end:%Y-%m-%dT%H:%M}).")
            return
        created = self._create_backfill(rest, body, timeout_s) if new else None
        say(f"{dag}: {counted(len(intervals))} from {label(intervals[0])} on")
        began = time.monotonic()
        shown_states: dict[tuple[str, str], str] = {}
        finished: set[str] = set()
        looked = datetime.now(UTC)
        while len(finished) < len(intervals):
            runs = self._runs(rest, dag, intervals)
            since, looked = looked - _CLOCKS_APART, datetime.now(UTC)
            self._show_tasks(rest, dag, runs, since, shown_states)
            for run in runs:
                if run["dag_run_id"] in finished:
                    continue
                if run["state"] in FINAL:
                    finished.add(run["dag_run_id"])
                    say(f"{label(run['logical_date'])}  {run['state']:<8} {len(finished)} of {counted(len(intervals))}")
                if run["state"] == "failed":
                    self._give_up(rest, dag, run, created)
            self._fail_if_a_component_ended()
            if time.monotonic() - began > timeout_s:
                self._cancel(rest, created)
                states = ", ".join(f"{label(run['logical_date'])} {run['state']}" for run in runs)
                raise Failed(f"Not done after {timeout_s:.0f} s; the backfill was cancelled. Runs: {states}.")
            time.sleep(2)
        say(f"{dag}: {counted(len(intervals))} in {time.monotonic() - began:.0f} s")

    def cancel(self, dag: str) -> None:
        """Cancel the DAG's backfill that is under way: running tasks finish, no others are started."""
        rest = self.rest()
        cancelled = under_way(rest, dag)
        for backfill in cancelled:
            self._cancel(rest, backfill["id"])
            say(f"Cancelled backfill {backfill['id']} of {dag}: running tasks finish, no others are started.")
        if not cancelled:
            say(f"No backfill of {dag} is running.")

    def _create_backfill(self, rest: Rest, body: dict[str, Any], timeout_s: float) -> int:
        """Create it after the one that is under way; again if SQLite was busy, which Airflow answers with 503."""
        path = f"/dags/{body['dag_id']}"
        for attempt in range(30):
            wait_until_free(rest, body["dag_id"], timeout_s, say)
            # Airflow makes run after run, and deletes them if SQLite was busy at one of them: a scheduler that had
            # begun to work on the first would crash. It leaves those of a paused DAG alone.
            rest.patch(path, {"is_paused": True})
            try:
                created: int = rest.post("/backfills", body)["id"]
                return created
            except Refused as refused:
                if refused.status == 409:
                    continue  # somebody else was quicker: their turn first
                if refused.status != 503:
                    raise
            finally:
                rest.patch(path, {"is_paused": False})
            # A half-made backfill may be left, which would block the next attempt: ours, for none was under way.
            for half_made in under_way(rest, body["dag_id"]):
                self._cancel(rest, half_made["id"])
            time.sleep(0.3 + 0.1 * attempt)
        raise Failed("Airflow's database stayed locked; try again.")

    def _runs(self, rest: Rest, dag: str, intervals: list[str]) -> list[Any]:
        wanted = set(intervals)
        runs = rest.pages(
            f"/dags/{dag}/dagRuns",
            of="dag_runs",
            logical_date_gte=min(intervals),
            logical_date_lte=max(intervals),
            order_by="logical_date",
        )
        return [run for run in runs if run["logical_date"] in wanted]

    def _show_tasks(
        self, rest: Rest, dag: str, runs: list[Any], since: datetime, shown_states: dict[tuple[str, str], str]
    ) -> None:
        """Say what became of tasks since then: one request, for to ask for each run takes as long as a task does."""
        dates = {run["dag_run_id"]: run["logical_date"] for run in runs}
        instances = rest.pages(
            f"/dags/{dag}/dagRuns/~/taskInstances",
            of="task_instances",
            logical_date_gte=min(dates.values()),
            logical_date_lte=max(dates.values()),
            updated_at_gte=since.isoformat(),
        )
        for task in sorted(instances, key=lambda task: task["start_date"] or "9999"):
            run, state = task["dag_run_id"], task["state"]
            key = (run, task["task_id"])
            if state in (None, "scheduled", "queued") or run not in dates or shown_states.get(key) == state:
                continue
            shown_states[key] = state
            took = f" {task['duration']:6.1f} s" if task["duration"] and state != "running" else ""
            say(f"{label(dates[run])}  {task['task_id']:<17} {state}{took}")

    def _give_up(self, rest: Rest, dag: str, run: Any, backfill: int | None) -> None:
        self._cancel(rest, backfill)
        path = f"/dags/{dag}/dagRuns/{run['dag_run_id']}/taskInstances"
        failed = [task for task in rest.pages(path, of="task_instances") if task["state"] == "failed"]
        text = [f"{dag} failed for the interval {label(run['logical_date'])}."]
        for task in failed:
            text.append(f"--- the end of the log of {task['task_id']}, try {task['try_number']}")
            log = rest.get(f"{path}/{task['task_id']}/logs/{task['try_number']}", full_content="true")
            text += [f"    {line}" for line in log_lines(log)[-40:]]
        text.append("Fix it and run the same command: intervals that succeeded are not run again.")
        raise Failed("\n".join(text))

    def _cancel(self, rest: Rest, backfill: int | None) -> None:
        # Refused if it is over already, because this was its last interval.
        with contextlib.suppress(Refused):
            if backfill is not None:
                rest.put(f"/backfills/{backfill}/cancel")

    # ---------------------------------------------------------------- parts of up

    def _recorded(self) -> dict[str, Any]:
        try:
            record: dict[str, Any] = json.loads(self._record.read_text())
        except FileNotFoundError:
            return {}
        return record

    def _password(self) -> str:
        path = password_file(self.at)
        write_secret(path, json.dumps({"admin": secrets.token_urlsafe(12)}))
        password: str = json.loads(path.read_text())["admin"]
        return password

    def _spark(self) -> Spark:
        """Ports for the Spark server, and its token: whoever has it can run any program as this user."""
        folder = spark_folder(self.at)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_secret(folder / "token", secrets.token_urlsafe(24))
        return Spark(
            free_port(int(os.environ.get("TIDEGATE_SPARK_PORT") or FIRST_SPARK_PORT), "TIDEGATE_SPARK_PORT"),
            free_port(int(os.environ.get("TIDEGATE_SPARK_UI_PORT") or FIRST_SPARK_UI_PORT), "TIDEGATE_SPARK_UI_PORT"),
            (folder / "token").read_text(),
        )

    def _start(self, name: str, command: list[str], environment: dict[str, str], record: dict[str, Any]) -> None:
        with (self.at.airflow / "component_logs" / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=self.at.airflow,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        record["processes"][name] = process.pid
        self._record.write_text(json.dumps(record))

    def _wait_for_spark(self, spark: Spark, deadline: float) -> None:
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", spark.port)) == 0:
                    say("  spark is healthy")
                    return
            self._fail_if_a_component_ended()
            if time.monotonic() > deadline:
                raise Failed(f"Spark did not start in time; see {shown(self.at.airflow / 'component_logs')}")
            time.sleep(0.2)

    def _wait_until_healthy(self, rest: Rest, deadline: float, logs: Path) -> None:
        told: set[str] = set()
        while True:
            health = rest.healthy()
            for name, well in health.items():
                if well and name not in told:
                    told.add(name)
                    say(f"  {name} is healthy")
            if health and all(health.values()):
                return
            self._fail_if_a_component_ended()
            if time.monotonic() > deadline:
                raise Failed(f"Airflow did not become healthy in time; see {shown(logs)}")
            time.sleep(0.5)

    def _fail_if_a_component_ended(self) -> None:
        for name, pid in self._recorded().get("processes", {}).items():
            if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                log = self.at.airflow / "component_logs" / f"{name}.log"
                component = "Spark server" if name == "spark" else f"Airflow's {name}"
                raise Failed(f"{component} ended; restart it with `make down` and `make up`. Its log:\n{tail(log)}")

    def _make_pool(self, rest: Rest) -> None:
        slots = int(os.environ.get("TIDEGATE_SPARK_SLOTS", "1"))
        pool = {
            "name": "spark",
            "slots": slots,
            "description": "Spark applications that may run at a time",
            "include_deferred": False,
        }
        try:
            rest.post("/pools", pool)
        except Refused as refused:
            if refused.status != 409:
                raise
            rest.patch("/pools/spark", {"slots": slots} | pool)

    def _wait_for_dags(self, rest: Rest, deadline: float) -> None:
        wanted = {file.stem for file in self.at.dags.glob("*.py")}
        while True:
            for error in rest.get("/importErrors")["import_errors"]:
                say(f"  {error['filename']} is not a valid DAG:\n{error['stack_trace']}")
                wanted.discard(Path(error["filename"]).stem)
            present = {dag["dag_id"] for dag in rest.pages("/dags", of="dags")}
            if wanted <= present:
                say(f"  DAGs: {', '.join(sorted(present))}")
                return
            if time.monotonic() > deadline:
                raise Failed(f"These DAGs did not appear: {', '.join(sorted(wanted - present))}")
            time.sleep(0.5)


def _airflow() -> str:
    return str(Path(sys.executable).parent / "airflow")


def _is_airflow(process: psutil.Process) -> bool:
    # Guards against a session number that was given away again after a restart of the machine.
    return "airflow" in " ".join(process.cmdline())


def _alive(processes: set[psutil.Process]) -> set[psutil.Process]:
    alive = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                alive.add(process)
    return alive


def free_port(first: int, variable: str = "TIDEGATE_AIRFLOW_PORT", attempts: int = 50) -> int:
    """The first port from ``first`` that nothing listens on; ``variable``: what names another one."""
    for port in range(first, first + attempts):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port != first:
            say(f"Port {first} is taken; using {port}.")
        return port
    raise Failed(f"No free port from {first} to {first + attempts - 1}; set {variable}.")


def write_secret(path: Path, text: str) -> None:
    """Keep it in a file that only its owner reads; one that is there stays."""
    with (
        contextlib.suppress(FileExistsError),
        os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file,
    ):
        file.write(text)


def log_lines(log: Any) -> list[str]:
    """The readable lines of a task's log as the API gives it."""

    def lines() -> Iterator[str]:
        content = log.get("content", [])
        for entry in content if isinstance(content, list) else str(content).splitlines():
            event = entry.get("event", "") if isinstance(entry, dict) else str(entry)
            if event and not event.startswith("::"):
                yield event
            for error in (entry.get("error_detail") or []) if isinstance(entry, dict) else []:
                yield f"{error.get('exc_type')}: {error.get('exc_value')}"

    return list(lines())


def tail(path: Path, lines: int = 20) -> str:
    """The last lines of a file."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def counted(intervals: int) -> str:
    """So many intervals, in words."""
    return "1 interval" if intervals == 1 else f"{intervals} intervals"


def parse_instant(text: str) -> datetime:
    """An instant in UTC; no zone means UTC."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a valid timestamp: expected something like 2013-02-08T10:00Z"
        ) from None
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


def shown(path: Path) -> str:
    """A path as short as it can be from here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def say(text: str) -> None:
    """One line at once, whoever reads it."""
    print(text, flush=True)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("up", "down", "status", "url", "password"):
        commands.add_parser(name)
    backfill = commands.add_parser("backfill")
    backfill.add_argument("--dag", required=True)
    backfill.add_argument("--from", dest="start", required=True, type=parse_instant)
    backfill.add_argument("--to", dest="end", required=True, type=parse_instant)
    backfill.add_argument("--again", action="store_true", help="also rerun intervals that succeeded")
    backfill.add_argument("--timeout", type=float, default=3600, help="seconds, 3600 if not given")
    cancel = commands.add_parser("cancel")
    cancel.add_argument("--dag", required=True)
    run = commands.add_parser("run")
    run.add_argument("words", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    stack = Stack(places())
    try:
        match arguments.command:
            case "up":
                stack.up()
            case "down":
                stack.down()
            case "status":
                stack.status()
            case "url":
                say(stack.url())
            case "password":
                say(stack._password())
            case "backfill":
                stack.backfill(arguments.dag, arguments.start, arguments.end, arguments.again, arguments.timeout)
            case "cancel":
                stack.cancel(arguments.dag)
            case "run":
                environment = {**os.environ, **spark_environment(stack.at)}
                command = shutil.which(arguments.words[0], path=environment["PATH"]) if arguments.words else None
                if command is None:
                    raise Failed(f"No such command: {' '.join(arguments.words)}")
                os.execve(command, [command, *arguments.words[1:]], environment)
    except (Failed, InTheWay) as failed:
        print(failed, file=sys.stderr, flush=True)
        return 1
    except Refused as refused:
        print(f"Airflow refused: {refused}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        print("Interrupted. Airflow keeps running; stop it with `make down`.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
