"""Slices of work, and who runs them: Spark's tasks, or this process. Knows no stage."""

from tidegate.engine.slices import Done, Slice, run, run_as_tasks

__all__ = ["Done", "Slice", "run", "run_as_tasks"]
