"""The tables that the report reads."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd
import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.store import parquet
from tidegate.store.intervals import interval_labelled
from tidegate.store.warehouse import Warehouse

# A map and whole records, which the page has no use for.
_NOT_SHOWN = {
    ("accuracy", "width_s"),
    ("quarantine", "record"),
    ("quarantine", "source"),
    ("quarantine", "position"),
    ("needed_slack", "event_id"),
}

_WRITTEN_BY = {
    "accuracy": "calibrate",
    "promise_periods": "calibrate",
    "slack_plan": "calibrate",
    "needed_slack": "calibrate",
    "window_plan": "ingest",
    "query_plan": "ingest",
    "stream_rates": "ingest",
    "history_leaves": "sample_history",
    "history_passes": "resample_history",
    "history_accuracy": "resample_history",
    "quality_results": "check_quality",
    "quarantine": "ingest",
    "unknown_columns": "ingest",
    "run_metrics": "every stage",
}
# What a broken file, or one of another version, makes the reader say.
_UNREADABLE = (UserError, pa.ArrowException, ValueError, OSError)


@dataclass
class Tables:
    """The tables that the report reads, each as a DataFrame, empty if nothing has been written.

    Partitions that this version cannot read are left out; ``left_out`` says which, why, and how to mend it.
    """

    warehouse: Warehouse
    _read: dict[str, pd.DataFrame] = field(default_factory=dict)
    _unread: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def __getitem__(self, table: str) -> pd.DataFrame:
        if table not in self._read:
            columns = [c for c in self.warehouse.schema(table).names if (table, c) not in _NOT_SHOWN]
            try:
                rows = self.warehouse.read_arrow(table, columns=columns)
            except _UNREADABLE:
                rows = self._readable(table, columns)
            self._read[table] = rows.to_pandas()
        return self._read[table]

    def of(self, table: str, query_id: str) -> pd.DataFrame:
        """The rows of one query."""
        frame = self[table]
        return frame[frame["query"] == query_id]

    @property
    def left_out(self) -> tuple[str, ...]:
        """A sentence for each fault in the tables read so far, and the command that mends it."""
        damaged = "another version of Tidegate wrote it, or it is damaged. It is left out of this page"
        faults = [(table, why, labels, damaged) for (table, why), labels in self._unread.items()]
        for table in self._absent():
            why = f"is not there, although {_WRITTEN_BY[table]} ran"
            faults.append((table, why, self._ran(table), "an older version of Tidegate ran it"))
        return tuple(self._sentence(*fault) for fault in sorted(faults))

    def _readable(self, table: str, columns: Sequence[str]) -> pa.Table:
        parts = [self.warehouse.read_arrow(table, [], columns)]
        for label in self.warehouse.labels(table):
            try:
                parts.append(self.warehouse.read_arrow(table, [label], columns))
            except _UNREADABLE:
                self._unread.setdefault((table, self._fault(table, label, columns)), []).append(label)
        return pa.concat_tables(parts)

    def _fault(self, table: str, label: str, columns: Sequence[str]) -> str:
        wanted = self.warehouse.schema(table)
        for file in self.warehouse.files(table, [label]):
            try:
                found = parquet.footer(file).schema.to_arrow_schema()
            except _UNREADABLE:
                return "has a file that is not Parquet"
            absent = [c for c in columns if c not in found.names]
            if absent:
                return f"lacks the column{'s' if len(absent) > 1 else ''} {', '.join(absent)}"
            other = [c for c in columns if found.field(c).type != wanted.field(c).type]
            if other:
                return f"has other types in the column{'s' if len(other) > 1 else ''} {', '.join(other)}"
        return "cannot be read"

    def _absent(self) -> list[str]:
        """Tables without any partition, although the stage that writes them to each interval has run."""
        daily = ("history_passes", "history_accuracy")
        # Older versions did not write it, and nothing is missing from the page without it.
        added = ("unknown_columns",)
        absent = [table for table in self._read if not self.warehouse.labels(table)]
        return [t for t in absent if t not in (*daily, *added, "run_metrics") and self._ran(t)]

    def _ran(self, table: str) -> list[str]:
        metrics = self["run_metrics"]
        return sorted(metrics[metrics["app"] == _WRITTEN_BY[table]]["interval"].unique()) if len(metrics) else []

    def _sentence(self, table: str, why: str, labels: Sequence[str], because: str) -> str:
        pipeline, stage = self.warehouse.pipeline, _WRITTEN_BY[table]
        first, last = (interval_labelled(pipeline, label) for label in (labels[0], labels[-1]))
        where = (
            f"in {labels[0]}" if len(labels) == 1 else f"in {len(labels)} intervals from {labels[0]} to {labels[-1]}"
        )
        words = ["tidegate", "run", str(pipeline.folder), "--warehouse", str(self.warehouse.root)]
        words += ["--from", f"{first.start:%Y-%m-%dT%H:%M:%SZ}", "--to", f"{last.end:%Y-%m-%dT%H:%M:%SZ}"]
        words += ["--stage", stage] if table != "run_metrics" else []
        fix = f"To fix it, run {'the interval' if len(labels) == 1 else 'these intervals'} again"
        return f"Table {table} {why} {where}; {because}. {fix}: `{shlex.join(words)}`."


def nothing_in(table: str, whose: str = "") -> str:
    """What is said of a table without rows."""
    return f"Table {table} has no rows {whose + ' ' if whose else ''}yet; {_WRITTEN_BY[table]} writes it."
