"""dbt's own parser, without Spark."""

from __future__ import annotations

from pathlib import Path

from dbt.cli.main import dbtRunner
from dbt.contracts.graph.manifest import Manifest


def parse(project: Path, scratch: Path) -> Manifest:
    """The manifest of a project; any warning or deprecation is an error."""
    flags = ["--target-path", str(scratch / "target"), "--log-path", str(scratch / "logs"), "--log-level", "none"]
    paths = ["--project-dir", str(project), "--profiles-dir", str(project), "--no-partial-parse"]
    parsed = dbtRunner().invoke(["--warn-error", "parse", *paths, *flags])
    assert parsed.success, parsed.exception
    assert isinstance(parsed.result, Manifest)
    return parsed.result
