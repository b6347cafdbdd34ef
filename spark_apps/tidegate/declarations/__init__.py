"""What users write (pipeline.yml, queries/*.sql), parsed into typed, frozen models."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.declarations.pipeline_folder import load_pipeline

__all__ = ["load_pipeline"]


def __getattr__(name: str) -> Any:
    """``load_pipeline`` when it is asked for: Airflow, which reads the schedule alone, shall not wait for sqlglot."""
    if name != "load_pipeline":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from tidegate.declarations.pipeline_folder import load_pipeline

    return load_pipeline
