"""``tables:`` of pipeline.yml: the reference tables that queries look rows up in."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tidegate.declarations.models import Column, ReferenceTable
from tidegate.declarations.names import NO_KEYS, STORES, identifier_refusal
from tidegate.declarations.positions import Report
from tidegate.declarations.source_section import SourceRead
from tidegate.declarations.stream_section import Clock, StreamSection, one_of
from tidegate.declarations.units import UnreadableError, shown
from tidegate.declarations.yaml_sections import Section

TABLE_KEYS = {
    "description": "What the table is about.",
    "path": "The file, or the folder of a Delta table: a path relative to the pipeline's folder, or a URI of an object "
    "store. Every interval's ingest reads it.",
    "format": "`csv`, `parquet` or `delta`.",
    "csv": "How CSV files are written, as for a stream.",
    "columns": "Name → type, or a column's keys, as for a stream.",
    "key": "The column, or the list of columns, by which rows are looked up. With `valid_from` there may be several "
    "rows of a key, valid one after the other.",
    "valid_from": "The timestamp from which on a row is valid; NULL: since ever. A tuple meets the row that is valid "
    "at its event time.",
    "valid_to": "The timestamp up to, but not including, which it is; NULL: for ever. Without this key, up to the next "
    "row of the key.",
}
TABLE_FORMATS = ("csv", "parquet", "delta")
KEY_TYPES = ("string", "integer", "boolean", "timestamp", "date", "decimal")
STORED_COLUMNS = ("table_version", "in_effect_from")
"""Columns that ``reference_<table>`` puts beside the table's."""


@dataclass
class TableSection(StreamSection):
    """Reads one table; everything wrong goes into the report."""

    noun: str = "table"

    def read_table(self) -> ReferenceTable | None:
        """The table, or None after a mistake."""
        before = len(self.report.mistakes)
        read = self.section.read
        self.source = SourceRead(None)
        self.format = read("format", one_of(*TABLE_FORMATS))
        csv = self._csv()
        self._read_columns(csv)
        key = self._key()
        valid_from, valid_to = self._instant("valid_from"), self._instant("valid_to")
        if valid_to and not valid_from and "valid_from" not in self.section:
            message = f"'valid_to' in table '{self.name}' without 'valid_from'"
            self.report.add(self.section.value_offset("valid_to"), message, "both, or valid_from alone")
        for name in self.columns:
            if name.lower() in STORED_COLUMNS:
                message = f"column '{name}' would clash with the column '{name.lower()}' of reference_{self.name}"
                self.report.add(self.section.value_offset("columns"), message, "another name")
        values: dict[str, Any] = {
            "name": self.name,
            "description": (read("description", str, "", required=False) or "").strip(),
            "path": read("path", self._file),
            "format": self.format,
            "csv": csv,
            "key": key,
            "valid_from": valid_from,
            "valid_to": valid_to,
        }
        if len(self.report.mistakes) > before or any(values[name] is None for name in ("path", "format", "key")):
            return None
        columns = (self._needed(column, key or ()) for column in self.columns.values())
        return ReferenceTable(columns=tuple(columns), **values)

    def _needed(self, column: Column, key: tuple[str, ...]) -> Column:
        return column.model_copy(update={"nullable": False}) if column.name in key else column

    def _key(self) -> tuple[str, ...] | None:
        node = self.section.node("key")
        if node is None:
            return None
        expected = "a declared column, or a list of columns such as [shop, product]"
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        return self._columns_named("key", "table", node, items, KEY_TYPES, expected)

    def _instant(self, key: str) -> str | None:
        """The declared timestamp that bounds a row's validity."""
        return self._role(key, ("timestamp",)) if key in self.section else None

    def _file(self, text: str) -> str:
        """The file, relative to the pipeline's folder."""
        path = text.strip()
        if re.search(r"[*?\[%]", path):
            expected = "a path without wildcards and directives, whose content changes"
            raise UnreadableError(f"{shown(path)} is a pattern: a table is one file", expected)
        scheme, uri, _ = path.partition("://")
        if not uri:
            return os.path.normpath(os.path.join(self.folder, path))
        if scheme not in STORES:
            raise UnreadableError(f"{shown(path)} is no URI that is read", f"a path, or {', '.join(STORES)}://…")
        if scheme == "s3" and "@" in path.split("/")[2]:
            raise UnreadableError(NO_KEYS)
        return path


def read_tables(
    report: Report, node: yaml.Node, folder: Path, streams: tuple[str, ...]
) -> dict[str, ReferenceTable | None]:
    """Name → the table, None after a mistake. ``streams``: names that tables may not have."""
    tables: dict[str, ReferenceTable | None] = {}
    for name, offset, value in Section(report, node, "tables").items():
        problem = identifier_refusal(name, "table")
        if problem is None and name in streams:
            problem = f"there is a stream '{name}' already", "another name"
        if problem:
            report.add(offset, *problem)
        section = Section(report, value, f"table '{name}'", TABLE_KEYS)
        reader = TableSection(report, name, section, folder, Clock(None, None, None))
        table = reader.read_table() if isinstance(value, yaml.MappingNode) else None
        if name not in streams:
            tables[name] = None if problem else table
    return tables
