"""Slices of work, and who runs them: Spark's tasks, or this process. Knows no stage."""

from tidegate.engine.slices import Done, Measured, Memory, Slice, run, run_as_tasks, tagged

__all__ = ["Done", "Measured", "Memory", "Slice", "run", "run_as_tasks", "tagged"]
