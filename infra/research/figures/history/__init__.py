"""Figures of papers/03, on storing and aggregating historical streams (Zhang, Li, Wang and Guo)."""

from infra.research.figures.history.pictures import FIGURES

__all__ = ["FIGURES"]
