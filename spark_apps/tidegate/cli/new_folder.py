"""A new pipeline's folder: its name, that it is empty, and that it is written whole or not at all."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.declarations.errors import UserError
from tidegate.declarations.names import identifier_refusal

_DAG = """\
\"""The pipeline {name} in Airflow: put this file into Airflow's dags folder (needs tidegate[airflow]).\"""

from pathlib import Path

from tidegate_dags import build_dag

# Where the pipeline is: change it if you move the folder. The data ends at `end`: without it, Airflow would go on.
dag = build_dag(Path({folder}), end="{end}")
"""


def check_name(folder: Path, target: Path) -> None:
    """Refuse a folder whose name cannot name a pipeline."""
    problem = identifier_refusal(target.name, "pipeline")
    if problem:
        message, expected = problem
        near = re.sub(r"[^a-z0-9]+", "_", target.name.lower()).strip("_")
        near = near if identifier_refusal(near, "pipeline") is None else "shop"
        try_this = shlex.quote(str(folder.parent / near if folder.name else target.parent / near))
        raise UserError(
            f"{message}, and a pipeline has the name of its folder; expected {expected}: try tidegate init {try_this}"
        )


def check_empty(folder: Path, target: Path) -> None:
    """Refuse a folder that has something."""
    if not target.exists():
        return
    if not target.is_dir():
        raise UserError(f"{folder} is a file: name a folder that does not exist yet")
    try:
        entries = sorted(entry.name for entry in target.iterdir())
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror}; name a folder of yours") from None
    if entries:
        some = ", ".join(entries[:3]) + (" …" if len(entries) > 3 else "")
        raise UserError(
            f"{folder} is not empty (it has {some}): nothing was written; name a folder that does not exist yet, "
            "or remove this one first"
        )


@contextmanager
def written_aside(target: Path) -> Iterator[Path]:
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


def write_dag(aside: Path, target: Path, end: str) -> None:
    """Write the DAG file of the pipeline that will be in ``target``."""
    dags = aside / "dags"
    dags.mkdir()
    # JSON's quoting is Python's, whatever the path holds.
    folder = json.dumps(str(target), ensure_ascii=False)
    (dags / f"{target.name}.py").write_text(_DAG.format(name=target.name, folder=folder, end=end), encoding="utf-8")


@contextmanager
def refusing_unwritable(folder: Path) -> Iterator[None]:
    """Turn what the disk refuses into a sentence."""
    try:
        yield
    except OSError as error:
        where = error.filename or folder
        raise UserError(
            f"{folder} cannot be written ({where}: {error.strerror}): name a folder below one of yours"
        ) from None


def command_name() -> str:
    """How the user can start Tidegate again: its name, or the path by which it was started if that is not on PATH."""
    started = sys.argv[0]
    return started if Path(started).name == "tidegate" and shutil.which("tidegate") is None else "tidegate"


def python_name() -> str:
    """How the user can start this Python: its name, or its path if that name is another's on PATH."""
    named = shutil.which("python")
    same = named is not None and os.path.realpath(Path(named).parent) == os.path.realpath(Path(sys.executable).parent)
    return "python" if same else sys.executable


def run_command(folder: Path, start: str, end: str) -> str:
    """The command that runs the folder's pipeline to answers."""
    named = str(folder)
    run = [command_name(), "run", named, "--warehouse", os.path.join(named, "warehouse")]
    return shlex.join([*run, "--from", start, "--to", end, "--stage", "answers"])
