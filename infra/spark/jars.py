"""Fetches the jars that Spark's wheel does not bring: connectors for Kafka and Delta, a broker for tests and trying.

    python infra/spark/jars.py fetch [GROUP…]    into this environment, by the pinned hashes of jars.lock
    python infra/spark/jars.py path GROUP        their paths, separated by commas, as `spark.jars` wants them
    python infra/spark/jars.py lock              resolve the groups anew into jars.lock

Maven fetches them, from where it is configured to: a machine's mirrors and proxies are in its settings. Where there is
no Maven, Spark's own resolver does, from ``DEFAULT_ARTIFACT_REPOSITORY`` or its default. Either way a jar counts only
if it has the locked hash. Six seconds for what Maven has in its cache, 0.4 s if nothing is to be done.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from tidegate.engine.jars import COORDINATES, jars, jars_folder

LOCK = Path(__file__).with_name("jars.lock")
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
# A registry that does not answer must not hold up a set-up that goes on without it.
_CONNECT_MS = 10_000
_TIMEOUT_S = 1200
_STAMP = ".locked"
# What S3A calls is in the parts of the SDK that COORDINATES names.
_EXCLUDED = {"software.amazon.awssdk:bundle"}
# Spark has jcl-over-slf4j in its place.
_NOT_BESIDE_SPARK = {"commons-logging"}
# These stand beside Spark's own jars and leave out what it has; a broker is a process without Spark.
_BESIDE_SPARK = ("kafka", "delta", "s3")


class Unavailable(Exception):
    """The jars could not be fetched; the text says why in one line."""


@dataclass(frozen=True)
class Jar:
    """One pinned jar."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def name(self) -> str:
        """The file's name.

        >>> Jar("org.x", "y_2.13", "1.0", "ab").name
        'y_2.13-1.0.jar'
        """
        return f"{self.artifact}-{self.version}.jar"

    @property
    def line(self) -> str:
        """As the lock has it."""
        return f"{self.group}:{self.artifact}:{self.version}:{self.sha256}"


def locked() -> dict[str, list[Jar]]:
    """The lock: the jars of each group."""
    groups: dict[str, list[Jar]] = {}
    jars_of_group: list[Jar] = []
    for line in LOCK.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            jars_of_group = groups.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            jars_of_group.append(Jar(*line.split(":")))
    return groups


def fetch(groups: Sequence[str]) -> None:
    """Have every locked jar of the groups in its folder, and no other.

    Raises:
        Unavailable: the repository cannot be reached, or what it served has another hash.
    """
    lock = locked()
    missing = {group: lock[group] for group in groups if not _complete(group, lock[group])}
    if not missing:
        return
    jars_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jars_folder(), prefix=".fetched-") as aside:
        fetched = Path(aside)
        wanted = {jar.line: jar for jars_of_group in missing.values() for jar in jars_of_group}
        _by_maven(wanted.values(), fetched) if shutil.which("mvn") else _by_spark(missing, fetched)
        for group, jars_of_group in missing.items():
            _put(jars_folder() / group, jars_of_group, fetched)


def lock_again() -> None:
    """Resolve every group's coordinates by Maven, and write the lock."""
    from importlib.util import find_spec

    found = find_spec("pyspark")
    assert found is not None and found.submodule_search_locations is not None
    of_spark = {_artifact(jar.stem) for jar in Path(found.submodule_search_locations[0], "jars").glob("*.jar")}
    lines = ["# Jars beside Spark's own, a group a use: group:artifact:version:sha256. Made by infra/spark/jars.py."]
    for group, coordinates in COORDINATES.items():
        lines.append(f"[{group}]")
        with tempfile.TemporaryDirectory() as aside:
            resolved = _resolve(coordinates, Path(aside))
        if group in _BESIDE_SPARK:
            resolved = [jar for jar in resolved if jar.artifact not in of_spark | _NOT_BESIDE_SPARK]
        lines += sorted(jar.line for jar in resolved)
    LOCK.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _artifact(stem: str) -> str:
    """A jar's name without its version.

    >>> _artifact("scala-library-2.13.18"), _artifact("jackson-module-scala_2.13-2.21.2")
    ('scala-library', 'jackson-module-scala_2.13')
    """
    words = stem.split("-")
    version = next((at for at, word in enumerate(words) if at and word[:1].isdigit()), len(words))
    return "-".join(words[:version])


def _complete(group: str, jars_of_group: Iterable[Jar]) -> bool:
    folder = jars_folder() / group
    stamp = folder / _STAMP
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != _stamp(jars_of_group):
        return False
    return all((folder / jar.name).is_file() for jar in jars_of_group)


def _stamp(jars_of_group: Iterable[Jar]) -> str:
    return "".join(f"{jar.line}\n" for jar in jars_of_group)


def _put(folder: Path, jars_of_group: Sequence[Jar], fetched: Path) -> None:
    """Move verified jars into a group's folder; the stamp comes last."""
    folder.mkdir(exist_ok=True)
    for jar in jars_of_group:
        file = fetched / jar.name
        if not file.is_file():
            raise Unavailable(f"{jar.group}:{jar.artifact}:{jar.version} was not served")
        digest = _sha256(file)
        if digest != jar.sha256:
            raise Unavailable(f"{jar.name} was served with the hash {digest}, and jars.lock has {jar.sha256}")
        # Another group may need it too.
        copy = fetched / f"{jar.name}.{os.getpid()}"
        shutil.copyfile(file, copy)
        copy.replace(folder / jar.name)
    names = {jar.name for jar in jars_of_group}
    for file in folder.glob("*.jar"):
        if file.name not in names:
            file.unlink()
    stamp = fetched / f"{folder.name}.stamp"
    stamp.write_text(_stamp(jars_of_group), encoding="utf-8")
    stamp.replace(folder / _STAMP)


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _by_maven(wanted: Iterable[Jar], target: Path) -> None:
    """Have Maven copy exactly these jars into the folder."""
    items = "".join(
        f"<artifactItem><groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId>"
        f"<version>{jar.version}</version></artifactItem>"
        for jar in wanted
    )
    plugin = _PLUGIN.split(":")
    build = (
        f"<build><plugins><plugin><groupId>{plugin[0]}</groupId><artifactId>{plugin[1]}</artifactId>"
        f"<version>{plugin[2]}</version><configuration><outputDirectory>{escape(str(target))}</outputDirectory>"
        f"<artifactItems>{items}</artifactItems></configuration></plugin></plugins></build>"
    )
    _maven(build, f"{_PLUGIN}:copy", target)


def _resolve(coordinates: Iterable[str], aside: Path) -> list[Jar]:
    """The jars that the coordinates stand for, with all that they need."""
    dependencies = ""
    for coordinate in coordinates:
        group, artifact, version = coordinate.split(":")
        excluded = "".join(
            f"<exclusion><groupId>{g}</groupId><artifactId>{a}</artifactId></exclusion>"
            for g, a in (name.split(":") for name in sorted(_EXCLUDED))
        )
        dependencies += (
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
            f"<exclusions>{excluded}</exclusions></dependency>"
        )
    jars_folder_of_maven = aside / "jars"
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={jars_folder_of_maven}", "-Dmdep.useRepositoryLayout=true"]
    _maven(f"<dependencies>{dependencies}</dependencies>", f"{_PLUGIN}:copy-dependencies", aside, *options)
    resolved = []
    for file in sorted(jars_folder_of_maven.rglob("*.jar")):
        *group_parts, artifact, version = file.relative_to(jars_folder_of_maven).parent.parts
        jar = Jar(".".join(group_parts), artifact, version, _sha256(file))
        assert jar.name == file.name, f"{file.name} has a classifier, which the lock cannot say"
        resolved.append(jar)
    return resolved


def _maven(body: str, goal: str, aside: Path, *options: str) -> None:
    pom = aside / "pom.xml"
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>tidegate</groupId><artifactId>jars</artifactId>"
        f"<version>1</version>{body}</project>",
        encoding="utf-8",
    )
    waits = [f"-Daether.connector.connectTimeout={_CONNECT_MS}", f"-Dmaven.wagon.http.connectionTimeout={_CONNECT_MS}"]
    _run(["mvn", "-q", "-B", "-Dstyle.color=never", "-f", str(pom), *waits, *options, goal], "Maven")


def _by_spark(groups: dict[str, list[Jar]], target: Path) -> None:
    """Have Spark's resolver fetch the groups' coordinates, with all that they need, and pick the locked jars."""
    application = target / "nothing.py"
    application.touch()
    for group, jars_of_group in groups.items():
        resolved = target / f"ivy-{group}"
        command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[1]"]
        command += ["--conf", f"spark.jars.ivy={resolved}", "--packages", ",".join(COORDINATES[group])]
        command += ["--exclude-packages", ",".join(sorted(_EXCLUDED)), str(application)]
        # A pom without its jar in Maven's cache, of which there are many, would end the resolver.
        _run(command, "Spark's resolver", SPARK_SUBMIT_OPTS=f"-Duser.home={target}")
        for jar in jars_of_group:
            file = resolved / "jars" / f"{jar.group}_{jar.name}"
            if file.is_file():
                shutil.copyfile(file, target / jar.name)


def _run(command: list[str], who: str, **environment: str) -> None:
    this_python = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{this_python}{os.pathsep}{os.environ.get('PATH', os.defpath)}", **environment}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL, env=env
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{who} did not end within {_TIMEOUT_S} s") from None
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()
        told = [line for line in lines if any(word in line for word in ("ERROR", "not found", "Exception"))]
        raise Unavailable(
            f"{who} failed: {(told or lines or ['no reason told'])[0].removeprefix('[ERROR] ').strip()[:200]}"
        )


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    fetching = commands.add_parser("fetch", help="have the groups' jars in this environment")
    fetching.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(COORDINATES)}; default all")
    path = commands.add_parser("path", help="print a group's jars, separated by commas")
    path.add_argument("group", choices=tuple(COORDINATES))
    commands.add_parser("lock", help="resolve the groups anew into jars.lock")
    arguments = parser.parse_args(words)
    if arguments.command == "path":
        print(",".join(jars(arguments.group)))
        return 0 if jars(arguments.group) else 1
    try:
        if arguments.command == "lock":
            lock_again()
        else:
            groups = arguments.groups or list(locked())
            unknown = sorted(set(groups) - set(COORDINATES))
            if unknown:
                parser.error(f"there is no group {', '.join(unknown)}; there are {', '.join(COORDINATES)}")
            fetch(groups)
    except Unavailable as error:
        print(f"jars of Kafka, Delta and S3: {error}. What needs them is left out", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
