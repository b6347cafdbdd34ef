"""The tables that the report reads."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from tidegate.hosts.warehouse import Warehouse

# A map and whole records, which the page has no use for.
_NOT_SHOWN = {("accuracy", "width_s"), ("quarantine", "record")}

_WRITTEN_BY = {
    "accuracy": "calibrate",
    "slack_plan": "calibrate",
    "window_plan": "ingest",
    "stream_rates": "ingest",
    "history_leaves": "sample_history",
    "history_accuracy": "resample_history",
    "quality_results": "check_quality",
    "quarantine": "ingest",
    "run_metrics": "every stage",
}


@dataclass
class Tables:
    """The tables that the report reads, each as a DataFrame, empty if nothing has been written."""

    warehouse: Warehouse
    _read: dict[str, pd.DataFrame] = field(default_factory=dict)

    def __getitem__(self, table: str) -> pd.DataFrame:
        if table not in self._read:
            columns = [c for c in self.warehouse.schema(table).names if (table, c) not in _NOT_SHOWN]
            self._read[table] = self.warehouse.read_arrow(table, columns=columns).to_pandas()
        return self._read[table]

    def of(self, table: str, query_id: str) -> pd.DataFrame:
        """The rows of one query."""
        frame = self[table]
        return frame[frame["query"] == query_id]


def nothing_in(table: str, whose: str = "") -> str:
    """What is said of a table without rows."""
    return f"Table {table} has no rows {whose + ' ' if whose else ''}yet; {_WRITTEN_BY[table]} writes it."
