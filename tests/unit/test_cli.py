"""What the command line says to someone who does not know it."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.cli import _parser, main
from tidegate.cli.completion import SHELLS

PROJECT = Path(__file__).resolve().parents[2]
COMMANDS = (
    "init",
    "validate",
    "explain",
    "plan-windows",
    "land",
    "run",
    "history",
    "fill",
    "report",
    "sql",
    "register",
    "spark-server",
    "dbt-package",
    "migrate",
    "completion",
)
FLIGHTS = str(PROJECT / "dags" / "pipelines" / "flights")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example_and_the_exit_codes(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    page = capsys.readouterr().out
    assert ended.value.code == 0
    assert f"tidegate {command} " in page.split("example:")[1]
    for code in (0, 1, 2, 130):
        assert f"\n  {code} " in page.split("exit status:")[1]


def test_every_argument_of_every_command_has_a_help_text():
    (commands,) = [a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction)]
    assert set(commands.choices) == set(COMMANDS)
    silent = [(name, a.dest) for name, parser in commands.choices.items() for a in parser._actions if not a.help]
    assert silent == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["repot"], "did you mean 'report'?"),
        (["xyzzy"], "expected init, validate, explain"),
        (["run", FLIGHTS, "--warehouse", "w", "--from", "2013-02-07", "--stage", "ingets"], "did you mean 'ingest'?"),
        (["completion", "bsh"], "did you mean 'bash'?"),
    ],
)
def test_a_slip_of_the_pen_is_understood(words: list[str], says: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_a_file_that_cannot_be_read_is_named_without_numbers(capsys: pytest.CaptureFixture[str]):
    assert main(["plan-windows", "/nowhere.json"]) == 2
    assert capsys.readouterr().err == "tidegate: error: /nowhere.json cannot be read: No such file or directory\n"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["re"], {"register", "report"}),
        (["run", "--sta"], {"--stage"}),
        (["run", "--stage", "sam"], {"sample_history"}),
        (["run", FLIGHTS, "--stage", "to"], {"top_k"}),
        (["plan-windows", "--method", ""], {"joint", "exact", "dp", "ap"}),
        (["completion", "f"], {"fish"}),
        (["report", "dags/"], set()),  # the shell offers files
    ],
)
def test_bash_completes(typed: list[str], offered: set[str], capsys: pytest.CaptureFixture[str]):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    words = " ".join(f"'{word}'" for word in ["tidegate", *typed])
    ask = f"{script}\nCOMP_WORDS=({words})\nCOMP_CWORD={len(typed)}\n_tidegate\necho ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", ask], capture_output=True, text=True)
    assert set(done.stdout.split()) == offered, done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_is_in_every_shells_script(shell: str, capsys: pytest.CaptureFixture[str]):
    main(["completion", shell])
    script = capsys.readouterr().out
    assert all(command in script for command in COMMANDS)


def test_a_reader_who_has_seen_enough_is_no_fault():
    """`tidegate explain … | head -1`."""
    with subprocess.Popen(
        [sys.executable, "-m", "tidegate.cli", "explain", FLIGHTS], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        errors = process.stderr.read()
    assert process.returncode == 0 and errors == b""
