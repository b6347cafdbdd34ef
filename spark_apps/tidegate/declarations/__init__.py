"""What users write (pipeline.yml, queries/*.sql), parsed into typed, frozen models."""

from tidegate.declarations.pipeline_folder import load_pipeline

__all__ = ["load_pipeline"]
