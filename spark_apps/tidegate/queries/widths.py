"""How much of its range a query can miss, from the effective-dated rows of ``error_width_plan``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.declarations.models import Pipeline, to_us
from tidegate.store.intervals import Interval
from tidegate.store.warehouse import Warehouse


@dataclass(frozen=True)
class SlackWidths:
    """Rows (effective from, (query, stream), seconds) of the learnt slack widths, oldest first."""

    pipeline: Pipeline
    rows: tuple[tuple[int, tuple[str, str], float], ...]

    @classmethod
    def load(cls, warehouse: Warehouse, intervals: Sequence[Interval]) -> SlackWidths:
        """The slack widths in effect at the starts of the intervals."""
        known = [label for label in warehouse.labels("error_width_plan") if label < intervals[-1].label]
        before = [label for label in known if label < intervals[0].label][-1:]
        table = warehouse.read_arrow("error_width_plan", [*before, *(x for x in known if x >= intervals[0].label)])
        rows = sorted(
            (to_us(row["effective_from"]), (row["query"], row["stream"]), row["slack_width_s"])
            for row in table.to_pylist()
        )
        return cls(warehouse.pipeline, tuple(rows))

    def slack_widths_s(self, at_us: int) -> dict[tuple[str, str], float]:
        """(query, stream) → slack width in effect at an instant; those not learnt yet are missing."""
        return {key: width_s for effective_us, key, width_s in self.rows if effective_us <= at_us}
