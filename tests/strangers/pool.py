"""Whether intervals about the past hold the truth as often as they say, judged over many cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import binom

PROMISED = 0.95
CHANCE = 0.001


@dataclass
class Pool:
    """Counts of questions and of intervals that held the truth.

    If intervals hold with probability at least 0.95, fewer than `least` of n hold with a probability of at most
    `CHANCE` (binomial: cases are independent, and of one case's questions on one stream only the first counts).
    """

    asked: int = 0
    held: int = 0

    def add(self, covered: Sequence[bool]) -> None:
        """Count one case."""
        self.asked += len(covered)
        self.held += sum(covered)

    @property
    def least(self) -> int:
        """The least number of intervals that must hold."""
        return int(binom.ppf(CHANCE, self.asked, PROMISED)) if self.asked else 0

    @property
    def dishonest(self) -> bool:
        """Whether fewer intervals hold than chance allows."""
        return self.held < self.least

    def __str__(self) -> str:
        return f"{self.held} of {self.asked} intervals about the past hold the truth, at least {self.least} must"
