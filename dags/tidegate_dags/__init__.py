"""Airflow DAGs out of declared pipelines."""

from tidegate_dags.builder import build_dag

__all__ = ["build_dag"]
