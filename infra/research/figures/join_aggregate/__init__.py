"""Figures of papers/02, "Sliding window based method for processing continuous J-A queries" (Wang et al. 2006)."""

from infra.research.figures.join_aggregate.pictures import FIGURES

__all__ = ["FIGURES"]
