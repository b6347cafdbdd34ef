"""Figures of papers/04, on continuous top-k queries over out-of-order streams (Wu and Fang)."""

from infra.research.figures.top_k.pictures import FIGURES

__all__ = ["FIGURES"]
