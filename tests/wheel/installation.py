"""The wheel, installed as a stranger would: into an environment of its own, in a folder far from the repository."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).parent / "uv"
TIMEOUT_S = 900


@dataclass(frozen=True)
class Done:
    """What a command said, and its exit status."""

    status: int
    output: str
    errors: str

    def __str__(self) -> str:
        return f"status {self.status}\n{self.output[-4000:]}\n{self.errors[-6000:]}"


@dataclass(frozen=True)
class Installation:
    """An environment with Tidegate, and a folder to work in."""

    environment: Path
    work: Path

    def run(self, program: str, *words: str | Path, folder: Path | None = None, **variables: str | Path) -> Done:
        """Run a program of the environment, knowing nothing of the tests' own: no variable but these, no activation."""
        home = self.work / "home"
        home.mkdir(exist_ok=True)
        system = os.pathsep.join(["/usr/local/bin", "/usr/bin", "/bin"])
        clean = {"HOME": str(home), "PATH": system, "LANG": "C.UTF-8", "TMPDIR": str(self.work)}
        if "JAVA_HOME" in os.environ:
            clean["JAVA_HOME"] = os.environ["JAVA_HOME"]
        done = subprocess.run(
            [str(self.environment / "bin" / program), *map(str, words)],
            cwd=folder or self.work,
            env=clean | {name: str(value) for name, value in variables.items()},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def tidegate(self, *words: str | Path, folder: Path | None = None) -> str:
        """Run the console script; what it printed. It must have succeeded."""
        done = self.run("tidegate", *words, folder=folder)
        assert done.status == 0, f"tidegate {words[0]}: {done}"
        return done.output

    def remove(self) -> None:
        """A gigabyte need not wait for pytest to forget it."""
        shutil.rmtree(self.environment)


def build(folder: Path) -> Path:
    """Build the wheel as `make wheel` does; its file."""
    command = [UV, "build", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder, PROJECT]
    # setuptools writes its notes into the project: another test process waits.
    with (PROJECT / "setup.py").open() as taken:
        fcntl.flock(taken, fcntl.LOCK_EX)
        built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (file,) = folder.glob("*.whl")
    return file


def install(wheel: Path, folder: Path, extras: str, *more: str) -> Installation:
    """Install the wheel in the locked versions into a new environment: from what uv has of them, else as configured.

    `make setup` has fetched them. A registry would be asked for all of them again, and Spark built from its source.
    """
    environment, work = folder / "environment", folder / "work"
    work.mkdir()
    wanted = ["--constraint", PROJECT / "requirements.lock", f"tidegate{extras} @ {wheel.as_uri()}", *more]

    def uv(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([UV, "--quiet", *words], cwd=folder, capture_output=True, text=True, check=False)

    def pip(*options: str) -> subprocess.CompletedProcess[str]:
        return uv("pip", "install", *options, "--python", environment / "bin" / "python", *wanted)

    made = uv("venv", "--python", sys.executable, environment)
    assert made.returncode == 0, made.stderr
    if pip("--offline").returncode != 0:
        done = pip()
        assert done.returncode == 0, done.stderr
    return Installation(environment, work)
