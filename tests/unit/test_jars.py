"""Jars beside Spark's own: pinned, fetched once, and found by sessions."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest
from infra.spark import jars as fetching

from tidegate.engine.jars import COORDINATES, jars, jars_settings

CONTENT = b"classes"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
# Serves every artefact of a pom with the same content, and counts how often it was called.
MAVEN = """#!/bin/sh
echo called >> "$0.calls"
test -e "$0.down" && { echo "[ERROR] no route to the repository" >&2; exit 1; }
while [ "$1" != -f ]; do shift; done
folder=$(sed -n 's/.*<outputDirectory>\\(.*\\)<.outputDirectory>.*/\\1/p' "$2")
printf classes > "$folder/one-1.0.jar"
printf classes > "$folder/two_2.13-2.0.jar"
"""


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven with a repository of its own, a lock, and an empty folder of jars."""
    command = tmp_path / "bin" / "mvn"
    command.parent.mkdir()
    command.write_text(MAVEN)
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TIDEGATE_JARS", str(tmp_path / "jars"))
    lock(tmp_path, monkeypatch, SHA256)
    return command


def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sha256: str) -> None:
    """A lock of two groups that share a jar."""
    file = tmp_path / "jars.lock"
    file.write_text(
        f"# a lock\n[kafka]\na.b:one:1.0:{SHA256}\nc:two_2.13:2.0:{sha256}\n[delta]\na.b:one:1.0:{SHA256}\n"
    )
    monkeypatch.setattr(fetching, "LOCK", file)


def test_jars_are_fetched_once(maven: Path) -> None:
    assert jars("kafka") == []
    for _ in range(2):
        fetching.fetch(["kafka", "delta"])
    assert [Path(jar).name for jar in jars("kafka")] == ["one-1.0.jar", "two_2.13-2.0.jar"]
    assert [Path(jar).name for jar in jars("delta")] == ["one-1.0.jar"]
    assert maven.with_name("mvn.calls").read_text().count("called") == 1


def test_a_jar_that_went_is_fetched_and_one_of_another_version_goes(maven: Path) -> None:
    fetching.fetch(["kafka"])
    gone = Path(jars("kafka")[0])
    gone.rename(gone.with_name("one-0.9.jar"))
    fetching.fetch(["kafka"])
    assert [Path(jar).name for jar in jars("kafka")] == ["one-1.0.jar", "two_2.13-2.0.jar"]


def test_a_jar_with_another_hash_is_refused(
    maven: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock(tmp_path, monkeypatch, "0" * 64)
    assert fetching.main(["fetch", "kafka"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "two_2.13-2.0.jar was served with the hash" in said
    assert not any(jar.endswith("two_2.13-2.0.jar") for jar in jars("kafka"))


def test_a_repository_that_is_away_is_one_line(maven: Path, capsys: pytest.CaptureFixture[str]) -> None:
    maven.with_name("mvn.down").touch()
    assert fetching.main(["fetch"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "no route to the repository" in said


def test_a_session_takes_jars_that_are_there_and_coordinates_of_others(maven: Path) -> None:
    fetching.fetch(["kafka"])
    settings = jars_settings(["kafka", "delta"])
    assert settings["spark.jars"] == ",".join(jars("kafka"))
    assert settings["spark.jars.packages"] == ",".join(COORDINATES["delta"])
    assert jars_settings(["kafka"]).keys() == {"spark.jars"} and jars_settings([]) == {}


def test_the_lock_has_every_group_and_its_coordinates() -> None:
    groups = fetching.locked()
    assert list(groups) == list(COORDINATES)
    for group, coordinates in COORDINATES.items():
        lines = {f"{jar.group}:{jar.artifact}:{jar.version}" for jar in groups[group]}
        assert lines >= set(coordinates)
        assert all(len(jar.sha256) == 64 for jar in groups[group])
