"""Slices of work, and who runs them: Spark's tasks, or this process. Knows no stage."""

from tidegate.engine.slices import Slice, run

__all__ = ["Slice", "run"]
