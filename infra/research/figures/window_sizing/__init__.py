"""Figures of papers/01, "Dynamic adjustment of sliding-window sizes" (Li & Zhang 2004)."""

from infra.research.figures.running import Figure
from infra.research.figures.window_sizing import held_bytes
from infra.research.figures.window_sizing.pictures import RANDOM_FIGURES

FIGURES = (*RANDOM_FIGURES, Figure("held_bytes", held_bytes.draw))
